//! Kept answers: claimed by one statement, judged by the database's clock.
//!
//! # Theory of operation
//! A claim writes the row or takes it over; whoever comes at the same moment waits for that at the primary key, and then looks at
//! what was written. Where nothing could be taken, a second statement reads what is kept. When the row went or was released
//! in between, the answer is that somebody is at it: the caller asks again.

use std::sync::Arc;

use bytes::Bytes;
use posthorn_domain::Timestamp;
use posthorn_store::{AnswerClaim, AnswerClaimed, AnswerKey, KeptAnswer, Result};

use crate::codec::{Reader, Uid, limit};
use crate::failure::Corrupt;
use crate::session::{Operation, Param, Session, begin, commit, execute, query};
use crate::{lease, sql};

const CLAIM: Operation = Operation::write("claim_answer", "claim a request");
const KEEP: Operation = Operation::write("keep_answer", "keep an answer");
const RELEASE: Operation = Operation::write("release_answer", "release a request");
const PRUNE: Operation = Operation::write("prune_answers", "remove expired answers");

pub(crate) async fn claim(session: &Session, claim: AnswerClaim) -> Result<AnswerClaimed> {
    let claim = Arc::new(claim);
    session
        .run(CLAIM, move |client| {
            let claim = Arc::clone(&claim);
            Box::pin(async move {
                let params: [Param<'_>; 7] = [
                    &claim.key.as_slice(),
                    &claim.seed.0.as_millis(),
                    &Uid(claim.seed.1.to_be_bytes()),
                    &Uid(claim.holder.to_be_bytes()),
                    &lease::millis(claim.lease.to_duration()),
                    &claim.expires_at.as_millis(),
                    &claim.now.as_millis(),
                ];
                begin(client).await?;
                let taken = query(client, sql::ANSWER_CLAIM, &params).await?;
                let claimed = match taken.first() {
                    Some(row) => {
                        let Uid(chance) = row.try_get("seed")?;
                        let at = Timestamp::from_millis(row.try_get("seed_at")?);
                        AnswerClaimed::Yours { seed: (at, u128::from_be_bytes(chance)) }
                    }
                    None => {
                        let key = claim.key.as_slice();
                        let kept = query(client, sql::ANSWER_FIND, &[&key]).await?;
                        let kept = kept.first().map(answer_of).transpose()?;
                        // An answer that is given again must be as safe as when it was given first.
                        query(client, sql::SETTLE, &[]).await?;
                        kept.map_or(AnswerClaimed::Busy, AnswerClaimed::Kept)
                    }
                };
                commit(client).await?;
                Ok(claimed)
            })
        })
        .await
}

fn answer_of(row: &tokio_postgres::Row) -> Result<KeptAnswer, Corrupt> {
    let reader = Reader::new(row, "kept_answer", "key");
    let status = reader.small("status")?;
    let body: Vec<u8> = reader.get("body")?;
    KeptAnswer::new(status, Bytes::from(body))
        .ok_or_else(|| reader.corrupt("body", "it is too long"))
}

pub(crate) async fn keep(session: &Session, key: AnswerKey, answer: KeptAnswer) -> Result<bool> {
    session
        .run(KEEP, move |client| {
            let answer = answer.clone();
            Box::pin(async move {
                let (key, body) = (key.as_slice(), answer.body().as_ref());
                let params: [Param<'_>; 3] = [&key, &i32::from(answer.status()), &body];
                begin(client).await?;
                let kept = execute(client, sql::ANSWER_KEEP, &params).await? > 0;
                commit(client).await?;
                Ok(kept)
            })
        })
        .await
}

pub(crate) async fn release(session: &Session, key: AnswerKey, holder: u128) -> Result<()> {
    session
        .run(RELEASE, move |client| {
            Box::pin(async move {
                let params: [Param<'_>; 2] = [&key.as_slice(), &Uid(holder.to_be_bytes())];
                begin(client).await?;
                execute(client, sql::ANSWER_RELEASE, &params).await?;
                commit(client).await
            })
        })
        .await
}

pub(crate) async fn prune(session: &Session, before: Timestamp, most: usize) -> Result<usize> {
    session
        .run(PRUNE, move |client| {
            Box::pin(async move {
                let params: [Param<'_>; 2] = [&before.as_millis(), &limit(most)];
                begin(client).await?;
                let removed = execute(client, sql::PRUNE_ANSWERS, &params).await?;
                commit(client).await?;
                Ok(usize::try_from(removed).unwrap_or(usize::MAX))
            })
        })
        .await
}
