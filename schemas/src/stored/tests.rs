//! Test of the conversion from an old event version. `crashed.v0` is invented and exists only here.

use serde::Deserialize;
use serde_json::{Value, json};

use super::conversion::Stored;
use super::parts::Instance;
use super::process::{Actual, Restart};
use crate::actual;
use crate::entry::{Entry, Event};
use crate::names::{CellId, DefinitionId, InstanceGuid};

const CRASHED_ENTRY: &[u8] = include_bytes!("../../golden/actual.crashed.v1.json");

/// Events of instances, with an old version.
#[derive(Deserialize)]
enum ActualWithOldVersion {
    #[serde(rename = "crashed.v0")]
    CrashedV0 {
        index: u32,
        instance_guid: InstanceGuid,
        cell_id: CellId,
        status: i32,
        crash_count: u32,
        definition_id: DefinitionId,
    },
    #[serde(untagged)]
    Known(Actual),
}

impl ActualWithOldVersion {
    fn read(self) -> actual::Event {
        match self {
            Self::CrashedV0 { index, instance_guid, cell_id, status, crash_count, definition_id } => {
                let event = Actual::CrashedV1 {
                    index,
                    definition_id,
                    by: Instance { instance_guid, cell_id },
                    reason: format!("exited with status {status}"),
                    exit_status: Some(status),
                    crash_count,
                    restart: Restart::Immediate,
                    attempts: None,
                };
                event.read()
            }
            Self::Known(event) => event.read(),
        }
    }
}

fn upcast(event: Value) -> actual::Event {
    serde_json::from_value::<ActualWithOldVersion>(event).unwrap().read()
}

#[test]
fn old_event_version_is_upcast_and_written_as_newest() {
    let guid = "00000000-0000-0000-0000-0000000000a1";
    let event =
        upcast(json!({"crashed.v0": {"index": 1, "instance_guid": guid, "cell_id": "c1", "status": 3,
        "crash_count": 4, "definition_id": "web-v1"}}));
    let actual::Event::Crashed { place, by, reason, exit_status, crash_count, .. } = &event else {
        panic!("{event:?}")
    };
    assert_eq!((place.index, *crash_count, place.definition_id.as_str()), (1, 4, "web-v1"));
    assert_eq!((by.instance_guid.to_string(), by.cell_id.as_str()), (guid.to_owned(), "c1"));
    assert_eq!((reason.as_str(), *exit_status), ("exited with status 3", Some(3)));

    let mut entry = Entry::decode(CRASHED_ENTRY).unwrap();
    entry.decisions[0].events = vec![Event::Actual(event)];
    assert_eq!(entry.decisions[0].events[0].type_name(), "actual.crashed.v1");
    assert_eq!(Entry::decode(&entry.encode()).unwrap(), entry, "the written entry decodes equal");
}

#[test]
fn event_of_known_version_is_read_beside_an_old_version() {
    let golden: Value = serde_json::from_slice(CRASHED_ENTRY).unwrap();
    let event = upcast(golden["decisions"][0]["events"][0]["actual"].clone());
    assert_eq!(Entry::decode(CRASHED_ENTRY).unwrap().decisions[0].events, [Event::Actual(event)]);
}
