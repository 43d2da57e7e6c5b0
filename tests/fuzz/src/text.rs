//! Short texts that each have a separate syntax: subjects, cursors, moments, names, isolation levels,
//! attributes of cells.

use std::fmt::Display;
use std::str::FromStr;

use schemas::Subject;
use schemas::attributes::AttributeName;
use schemas::bus::BusSubject;
use schemas::isolation::Isolation;
use schemas::names::{CellId, ClientName, Domain, ProcessGuid, ServiceId, TaskGuid};
use schemas::query::{AsOf, Cursor};

/// Checks that a value with only one spelling is printed in the form in which it was read. If a value has
/// several spellings, checks that printing and parsing do not change the value.
///
/// # Panics
/// Panics if a check fails.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let one_spelling: [Option<String>; 8] = [
        Subject::parse(text).map(|it| it.to_string()),
        BusSubject::parse(text).ok().map(|it| it.to_string()),
        Cursor::parse(text).ok().map(|it| it.to_string()),
        Domain::new(text).ok().map(|it| it.to_string()),
        CellId::new(text).ok().map(|it| it.to_string()),
        ClientName::new(text).ok().map(|it| it.to_string()),
        ServiceId::new(text).ok().map(|it| it.to_string()),
        ProcessGuid::new(text).ok().map(|it| it.to_string()),
    ];
    for spelt in one_spelling.into_iter().flatten() {
        assert_eq!(spelt, text);
    }
    check_round_trip::<TaskGuid>(text);
    check_round_trip::<Isolation>(text);
    check_round_trip::<AttributeName>(text);
    check_round_trip::<AsOf>(text);
}

fn check_round_trip<T: FromStr + Display + PartialEq + std::fmt::Debug>(text: &str) {
    let Ok(it) = text.parse::<T>() else { return };
    let again = it.to_string().parse::<T>().ok();
    assert_eq!(again, Some(it), "from {text:?}");
}
