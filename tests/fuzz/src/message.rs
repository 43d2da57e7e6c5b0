//! Messages between services, in JSON and in postcard.

use std::fmt::Debug;

use schemas::codec::{Form, SCHEMA_VERSION, decode, encode};
use schemas::exec::{ExecIo, ExecIoReply, ForwardedExecIo};
use schemas::message::{
    Ack, Answer, Attach, CellCommand, Dismiss, Envelope, Heartbeat, Lead, LeaderHeartbeat, Leave, Outcomes,
    Perform, PerformReply, QuarantineEntry, RepOrder, Reports, ReportsReply, Reshard, ServiceStatus,
    StartExec, Stop, SwitchPreemption,
};
use schemas::published::{ListSchemas, ShowSchema};
use schemas::query::{Filter, Logs, ReadEvents, ReadLogs, Records, RecordsAnswer, Show};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Check;

/// Checks: one function for each kind of message.
const KINDS: &[Check] = &[
    check_round_trip::<ServiceStatus>,
    check_round_trip::<Answer<Ack>>,
    check_round_trip::<Answer<Heartbeat>>,
    check_round_trip::<Answer<PerformReply>>,
    check_round_trip::<Answer<ReportsReply>>,
    check_round_trip::<Attach>,
    check_round_trip::<LeaderHeartbeat>,
    check_round_trip::<Dismiss>,
    check_round_trip::<Envelope>,
    check_round_trip::<Filter>,
    check_round_trip::<Heartbeat>,
    check_round_trip::<Lead>,
    check_round_trip::<Leave>,
    check_round_trip::<ListSchemas>,
    check_round_trip::<Logs>,
    check_round_trip::<CellCommand>,
    check_round_trip::<Outcomes>,
    check_round_trip::<Perform>,
    check_round_trip::<ReadEvents>,
    check_round_trip::<ReadLogs>,
    check_round_trip::<Records>,
    check_round_trip::<RecordsAnswer>,
    check_round_trip::<RepOrder>,
    check_round_trip::<Reports>,
    check_round_trip::<QuarantineEntry>,
    check_round_trip::<Show>,
    check_round_trip::<ShowSchema>,
    check_round_trip::<Stop>,
    check_round_trip::<SwitchPreemption>,
    check_round_trip::<Reshard>,
    check_round_trip::<StartExec>,
    check_round_trip::<ExecIo>,
    check_round_trip::<ExecIoReply>,
    check_round_trip::<ForwardedExecIo>,
];

/// Reads the first byte as the kind of message. The second byte selects the form of the remaining bytes: JSON
/// if the byte is even, and the body of a postcard message if it is odd. Checks that encoding and decoding in
/// either form does not change the message.
///
/// # Panics
/// Panics if the message changes.
pub fn check(bytes: &[u8]) {
    let [kind, form, body @ ..] = bytes else { return };
    let check = KINDS[usize::from(*kind) % KINDS.len()];
    if form % 2 == 0 { check(body) } else { check(&postcard_message(body)) }
}

/// Returns a postcard message with the schema of this program.
fn postcard_message(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes();
    [b"MUS1".as_slice(), &SCHEMA_VERSION.to_le_bytes(), &length, body].concat()
}

/// Checks that encoding and decoding in either form does not change a message.
pub(crate) fn check_round_trip<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) {
    let Ok((message, _)) = decode::<T>(bytes) else { return };
    for form in [Form::Json, Form::Postcard] {
        let (again, read) = decode::<T>(&encode(form, &message)).expect("an encoded message can be decoded");
        assert_eq!((&again, read), (&message, form));
    }
}
