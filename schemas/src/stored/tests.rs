//! Tests that old event versions can be read. The tests use `crashed.v0`, an invented version that exists
//! only in tests.

use serde_json::{Value, json};

use crate::checksum::crc32c;
use crate::entry::{Entry, Event};
use crate::{actual, names};

const CRASHED_ENTRY: &str = include_str!("../../golden/actual.crashed.v1.json");

/// Returns a golden entry with `event` instead of its own event.
fn entry_with(event: &Value) -> Vec<u8> {
    let mut entry: Value = serde_json::from_str(CRASHED_ENTRY).unwrap();
    entry["decisions"][0]["events"] = json!([event]);
    entry.as_object_mut().unwrap().remove("crc32c");
    let text = entry.to_string();
    let body = text.strip_prefix('{').unwrap();
    format!("{{\"crc32c\":\"{:08x}\",{body}", crc32c(body.as_bytes())).into_bytes()
}

#[test]
fn old_event_version_is_upcast_and_written_as_newest() {
    let guid = "00000000-0000-0000-0000-0000000000a1";
    let old = json!({"actual": {"crashed.v0": {"index": 1, "instance_guid": guid, "cell_id": "c1", "status": 3,
        "crash_count": 4, "definition_id": "web-v1"}}});
    let read = Entry::decode(&entry_with(&old)).unwrap();
    let [Event::Actual(actual::Event::Crashed { place, by, reason, exit_status, crash_count, .. })] =
        &*read.decisions[0].events
    else {
        panic!("{read:?}")
    };
    assert_eq!((place.index, *crash_count, place.definition_id.as_str()), (1, 4, "web-v1"));
    assert_eq!(by.instance_guid, guid.parse::<names::InstanceGuid>().unwrap());
    assert_eq!((by.cell_id.as_str(), reason.as_str(), *exit_status), ("c1", "exited with status 3", Some(3)));
    assert_eq!(read.decisions[0].events[0].type_name(), "actual.crashed.v1");
    let written = String::from_utf8(read.encode()).unwrap();
    assert!(written.contains("crashed.v1") && !written.contains("crashed.v0"), "{written}");
    assert_eq!(Entry::decode(written.as_bytes()).unwrap(), read, "the written entry decodes equal");
}

/// Proves that replacing the event of the golden entry does not affect the remaining fields of the entry.
#[test]
fn golden_entry_with_same_event_decodes_equal() {
    let golden: Value = serde_json::from_str(CRASHED_ENTRY).unwrap();
    let event = golden["decisions"][0]["events"][0].clone();
    let read = Entry::decode(&entry_with(&event)).unwrap();
    assert_eq!(read, Entry::decode(CRASHED_ENTRY.as_bytes()).unwrap());
}
