//! Simulation that continues a recorded log. The real BBS, auctioneer and reps resume at the end of the
//! recording. They run in virtual time on an in-memory bus and journal without faults. State that no change
//! affects stays the same.
//!
//! The machines fold the recorded entries like any starting process. Ids, versions and epochs therefore match
//! the record. State outside the log is assumed to agree with it: each present cell has a rep, and each
//! record that names a container has a container in that state. Containers start as fast as the log recorded
//! and never fail on their own. Owners of tasks are assumed to receive every completion callback. The
//! simulation reads and writes no external state.
//!
//! | module | contents |
//! |---|---|
//! | `tape` | log: recorded entries and entries appended by a run |
//! | `times` | recorded durations of starts and tasks |
//! | `cells` | reps, and containers that match the records |
//! | `stage`, `wires` | machines, the event loop, and execution of effects |
//! | [`change`] | syntax of changes |
//! | `act` | execution of changes |
//! | [`decide`] | single decisions |
//! | [`what_if`] | comparison of a run with and without changes |

mod act;
mod cells;
pub mod change;
mod compare;
pub mod decide;
mod stage;
mod tape;
mod times;
pub mod what_if;
mod wires;
pub mod words;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bbs::Bbs;
use projections::World;
use projections::cluster_log::{ClusterLog, QuarantinedPositions};
use schemas::cluster::{self, Role};
use schemas::entry::Event;
use schemas::limits::DEFAULT_HISTORY_SHOWN;
use schemas::names::{IdGenerator, ServiceId};
use schemas::subject::{DEFAULT_SHARDS, Position, Subject};
use schemas::{Entry, Timestamp};

pub use self::change::Change;
pub use self::tape::Message;
use self::tape::Tape;
pub use self::times::{Start, Times, USUAL_START};
pub use self::what_if::WhatIf;

/// Default additional silence before a BBS accepts the loss of most cells. Until then, it assumes a
/// network fault. Equals the default of a BBS.
pub const MASS_LOSS_WAIT: Duration = Duration::from_secs(60);

/// Folded log up to a position. Any number of runs can start from it.
#[derive(Clone, Debug)]
pub struct Recording {
    tape: Tape,
    bbs: Bbs,
    auctioneer: ServiceId,
    times: Times,
    time: Timestamp,
}

/// Reason that a simulation cannot continue from a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// The log ends before the requested position.
    Beyond {
        /// Requested position.
        position: Position,
        /// Last position of the log.
        end: Position,
    },
    /// A machine stopped at input that it cannot process.
    Halted(String),
    /// The run exceeded its step limit at this time without coming to rest.
    Restless(Timestamp),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Beyond { position, end } => {
                write!(f, "position {position} is beyond {end}, where the log ends")
            }
            Self::Halted(why) => write!(f, "the log can't be folded: {why}"),
            Self::Restless(at) => write!(f, "the run comes to no rest at {at}"),
        }
    }
}

impl std::error::Error for Unusable {}

impl Recording {
    /// Folds a log up to a position. `None` means the whole log. `mass_loss_wait` is the time that the BBS
    /// waits before it accepts the simultaneous loss of most cells.
    ///
    /// # Errors
    /// Returns the reason that a simulation cannot continue from the log.
    pub fn read(
        messages: impl Into<Arc<[Message]>>,
        until: Option<Position>,
        mass_loss_wait: Duration,
    ) -> Result<Self, Unusable> {
        let messages: Arc<[Message]> = messages.into();
        let end = Position(messages.len() as u64);
        let until = until.unwrap_or(end);
        if until > end {
            return Err(Unusable::Beyond { position: until, end });
        }
        let length = usize::try_from(until.0).unwrap_or(usize::MAX);
        let leader = |role, name: &str| {
            let elected = elected(&messages[..length], role);
            elected.unwrap_or_else(|| ServiceId::new(name).expect("a name"))
        };
        let settings = bbs::Config {
            id: leader(Role::Bbs, "bbs"),
            founding_shards: Some(shards(&messages).unwrap_or(DEFAULT_SHARDS)),
            presence: bbs::presence::Config { mass_loss_wait, ..bbs::presence::Config::default() },
            durability: "simulated".into(),
            history_limit: DEFAULT_HISTORY_SHOWN,
            program: schemas::message::Program::default(),
            slice_len: ::bbs::SLICE_LEN,
            bytes_in_flight: schemas::limits::BYTES_IN_FLIGHT,
            may_lead: true,
        };
        let mut bbs = Bbs::new(settings, IdGenerator::new(until.0)).with_quarantined(quarantines(&messages));
        let (mut times, mut time) = (Times::default(), Timestamp(0));
        for (at, message) in messages[..length].iter().enumerate() {
            let position = Position(at as u64 + 1);
            let Some(entry) = fold(&mut bbs, position, message)? else { continue };
            entry.decisions.iter().for_each(|decision| times.note(decision));
            time = entry.decisions.last().map_or(time, |last| time.max(last.at));
        }
        if length == 0 {
            // Time of an empty recording: the first entry of the log.
            let first = messages.iter().find_map(|message| Entry::decode(&message.bytes).ok());
            time = first.and_then(|entry| Some(entry.decisions.first()?.at)).unwrap_or(time);
        }
        let auctioneer = leader(Role::Auctioneer, "auctioneer");
        Ok(Self { tape: Tape::new(messages, length), bbs, auctioneer, times, time })
    }

    /// Returns the World at the end of the recording.
    #[must_use]
    pub const fn world(&self) -> &World {
        self.bbs.world()
    }

    /// Returns the last recorded position.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.tape.end()
    }

    /// Returns the time of the last recorded decision.
    #[must_use]
    pub const fn time(&self) -> Timestamp {
        self.time
    }

    /// Returns the recorded durations.
    #[must_use]
    pub const fn times(&self) -> &Times {
        &self.times
    }
}

/// Folds the message at a position. Returns `None` if the message is not a valid entry or is quarantined.
fn fold(bbs: &mut Bbs, position: Position, message: &Message) -> Result<Option<Entry>, Unusable> {
    let recorded = bbs::Input::Delivered {
        position,
        subject: message.subject.clone(),
        entry: message.entry,
        bytes: message.bytes.clone(),
    };
    let mut counts = true;
    for effect in bbs.step(Timestamp(0), recorded) {
        match effect {
            bbs::Effect::Halt(why) => return Err(Unusable::Halted(why)),
            bbs::Effect::Quarantined(_) => counts = false,
            bbs::Effect::Append { .. }
            | bbs::Effect::ReadLast(_)
            | bbs::Effect::Reply { .. }
            | bbs::Effect::AnswerQuery { .. }
            | bbs::Effect::Stop(..)
            | bbs::Effect::Cancel(..)
            | bbs::Effect::Enter(..)
            | bbs::Effect::Probe(..)
            | bbs::Effect::Evacuate(..)
            | bbs::Effect::Uncordon(..)
            | bbs::Effect::Dismiss(..)
            | bbs::Effect::LeaderHeartbeat(_)
            | bbs::Effect::Publish { .. }
            | bbs::Effect::Call { .. }
            | bbs::Effect::Leading(_)
            | bbs::Effect::Subscribed(_)
            | bbs::Effect::Warn(_) => {}
        }
    }
    Ok(Entry::decode(&message.bytes).ok().filter(|_| counts))
}

fn of_cluster(messages: &[Message]) -> impl DoubleEndedIterator<Item = (Position, &Message)> {
    let subject = Subject::Cluster.to_string();
    let messages = messages.iter().enumerate();
    messages
        .filter(move |(_, message)| message.subject == subject)
        .map(|(at, message)| (Position(at as u64 + 1), message))
}

/// Returns the positions that operators quarantined, from the whole log.
fn quarantines(messages: &[Message]) -> QuarantinedPositions {
    let mut cluster = ClusterLog::default();
    for (position, message) in of_cluster(messages) {
        cluster.read(position, &message.bytes);
    }
    cluster.quarantined().clone()
}

/// Returns the shard count of the founded cluster, from the whole log.
fn shards(messages: &[Message]) -> Option<u16> {
    let founded = |event: &Event| {
        let cluster::Event::Founded { shards, .. } = event.as_cluster()? else { return None };
        Some(*shards)
    };
    let entries = of_cluster(messages).filter_map(|(_, message)| Entry::decode(&message.bytes).ok());
    let mut decisions = entries.flat_map(|entry| entry.decisions);
    decisions.find_map(|decision| decision.events.iter().find_map(founded))
}

/// Returns the service that was elected last in a role. A machine with this name leads at once, so that a run
/// contains only decisions caused by changes.
fn elected(messages: &[Message], role: Role) -> Option<ServiceId> {
    let of_entry = |entry: Entry| {
        let events = entry.decisions.into_iter().flat_map(|decision| decision.events);
        let elected = events.filter_map(|event| {
            let Event::Cluster(cluster::Event::Elected { role: of, id, .. }) = event else { return None };
            (of == role).then_some(id)
        });
        elected.last()
    };
    let entries = of_cluster(messages).rev().filter_map(|(_, message)| Entry::decode(&message.bytes).ok());
    entries.filter_map(of_entry).next()
}
