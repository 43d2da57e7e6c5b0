//! Effects of the state machines.

use std::time::Duration;

use bbs::Reply;
use bytes::Bytes;
use schemas::cluster::Leader;
use schemas::container::Recipe;
use schemas::message::{
    Answer, Heartbeat, LeaderHeartbeat, Outcomes, PerformReply, PlacementOutcome, Report,
};
use schemas::names::{CellId, ServiceId};
use schemas::{Code, Refusal};
use serde::Serialize;

use crate::cluster::Cluster;
use crate::coverage::Situation;
use crate::event::{About, Append, ClusterEvent, Kind, Message, NodeEvent, Question, bytes_of};
use crate::invariants::Invariant;
use crate::layout::cell_id;
use crate::shape::{Life, Node, rep_of};

/// Duration of the preparation of containers.
const PREPARATION: Duration = Duration::from_micros(100);
/// Rate of forged leader heartbeats in a storm, in thousandths.
const STORM: u64 = 900;

impl Cluster {
    pub(crate) fn bbs_effect(&mut self, node: Node, effect: bbs::Effect) {
        use bbs::Effect as E;
        let Some(me) = self.life(node) else { return };
        let about = |about| Question { from: Some(me), about };
        match effect {
            E::Append { subject, expected, entry, bytes } => {
                self.log(|| format!("{node} appends {entry} to {subject} behind {expected}"));
                let append = Append { from: me, subject, expected, entry, bytes, given_up: false };
                self.checkers.decided(&append, self.places[&node].delivered, self.now);
                let at = self.delay();
                self.schedule(at, ClusterEvent::Append(Box::new(append)));
            }
            E::ReadLast(subject) => self.read_last(node, subject),
            E::Reply { requester, reply } => {
                self.note_reply(&reply);
                self.answer(node, requester, encode(&reply));
            }
            E::AnswerQuery { requester, query, picture, observed } => {
                let reply = bbs::answer(&query, &picture, &observed);
                if let Reply::Rows(answer) = &reply {
                    self.checkers.answered_query(&query, &observed, picture.position(), answer);
                }
                self.note_reply(&reply);
                self.answer(node, requester, encode(&reply));
            }
            E::Stop(cell, stop) => {
                self.send_to_cell(node, &cell, Kind::Stop, &stop);
            }
            E::Cancel(cell, stop) => {
                self.send_to_cell(node, &cell, Kind::Cancel, &stop);
            }
            E::Probe(cell, order) => {
                let to = rep_of(&cell);
                self.checkers.probed(me, &cell, self.now);
                self.ask(Some(to), about(About::Probe(cell)), Kind::Probe, bytes_of(&order));
            }
            E::Evacuate(cell, order) => {
                self.log(|| format!("{node} orders {cell} to evacuate"));
                let question = about(About::Probe(cell.clone()));
                self.ask(Some(rep_of(&cell)), question, Kind::Evacuate, bytes_of(&order));
            }
            E::Uncordon(cell, order) => {
                self.log(|| format!("{node} orders {cell} to end its evacuation"));
                let question = about(About::Probe(cell.clone()));
                self.ask(Some(rep_of(&cell)), question, Kind::Uncordon, bytes_of(&order));
            }
            E::Dismiss(cell, _) => {
                self.log(|| format!("{node} dismisses the rep of {cell}"));
            }
            E::Enter(cell, _) => self.log(|| format!("{node} orders {cell} to run a program")),
            E::LeaderHeartbeat(beat) => self.beat(node, &beat),
            E::Call { task, epoch, url, body, domain: _ } => {
                self.call(me, task, epoch, url.plain().unwrap_or_default(), &body);
            }
            // No node receives the event feed, and queries reach every BBS.
            E::Publish { .. } | E::Subscribed(_) => {}
            E::Leading(leads) => {
                self.log(|| format!("{node} leads: {leads}"));
                self.checkers.leads(me, leads, self.now);
                if self.leading_bbss().len() > 1 {
                    self.met(Situation::TwoLeaders);
                }
            }
            E::Warn(text) => self.log(|| format!("{node} warns: {text}")),
            E::Quarantined(none) => {
                self.log(|| format!("{node} quarantines position {}: {}", none.position, none.reason));
            }
            E::Halt(text) => self.violated(Invariant::OnePicture, format!("{node}: {text}")),
        }
    }

    /// May send a forged leader heartbeat, often of the next term.
    pub(crate) fn forge_beats(&mut self) {
        let often = if self.storm.contains(&self.now) { STORM } else { self.faults.forged };
        if self.faults.forged == 0 || !self.chaos.chance(often) {
            return;
        }
        let Some(cluster) = self.checkers.world().cluster() else { return };
        let term = |leader: &Option<Leader>| leader.as_ref().map_or(0, |leader| leader.term);
        let highest = term(&cluster.bbs).max(term(&cluster.auctioneer));
        let ahead = if self.chaos.chance(500) { 1 } else { self.chaos.below(1_000) };
        let steps_down = self.chaos.chance(300);
        let beat =
            LeaderHeartbeat { id: forger(), term: highest + ahead, position: self.journal.end(), steps_down };
        self.inject("leader heartbeats of a forger");
        self.send_to_services(None, &Kind::Beat, &bytes_of(&beat));
    }

    /// Sends a message to every BBS and every auctioneer.
    fn send_to_services(&mut self, from: Option<Node>, kind: &Kind, bytes: &Bytes) {
        let hears = |to: &Node| match to {
            Node::Bbs(_) | Node::Auctioneer(_) => true,
            Node::Rep(_) => false,
        };
        for to in self.all_nodes().into_iter().filter(hears).collect::<Vec<_>>() {
            self.send(from, to, Message { kind: kind.clone(), token: None, bytes: bytes.clone() });
        }
    }

    fn beat(&mut self, node: Node, beat: &LeaderHeartbeat) {
        let peers = self.all_nodes().into_iter().filter(|other| match (node, other) {
            (Node::Bbs(me), Node::Bbs(other)) | (Node::Auctioneer(me), Node::Auctioneer(other)) => {
                me != *other
            }
            (Node::Bbs(_) | Node::Auctioneer(_) | Node::Rep(_), _) => false,
        });
        for peer in peers.collect::<Vec<_>>() {
            let message = Message { kind: Kind::Beat, token: None, bytes: bytes_of(beat) };
            self.send(Some(node), peer, message);
        }
    }

    fn send_to_cell<T: Serialize>(&mut self, from: Node, cell: &CellId, kind: Kind, order: &T) {
        self.send(Some(from), rep_of(cell), Message { kind, token: None, bytes: bytes_of(order) });
    }

    pub(crate) fn auctioneer_effect(&mut self, node: Node, effect: auctioneer::Effect) {
        use auctioneer::Effect as E;
        let Some(me) = self.life(node) else { return };
        let about = |about| Question { from: Some(me), about };
        match effect {
            E::Perform { cell, perform } => {
                self.log(|| format!("{node} sends {cell} {} pieces of work", perform.work.len()));
                let stand = (me, self.place(node).delivered, self.now);
                self.checkers.work_sent(stand);
                let to = rep_of(&cell);
                let question = about(About::Perform(cell, perform.id));
                self.ask(Some(to), question, Kind::Perform, bytes_of(&perform));
            }
            E::Outcomes { id, outcomes } => {
                self.log(|| format!("{node} reports {}", outcomes_line(&outcomes)));
                let to = self.leader();
                self.ask(to, about(About::Outcomes(id)), Kind::Outcomes, bytes_of(&outcomes));
            }
            E::Lead(lead) => {
                let to = self.leader();
                self.ask(to, about(About::Lead), Kind::Lead, bytes_of(&lead));
            }
            E::Beat(beat) => {
                if self.leading_auctioneers() > 1 {
                    self.met(Situation::TwoAuctioneers);
                }
                self.beat(node, &beat);
            }
        }
    }

    /// Carries out an effect of a rep. `answered`: the rep handles an answer of a BBS.
    pub(crate) fn rep_effect(&mut self, node: Node, effect: rep::Effect, answered: bool) {
        use rep::Effect as E;
        let Some(me) = self.life(node) else { return };
        let Node::Rep(cell) = node else { return };
        let about = |about| Question { from: Some(me), about };
        match effect {
            E::AnswerPerform { requester, answer } => self.performed(me, requester, answer),
            E::AnswerState { requester, answer } => {
                if let Ok(beat) = &answer {
                    self.checkers.heartbeat_sent(beat);
                }
                let evacuates = answer.as_ref().is_ok_and(|beat| beat.evacuating);
                self.checkers.state_reported(&cell_id(cell), requester, evacuates);
                self.answer(node, requester, bytes_of(&Answer::from(answer)));
            }
            E::Report { id, reports } => {
                for report in &reports.reports {
                    self.log(|| format!("{node} {}", report_line(report)));
                }
                let bytes = bytes_of(&reports);
                self.forge(cell, &bytes);
                let to = self.leader();
                self.ask(to, about(About::Report(id)), Kind::Report(cell_id(cell)), bytes);
            }
            E::AskRecords { id, records } => {
                let to = self.any_bbs();
                self.ask(to, about(About::Records(id)), Kind::Records, bytes_of(&records));
            }
            E::Prepare(recipes) => self.prepare_containers(me, cell, &recipes),
            E::Discard(_) => {}
            E::Run(recipe) => self.run_container(node, cell, &recipe),
            E::Stop(guid) => {
                self.log(|| format!("{node} stops {guid}"));
                if !self.order_is_lost() {
                    self.cells[cell].stop(self.now, guid);
                    self.wait_for_containers(cell);
                }
            }
            E::Delete(guid) => {
                self.log(|| format!("{node} deletes {guid}"));
                self.checkers.deleted(me, guid, &self.cells[cell], answered);
                if !self.order_is_lost() {
                    self.cells[cell].delete(self.now, guid);
                    self.wait_for_containers(cell);
                }
            }
            E::ListContainers => {
                let list = self.cells[cell].list();
                let at = self.news_at(cell) + self.chaos.millis(0, 30);
                self.schedule_for(at, me, NodeEvent::Containers(list));
            }
            E::SelfTest => {
                let sick = self.is_sick(cell) || self.is_full(cell) || self.chaos.chance(self.faults.sick);
                if sick {
                    self.inject("self-tests that fail");
                }
                let result = if sick { Err("no container can be made".into()) } else { Ok(()) };
                self.schedule_for(self.now + Duration::from_millis(10), me, NodeEvent::SelfTested(result));
            }
            E::Heartbeat(beat) => {
                self.checkers.heartbeat_sent(&beat);
                self.heartbeat(node, &beat);
            }
            E::Exit => {
                self.met(Situation::EvacuationFinished);
                self.rep_leaves(cell);
                self.exited(cell);
            }
            E::Log { text, .. } => self.log(|| format!("{node}: {text}")),
        }
    }

    fn prepare_containers(&mut self, me: Life, cell: usize, recipes: &[Recipe]) {
        let results = recipes.iter().map(|recipe| (recipe.instance_guid, self.prepare(cell))).collect();
        self.schedule_for(self.now + PREPARATION, me, NodeEvent::Prepared(results));
    }

    fn prepare(&mut self, cell: usize) -> Result<(), rep::Unprepared> {
        if !self.is_full(cell) && !self.chaos.chance(self.faults.unprepared) {
            return Ok(());
        }
        Err(rep::Unprepared { reason: "no container can be prepared".into(), is_fault: true })
    }

    fn run_container(&mut self, node: Node, cell: usize, recipe: &Recipe) {
        self.log(|| format!("{node} runs {} as {}", recipe.work, recipe.instance_guid));
        if self.order_is_lost() {
            return;
        }
        self.cells[cell].run(self.now, recipe);
        if self.is_sick(cell) || self.chaos.chance(self.faults.create_failed) {
            self.cells[cell].crash(self.now, recipe.instance_guid, "no container can be made");
        }
        self.wait_for_containers(cell);
    }

    /// May repeat a report under the name of another cell.
    fn forge(&mut self, cell: usize, bytes: &Bytes) {
        if !self.chaos.chance(self.faults.forged) {
            return;
        }
        self.inject("reports under another cell's name");
        let other = cell_id((cell + 1) % self.shape.cells);
        let question = Question { from: None, about: About::Forged(other.clone()) };
        let to = self.leader();
        self.ask(to, question, Kind::Report(other), bytes.clone());
    }

    /// Draws whether the executor receives an order.
    fn order_is_lost(&mut self) -> bool {
        let lost = self.chaos.chance(self.faults.order_lost);
        if lost {
            self.inject("orders that the executor did not receive");
        }
        lost
    }

    /// Sends the answer of a rep to an auctioneer.
    fn performed(&mut self, me: Life, requester: u64, answer: Result<PerformReply, Refusal>) {
        self.checkers.work_answered((me, self.now), requester, &answer);
        match &answer {
            Ok(performed) if !performed.refused.is_empty() => self.met(Situation::WorkRefused),
            Err(refusal) if refusal.code == Code::StaleTerm => self.met(Situation::StaleTermRefused),
            Ok(_) | Err(_) => {}
        }
        self.answer(me.0, requester, bytes_of(&Answer::from(answer)));
    }

    fn heartbeat(&mut self, node: Node, beat: &Heartbeat) {
        self.send_to_services(Some(node), &Kind::Heartbeat, &bytes_of(beat));
    }

    /// Counts refusals in an answer.
    fn note_reply(&mut self, reply: &Reply) {
        let refusals: Vec<Code> = match reply {
            Reply::Done(Err(refusal)) | Reply::Reported(Err(refusal)) => vec![refusal.code],
            Reply::Reported(Ok(reported)) => reported
                .results
                .iter()
                .filter_map(|result| result.refused.as_ref())
                .map(|one| one.code)
                .collect(),
            Reply::Done(Ok(_)) | Reply::Rows(_) | Reply::Records(_) => vec![],
        };
        for code in refusals {
            if code == Code::StaleEpoch {
                self.met(Situation::OlderEpochRefused);
            }
            if code == Code::StaleTerm {
                self.met(Situation::StaleTermRefused);
            }
        }
    }
}

/// Returns the id of a service that was never elected.
fn forger() -> ServiceId {
    ServiceId::new("forger").expect("a name")
}

fn encode(reply: &Reply) -> Bytes {
    match reply {
        Reply::Done(done) => bytes_of(&Answer::from(done.clone())),
        Reply::Reported(reported) => bytes_of(&Answer::from(reported.clone())),
        Reply::Rows(rows) => bytes_of(&Answer::from(rows.clone())),
        Reply::Records(records) => bytes_of(&Answer::Ok(records.clone())),
    }
}

fn report_line(report: &Report) -> String {
    match report {
        Report::Lrp { process_guid, report } => {
            let steps: Vec<String> = report.steps.iter().map(|step| format!("{step:?}")).collect();
            let steps: Vec<&str> =
                steps.iter().map(|step| step.split([' ', '{']).next().unwrap_or("")).collect();
            format!("reports {process_guid}/{} {}: {steps:?}", report.place.index, report.by.instance_guid)
        }
        Report::Task { task_guid, report } => {
            format!("reports task {task_guid} {}: {:?}", report.by.instance_guid, report.step)
        }
    }
}

fn outcomes_line(outcomes: &Outcomes) -> String {
    let words = outcomes.outcomes.iter().map(|outcome| match outcome {
        PlacementOutcome::Lrp { process_guid, outcome, .. } => {
            let indices: Vec<u32> = outcome.unplaced.iter().map(|one| one.place.index).collect();
            let error = outcome.unplaced.first().map_or("", |one| one.error.as_str());
            format!("{process_guid}{indices:?}: {error}")
        }
        PlacementOutcome::Task { task_guid, unplaced, .. } => format!("{task_guid}: {}", unplaced.error),
    });
    let leases = outcomes.leases.iter().map(|lease| format!("has {}", lease.evaluation));
    let evictions = outcomes
        .evictions
        .iter()
        .map(|one| format!("wants {} stopped on {}, {}", one.victim, one.by.cell_id, one.preemptor));
    words.chain(evictions).chain(leases).collect::<Vec<_>>().join("; ")
}
