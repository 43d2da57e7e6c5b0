//! The machine: inputs, effects, and the one `step` that leads from one to the other.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use election::Election;
use projections::cluster_log::Positions;
use projections::{Due, Observed, Picture, Reader, World};
use schemas::container::Epoch;
use schemas::message::{
    Attach, Beat, Dismiss, Done, Envelope, Heartbeat, Lead, Leave, Outcomes, Report, Reported, Reports, Stop,
};
use schemas::names::{CellId, ClientName, Domain, EntryId, Ids, ServiceId, TaskGuid};
use schemas::query::{NoEntry, Records, RecordsAnswer};
use schemas::spec::ClientCommand;
use schemas::subject::{Position, Subject};
use schemas::{Refusal, Steady, Timestamp, cell};

use crate::callbacks::{Callbacks, Called};
use crate::confirm::Confirmations;
use crate::presence::{self, Presence};
use crate::shard::{Shard, Verdict};

/// How often the stop of an instance that is still there is said again.
pub const STOP_AGAIN: Duration = Duration::from_secs(5);
/// How long a query waits for the position that it asks for.
pub const QUERY_PATIENCE: Duration = Duration::from_secs(5);
/// Most commands that wait in all shards together; more are refused as `Overloaded`.
pub const QUEUE: usize = 100_000;

/// What a BBS is told at its start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its own id.
    pub id: ServiceId,
    /// The shards of a cluster that it founds.
    pub shards: u16,
    /// How cells are watched.
    pub presence: presence::Settings,
    /// Whether what is acknowledged survives a power cut, as people read it.
    pub durability: String,
}

/// What happens to a BBS.
#[derive(Debug)]
pub enum Input {
    /// The follower delivered an entry.
    Recorded {
        /// Where it stands.
        position: Position,
        /// On which subject.
        subject: String,
        /// Its id, if the message carries one.
        entry: Option<EntryId>,
        /// As it is stored.
        bytes: Bytes,
    },
    /// The follower has reached the journal's end for the first time.
    CaughtUp,
    /// The journal did not take an entry, or did not say.
    NotAppended {
        /// On which subject.
        subject: Subject,
        /// Which entry.
        entry: EntryId,
        /// Why.
        why: NotAppended,
    },
    /// The subject's last entry, read from the journal's leader.
    Last {
        /// Which subject.
        subject: Subject,
        /// Where its last entry stands, and its id. An error: it could not be read.
        last: Result<Option<(Position, Option<EntryId>)>, String>,
    },
    /// Somebody asks for a change.
    Asked {
        /// Names the asker in the answer.
        asker: u64,
        /// What is asked.
        ask: Ask,
    },
    /// Somebody asks what is true.
    Queried {
        /// Names the asker in the answer.
        asker: u64,
        /// The position that the answer must stand at.
        at_least: Option<Position>,
        /// What is asked.
        query: Query,
    },
    /// A cell lives.
    Heartbeat(Heartbeat),
    /// What a probe found.
    Probed {
        /// Which cell.
        cell: CellId,
        /// Its answer; none: silence.
        answer: Option<Heartbeat>,
    },
    /// A BBS beats.
    Beat(Beat),
    /// What came of a completion callback.
    Called {
        /// Of which task.
        task: TaskGuid,
        /// In which life.
        epoch: Epoch,
        /// What came of it.
        called: Called,
    },
    /// The bus is lost: nobody can be heard, so nobody is silent.
    Disconnected,
    /// The bus is back.
    Reconnected,
    /// Nothing else waits: decide what is gathered.
    Turn,
    /// The alarm went off.
    Tick,
}

/// Why an entry was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAppended {
    /// The subject moved on.
    Conflict,
    /// Nobody knows.
    Unknown,
    /// The journal will never take it.
    Refused(String),
}

/// What can be asked of a BBS that changes something.
#[derive(Clone, Debug)]
pub enum Ask {
    /// By a client of a domain.
    Client {
        /// Its domain, proved by the subject.
        domain: Domain,
        /// Its name, proved by the subject.
        client: ClientName,
        /// What is around the command.
        envelope: Envelope,
        /// The command.
        command: ClientCommand,
    },
    /// By a rep.
    Cell {
        /// Its cell, proved by the subject.
        cell: CellId,
        /// What it reports.
        reports: Reports,
    },
    /// By an auctioneer.
    Outcomes(Outcomes),
    /// By a candidate for auctioneer.
    Lead(Lead),
    /// By a rep that starts: whether it may speak for its cell.
    Attach {
        /// Its cell, proved by the subject.
        cell: CellId,
        /// Who it is.
        attach: Attach,
    },
    /// By a rep whose evacuation is over.
    Leave {
        /// Its cell, proved by the subject.
        cell: CellId,
        /// Who it is.
        leave: Leave,
    },
    /// By an operator of the cluster.
    Operator {
        /// Its name, proved by the subject.
        client: ClientName,
        /// What is around the command.
        envelope: Envelope,
        /// The cell.
        cell: CellId,
        /// The command.
        command: cell::Command,
    },
}

/// What can be asked of a BBS that changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// Rows.
    Rows(projections::Query),
    /// The records that a rep needs.
    Records(Records),
}

/// What is to be done.
#[derive(Debug)]
pub enum Effect {
    /// Append this to the journal.
    Append {
        /// On which subject.
        subject: Subject,
        /// The position that its last entry must have.
        expected: Position,
        /// The entry's id.
        entry: EntryId,
        /// The entry.
        bytes: Bytes,
    },
    /// Read the subject's last entry from the journal's leader.
    ReadLast(Subject),
    /// Answer somebody.
    Answer {
        /// Whom.
        asker: u64,
        /// What.
        reply: Reply,
    },
    /// Answer a query from this picture, with [`crate::answer`].
    Show {
        /// Who asked.
        asker: u64,
        /// What.
        query: Query,
        /// The World as it is now.
        picture: Picture,
        /// What the log doesn't hold.
        observed: Box<Observed>,
    },
    /// Tell a rep to stop containers.
    Stop(CellId, Stop),
    /// Tell a rep to cancel tasks.
    Cancel(CellId, Stop),
    /// Ask a rep whether it is there, in this term.
    Probe(CellId, u64),
    /// Tell a rep to evacuate its cell, in this term. What it answers is a sign of life.
    Evacuate(CellId, u64),
    /// Tell a rep that its cell is not to be evacuated after all, in this term. What it answers is a sign of life.
    Uncordon(CellId, u64),
    /// Tell a rep that another one speaks for the cell.
    Dismiss(CellId, Dismiss),
    /// Beat.
    Beat(Beat),
    /// Post a completed task to its owner.
    Call {
        /// Which task.
        task: TaskGuid,
        /// In which life.
        epoch: Epoch,
        /// Where to.
        url: String,
        /// What, as JSON.
        body: String,
    },
    /// It leads from now on, or no longer: listen to commands, or don't.
    Leading(bool),
    /// What the journal holds at a position does not count.
    SetAside(NoEntry),
    /// Something that people should know.
    Warn(String),
    /// It can't go on: the journal holds what this program doesn't understand. Nothing is lost. Once an operator has set
    /// that aside, a new machine that knows it reads the journal from its beginning.
    Halt(String),
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// To a client, an auctioneer or a candidate.
    Done(Result<Done, Refusal>),
    /// To a rep.
    Reported(Result<Reported, Refusal>),
    /// To a query, as JSON text of the answer.
    Rows(Result<String, Refusal>),
    /// To a rep's query.
    Records(RecordsAnswer),
}

/// A message with many parts, while its parts are being decided.
#[derive(Debug)]
pub(crate) struct Gather {
    pub(crate) cell: Option<CellId>,
    pub(crate) reports: Vec<Report>,
    pub(crate) verdicts: Vec<Option<Verdict>>,
    pub(crate) left: usize,
}

/// The BBS.
#[derive(Debug)]
pub struct Bbs {
    pub(crate) settings: Settings,
    pub(crate) ids: Ids,
    clock: Steady,
    /// The time of this step: what waits for a length of time is measured by it.
    pub(crate) now: Timestamp,
    /// What the clock shows in this step: what is decided carries it, and timers of the log are held against it. What
    /// waits for a length of time is measured by [`Steady`] time instead: every `now` here.
    pub(crate) shown: Timestamp,
    pub(crate) reader: Reader,
    pub(crate) world: World,
    pub(crate) caught_up: bool,
    /// Whether it met what it doesn't understand: then it does nothing any more.
    pub(crate) halted: bool,
    pub(crate) leading: bool,
    pub(crate) election: Election,
    /// When the follower told something last, or nothing was in flight.
    pub(crate) moved_at: Timestamp,
    pub(crate) presence: Presence,
    pub(crate) callbacks: Callbacks,
    pub(crate) shards: BTreeMap<Subject, Shard>,
    pub(crate) ready: BTreeSet<Subject>,
    pub(crate) waiting: usize,
    pub(crate) confirmations: Confirmations,
    /// Whether the journal stands further than the follower has told since.
    pub(crate) behind: bool,
    pub(crate) gathers: BTreeMap<u64, Gather>,
    /// Commands of each client that wait for an answer.
    pub(crate) asking: BTreeMap<(Domain, ClientName), usize>,
    pub(crate) queries: Vec<(Timestamp, u64, Position, Query)>,
    /// The last picture: of one position there is one.
    pub(crate) picture: Option<Picture>,
    /// What the BBS looks at by itself: what waits to be looked at, and what was and is not in the log yet.
    pub(crate) own: BTreeSet<Due>,
    pub(crate) flying: BTreeSet<Due>,
    pub(crate) converge_at: Timestamp,
    pub(crate) stop_at: Timestamp,
    pub(crate) retry_at: BTreeMap<Subject, Timestamp>,
}

impl Bbs {
    /// A BBS that knows nothing yet: tell it every entry of the journal, then [`Input::CaughtUp`].
    #[must_use]
    pub fn new(settings: Settings, ids: Ids) -> Self {
        Self {
            election: Election::new(settings.id.clone()),
            presence: Presence::new(settings.presence),
            settings,
            ids,
            clock: Steady::default(),
            now: Timestamp(0),
            shown: Timestamp(0),
            reader: Reader::default(),
            world: World::new(),
            caught_up: false,
            halted: false,
            leading: false,
            moved_at: Timestamp(0),
            callbacks: Callbacks::default(),
            shards: BTreeMap::new(),
            ready: BTreeSet::new(),
            waiting: 0,
            confirmations: Confirmations::default(),
            behind: false,
            gathers: BTreeMap::new(),
            asking: BTreeMap::new(),
            queries: vec![],
            picture: None,
            own: BTreeSet::new(),
            flying: BTreeSet::new(),
            converge_at: Timestamp(0),
            stop_at: Timestamp(0),
            retry_at: BTreeMap::new(),
        }
    }

    /// The same, that knows which positions operators set aside, wherever in the journal that is recorded.
    #[must_use]
    pub fn knowing(self, set_aside: Positions) -> Self {
        Self { reader: Reader::knowing(set_aside), ..self }
    }

    /// What is true, as far as the follower told.
    #[must_use]
    pub const fn world(&self) -> &World {
        &self.world
    }

    /// Whether it decides.
    #[must_use]
    pub const fn leads(&self) -> bool {
        self.leading
    }

    /// When it wants a [`Input::Tick`].
    #[must_use]
    pub fn alarm(&self) -> Option<Timestamp> {
        if !self.caught_up || self.halted {
            return None;
        }
        let queries = self.queries.iter().map(|(due, ..)| *due).min();
        let retries = self.retry_at.values().copied().min();
        let always = [Some(self.election.next_due()), queries, retries, self.confirmations.next_due()];
        let leading = [
            Some(self.converge_at),
            self.world.stopping().next().map(|_| self.stop_at),
            self.callbacks.next_due(),
            self.presence.next_due(),
        ];
        let leading = leading.into_iter().filter(|_| self.leading);
        let waits = always.into_iter().chain(leading).flatten().min();
        let busy = !self.own.is_empty() || !self.flying.is_empty();
        let log = self.world.next_due().filter(|_| self.leading && !busy);
        waits.map(|at| self.clock.shown_at(at)).into_iter().chain(log).min()
    }

    /// Takes one input and says what is to be done.
    pub fn step(&mut self, now: Timestamp, input: Input) -> Vec<Effect> {
        let mut out = vec![];
        self.shown = now;
        let now = self.clock.at(now);
        self.now = now;
        if self.halted {
            return out;
        }
        match input {
            Input::Recorded { position, subject, entry, bytes } => {
                self.recorded(now, position, &subject, entry, &bytes, &mut out);
            }
            Input::CaughtUp => {
                self.caught_up = true;
                // Somebody of this name may have led before it started again.
                self.follow_leader(now, &mut out);
            }
            Input::NotAppended { subject, entry, why } => {
                self.not_appended(now, &subject, entry, why, &mut out);
            }
            Input::Last { subject, last } => self.last(now, &subject, last, &mut out),
            Input::Asked { asker, ask } => self.asked(now, asker, ask, &mut out),
            Input::Queried { asker, at_least, query } => self.queried(now, asker, at_least, query, &mut out),
            Input::Heartbeat(beat) => self.heartbeat(now, &beat, &mut out),
            Input::Probed { cell, answer } => match answer {
                Some(beat) => self.probe_answered(now, &cell, &beat),
                None => self.presence.silent(&cell),
            },
            Input::Beat(beat) => self.election.heard(&beat, now),
            Input::Called { task, epoch, called } => self.called(now, &task, epoch, &called),
            Input::Disconnected => self.presence.deafen(),
            Input::Reconnected => self.presence.listen(now),
            Input::Turn => self.turn(now, &mut out),
            Input::Tick => self.tick(now, &mut out),
        }
        out
    }

    /// Decides what is gathered, so that what came together goes into one entry.
    pub(crate) fn turn(&mut self, now: Timestamp, out: &mut Vec<Effect>) {
        for subject in std::mem::take(&mut self.ready) {
            self.launch(now, &subject, out);
        }
        self.read_last(out);
    }
}
