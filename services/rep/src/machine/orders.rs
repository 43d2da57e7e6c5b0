//! Requests and orders to the rep: perform work, stop, cancel, evacuate, uncordon, report the state.

use std::collections::BTreeMap;

use schemas::container::{Container, ContainerState, Recipe, WorkKey};
use schemas::limits::BATCH;
use schemas::message::{Leave, Perform, RepOrder, Stop, Work, WorkDefinition};
use schemas::names::InstanceGuid;
use schemas::placement::{INSUFFICIENT_RESOURCES, NO_COMPATIBLE_CELLS};
use schemas::refusal::{BadField, Code};
use schemas::resources::{Constraint, Resources, Shortage};
use schemas::{Position, Refusal};

use super::allocations::{Allocation, Rank, Reservation};
use super::inspect::Knowledge;
use super::judge;
use super::preparing::Batch;
use super::{Effect, EvacuationState, Level, Phase, Rep, log_text};
use crate::limits;

impl Rep {
    /// Accepts work: reserves resources for it and starts the preparation of its containers. The auctioneer
    /// gets the answer when the containers are prepared.
    pub(super) fn perform(&mut self, requester: u64, perform: Perform) {
        if let Err(refusal) = self.obey_auctioneer(&perform) {
            self.emit(Effect::AnswerPerform { requester, answer: Err(refusal) });
            return;
        }
        let mut free = self.free();
        let (mut refused, mut pending, mut running) = (vec![], BTreeMap::new(), vec![]);
        let mut recipes = vec![];
        for (place, work) in (0..).zip(perform.work) {
            if self.holds.has_attempt(&work.key, work.attempt) {
                continue;
            }
            // A cell that was declared lost and has returned may still run the work. In this case no second
            // container is started.
            if let Some(guid) = self.holds.running(&work.key).filter(|_| self.phase == Phase::Open) {
                running.push(guid);
                continue;
            }
            match self.refusal_reason(&work, free) {
                Some(why) => refused.push((place, why)),
                None => {
                    free = free.minus(work.definition.resources());
                    let recipe = self.reserve(work);
                    pending.insert(recipe.instance_guid, place);
                    recipes.push(recipe);
                }
            }
        }
        self.preparing.add(requester, Batch { refused, pending, until: self.answer_until() });
        self.answer_performs();
        if !recipes.is_empty() {
            self.emit(Effect::Prepare(recipes));
        }
        for guid in running {
            self.repeat_report(guid);
        }
    }

    /// Reads the record of a container and repeats its report, even if the report was refused before.
    fn repeat_report(&mut self, guid: InstanceGuid) {
        if let Some(hold) = self.holds.get_mut(guid) {
            hold.reported_case = None;
        }
        self.reads.request_record(guid);
    }

    fn obey_auctioneer(&mut self, perform: &Perform) -> Result<(), Refusal> {
        let obeyed = self.auctioneer.obey("auctioneer", perform.id.term, self.now);
        self.confirm_term(&obeyed);
        obeyed?;
        if perform.work.len() > BATCH {
            let problem = format!("has {} items: expected at most {BATCH}", perform.work.len());
            return Err(Refusal::invalid(vec![BadField { field: "work".into(), problem }]));
        }
        // The stored term is higher only after a message with a term that the log never named.
        let forged = self.last_performed.term > perform.id.term;
        self.last_performed = if forged { perform.id } else { self.last_performed.max(perform.id) };
        Ok(())
    }

    /// Returns the reason why the rep refuses work. `None` if it accepts the work.
    fn refusal_reason(&self, work: &Work, free: Resources) -> Option<String> {
        match self.phase {
            Phase::Starting => return Some("the cell is starting".into()),
            Phase::Evacuating { .. } | Phase::Closing { .. } | Phase::Over => {
                return Some("the cell is evacuating".into());
            }
            Phase::Open => {}
        }
        if let Some(why) = self.self_tests.unhealthy() {
            return Some(format!("the cell is unhealthy: {why}"));
        }
        let Some(constraint) = constraint(work) else {
            return Some("the work and its definition are of different kinds".into());
        };
        if let Some(mismatch) = constraint.mismatch(&self.settings.offer()) {
            return Some(format!("{NO_COMPATIBLE_CELLS}: {}", mismatch.description()));
        }
        let lacks: Vec<&str> = free.shortages(work.definition.resources()).map(Shortage::as_str).collect();
        (!lacks.is_empty()).then(|| format!("{INSUFFICIENT_RESOURCES}: {}", lacks.join(", ")))
    }

    /// Reserves resources for work. Returns the recipe of its container.
    fn reserve(&mut self, work: Work) -> Recipe {
        let instance_guid = InstanceGuid(self.ids.next(self.now));
        let container = Container {
            instance_guid,
            work: work.key.clone(),
            domain: work.domain.clone(),
            resources: work.definition.resources(),
            admitted_at: Position(0),
            isolation: self.settings.offer().isolation(),
            state: ContainerState::Reserved,
        };
        let since = self.next_message();
        let record = judge::judged_record(&work);
        let recipe = judge::recipe(work.clone(), instance_guid, Position(0));
        let reservation = Reservation { work, since: self.now };
        self.holds.insert(Allocation::reserved(container, since, reservation, record));
        recipe
    }

    /// Drops reservations that were not claimed in time.
    pub(super) fn expire_reservations(&mut self) {
        for guid in self.holds.expired(self.now) {
            let waited = limits::RESERVATION_TIMEOUT.as_secs();
            self.log(Level::Info, format!("reservation {guid} was not claimed within {waited} s: dropped"));
            self.release(guid);
            // The claim may have reached the log although it got no answer.
            self.reads.poll_soon(self.now);
        }
    }

    /// Stops instances and cancels tasks, if their container and epoch match the order.
    pub(super) fn stop(&mut self, stop: Stop) {
        let obeyed = self.bbs.obey("BBS", stop.term, self.now);
        self.confirm_term(&obeyed);
        if let Err(refusal) = obeyed {
            self.log(Level::Info, format!("an order to stop was refused: {refusal}"));
            return;
        }
        for (work, guid) in stop.containers.into_iter().take(BATCH) {
            match self.holds.get_mut(guid).map(|hold| hold.container().work == work) {
                Some(true) => self.end_work(guid, &work),
                // The record names this cell, so a poll corrects the record.
                None => self.reads.poll_soon(self.now),
                Some(false) => self.log(
                    Level::Warn,
                    format!("ignored an order to stop {guid} as {work}: the container runs other work"),
                ),
            }
        }
    }

    fn end_work(&mut self, guid: InstanceGuid, work: &WorkKey) {
        match work {
            WorkKey::Lrp { .. } => self.stop_container(guid, Knowledge::Remembered),
            WorkKey::Task { .. } => {
                if let Some(hold) = self.holds.get_mut(guid) {
                    hold.stop_requested = true;
                }
            }
        }
        if let Some(hold) = self.holds.get_mut(guid) {
            hold.reported_case = None;
        }
        self.inspect(guid, Knowledge::Remembered);
    }

    /// Starts an evacuation. A repeated order has no effect.
    pub(super) fn evacuate(&mut self, requester: u64, order: RepOrder) {
        let obeyed = self.obey_bbs(order);
        if let Err(refusal) = obeyed.and_then(|()| self.check_started()) {
            self.emit(Effect::AnswerState { requester, answer: Err(refusal) });
            return;
        }
        if self.is_newest(order) && self.phase == Phase::Open {
            let until = self.now + self.settings.evacuation_timeout;
            self.phase = Phase::Evacuating { until };
            let held = log_text::counted(self.holds.guids().len(), "container");
            let limit = self.settings.evacuation_timeout.as_secs();
            self.log(Level::Info, format!("evacuation started: {held} to move away within {limit} s"));
            self.reads.poll_soon(self.now);
            self.inspect_all();
        }
        self.state_answer(requester);
    }

    /// Revokes an evacuation. The rep accepts work again and keeps the work that has not moved yet. An
    /// evacuation that is already in its closing phase continues to its end.
    pub(super) fn uncordon(&mut self, requester: u64, order: RepOrder) {
        let obeyed = self.obey_bbs(order);
        if let Err(refusal) = obeyed.and_then(|()| self.check_started()) {
            self.emit(Effect::AnswerState { requester, answer: Err(refusal) });
            return;
        }
        if self.is_newest(order)
            && let Phase::Evacuating { .. } = self.phase
        {
            self.phase = Phase::Open;
            self.log(Level::Info, "evacuation cancelled: work that has not moved stays".into());
            self.reads.poll_soon(self.now);
            self.inspect_all();
        }
        self.state_answer(requester);
    }

    /// Returns `true` if no earlier order came from a BBS with a higher log position. In this case, stores
    /// the position of the order.
    fn is_newest(&mut self, order: RepOrder) -> bool {
        let newest = order.position >= self.ordered.position;
        if newest {
            self.ordered = EvacuationState { position: order.position, at: self.messages, ..self.ordered };
        }
        newest
    }

    /// Reports the state of the cell.
    pub(super) fn state(&mut self, requester: u64, order: RepOrder) {
        let answered = match self.obey_bbs(order) {
            Err(refusal) if refusal.code == Code::StaleTerm => Err(refusal),
            // An unconfirmed term is accepted here, because reporting the state changes nothing.
            Ok(()) | Err(_) => self.check_started(),
        };
        match answered {
            Ok(()) => self.state_answer(requester),
            Err(refusal) => self.emit(Effect::AnswerState { requester, answer: Err(refusal) }),
        }
    }

    fn state_answer(&mut self, requester: u64) {
        let answer = Ok(self.heartbeat());
        self.emit(Effect::AnswerState { requester, answer });
    }

    fn obey_bbs(&mut self, order: RepOrder) -> Result<(), Refusal> {
        let obeyed = self.bbs.obey("BBS", order.term, self.now);
        self.confirm_term(&obeyed);
        obeyed
    }

    /// Schedules an early poll if an order has a term that this rep does not know. The next answer of a BBS
    /// shows whether the term is valid.
    fn confirm_term(&mut self, obeyed: &Result<(), Refusal>) {
        if obeyed.as_ref().is_err_and(|refusal| refusal.code == Code::Unavailable) {
            self.reads.poll_soon(self.now);
        }
    }

    fn check_started(&self) -> Result<(), Refusal> {
        match self.phase {
            Phase::Starting => Err(Refusal::new(Code::Unavailable, "the rep is starting")),
            Phase::Open | Phase::Evacuating { .. } | Phase::Closing { .. } | Phase::Over => Ok(()),
        }
    }

    /// Ends an evacuation when no containers are left or its timeout has passed.
    pub(super) fn close_when_done(&mut self) {
        match self.phase {
            Phase::Evacuating { until } if self.holds.is_empty() || until <= self.now => {
                self.phase = Phase::Closing { until, end: self.now + limits::CLOSING_TIMEOUT };
                self.reads.request_cell();
                self.inspect_all();
            }
            Phase::Closing { end, .. } => {
                let quiet = self.holds.is_empty() && self.flights.is_empty() && !self.reads.is_pending();
                if quiet || end <= self.now {
                    self.exit();
                }
            }
            Phase::Starting | Phase::Open | Phase::Evacuating { .. } | Phase::Over => {}
        }
    }

    /// Returns the message that announces the exit of the rep.
    #[must_use]
    pub const fn leave(&self) -> Leave {
        Leave { folder: self.settings.folder, incarnation: self.incarnation }
    }

    fn exit(&mut self) {
        let left: Vec<InstanceGuid> =
            self.holds.iter().filter(|(_, hold)| !hold.is_deleting()).map(|(guid, _)| guid).collect();
        let text = match left.len() {
            0 => "evacuation finished: no container is left".to_owned(),
            left => {
                let left = log_text::counted(left, "container");
                format!("evacuation timed out: deleting {left}")
            }
        };
        self.log(Level::Info, text);
        for guid in left {
            let reserved = self.holds.get(guid).is_some_and(|hold| hold.rank() == Rank::Reserved);
            self.emit(if reserved { Effect::Discard(guid) } else { Effect::Delete(guid) });
        }
        self.emit(Effect::Exit);
        self.phase = Phase::Over;
    }

    fn inspect_all(&mut self) {
        for guid in self.holds.guids() {
            if let Some(hold) = self.holds.get_mut(guid) {
                hold.reported_case = None;
            }
            self.inspect(guid, Knowledge::Remembered);
        }
    }
}

/// Returns the constraint of the work. `None` if its key and its definition are of different kinds.
fn constraint(work: &Work) -> Option<&Constraint> {
    match (&work.key, &work.definition) {
        (WorkKey::Lrp { .. }, WorkDefinition::Lrp(definition)) => Some(&definition.constraint),
        (WorkKey::Task { .. }, WorkDefinition::Task(definition)) => Some(&definition.constraint),
        (WorkKey::Lrp { .. }, WorkDefinition::Task(_)) | (WorkKey::Task { .. }, WorkDefinition::Lrp(_)) => {
            None
        }
    }
}
