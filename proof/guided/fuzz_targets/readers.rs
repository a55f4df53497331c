//! One reader of what strangers write, with inputs that libFuzzer finds by what they reach.
//!
//! `POSTHORN_READER` names the target; `proof/guided/run` sets it.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use posthorn_proof::fuzz::{TARGETS, Target};

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("POSTHORN_READER").unwrap_or_default();
    let target = TARGETS.iter().find(|target| target.name == name);
    target.unwrap_or_else(|| panic!("POSTHORN_READER names no target: {name:?}"))
});

fuzz_target!(|input: &[u8]| {
    (TARGET.run)(input);
});
