//! Readers of queries, page by page. Their messages are not lost, so they do not change the other random
//! choices.

use bytes::Bytes;
use projections::World;
use schemas::Refusal;
use schemas::codec::{self, Form};
use schemas::names::{ProcessGuid, TaskGuid};
use schemas::query::{Filter, Page, Show};
use schemas::subject::Position;
use serde::Serialize;
use serde::de::IgnoredAny;

use crate::cluster::Cluster;
use crate::coverage::Situation;
use crate::event::{About, ClusterEvent, Kind, Message, NodeEvent, PATIENCE, Question, Read, Table, decoded};
use crate::layout::cell_id;
use crate::machine::Machine;
use crate::rng::Rng;
use crate::shape::Node;
use crate::work::{domain, other_domain};

impl Cluster {
    /// A client may read.
    pub(crate) fn read_at_times(&mut self) {
        if self.faults.read == 0 || !self.readers.chance(self.faults.read) {
            return;
        }
        let able = |node: &Node| matches!(self.place(*node).machine, Some(Machine::Bbs(_)));
        let able: Vec<Node> = self.all_nodes().into_iter().filter(able).collect();
        let Some(bbs) = self.readers.place(able.len()).map(|at| able[at]) else { return };
        let end = self.journal.end();
        let (table, bytes) = drawn(&mut self.readers, self.checkers.world(), end);
        let query = table.query(&bytes);
        self.read(Read { table, bytes, query, bbs, is_later_page: false });
    }

    fn read(&mut self, read: Read) {
        let Some(life) = self.life(read.bbs).filter(|_| !self.is_cut(read.bbs)) else { return };
        self.counter += 1;
        let (token, kind, bytes) = (self.counter, Kind::Query(read.table), read.bytes.clone());
        self.questions.insert(token, Question { from: None, about: About::Read(Box::new(read)) });
        let at = self.now + self.readers.millis(0, 20);
        self.schedule_for(at, life, NodeEvent::Message(Message { kind, token: Some(token), bytes }));
        self.schedule(self.now + PATIENCE, ClusterEvent::ClientAnswer { token, bytes: None });
    }

    /// A reader gets an answer, or none. The reader of a list asks for the next page.
    pub(crate) fn read_answered(&mut self, read: &Read, bytes: Option<&Bytes>) {
        let answer: Option<Result<String, Refusal>> = bytes.map(decoded);
        let Some(Ok(text)) = answer else { return };
        if read.is_later_page {
            self.met(Situation::PageRead);
        }
        let page: Option<Page<IgnoredAny>> = serde_json::from_str(&text).ok();
        let Some(cursor) = page.and_then(|page| page.next) else { return };
        let filter = read.query.filter().cloned().unwrap_or_default();
        let bytes = json(&Filter { cursor: Some(cursor), ..filter });
        let query = read.table.query(&bytes);
        self.read(Read { bytes, query, is_later_page: true, ..read.clone() });
    }
}

fn json<T: Serialize>(asked: &T) -> Bytes {
    codec::encode(Form::Json, asked).into()
}

/// Draws a query as a message.
fn drawn(rng: &mut Rng, world: &World, end: Position) -> (Table, Bytes) {
    let table = rng.place(Table::ALL.len()).map_or(Table::Status, |at| Table::ALL[at]);
    let at_least = rng.chance(300).then_some(end);
    let filter = drawn_filter(rng, at_least);
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
        | Table::Status => return (table, json(&filter)),
    };
    (table, json(&Show { id, at_least, as_of: None }))
}

/// Draws `PROCESS/INDEX`, maybe with a definition, or a container of the process.
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

/// Draws an evaluation in the log, or none.
fn some_evaluation(rng: &mut Rng, world: &World, (process, task): (&ProcessGuid, &TaskGuid)) -> String {
    let of_process = world.process(process).map(|process| process.evaluations.to_vec());
    let of_task = world.task(task).map(|task| task.evaluations.to_vec());
    let all = of_process.or(of_task).unwrap_or_default();
    rng.place(all.len()).map_or_else(|| "none".to_owned(), |at| all[at].id.to_string())
}

/// Draws a filter. A list refuses fields that it does not honour, and some limits.
fn drawn_filter(rng: &mut Rng, at_least: Option<Position>) -> Filter {
    let mut filter = Filter { at_least, ..Filter::default() };
    let domain = if rng.chance(300) { other_domain() } else { domain() };
    let process = ProcessGuid::new(&format!("web{}", rng.below(6))).ok();
    let cell = usize::try_from(rng.below(4)).ok().map(cell_id);
    match rng.below(16) {
        0..=2 => filter.domain = Some(domain),
        3 | 4 => filter.process_guid = process,
        5 => {
            filter.process_guid = process;
            filter.index = u32::try_from(rng.below(4)).ok();
        }
        6 | 7 => filter.cell_id = cell,
        8 => filter.all = true,
        9 => filter.definitions = true,
        _ => {}
    }
    filter.limit = match rng.below(50) {
        0 => Some(0),
        1 => Some(1_001),
        2..=25 => usize::try_from(1 + rng.below(3)).ok(),
        _ => None,
    };
    filter
}
