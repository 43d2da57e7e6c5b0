//! Readers: what they ask of the tables, page by page. They have a stream of chance of their own and ways of their own,
//! on which nothing gets lost: what is judged is what they read.

use bytes::Bytes;
use projections::{Query, World};
use schemas::codec::{self, Form};
use schemas::names::{ProcessGuid, TaskGuid};
use schemas::query::{Filter, Show};
use schemas::subject::Position;
use schemas::{Refusal, Timestamp};
use serde::Serialize;

use super::bus::{About, Kind, Message, PATIENCE, Question, decoded, must};
use super::checkers::rows::Next;
use super::cluster::{Cluster, ClusterEvent, NodeEvent};
use super::coverage::Situation;
use super::nodes::{Machine, Node, cell_id};
use super::rng::Rng;
use super::workload::{domain, other_domain};

/// A table, and whether one asks for a list or for one thing: as the subject of a query says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    Lrps,
    Lrp,
    Instances,
    Instance,
    EndedInstances,
    Tasks,
    Task,
    EndedTasks,
    Periodics,
    Periodic,
    Parameterised,
    ParameterisedOne,
    Domains,
    DomainUse,
    Cells,
    Cell,
    Evaluations,
    Evaluation,
    Cluster,
    Status,
}

impl Table {
    const ALL: [Self; 20] = [
        Self::Lrps,
        Self::Lrp,
        Self::Instances,
        Self::Instance,
        Self::EndedInstances,
        Self::Tasks,
        Self::Task,
        Self::EndedTasks,
        Self::Periodics,
        Self::Periodic,
        Self::Parameterised,
        Self::ParameterisedOne,
        Self::Domains,
        Self::DomainUse,
        Self::Cells,
        Self::Cell,
        Self::Evaluations,
        Self::Evaluation,
        Self::Cluster,
        Self::Status,
    ];

    /// The query that a message asks.
    pub(super) fn query(self, bytes: &Bytes) -> Query {
        match self {
            Self::Lrps => Query::Lrps(must(bytes)),
            Self::Lrp => Query::Lrp(must(bytes)),
            Self::Instances => Query::Instances(must(bytes)),
            Self::Instance => Query::Instance(must(bytes)),
            Self::EndedInstances => Query::EndedInstances(must(bytes)),
            Self::EndedTasks => Query::EndedTasks(must(bytes)),
            Self::Tasks => Query::Tasks(must(bytes)),
            Self::Task => Query::Task(must(bytes)),
            Self::Periodics => Query::Periodics(must(bytes)),
            Self::Periodic => Query::Periodic(must(bytes)),
            Self::Parameterised => Query::Parameterised(must(bytes)),
            Self::ParameterisedOne => Query::ParameterisedOne(must(bytes)),
            Self::Domains => Query::Domains(must(bytes)),
            Self::DomainUse => Query::DomainUse(must(bytes)),
            Self::Cells => Query::Cells(must(bytes)),
            Self::Cell => Query::Cell(must(bytes)),
            Self::Evaluations => Query::Evaluations(must(bytes)),
            Self::Evaluation => Query::Evaluation(must(bytes)),
            Self::Cluster => Query::Cluster(must(bytes)),
            Self::Status => Query::Status(must(bytes)),
        }
    }

    /// The fields that its list can be narrowed by (docs/reference/queries.md, "Queries").
    const fn narrowed_by(self) -> &'static [&'static str] {
        match self {
            Self::Lrps => &["domain", "process_guid", "cell_id", "definitions"],
            Self::Instances => &["domain", "process_guid", "cell_id", "all"],
            Self::EndedInstances => &["domain", "process_guid", "cell_id", "index"],
            Self::EndedTasks => &["domain", "cell_id"],
            Self::Tasks => &["domain", "cell_id", "definitions"],
            Self::Periodics | Self::Parameterised => &["domain", "definitions"],
            Self::Domains => &["domain"],
            Self::Cells => &["cell_id"],
            Self::Evaluations => &["domain", "process_guid"],
            Self::Lrp
            | Self::Instance
            | Self::Task
            | Self::Periodic
            | Self::ParameterisedOne
            | Self::DomainUse
            | Self::Cell
            | Self::Evaluation
            | Self::Cluster
            | Self::Status => &[],
        }
    }
}

/// What a reader asks, and how much of its list it has already.
#[derive(Clone, Debug)]
pub(super) struct Read {
    table: Table,
    /// The message.
    bytes: Bytes,
    /// The same, read.
    pub(super) query: Query,
    asked: Timestamp,
    /// Whom: the pages of a list come from whoever made the first.
    of: Node,
    /// The field that can't be asked for so.
    bad: Option<&'static str>,
    /// The pages before.
    before: Option<(Position, usize)>,
}

impl Read {
    /// When it was asked.
    pub(super) const fn asked(&self) -> Timestamp {
        self.asked
    }

    /// The field for which it has to be refused.
    pub(super) const fn bad_field(&self) -> Option<&'static str> {
        self.bad
    }

    /// The rows that the pages before held.
    pub(super) fn seen(&self) -> usize {
        self.before.map_or(0, |(_, seen)| seen)
    }

    /// Whether it goes on where a page ended.
    pub(super) const fn is_later_page(&self) -> bool {
        self.before.is_some()
    }

    /// An answer stands where it has to: where the pages before stood, and not before what was asked for.
    pub(super) fn stands(&self, position: Position) -> Result<(), String> {
        let before = self.before.map_or(position, |(before, _)| before);
        let least = self.query.at_least().unwrap_or_default();
        if position == before && position >= least {
            return Ok(());
        }
        Err(format!("stands at {position}, the page before at {before}, and {least} was asked for"))
    }
}

impl Cluster {
    /// At times somebody reads.
    pub(super) fn read_at_times(&mut self) {
        if self.faults.read == 0 || !self.readers.chance(self.faults.read) {
            return;
        }
        let able = |node: &Node| matches!(self.place(*node).machine, Some(Machine::Bbs(_)));
        let able: Vec<Node> = self.all_nodes().into_iter().filter(able).collect();
        let Some(of) = self.readers.place(able.len()).map(|at| able[at]) else { return };
        let end = self.journal.end();
        let (table, bytes, bad) = drawn(&mut self.readers, self.checkers.world(), end);
        let query = table.query(&bytes);
        self.read(Read { table, bytes, query, asked: self.now, of, bad, before: None });
    }

    fn read(&mut self, read: Read) {
        let Some(life) = self.life(read.of).filter(|_| !self.is_cut(read.of)) else { return };
        self.counter += 1;
        let (token, kind, bytes) = (self.counter, Kind::Query(read.table), read.bytes.clone());
        self.questions.insert(token, Question { from: None, about: About::Read(Box::new(read)) });
        let at = self.now + self.readers.millis(0, 20);
        self.schedule_for(at, life, NodeEvent::Message(Message { kind, token: Some(token), bytes }));
        self.schedule(self.now + PATIENCE, ClusterEvent::ClientAnswer { token, bytes: None });
    }

    /// A reader is answered, or hears nothing. Who reads a list reads its pages on, mostly.
    pub(super) fn read_answered(&mut self, read: &Read, bytes: Option<&Bytes>) {
        let Some(bytes) = bytes else { return };
        let answer: Result<String, Refusal> = decoded(bytes);
        self.saw(match (&answer, read.bad) {
            (Ok(_), _) if read.is_later_page() => Situation::PageRead,
            (Ok(_), _) => Situation::RowsRead,
            (Err(_), Some(_)) => Situation::BadQueryRefused,
            (Err(_), None) => Situation::QueryRefused,
        });
        match self.checkers.read(read, &answer, self.now) {
            Err(broken) => self.breaks(broken),
            Ok(None) => {}
            Ok(Some(Next { cursor, position, seen })) => {
                // What was asked of the first page holds for all.
                let filter = read.query.filter().cloned().unwrap_or_default();
                let bytes = json(&Filter { cursor: Some(cursor), ..filter });
                let (query, asked, before) = (read.table.query(&bytes), self.now, Some((position, seen)));
                self.read(Read { bytes, query, asked, before, ..read.clone() });
            }
        }
    }
}

fn json<T: Serialize>(asked: &T) -> Bytes {
    codec::encode(Form::Json, asked).into()
}

/// A query as a message, and the field of it that can't be.
fn drawn(rng: &mut Rng, world: &World, end: Position) -> (Table, Bytes, Option<&'static str>) {
    let table = rng.place(Table::ALL.len()).map_or(Table::Status, |at| Table::ALL[at]);
    let at_least = rng.chance(300).then_some(end);
    let (filter, bad) = drawn_filter(rng, table, at_least);
    let process = ProcessGuid::new(&format!("web{}", rng.below(6))).expect("a name");
    let task = TaskGuid::new(&format!("job{}", rng.below(12))).expect("a name");
    let id = match table {
        Table::Lrp => process.to_string(),
        Table::Instance => some_instance(rng, world, &process),
        Table::Task => task.to_string(),
        Table::Periodic => format!("clock{}", rng.below(4)),
        Table::ParameterisedOne => format!("mill{}", rng.below(4)),
        Table::DomainUse => if rng.chance(300) { other_domain() } else { domain() }.to_string(),
        Table::Cell => format!("c{}", 1 + rng.below(5)),
        Table::Evaluation => some_evaluation(rng, world, (&process, &task)),
        Table::Lrps
        | Table::Instances
        | Table::EndedInstances
        | Table::EndedTasks
        | Table::Periodics
        | Table::Parameterised
        | Table::Tasks
        | Table::Domains
        | Table::Cells
        | Table::Evaluations
        | Table::Cluster
        | Table::Status => return (table, json(&filter), bad),
    };
    (table, json(&Show { id, at_least, as_of: None }), None)
}

/// `PROCESS/INDEX`, at times with a definition, or the container that is there as far as the log says.
fn some_instance(rng: &mut Rng, world: &World, process: &ProcessGuid) -> String {
    let index = rng.below(4);
    let slots = world.process(process).map(|process| process.slots.clone()).unwrap_or_default();
    let holder = rng.place(slots.len()).and_then(|at| slots.iter().nth(at)?.actual.as_ref()?.holder());
    let by_guid = rng.chance(400);
    let there = slots.iter().rfind(|slot| u64::from(slot.place.index) == index);
    let definition = there.map(|slot| slot.place.definition_id.as_str()).filter(|_| rng.chance(700));
    let by_place = match definition.unwrap_or("none") {
        definition if rng.chance(300) => format!("{process}/{index}@{definition}"),
        _ => format!("{process}/{index}"),
    };
    holder.filter(|_| by_guid).map_or(by_place, |by| by.instance_guid.to_string())
}

/// One that is kept as far as the log says, or none.
fn some_evaluation(rng: &mut Rng, world: &World, (process, task): (&ProcessGuid, &TaskGuid)) -> String {
    let of_process = world.process(process).map(|process| process.evaluations.to_vec());
    let of_task = world.task(task).map(|task| task.evaluations.to_vec());
    let all = of_process.or(of_task).unwrap_or_default();
    rng.place(all.len()).map_or_else(|| "none".to_owned(), |at| all[at].id.to_string())
}

/// A filter with what its list can be narrowed by, at times with one field that it can't be, or a limit that is none.
fn drawn_filter(rng: &mut Rng, table: Table, at_least: Option<Position>) -> (Filter, Option<&'static str>) {
    const FIELDS: [&str; 6] = ["domain", "process_guid", "cell_id", "all", "definitions", "index"];
    let mut filter = Filter { at_least, ..Filter::default() };
    let mut bad = None;
    let can = table.narrowed_by();
    for field in FIELDS {
        // One bad field at most, so that it is known what has to be named.
        let odds = if can.contains(&field) { 250 } else { 15 };
        if !rng.chance(odds) || !can.contains(&field) && bad.is_some() {
            continue;
        }
        match field {
            "domain" => filter.domain = Some(if rng.chance(300) { other_domain() } else { domain() }),
            "process_guid" => {
                filter.process_guid = ProcessGuid::new(&format!("web{}", rng.below(6))).ok();
            }
            "cell_id" => filter.cell_id = usize::try_from(rng.below(4)).ok().map(cell_id),
            "all" => filter.all = true,
            "index" => filter.index = u32::try_from(rng.below(4)).ok(),
            _ => filter.definitions = true,
        }
        bad = bad.or_else(|| (!can.contains(&field)).then_some(field));
    }
    if bad.is_none() && filter.index.is_some() && filter.process_guid.is_none() {
        bad = Some("index");
    }
    if rng.chance(500) {
        filter.limit = usize::try_from(1 + rng.below(3)).ok();
    }
    if bad.is_none() && rng.chance(20) {
        filter.limit = Some(if rng.chance(500) { 0 } else { 1_001 });
        bad = Some("limit");
    }
    (filter, bad)
}
