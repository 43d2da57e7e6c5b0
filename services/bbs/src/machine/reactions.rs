//! Reactions to a recorded entry: orders to reps, callbacks and convergence.

use std::collections::{BTreeMap, BTreeSet};

use machines::actual::Actual;
use projections::{Change, Due, WorkRef};
use schemas::container::{Epoch, Instance, WorkKey};
use schemas::entry::{Aggregate, Event};
use schemas::exec::Exec;
use schemas::message::{StartExec, Stop};
use schemas::names::{CellId, InstanceGuid, ParameterisedGuid, TaskGuid};
use schemas::stamp::Actor;
use schemas::subject::Subject;
use schemas::task::{self, CallbackVerdict};
use schemas::{ActualLrpKey, Decision, Entry, actual, cell, cluster, evacuating, parameterised};

use super::{Bbs, REPORT_GRACE_PERIOD, not_leading_refusal};
use crate::aggregates::{ClusterCommand, Order};
use crate::callbacks::CallbackResult;
use crate::command::{AggregateCommand, QueuedCommand};
use crate::convergence;
use crate::effect::Effect;
use crate::leadership::State;

/// Containers to stop, by cell.
type Stops = BTreeMap<CellId, BTreeSet<(WorkKey, InstanceGuid)>>;

impl Bbs {
    /// Handles a recorded entry.
    pub(super) fn react(&mut self, entry: &Entry, changes: &[Change]) {
        if changes.contains(&Change::Cluster) {
            self.follow_leader();
            // Every BBS does this, because a deposed leader may have appended an entry to an old subject that
            // is not delivered yet.
            if is_reshard(entry) {
                self.handle_reshard();
            }
        }
        if !self.leads() {
            return;
        }
        let mut stops = Stops::new();
        for decision in &entry.decisions {
            self.converge_if_lost(decision);
            for event in &decision.events {
                self.react_to(decision, event, &mut stops);
            }
        }
        self.send_stops(stops);
        if changes.iter().any(|change| matches!(change, Change::Cell(_) | Change::Cluster)) {
            self.presence.cells_changed();
            self.number_cells();
            self.converge_global();
        }
    }

    fn react_to(&mut self, decision: &Decision, event: &Event, stops: &mut Stops) {
        match event {
            Event::Actual(actual::Event::StopRequested { places, .. }) => {
                if let Aggregate::Process { guid, .. } = &decision.aggregate {
                    for place in places.iter() {
                        self.gather_stop(&ActualLrpKey::new(guid.clone(), place), stops);
                    }
                }
            }
            Event::Actual(actual::Event::Started { place, .. }) => {
                if let Aggregate::Process { guid, .. } = &decision.aggregate {
                    self.gather_stop_of_successor(&ActualLrpKey::new(guid.clone(), place.clone()), stops);
                }
            }
            Event::Actual(actual::Event::ExecStarted { by, exec, .. }) => self.order_exec(decision, by, exec),
            Event::Task(event) => {
                self.react_to_task(decision, event);
                self.launch_waiting(decision, event);
            }
            Event::Cell(event) => {
                if let Aggregate::Cell(cell) = &decision.aggregate {
                    self.react_to_cell(cell, event);
                }
            }
            Event::Domain(_) => self.convergence.schedule_pass(self.now),
            Event::Evaluation(event) => self.follow_evaluation(event, decision.id),
            Event::Desired(_)
            | Event::Actual(_)
            | Event::Evacuating(_)
            | Event::Rollout(_)
            | Event::Periodic(_)
            | Event::Cluster(_) => {}
            Event::Parameterised(event) => self.react_to_parameterised(decision, event),
        }
    }

    /// Orders a rep to run a program for a client in a container. If the order is lost, the BBS does not
    /// repeat it: the client tries again.
    fn order_exec(&mut self, decision: &Decision, by: &Instance, exec: &Exec) {
        let (Actor::Client { domain, name }, Some(request_id)) = (&decision.actor, &decision.request_id)
        else {
            return;
        };
        let enter = StartExec {
            domain: domain.clone(),
            client: name.clone(),
            request_id: request_id.clone(),
            instance_guid: by.instance_guid,
            exec: exec.clone(),
            exec_sessions: self.log.world().quotas(domain).exec_sessions,
        };
        self.emit(Effect::Enter(by.cell_id.clone(), enter));
    }

    /// Handles an update of a parameterised task: if more of its tasks may run now, waiting dispatches can be
    /// launched.
    fn react_to_parameterised(&mut self, decision: &Decision, event: &parameterised::Event) {
        let parameterised::Event::Updated { .. } = event else { return };
        let Aggregate::Parameterised { guid, .. } = &decision.aggregate else { return };
        self.launch_dispatches(&guid.clone());
    }

    /// Converges a parameterised task if it has waiting dispatches.
    fn launch_dispatches(&mut self, of: &ParameterisedGuid) {
        if self.world().parameterised(of).is_some_and(|of| !of.queue.is_empty()) {
            self.converge(Due::Parameterised(of.clone()));
        }
    }

    /// Handles the end of a launched task: a waiting launch of its periodic or parameterised task may be
    /// possible now.
    fn launch_waiting(&mut self, decision: &Decision, event: &task::Event) {
        let task::Event::Completed { .. } = event else { return };
        let Aggregate::Task { guid, .. } = &decision.aggregate else { return };
        if let Some((of, _)) = guid.dispatch_source() {
            self.launch_dispatches(&of);
        }
        let of = guid.launching_periodic().and_then(|guid| self.world().periodic(&guid));
        if let Some(due) = of.filter(|of| of.queued_due.is_some()).map(|of| Due::Periodic(of.guid.clone())) {
            self.converge(due);
        }
    }

    fn react_to_cell(&mut self, id: &CellId, event: &cell::Event) {
        match event {
            cell::Event::Disappeared { .. } => self.converge_cell(id),
            cell::Event::Left {} => {
                self.converge_cell(id);
                self.presence.forget(id);
            }
            cell::Event::EvacuationRequested {} | cell::Event::EvacuationWithdrawn {} => {
                self.evacuation_changed(id);
            }
            cell::Event::Forgotten {} => self.presence.forget(id),
            cell::Event::Appeared(_)
            | cell::Event::Cordoned {}
            | cell::Event::Uncordoned {}
            | cell::Event::Evacuating {}
            | cell::Event::Resumed {}
            | cell::Event::Healthy {}
            | cell::Event::Unhealthy { .. } => {}
        }
    }

    /// Queues the assignment of ordinals to cells without one, unless it is already queued.
    fn number_cells(&mut self) {
        let waits = |queued: &QueuedCommand| {
            matches!(queued.command, AggregateCommand::Cluster(ClusterCommand::AssignOrdinals))
        };
        if !self.shards.holds(&Subject::Cluster, waits) && self.world().lacks_ordinals() {
            self.enqueue_own(AggregateCommand::Cluster(ClusterCommand::AssignOrdinals));
        }
    }

    /// Converges all global processes, because a cell appeared, changed or left.
    fn converge_global(&mut self) {
        let global: Vec<Due> = self.world().global_processes().cloned().map(Due::Process).collect();
        global.into_iter().for_each(|due| self.converge(due));
    }

    /// Converges everything that refers to a cell, because the cell is gone.
    fn converge_cell(&mut self, id: &CellId) {
        for due in convergence::targets_on_cell(self.world(), id) {
            self.converge(due);
        }
    }

    /// Queues the convergence of a target, because of an event.
    fn converge(&mut self, due: Due) {
        if self.convergence.queue(&due) {
            self.enqueue_own(AggregateCommand::converge(due));
        }
    }

    /// Converges a target that the decision has placed on a lost cell. The cell was lost between the decision
    /// and the delivery of its entry. The reaction to the loss did not include this target, because the World
    /// (the state folded from the log) did not show the target on the cell yet.
    fn converge_if_lost(&mut self, decision: &Decision) {
        let due = match &decision.aggregate {
            Aggregate::Process { guid, .. } => Due::Process(guid.clone()),
            Aggregate::Task { guid, .. } => Due::Task(guid.clone()),
            Aggregate::Periodic { .. }
            | Aggregate::Parameterised { .. }
            | Aggregate::Domain(_)
            | Aggregate::Cell(_)
            | Aggregate::Cluster => {
                return;
            }
        };
        let lost = |by: &Instance| !self.world().is_present(&by.cell_id);
        if decision.events.iter().filter_map(placed_container).any(lost) {
            self.converge(due);
        }
    }

    /// Starts or stops leading, according to the leader that the log names.
    pub(super) fn follow_leader(&mut self) {
        let Some(leader) = self.log.world().cluster().and_then(|cluster| cluster.bbs.as_ref()) else {
            return;
        };
        let in_flight = self.shards.in_flight() > 0;
        let should_yield = self.clocks.should_yield(self.now);
        let state = State { caught_up: self.log.is_caught_up(), in_flight, should_yield };
        let change = self.leadership.follow(leader, state, self.now);
        // This BBS may have stopped leading because its appends fail. In this case it stays subscribed, so
        // that clients receive the reason.
        let listens = self.leads() || (self.leadership.is_elected() && self.appends.is_failing());
        if listens != std::mem::replace(&mut self.is_subscribed, listens) {
            self.emit(Effect::Subscribed(listens));
        }
        let Some(leads) = change else { return };
        self.emit(Effect::Leading(leads));
        if should_yield && !leads {
            let ahead = self.clocks.ahead_ms();
            let why = format!(
                "this BBS stops leading: its clock is {ahead} ms ahead of the median of all clocks, and \
                 another BBS has a correct clock"
            );
            self.emit(Effect::Warn(why));
        }
        if leads {
            self.timelines.start_leading(self.log.world().last_times(), self.shown);
            self.presence.start_leading(self.now);
            self.reports_until = self.now + REPORT_GRACE_PERIOD;
            self.convergence.start_leading(self.now);
            self.register_callbacks();
            self.number_cells();
        } else {
            self.callbacks.clear();
            self.leases.clear();
            // Queued commands are refused so that clients try another BBS. The log shows which pending
            // appends succeeded.
            let refusal = match self.appends.is_failing() {
                true => self.not_stored_refusal(),
                false => not_leading_refusal(self.settings.may_lead),
            };
            for command in self.shards.drain() {
                self.refuse(&command, refusal.clone());
            }
            self.convergence.stop_leading();
        }
    }

    /// Repeats the stop orders for instances that are still running.
    pub(super) fn repeat_stops(&mut self) {
        let mut stops = Stops::new();
        for work in self.world().stopping() {
            if let WorkRef::Lrp(key) = work {
                self.gather_stop(key, &mut stops);
            }
        }
        self.send_stops(stops);
    }

    /// Adds the stop order for a container that has taken over the record of an instance, if that instance
    /// was asked to stop.
    fn gather_stop_of_successor(&self, key: &ActualLrpKey, stops: &mut Stops) {
        let lrp = self.world().process(&key.process_guid).and_then(|process| process.actual(&key.place));
        if lrp.is_some_and(Actual::is_stopping) {
            self.gather_stop(key, stops);
        }
    }

    fn gather_stop(&self, key: &ActualLrpKey, stops: &mut Stops) {
        let Some(process) = self.world().process(&key.process_guid) else { return };
        let Some(by) = process.actual(&key.place).and_then(Actual::holder) else { return };
        let key = WorkKey::Lrp { key: key.clone(), epoch: process.epoch };
        stops.entry(by.cell_id.clone()).or_default().insert((key, by.instance_guid));
    }

    fn send_stops(&mut self, stops: Stops) {
        let term = self.leadership.term();
        for (cell, containers) in stops {
            let containers: Vec<_> = containers.into_iter().collect();
            for containers in containers.chunks(schemas::limits::BATCH) {
                self.emit(Effect::Stop(cell.clone(), Stop { term, containers: containers.to_vec() }));
            }
        }
    }

    fn react_to_task(&mut self, decision: &Decision, event: &task::Event) {
        let Aggregate::Task { guid, epoch, .. } = &decision.aggregate else { return };
        match event {
            task::Event::Completed { by, outcome, .. } => {
                let stopped = matches!(outcome, task::Outcome::Failed { reason } if machines::task::was_stopped(reason));
                if let Some(by) = by.as_ref().filter(|_| stopped) {
                    let key = WorkKey::Task { task_guid: guid.clone(), epoch: *epoch };
                    let containers = vec![(key, by.instance_guid)];
                    let stop = Stop { term: self.leadership.term(), containers };
                    self.emit(Effect::Cancel(by.cell_id.clone(), stop));
                }
                self.register_callback(guid);
            }
            task::Event::Demoted {} => {
                self.register_callback(guid);
                self.callbacks.abandon_call(guid, self.now);
            }
            // The BBS that marked the task RESOLVING sends the call.
            task::Event::Resolving {} if decision.actor == self.me() => self.send_callback(guid, *epoch),
            task::Event::CallbackTried { outcome: called, .. }
                if called.verdict() == CallbackVerdict::Ended =>
            {
                self.callbacks.forget(guid);
            }
            task::Event::Deleted {} => self.callbacks.forget(guid),
            task::Event::Resolving {}
            | task::Event::CallbackTried { .. }
            | task::Event::Desired(_)
            | task::Event::Started { .. }
            | task::Event::PlacementFailed { .. } => {}
        }
    }

    /// Registers the outstanding callbacks of all tasks in the log.
    fn register_callbacks(&mut self) {
        let world = self.log.world();
        for task in world.callbacks().filter_map(|guid| world.task(guid)) {
            self.callbacks.register(&task.guid, task.epoch, self.now);
        }
    }

    fn register_callback(&mut self, guid: &TaskGuid) {
        let owed = |task: &machines::task::Task| {
            task.completed().is_some_and(machines::task::Completed::is_callback_open)
        };
        let task = self.log.world().task(guid).filter(|task| owed(task));
        if let Some(task) = task.filter(|task| task.definition.completion_callback_url.is_some()) {
            self.callbacks.register(guid, task.epoch, self.now);
        }
    }

    /// Sends the callback of a RESOLVING task. If its response has already arrived, only queues the recording
    /// of the response.
    pub(super) fn send_callback(&mut self, guid: &TaskGuid, epoch: Epoch) {
        if let Some(called) = self.callbacks.response(guid).cloned() {
            return self.record_call(guid, epoch, called);
        }
        let Some(task) = self.world().task(guid).filter(|task| task.epoch == epoch) else { return };
        let url = task.definition.completion_callback_url.clone();
        if let (Some(url), Some(done)) = (url, task.completed()) {
            let (domain, body) = (task.domain.clone(), callback_body(task, done));
            self.callbacks.mark_called(guid);
            self.emit(Effect::Call { task: guid.clone(), epoch, domain, url, body });
        }
    }

    /// Handles the result of a call.
    pub(super) fn handle_call_result(&mut self, guid: &TaskGuid, epoch: Epoch, called: &CallbackResult) {
        if !self.leads() || self.world().task(guid).is_none_or(|task| task.epoch != epoch) {
            return;
        }
        match called.verdict() {
            CallbackVerdict::Repeat => self.callbacks.schedule_retry(guid, self.now),
            CallbackVerdict::Delivered | CallbackVerdict::Ended => {
                self.callbacks.store_response(guid, called);
            }
        }
        self.record_call(guid, epoch, called.clone());
    }

    /// Handles a command that ended without a decision. If the command was to start a callback or to record
    /// its end, schedules a retry.
    pub(super) fn retry_undecided_call(&mut self, command: &AggregateCommand) {
        if let AggregateCommand::Task(Order { key: guid, command }) = command
            && (matches!(**command, task::Command::BeginResolving)
                // If the callback must be repeated, the next call is already scheduled. The result of that
                // call is recorded instead.
                || matches!(&**command, task::Command::RecordCallback(_, called)
                    if called.verdict() != CallbackVerdict::Repeat))
        {
            self.callbacks.schedule_retry(guid, self.now);
        }
    }

    /// Queues the decision that records the result of a call.
    fn record_call(&mut self, guid: &TaskGuid, epoch: Epoch, called: CallbackResult) {
        let command = task::Command::RecordCallback(epoch, called);
        self.enqueue_own(AggregateCommand::Task(Order::new(guid.clone(), command)));
    }
}

/// Returns the container that an event puts into a record.
fn placed_container(event: &Event) -> Option<&Instance> {
    if let Event::Actual(actual::Event::Claimed { by, .. } | actual::Event::Started { by, .. })
    | Event::Evacuating(evacuating::Event::Set { by, .. })
    | Event::Task(task::Event::Started { by, .. }) = event
    {
        Some(by)
    } else {
        None
    }
}

/// Returns the body of a completion callback, with Diego's field names.
fn callback_body(task: &machines::task::Task, done: &machines::task::Completed) -> String {
    let (failed, reason, result) = match &done.outcome {
        task::Outcome::Succeeded { result } => (false, "", result.as_str()),
        task::Outcome::Failed { reason } => (true, reason.as_str(), ""),
    };
    serde_json::json!({
        "task_guid": task.guid,
        "failed": failed,
        "failure_reason": reason,
        "result": result,
        "annotation": task.definition.annotation.as_str(),
        "created_at": task.epoch,
    })
    .to_string()
}

/// Returns `true` if an entry changes the number of shards.
fn is_reshard(entry: &Entry) -> bool {
    let mut events = entry.decisions.iter().flat_map(|decision| &decision.events);
    events.any(|event| matches!(event, Event::Cluster(cluster::Event::Resharded { .. })))
}
