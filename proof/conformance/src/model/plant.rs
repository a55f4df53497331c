//! Bugs planted in the model store: the simulator turns one on at a time and must notice.

use std::cell::Cell;

thread_local! {
    static ACTIVE: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Plants the bug of this name in this thread, or none.
pub fn set(name: Option<&'static str>) {
    ACTIVE.set(name);
}

pub(super) fn active(name: &str) -> bool {
    ACTIVE.get() == Some(name)
}
