//! Messages of services to each other, in both forms.

use std::fmt::Debug;

use schemas::codec::{Form, SCHEMA, decode, encode};
use schemas::exec::{Talk, Talked, Talking};
use schemas::message::{
    Alive, Answer, Attach, Beat, Dismiss, Done, Enter, Envelope, Heartbeat, Lead, Leave, OfCell, Outcomes,
    Perform, Performed, RepOrder, Reported, Reports, Reshard, SetAside, Stop, SwitchPreemption,
};
use schemas::published::{ListSchemas, ShowSchema};
use schemas::query::{Filter, Logs, ReadEvents, ReadLogs, Records, RecordsAnswer, Show};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Check;

/// One for each kind of message.
const KINDS: &[Check] = &[
    travels::<Alive>,
    travels::<Answer<Done>>,
    travels::<Answer<Heartbeat>>,
    travels::<Answer<Performed>>,
    travels::<Answer<Reported>>,
    travels::<Attach>,
    travels::<Beat>,
    travels::<Dismiss>,
    travels::<Envelope>,
    travels::<Filter>,
    travels::<Heartbeat>,
    travels::<Lead>,
    travels::<Leave>,
    travels::<ListSchemas>,
    travels::<Logs>,
    travels::<OfCell>,
    travels::<Outcomes>,
    travels::<Perform>,
    travels::<ReadEvents>,
    travels::<ReadLogs>,
    travels::<Records>,
    travels::<RecordsAnswer>,
    travels::<RepOrder>,
    travels::<Reports>,
    travels::<SetAside>,
    travels::<Show>,
    travels::<ShowSchema>,
    travels::<Stop>,
    travels::<SwitchPreemption>,
    travels::<Reshard>,
    travels::<Enter>,
    travels::<Talk>,
    travels::<Talked>,
    travels::<Talking>,
];

/// The first byte says which kind of message the others are, the second whether they are JSON or, if it is odd, the body of
/// a message in postcard. What is read is written and read again as the same, in both forms.
///
/// # Panics
/// Where that doesn't hold.
pub fn check(bytes: &[u8]) {
    let [kind, form, body @ ..] = bytes else { return };
    let check = KINDS[usize::from(*kind) % KINDS.len()];
    if form % 2 == 0 { check(body) } else { check(&in_postcard(body)) }
}

/// A message of the schema that this program speaks.
fn in_postcard(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes();
    [b"MUS1".as_slice(), &SCHEMA.to_le_bytes(), &length, body].concat()
}

/// What is read is written and read again as the same, in both forms.
pub(crate) fn travels<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) {
    let Ok((message, _)) = decode::<T>(bytes) else { return };
    for form in [Form::Json, Form::Postcard] {
        let (again, read) = decode::<T>(&encode(form, &message)).expect("what was written is read");
        assert_eq!((&again, read), (&message, form));
    }
}
