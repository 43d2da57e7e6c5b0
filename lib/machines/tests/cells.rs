//! Tests of cells.

use machines::cell::{self, HeartbeatState};
use schemas::Timestamp;
use schemas::names::DecisionId;
use schemas::stamp::Stamp;
use uuid::Uuid;

#[test]
fn cell_with_changed_attributes_appears_again() {
    let seen = |rack| {
        let attributes = fixtures::attributes(&[("rack", rack)]);
        let presence = schemas::cell::Presence { attributes, ..fixtures::presence(1) };
        HeartbeatState { presence, evacuating: false, unhealthy: None }
    };
    let decision = DecisionId(Uuid::from_u128(1));
    let stamp = Stamp::root(decision, Timestamp(1));
    let events = cell::decide_heartbeat(None, &seen("r1"));
    let known = cell::fold(None, &events, &stamp, 1).unwrap();
    assert_eq!(cell::decide_heartbeat(Some(&known), &seen("r1")), []);
    assert_eq!(
        cell::decide_heartbeat(Some(&known), &seen("r2")),
        [schemas::cell::Event::Appeared(seen("r2").presence)]
    );
}
