//! Fuzzer of the format in the environment variable `FORMAT`.
#![no_main]

use std::env;
use std::sync::LazyLock;

use fuzz::{Check, FORMATS};
use libfuzzer_sys::fuzz_target;

static CHECK: LazyLock<Check> = LazyLock::new(|| {
    let asked = env::var("FORMAT").unwrap_or_default();
    let names = FORMATS.map(|(name, _)| name).join(", ");
    let found = FORMATS.into_iter().find(|(name, _)| *name == asked);
    found.unwrap_or_else(|| panic!("invalid FORMAT {asked:?}: expected one of {names}")).1
});

fuzz_target!(|bytes: &[u8]| CHECK(bytes));
