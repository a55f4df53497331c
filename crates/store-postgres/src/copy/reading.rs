//! Reading everything, as of one moment.

use async_trait::async_trait;
use deadpool_postgres::Object;
use posthorn_store::Result;
use posthorn_store::copy::{BITE_BYTES, BITE_ROWS, Kind, Reading, Row, Sheet, Unit, Value};
use tokio_postgres::Row as SqlRow;

use super::events::{self, Next};
use super::sheets;
use crate::codec::Uid;
use crate::failure::Outcome;
use crate::session::{batch, begin_snapshot};

const READING: &str = "read the store to copy it";

/// A snapshot on a connection of its own, which is closed with it.
pub struct CopyReading {
    client: Option<Object>,
    sheet: Option<&'static Sheet>,
    /// Events whose turn is next.
    next: Vec<Next>,
}

impl Drop for CopyReading {
    fn drop(&mut self) {
        // It is in the middle of a transaction.
        drop(self.client.take().map(Object::take));
    }
}

impl CopyReading {
    pub(super) async fn start(client: Object) -> Outcome<Self> {
        begin_snapshot(&client).await?;
        Ok(Self { client: Some(client), sheet: None, next: Vec::new() })
    }

    fn client(&self) -> &Object {
        self.client.as_ref().expect("there until it is dropped")
    }

    async fn counted(&self, sheet: &Sheet) -> Outcome<u64> {
        let tables: &[&str] = match sheet.name {
            "event" => &["event", "delivery_live", "delivery_done", "attempt"],
            "store" => return Ok(1),
            name => &[name],
        };
        let mut rows = 0;
        for table in tables {
            let sql = format!("select count(*) from {table}");
            rows += self.client().query_one(&sql, &[]).await?.try_get::<_, i64>(0)?.unsigned_abs();
        }
        Ok(rows)
    }

    async fn begin(&mut self, sheet: &'static Sheet) -> Outcome<()> {
        if self.sheet.replace(sheet).is_some() {
            batch(self.client(), "close walk").await?;
        }
        self.next.clear();
        let select = sheets::select(sheet);
        // Whole tables are read, which other statements must not do; see `Options::session`.
        let text = format!(
            "set local enable_seqscan = on; set local enable_hashjoin = on; \
             declare walk no scroll cursor for {select}; \
             set local enable_seqscan = off; set local enable_hashjoin = off"
        );
        batch(self.client(), &text).await
    }

    async fn fetch(&self) -> Outcome<Vec<SqlRow>> {
        Ok(self.client().query(&format!("fetch {BITE_ROWS} from walk"), &[]).await?)
    }

    async fn bite(&mut self) -> Outcome<Vec<Unit>> {
        let Some(sheet) = self.sheet else { return Ok(Vec::new()) };
        if sheet.name != "event" {
            let rows = self.fetch().await?;
            return rows.iter().map(|row| Ok(row_of(row, sheet)?.into())).collect();
        }
        if self.next.is_empty() {
            self.next = self.fetch().await?.iter().map(Next::of).collect::<Outcome<_>>()?;
            // Taken from the end.
            self.next.reverse();
        }
        let (mut taken, mut rows, mut bytes) = (Vec::new(), 0, 0);
        while rows < BITE_ROWS && bytes < BITE_BYTES {
            let Some(next) = self.next.pop() else { break };
            rows += 1 + 2 * next.deliveries;
            bytes += next.bytes;
            taken.push(next);
        }
        events::fetch(self.client(), &taken).await
    }
}

#[async_trait]
impl Reading for CopyReading {
    async fn count(&mut self, sheet: &'static Sheet) -> Result<u64> {
        self.counted(sheet).await.map_err(|failure| failure.into_error(READING))
    }

    async fn open(&mut self, sheet: &'static Sheet) -> Result<()> {
        self.begin(sheet).await.map_err(|failure| failure.into_error(READING))
    }

    async fn next(&mut self) -> Result<Vec<Unit>> {
        self.bite().await.map_err(|failure| failure.into_error(READING))
    }
}

/// The values of a row, whose columns are those of the sheet.
pub(super) fn row_of(row: &SqlRow, sheet: &Sheet) -> Outcome<Row> {
    let mut values = Vec::with_capacity(sheet.columns.len());
    for (place, column) in sheet.columns.iter().enumerate() {
        let value = match column.kind {
            Kind::Int => row.try_get::<_, Option<i64>>(place)?.map(Value::Int),
            Kind::Flag => {
                row.try_get::<_, Option<bool>>(place)?.map(|flag| Value::Int(flag.into()))
            }
            Kind::Text => row.try_get::<_, Option<&str>>(place)?.map(Value::text),
            Kind::Bytes => row
                .try_get::<_, Option<&[u8]>>(place)?
                .map(|bytes| Value::Bytes(bytes.to_vec().into())),
            Kind::Id => {
                row.try_get::<_, Option<Uid>>(place)?.map(|id| Value::Bytes(id.0.to_vec().into()))
            }
        };
        values.push(value.unwrap_or(Value::Null));
    }
    Ok(values)
}
