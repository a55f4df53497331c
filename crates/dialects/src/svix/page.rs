//! Pages of lists: how many, from where, in which direction.
//!
//! An iterator is opaque to clients. One that begins with `-` goes back: it names the first item of the page that it came with,
//! and leads to the page before that, in the same order.

use posthorn_domain::Timestamp;
use posthorn_store::{Listing, Order, Page, Place};
use serde_json::Value;

use super::body::read_time;
use super::failure::{Failure, VALUE};

/// Items of a page when nobody says how many, and the most.
const LIMIT_DEFAULT: usize = 50;
const LIMIT_MAX: usize = 250;

/// The parameters of a request. Those that nobody knows are passed over.
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn read(text: Option<&str>) -> Self {
        let text = text.unwrap_or_default();
        Self(url::form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    /// The last of a name that is not empty.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let mut own = self.0.iter().rev().filter(|(key, value)| key == name && !value.is_empty());
        own.next().map(|(_, value)| value.as_str())
    }

    /// All values: joined with commas, repeated, or with brackets behind the name.
    pub(super) fn list(&self, name: &str) -> Vec<String> {
        let own = |key: &str| {
            let rest = key.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('['))
        };
        let values = self.0.iter().filter(|(key, _)| own(key)).map(|(_, value)| value);
        let split = values.flat_map(|value| value.split(','));
        split.filter(|value| !value.is_empty()).map(str::to_owned).collect()
    }

    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, Failure> {
        match self.text(name) {
            None => Ok(None),
            Some("true" | "1") => Ok(Some(true)),
            Some("false" | "0") => Ok(Some(false)),
            Some(_) => Err(unreadable(name)),
        }
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Failure> {
        let text = self.text(name);
        text.map(|text| text.parse().map_err(|_| unreadable(name))).transpose()
    }

    pub(super) fn time(&self, name: &str) -> Result<Option<Timestamp>, Failure> {
        let text = self.text(name);
        text.map(|text| read_time(text).ok_or_else(|| unreadable(name))).transpose()
    }
}

fn unreadable(name: &str) -> Failure {
    Failure::bad_request("generic_error", format!("The query parameter {name} cannot be read."))
}

/// Which part of a list is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Paging {
    pub(super) limit: usize,
    /// Where the page before ended, or the one after began.
    pub(super) iterator: Option<String>,
    /// Whether the page before is asked for.
    pub(super) back: bool,
    /// Whether the list is in ascending order.
    pub(super) ascending: bool,
}

impl Paging {
    /// `ascending` is the order of the list unless it lets clients choose.
    pub(super) fn read(query: &Query, ascending: bool) -> Result<Self, Failure> {
        let limit = query.number("limit")?.unwrap_or(LIMIT_DEFAULT as u64);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        if !(1..=LIMIT_MAX).contains(&limit) {
            let problem = format!("must be from 1 to {LIMIT_MAX}");
            return Err(Failure::at(&["query", "limit"], problem, VALUE));
        }
        let iterator = query.text("iterator");
        let back = iterator.is_some_and(|text| text.starts_with('-'));
        let iterator = iterator.map(|text| text.strip_prefix('-').unwrap_or(text).to_owned());
        Ok(Self { limit, iterator, back, ascending })
    }

    /// The same for a list whose order may be chosen.
    pub(super) fn ordered(query: &Query, ascending: bool) -> Result<Self, Failure> {
        let ascending = match query.text("order") {
            None => ascending,
            Some("ascending") => true,
            Some("descending") => false,
            Some(_) => return Err(unreadable("order")),
        };
        Self::read(query, ascending)
    }

    /// The part of a list that is kept in memory. `all` is in the order of the list; `key` says where an item stands, and is
    /// what iterators are made of.
    pub(super) fn cut<T>(&self, all: Vec<T>, key: impl Fn(&T) -> String) -> (Vec<T>, bool) {
        let mut all = all;
        if let Some(iterator) = &self.iterator {
            let before =
                |own: &String| if self.ascending { own < iterator } else { own > iterator };
            match self.back {
                true => all.retain(|item| before(&key(item))),
                false => all.retain(|item| key(item) != *iterator && !before(&key(item))),
            }
        }
        let more = all.len() > self.limit;
        if self.back {
            all.drain(..all.len().saturating_sub(self.limit));
        } else {
            all.truncate(self.limit);
        }
        (all, !more)
    }

    /// How a store is asked for the part. Stores know two directions and no more.
    pub(super) fn listing(&self) -> Listing {
        let order = if self.ascending { Order::OldestFirst } else { Order::NewestFirst };
        let order = if self.back { order.reversed() } else { order };
        let after = self.iterator.as_deref().and_then(read_place);
        Listing { order, after, limit: self.limit }
    }

    /// What a store gave, in the order of the list, with the iterators of its ends.
    pub(super) fn arrange<T>(&self, mut page: Page<T>) -> Arranged<T> {
        // Where a search stopped early there is no item, and it goes on from there.
        let (mut first, mut last) = (page.first, page.last);
        if self.back {
            page.items.reverse();
            std::mem::swap(&mut first, &mut last);
        }
        Arranged {
            items: page.items,
            done: !page.more,
            first: first.map(write_place),
            last: last.map(write_place),
        }
    }
}

/// A page as it is shown.
pub(super) struct Arranged<T> {
    pub(super) items: Vec<T>,
    pub(super) done: bool,
    pub(super) first: Option<String>,
    pub(super) last: Option<String>,
}

impl<T> Arranged<T> {
    /// The page with its items shown, which may have become fewer.
    pub(super) fn show(self, data: Vec<Value>) -> Value {
        list(data, self.done, self.first, self.last)
    }
}

/// A list as clients know it. All members are always there.
pub(super) fn list(
    data: Vec<Value>,
    done: bool,
    first: Option<String>,
    last: Option<String>,
) -> Value {
    let back = first.map(|first| Value::String(format!("-{first}")));
    let members = [
        ("data", Value::Array(data)),
        ("done", Value::Bool(done)),
        ("iterator", last.map_or(Value::Null, Value::String)),
        ("prevIterator", back.unwrap_or(Value::Null)),
    ];
    Value::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn write_place(place: Place) -> String {
    format!("it_{:032x}", place.0)
}

/// An iterator of nothing leads to nothing that would be wrong: the list from its beginning.
fn read_place(text: &str) -> Option<Place> {
    u128::from_str_radix(text.strip_prefix("it_")?, 16).ok().map(Place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paging(query: &str, ascending: bool) -> Paging {
        Paging::ordered(&Query::read(Some(query)), ascending).unwrap()
    }

    #[test]
    fn a_list_is_walked_forwards_and_back_in_both_orders() {
        let up: Vec<u32> = (0..10).collect();
        let down: Vec<u32> = (0..10).rev().collect();
        for (all, ascending) in [(up, true), (down, false)] {
            let key = |number: &u32| format!("k{number}");
            let first = paging("limit=4", ascending);
            let (page, done) = first.cut(all.clone(), key);
            assert_eq!((page.as_slice(), done), (&all[..4], false));
            let (page, done) =
                paging(&format!("limit=4&iterator=k{}", all[3]), ascending).cut(all.clone(), key);
            assert_eq!((page.as_slice(), done), (&all[4..8], false));
            let (page, done) =
                paging(&format!("limit=4&iterator=k{}", all[7]), ascending).cut(all.clone(), key);
            assert_eq!((page.as_slice(), done), (&all[8..], true));
            let (page, done) =
                paging(&format!("limit=4&iterator=-k{}", all[8]), ascending).cut(all.clone(), key);
            assert_eq!((page.as_slice(), done), (&all[4..8], false));
            let (page, done) =
                paging(&format!("limit=4&iterator=-k{}", all[4]), ascending).cut(all.clone(), key);
            assert_eq!((page.as_slice(), done), (&all[..4], true));
        }
    }

    #[test]
    fn limits_are_bounded_and_unknown_parameters_passed_over() {
        assert_eq!(paging("with_content=false&strange=1", true).limit, 50);
        for bad in ["limit=0", "limit=251"] {
            let wrong = Paging::read(&Query::read(Some(bad)), true);
            assert!(matches!(wrong, Err(Failure::Invalid(_))), "{bad}");
        }
        for bad in ["limit=x", "order=up"] {
            let wrong = Paging::ordered(&Query::read(Some(bad)), true);
            assert!(matches!(wrong, Err(Failure::Refused { .. })), "{bad}");
        }
    }

    #[test]
    fn lists_in_a_query_have_three_forms() {
        for text in ["t=a,b", "t=a&t=b", "t[]=a&t[]=b", "t[0]=a&t[1]=b"] {
            assert_eq!(Query::read(Some(text)).list("t"), ["a", "b"], "{text}");
        }
        assert!(Query::read(Some("tx=a")).list("t").is_empty());
    }

    #[test]
    fn places_come_back() {
        let place = Place(77 << 90 | 5);
        assert_eq!(read_place(&write_place(place)), Some(place));
        assert_eq!(read_place("evt_1"), None);
    }
}
