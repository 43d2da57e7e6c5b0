//! Short texts with a form of their own: subjects, cursors, moments, names, levels of isolation, attributes of cells.

use std::fmt::Display;
use std::str::FromStr;

use schemas::Subject;
use schemas::attributes::AttributeName;
use schemas::bus::BusSubject;
use schemas::isolation::Isolation;
use schemas::names::{CellId, ClientName, Domain, ProcessGuid, ServiceId, TaskGuid};
use schemas::query::{AsOf, Cursor};

/// What has one spelling is spelt as it was read; what may be spelt otherwise is read again as the same.
///
/// # Panics
/// Where that doesn't hold.
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
    read_again::<TaskGuid>(text);
    read_again::<Isolation>(text);
    read_again::<AttributeName>(text);
    read_again::<AsOf>(text);
}

fn read_again<T: FromStr + Display + PartialEq + std::fmt::Debug>(text: &str) {
    let Ok(it) = text.parse::<T>() else { return };
    let again = it.to_string().parse::<T>().ok();
    assert_eq!(again, Some(it), "from {text:?}");
}
