//! Message bus. Messages may be lost, late, repeated or old.

use std::time::Duration;

use bytes::Bytes;
use schemas::cluster::Terms;
use schemas::limits::MESSAGE_BYTES;
use schemas::message::{Ack, Answer, ReportsReply};
use schemas::names::Domain;
use schemas::query::RecordsAnswer;
use schemas::{Refusal, Timestamp};

use crate::arrived::Arrived;
use crate::cluster::Cluster;
use crate::event::{
    About, ClusterEvent, Kind, Message, NodeEvent, PATIENCE, Question, bytes_of, decoded, must,
};
use crate::invariants::Invariant;
use crate::machine::Machine;
use crate::shape::{Life, Node};

impl Cluster {
    pub(crate) fn delay(&mut self) -> Timestamp {
        self.now + Duration::from_micros(50 + self.network.below(self.faults.delay_ms * 1_000))
    }

    fn is_dropped(&mut self) -> bool {
        let dropped = self.network.chance(self.faults.dropped);
        if dropped {
            self.inject("messages lost");
        }
        dropped
    }

    /// Draws the time of arrival: soon, or seconds late.
    fn arrival(&mut self) -> Timestamp {
        if self.network.chance(self.faults.late) {
            self.inject("messages seconds late");
            return self.now + self.network.millis(1_000, 30_000);
        }
        self.delay()
    }

    pub(crate) fn is_cut(&self, node: Node) -> bool {
        self.place(node).cut_until > self.now
    }

    /// Sends a message, with faults.
    pub(crate) fn send(&mut self, from: Option<Node>, to: Node, message: Message) {
        let faults = self.faults;
        // The bus refuses messages over its limit. Clients may send larger ones.
        if from.is_some() && message.bytes.len() > MESSAGE_BYTES {
            return;
        }
        if self.network.chance(faults.repeated) && !self.reuses_id(&message) {
            let at = self.now + self.network.millis(1_000, 180_000);
            self.inject("messages replayed seconds or minutes later");
            self.count_copy(&message);
            self.schedule(at, ClusterEvent::OldCopy(to, message.clone()));
        }
        let Some(life) = self.life(to) else { return };
        let unheard = self.is_unheard(from, to, &message.kind);
        let apart = |from| self.is_cut(from) || self.is_parted(from, to);
        let cut = self.is_cut(to) || from.is_some_and(apart);
        if unheard || cut || self.is_dropped() {
            return;
        }
        let doubled = self.network.chance(faults.doubled);
        if doubled {
            self.inject("messages doubled");
        }
        for _ in 0..if doubled { 2 } else { 1 } {
            let at = self.arrival();
            self.count_copy(&message);
            self.schedule_for(at, life, NodeEvent::Message(message.clone()));
        }
    }

    /// Returns `true` if the faults lose this heartbeat or probe.
    fn is_unheard(&self, from: Option<Node>, to: Node, kind: &Kind) -> bool {
        let (cell, until) = self.unheard;
        let unheard = |node| node == Node::Rep(cell) && self.now < until;
        match kind {
            Kind::Heartbeat => self.now < self.no_heartbeats_until || from.is_some_and(unheard),
            Kind::Probe => unheard(to),
            Kind::Client(..)
            | Kind::Operator(..)
            | Kind::Cluster(_)
            | Kind::Attach(_)
            | Kind::Leave(_)
            | Kind::Query(_)
            | Kind::Report(_)
            | Kind::Records
            | Kind::Outcomes
            | Kind::Lead
            | Kind::Perform
            | Kind::Evacuate
            | Kind::Uncordon
            | Kind::Stop
            | Kind::Cancel
            | Kind::Beat => false,
        }
    }

    /// An old copy arrives at the current life of a node.
    pub(crate) fn old_copy(&mut self, to: Node, message: Message) {
        if let Some(life) = self.life(to).filter(|_| !self.is_cut(to)) {
            self.schedule_for(self.now, life, NodeEvent::Message(message));
        }
    }

    /// Returns `true` if a message reuses a request id. Such a message is not repeated, because a BBS that
    /// has forgotten the first request would carry it out.
    fn reuses_id(&self, message: &Message) -> bool {
        let question = message.token.and_then(|token| self.questions.get(&token));
        question.is_some_and(|question| matches!(question.about, About::Reused(_)))
    }

    fn count_copy(&mut self, message: &Message) {
        let question = message.token.and_then(|token| self.questions.get(&token));
        if let Some(Question { about: About::Request(request), .. }) = question {
            self.requests.count_copy(request);
        }
    }

    /// Passes a message to a node, unless the node is cut off.
    pub(crate) fn message(&mut self, node: Node, message: Message) {
        if self.is_cut(node) {
            return;
        }
        let requester = message.token.map(|token| {
            self.counter += 1;
            self.requesters.insert(self.counter, token);
            self.counter
        });
        let Message { kind, bytes, .. } = message;
        if let Kind::Client(domain, noun, verb) = &kind {
            return self.command(node, requester, (domain, noun, verb), &bytes);
        }
        if let (Kind::Perform, Some(requester), Some(rep)) = (&kind, requester, self.life(node)) {
            self.checkers.work_received(rep, requester, must(&bytes), self.now);
        }
        if let (Kind::Evacuate, Some(requester)) = (&kind, requester) {
            self.checkers.evacuation_ordered(requester, must(&bytes));
        }
        if let (Kind::Heartbeat, Some(life)) = (&kind, self.life(node)) {
            self.checkers.heartbeat_received(life, &must(&bytes), self.now);
        }
        self.input(node, Arrived::Message { requester: requester.unwrap_or_default(), kind, bytes });
    }

    /// Passes a command of a client to a node.
    fn command(
        &mut self,
        node: Node,
        requester: Option<u64>,
        (domain, noun, verb): (&Domain, &str, &str),
        bytes: &Bytes,
    ) {
        let (envelope, command) = match schemas::spec::client_command(noun, verb, domain, bytes) {
            Ok(read) => read,
            Err(refusal) => return self.unreadable(node, requester, refusal),
        };
        if let Some((bbs, request)) = self.life(node).zip(envelope.request_id.as_ref()) {
            // A copy whose deadline has passed must not be carried out.
            let patience = envelope.timeout_ms.filter(|millis| *millis > 0).map(Duration::from_millis);
            self.checkers.command_arrived(bbs, request, patience.map(|patience| self.now + patience));
        }
        let (requester, domain) = (requester.unwrap_or_default(), domain.clone());
        self.input(node, Arrived::Command { requester, domain, envelope, command });
    }

    /// Refuses an invalid command before it reaches the machine.
    fn unreadable(&mut self, node: Node, requester: Option<u64>, refusal: Refusal) {
        let Some(requester) = requester else { return };
        let token = self.requesters.get(&requester);
        if let Some(Question { about: About::Request(request), .. }) =
            token.and_then(|token| self.questions.get(token))
        {
            let how = format!("{} is not read: {refusal}", request.id());
            self.violated(Invariant::ToldTrue, how);
        }
        self.answer(node, requester, bytes_of(&Answer::<Ack>::from(Err(refusal))));
    }

    /// Sends a question. Without an answer it ends after the timeout.
    pub(crate) fn ask(&mut self, to: Option<Node>, question: Question, kind: Kind, bytes: Bytes) {
        self.counter += 1;
        let token = self.counter;
        let from = question.from;
        self.questions.insert(token, question);
        if let Some(to) = to {
            self.send(from.map(|(node, _)| node), to, Message { kind, token: Some(token), bytes });
        }
        self.bring(self.now + PATIENCE, from, token, None);
    }

    fn bring(&mut self, at: Timestamp, to: Option<Life>, token: u64, bytes: Option<Bytes>) {
        match to {
            Some(life) => self.schedule_for(at, life, NodeEvent::Answer { token, bytes }),
            None => self.schedule(at, ClusterEvent::ClientAnswer { token, bytes }),
        }
    }

    /// Sends an answer, unless the question has ended.
    pub(crate) fn answer(&mut self, from: Node, requester: u64, bytes: Bytes) {
        let Some(token) = self.requesters.remove(&requester) else { return };
        if bytes.len() > MESSAGE_BYTES {
            return;
        }
        let Some(question) = self.questions.get(&token) else { return };
        if let About::Read(_) = &question.about {
            let at = self.now + self.readers.millis(0, 20);
            return self.bring(at, None, token, Some(bytes));
        }
        let to = question.from;
        let parted = to.is_some_and(|(to, _)| self.is_parted(from, to));
        if parted || self.is_cut(from) || self.is_dropped() {
            return;
        }
        let at = self.arrival();
        self.bring(at, to, token, Some(bytes));
    }

    /// Passes an answer to a node. `None` after the timeout.
    pub(crate) fn answered(&mut self, node: Node, token: u64, bytes: Option<Bytes>) {
        if bytes.is_some() && self.is_cut(node) {
            return;
        }
        let Some(question) = self.questions.remove(&token) else { return };
        if let (About::Probe(_), Some(bytes), Some(bbs)) = (&question.about, &bytes, self.life(node))
            && let Ok(beat) = decoded(bytes)
        {
            self.checkers.probe_answered(bbs, &beat, self.now);
        }
        if let (Some(bytes), Some(rep)) = (&bytes, self.life(node))
            && let Some(terms) = terms_of(&question.about, bytes)
        {
            self.checkers.terms_reported(rep, terms);
        }
        self.input(node, Arrived::Answer { about: question.about, bytes });
    }

    /// Returns a BBS that leads.
    pub(crate) fn leader(&mut self) -> Option<Node> {
        let leaders = self.leading_bbss();
        self.network.place(leaders.len()).map(|at| leaders[at])
    }

    /// Returns a BBS, whether it has read the log or not.
    pub(crate) fn any_bbs(&mut self) -> Option<Node> {
        let answers =
            |node: &Node| matches!((node, &self.place(*node).machine), (Node::Bbs(_), Some(Machine::Bbs(_))));
        let able: Vec<Node> = self.all_nodes().into_iter().filter(answers).collect();
        self.network.place(able.len()).map(|at| able[at])
    }
}

/// Returns the terms of the log in an answer to a rep.
fn terms_of(about: &About, bytes: &Bytes) -> Option<Terms> {
    match about {
        About::Report(_) => decoded::<ReportsReply>(bytes).ok().map(|answer| answer.terms),
        About::Records(_) => decoded::<RecordsAnswer>(bytes).ok().map(|answer| answer.terms),
        About::Request(_)
        | About::Operator
        | About::Attach(_)
        | About::Forged(_)
        | About::Reused(_)
        | About::Show { .. }
        | About::Read(_)
        | About::Outcomes(_)
        | About::Lead
        | About::Perform(..)
        | About::Probe(_) => None,
    }
}
