//! How large what is written and said becomes, and how many things it holds: the limits of `schemas/src/limits.rs`, as
//! numbers of its own.

use schemas::Entry;
use schemas::codec::{Form, encode};
use serde::Serialize;

use super::{Checkers, Notes};
use crate::coverage::Situation;
use crate::nodes::NodeEffect;
use crate::promises::{Broken, Promise as P};

/// Bytes of an entry, of a decision, and of a message on the bus: 512 KiB, 256 KiB, 1 MiB.
const ENTRY_BYTES: usize = 524_288;
const DECISION_BYTES: usize = 262_144;
pub(crate) const MESSAGE_BYTES: usize = 1_048_576;
/// Things in one message between services.
const BATCH: usize = 500;
/// What holds fewer things is measured only as it is sent.
const FEW: usize = 8;

/// An entry and its decisions.
pub(super) fn of_entry(entry: &Entry, bytes: usize, notes: &mut Notes) {
    notes.must(P::SizesHold, bytes <= ENTRY_BYTES, || format!("an entry of {bytes} bytes"));
    // A decision is a part of its entry.
    if bytes <= DECISION_BYTES {
        return;
    }
    notes.saw(Situation::LargeEntry);
    for decision in &entry.decisions {
        let bytes = encode(Form::Json, decision).len();
        let name = &decision.aggregate;
        notes.must(P::SizesHold, bytes <= DECISION_BYTES, || {
            format!("a decision of {bytes} bytes about {name:?}")
        });
    }
}

/// A message as it is sent.
pub(crate) fn of_message(bytes: usize) -> Option<Broken> {
    let how = || format!("a message of {bytes} bytes");
    (bytes > MESSAGE_BYTES).then(|| Broken { promise: P::SizesHold, how: how() })
}

impl Checkers {
    /// Somebody says many things in one message, which has to be small enough in its larger form.
    pub(super) fn says_many(&mut self, effect: &NodeEffect) -> Option<Broken> {
        use {auctioneer::Effect as A, bbs::Effect as B, rep::Effect as R};
        let (count, bytes) = match effect {
            NodeEffect::Bbs(B::Stop(_, stop) | B::Cancel(_, stop)) => of(stop.containers.len(), stop),
            NodeEffect::Auctioneer(A::Perform { perform, .. }) => of(perform.work.len(), perform),
            NodeEffect::Auctioneer(A::Outcomes { outcomes, .. }) => of(outcomes.outcomes.len(), outcomes),
            NodeEffect::Rep(R::Report { reports, .. }) => of(reports.reports.len(), reports),
            NodeEffect::Rep(R::AskRecords { records, .. }) => of(records.work.len(), records),
            NodeEffect::Bbs(_) | NodeEffect::Auctioneer(_) | NodeEffect::Rep(_) => return None,
        };
        if count == BATCH {
            self.saw(Situation::FullMessage);
        }
        if bytes > MESSAGE_BYTES / 2 - MESSAGE_BYTES / 8 {
            self.saw(Situation::LargeMessage);
        }
        let how = || format!("a message of {count} things and {bytes} bytes");
        let wrong = count > BATCH || bytes > MESSAGE_BYTES;
        wrong.then(|| Broken { promise: P::SizesHold, how: how() })
    }
}

/// How many things, and how many bytes as JSON.
fn of<T: Serialize>(count: usize, message: &T) -> (usize, usize) {
    (count, if count < FEW { 0 } else { encode(Form::Json, message).len() })
}
