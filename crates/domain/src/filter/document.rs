//! A payload as filters see it: read once, and each place of it looked up once, whoever asks.

use std::cell::RefCell;
use std::collections::HashMap;

use serde_json::Value;

use super::condition::Pointer;
use super::cost::Meter;

/// A JSON document with the places that were asked for.
pub(super) struct Document<'c> {
    pub(super) meter: &'c Meter,
    root: &'c Value,
    found: RefCell<HashMap<&'c str, Option<&'c Value>>>,
}

impl<'c> Document<'c> {
    pub(super) fn new(root: &'c Value, meter: &'c Meter) -> Self {
        Self { meter, root, found: RefCell::default() }
    }

    /// The value at a place.
    pub(super) fn find(&self, path: &'c Pointer) -> Option<&'c Value> {
        let mut found = self.found.borrow_mut();
        *found.entry(path.as_str()).or_insert_with(|| path.find(self.root))
    }
}
