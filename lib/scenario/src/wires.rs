//! Execution of the effects of machines. Every message arrives. An append fails only if its subject has a
//! newer entry.

use bbs::{AppendFailure, ChangeRequest, Reply};
use schemas::Refusal;
use schemas::message::{Ack, Heartbeat, PerformReply, RepOrder};
use schemas::names::CellId;
use schemas::task::CallbackResult;

use super::stage::{ATTACH_AGAIN, Asker, Due, Stage};

/// Assumed reply of task owners to completion callbacks: success.
const KNOWS: CallbackResult = CallbackResult::Answered(200);

impl Stage<'_> {
    fn tell_bbs(&mut self, input: bbs::Input) {
        self.send(Due::Bbs(Box::new(input)));
    }

    fn tell_auctioneer(&mut self, input: auctioneer::Input) {
        self.send(Due::Auctioneer(Box::new(input)));
    }

    /// Sends an input to the current rep of a cell, if any.
    fn tell_rep(&mut self, cell: &CellId, input: rep::Input) {
        let life = self.cells.get(cell).map_or(0, |node| node.life);
        self.send(Due::Rep(cell.clone(), life, Box::new(input)));
    }

    pub(super) fn asks_bbs(&mut self, asker: Asker, ask: ChangeRequest) {
        let requester = self.asks(asker);
        self.tell_bbs(bbs::Input::Request { requester, ask });
    }

    // ---- effects ----

    pub(super) fn bbs_effect(&mut self, effect: bbs::Effect) {
        use bbs::Effect as E;
        match effect {
            E::Append { subject, expected, entry, bytes } => {
                match self.tape.append(&subject, expected, entry, bytes) {
                    Some(position) => {
                        self.appended_at = self.now;
                        self.deliver(position);
                    }
                    None => {
                        self.tell_bbs(bbs::Input::NotAppended {
                            subject,
                            entry,
                            why: AppendFailure::Conflict,
                        });
                    }
                }
            }
            E::ReadLast(subject) => {
                let last = Ok(self.tape.last(&subject));
                self.tell_bbs(bbs::Input::LastEntry { subject, last });
            }
            E::Reply { requester, reply } => self.bbs_answers(requester, reply),
            E::AnswerQuery { requester, query, picture, observed } => {
                self.bbs_answers(requester, bbs::answer(&query, &picture, &observed));
            }
            E::Stop(cell, stop) => self.tell_rep(&cell, rep::Input::Stop(stop)),
            E::Cancel(cell, stop) => self.tell_rep(&cell, rep::Input::Cancel(stop)),
            E::Probe(cell, order) => {
                self.orders(&cell, order, |requester, order| rep::Input::State { requester, order });
            }
            E::Evacuate(cell, order) => {
                self.orders(&cell, order, |requester, order| rep::Input::Evacuate { requester, order });
            }
            E::Uncordon(cell, order) => {
                self.orders(&cell, order, |requester, order| rep::Input::Uncordon { requester, order });
            }
            E::Call { task, epoch, .. } => {
                self.tell_bbs(bbs::Input::CallResult { task, epoch, called: KNOWS });
            }
            E::Halt(why) => self.halted = Some(why),
            E::Enter(..)
            | E::Dismiss(..)
            | E::LeaderHeartbeat(_)
            | E::Publish { .. }
            | E::Leading(_)
            | E::Subscribed(_)
            | E::Quarantined(_)
            | E::Warn(_) => {}
        }
    }

    fn orders(&mut self, cell: &CellId, order: RepOrder, input: fn(u64, RepOrder) -> rep::Input) {
        let requester = self.asks(Asker::Probe(cell.clone()));
        self.tell_rep(cell, input(requester, order));
    }

    pub(super) fn auctioneer_effect(&mut self, effect: auctioneer::Effect) {
        use auctioneer::Effect as E;
        match effect {
            E::Perform { cell, perform } => {
                let requester = self.asks(Asker::Perform(cell.clone(), perform.id));
                self.tell_rep(&cell, rep::Input::Perform { requester, perform });
            }
            E::Outcomes { id, outcomes } => {
                self.asks_bbs(Asker::Outcomes(id), ChangeRequest::Outcomes(outcomes));
            }
            E::Lead(lead) => self.asks_bbs(Asker::Lead, ChangeRequest::Lead(lead)),
            E::Beat(_) => {}
        }
    }

    pub(super) fn rep_effect(&mut self, cell: &CellId, effect: rep::Effect) {
        use rep::Effect as E;
        let now = self.now;
        let Some(node) = self.cells.get_mut(cell) else { return };
        let life = node.life;
        match effect {
            E::AnswerPerform { requester, answer } => self.performed(requester, answer),
            E::AnswerState { requester, answer } => self.probed(requester, answer.ok()),
            E::Report { id, reports } => {
                let asker = Asker::Report { cell: cell.clone(), life, id };
                self.asks_bbs(asker, ChangeRequest::Cell { cell: cell.clone(), reports });
            }
            E::AskRecords { id, records } => {
                let requester = self.asks(Asker::Records { cell: cell.clone(), life, id });
                let at_least = records.at_least;
                let query = bbs::Query::Records(records);
                self.tell_bbs(bbs::Input::Query { requester, at_least, query });
            }
            E::Prepare(recipes) => {
                let results = recipes.into_iter().map(|recipe| (recipe.instance_guid, Ok(()))).collect();
                let prepared = Box::new(rep::Input::Prepared(results));
                self.schedule(now, Due::Rep(cell.clone(), life, prepared));
            }
            E::Discard(_) => {}
            E::Run(recipe) => {
                let behaviour = self.times.behaviour(&recipe);
                node.containers.run_with(now, &recipe, behaviour);
                self.wait_for_containers(cell);
            }
            E::Stop(guid) => {
                node.containers.stop(now, guid);
                self.wait_for_containers(cell);
            }
            E::Delete(guid) => {
                node.containers.delete(now, guid);
                self.wait_for_containers(cell);
            }
            E::ListContainers => {
                let list = node.containers.list();
                self.send(Due::Rep(cell.clone(), life, Box::new(rep::Input::Containers(list))));
            }
            E::SelfTest => {
                let result = node.sick.clone().map_or(Ok(()), Err);
                self.send(Due::Rep(cell.clone(), life, Box::new(rep::Input::SelfTested(result))));
            }
            E::Heartbeat(beat) => {
                self.tell_bbs(bbs::Input::Heartbeat(beat.clone()));
                self.tell_auctioneer(auctioneer::Input::Heartbeat(beat));
            }
            E::Exit => self.leaves(cell),
            E::Log { .. } => {}
        }
    }

    /// Stops the rep of a cell after its evacuation. The rep sends its leave request first.
    fn leaves(&mut self, cell: &CellId) {
        let Some(node) = self.cells.get_mut(cell) else { return };
        let leave = node.rep.as_ref().map(rep::Rep::leave);
        node.end(cell);
        if let Some(leave) = leave {
            self.asks_bbs(Asker::Nobody, ChangeRequest::Leave { cell: cell.clone(), leave });
        }
    }

    // ---- answers ----

    fn bbs_answers(&mut self, requester: u64, reply: Reply) {
        let Some(asker) = self.asked.remove(&requester) else { return };
        match (asker, reply) {
            (Asker::Report { cell, life, id }, Reply::Reported(answer)) => {
                let input = rep::Input::Reported { id, answer: Some(answer) };
                self.send(Due::Rep(cell, life, Box::new(input)));
            }
            (Asker::Records { cell, life, id }, Reply::Records(answer)) => {
                let input = rep::Input::Records { id, answer: Some(Ok(answer)) };
                self.send(Due::Rep(cell, life, Box::new(input)));
            }
            (Asker::Records { cell, life, id }, Reply::Rows(Err(refusal))) => {
                let input = rep::Input::Records { id, answer: Some(Err(refusal)) };
                self.send(Due::Rep(cell, life, Box::new(input)));
            }
            (Asker::Attach(cell), Reply::Done(Ok(done))) => self.attached(&cell, done.position),
            (Asker::Attach(cell), Reply::Done(Err(_))) => self.attach_again(cell),
            (Asker::Outcomes(id), Reply::Done(answer)) => {
                self.tell_auctioneer(auctioneer::Input::OutcomesAnswered { id, answer: Some(answer) });
            }
            (Asker::Lead, Reply::Done(answer)) => {
                self.tell_auctioneer(auctioneer::Input::LeadAnswered(Some(answer)));
            }
            (Asker::Change(number), Reply::Done(answer)) => {
                self.answers.insert(number, answer);
            }
            _ => {}
        }
    }

    fn attach_again(&mut self, cell: CellId) {
        let at = self.now + ATTACH_AGAIN;
        self.schedule(at, Due::Attach(cell));
    }

    fn performed(&mut self, requester: u64, answer: Result<PerformReply, Refusal>) {
        if let Some(Asker::Perform(cell, id)) = self.asked.remove(&requester) {
            self.tell_auctioneer(auctioneer::Input::Performed { cell, id, answer: Some(answer) });
        }
    }

    fn probed(&mut self, requester: u64, answer: Option<Heartbeat>) {
        if let Some(Asker::Probe(cell)) = self.asked.remove(&requester) {
            self.tell_bbs(bbs::Input::ProbeResult { cell, answer });
        }
    }

    /// Ends a request that timed out.
    pub(super) fn expires(&mut self, number: u64) {
        let Some(asker) = self.asked.remove(&number) else { return };
        match asker {
            Asker::Report { cell, life, id } => {
                self.send(Due::Rep(cell, life, Box::new(rep::Input::Reported { id, answer: None })));
            }
            Asker::Records { cell, life, id } => {
                self.send(Due::Rep(cell, life, Box::new(rep::Input::Records { id, answer: None })));
            }
            Asker::Attach(cell) => self.attach_again(cell),
            Asker::Outcomes(id) => {
                self.tell_auctioneer(auctioneer::Input::OutcomesAnswered { id, answer: None });
            }
            Asker::Lead => self.tell_auctioneer(auctioneer::Input::LeadAnswered(None)),
            Asker::Perform(cell, id) => {
                self.tell_auctioneer(auctioneer::Input::Performed { cell, id, answer: None });
            }
            Asker::Probe(cell) => self.tell_bbs(bbs::Input::ProbeResult { cell, answer: None }),
            Asker::Change(_) | Asker::Nobody => {}
        }
    }

    /// Removes and returns the reply to a request of a client or an operator.
    pub(super) fn take_answer(&mut self, number: u64) -> Option<Result<Ack, Refusal>> {
        self.answers.remove(&number)
    }
}
