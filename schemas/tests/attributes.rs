//! Tests of cell attributes: names, values, limits, and reserved names.

use std::collections::BTreeMap;

use schemas::attributes::{AttributeName, Attributes, BadAttribute};
use schemas::limits;

fn named(count: usize, value: &str) -> BTreeMap<AttributeName, String> {
    let name = |number: usize| AttributeName::new(&format!("a{number}")).unwrap();
    (0..count).map(|number| (name(number), value.to_owned())).collect()
}

#[test]
fn attribute_name_with_bad_character_or_length_is_refused() {
    for name in ["rack", "os.name", "unique.cell_id", "A-b_9", &"x".repeat(64)] {
        assert_eq!(AttributeName::new(name).unwrap().as_str(), name);
    }
    for name in ["", ".", "rack.", ".rack", "a b", "ä", "a=b", &"x".repeat(65)] {
        assert!(matches!(AttributeName::new(name), Err(BadAttribute::Name(_))), "{name}");
    }
}

#[test]
fn attributes_beyond_count_or_size_limit_are_refused() {
    assert!(Attributes::new(named(limits::CELL_ATTRIBUTES, "x")).is_ok());
    let many = limits::CELL_ATTRIBUTES + 1;
    assert_eq!(Attributes::new(named(many, "x")), Err(BadAttribute::TooMany(many)));
    let longest = "x".repeat(limits::ATTRIBUTE_VALUE_BYTES);
    assert!(Attributes::new(named(1, &longest)).is_ok());
    assert!(matches!(Attributes::new(named(1, &format!("{longest}x"))), Err(BadAttribute::Value(_))));
    assert!(matches!(Attributes::new(named(64, &longest)), Err(BadAttribute::TooLarge(_))));
    for bad in ["", "a\nb", "\u{7}"] {
        assert!(matches!(Attributes::new(named(1, bad)), Err(BadAttribute::Value(_))), "{bad:?}");
    }
}

#[test]
fn reserved_attribute_cannot_be_set_and_shows_recorded_value() {
    let presence = fixtures::presence(1);
    let id = fixtures::cell_id("c1");
    let offer = presence.offer(&id);
    for (name, value) in [("stack", "linux"), ("zone", "z1"), ("unique.cell_id", "c1")] {
        let one = BTreeMap::from([(AttributeName::new(name).unwrap(), "other".to_owned())]);
        assert_eq!(Attributes::new(one), Err(BadAttribute::Reserved(name.to_owned())));
        assert_eq!(offer.attribute(name), Some(value));
    }
}

#[test]
fn attributes_in_message_are_validated() {
    let read = |text: &str| serde_json::from_str::<Attributes>(text).map_err(|error| error.to_string());
    assert_eq!(read(r#"{"rack": "r1"}"#).unwrap().get("rack"), Some("r1"));
    assert!(read(r#"{"zone": "z1"}"#).unwrap_err().contains("cannot be set"));
    assert!(read(r#"{"ra ck": "r1"}"#).unwrap_err().contains("not a valid attribute name"));
}
