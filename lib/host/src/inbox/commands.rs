//! Commands, reports and outcomes on their way to the machine. The NATS server restricts the subjects of each
//! user, so the subject of a message proves its caller.

use std::sync::Arc;
use std::time::Duration;

use bbs::{ChangeRequest, Input, Reply};
use bus::{Incoming, LogLimit, truncated};
use projections::cluster_log::QuarantineOrder;
use schemas::bus::BusSubject;
use schemas::codec::{self, Form};
use schemas::exec::{ExecIo, ForwardedExecIo};
use schemas::message::{CellCommand, Envelope, QuarantineEntry, Reshard, SwitchPreemption};
use schemas::names::{CellId, ClientName};
use schemas::quota::LimitDomain;
use schemas::sight::ReadScope;
use schemas::spec::{item_to_json, to_seal};
use schemas::stamp::Actor;
use schemas::verb::{AuctioneerVerb, OperatorVerb};
use schemas::{BadField, Code, Refusal, cell, cluster};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::authority::{checked_reply, is_command_inbox, is_expected_inbox};
use super::relay;
use crate::driver::Driver;
use crate::monitoring::commands::ReceivedCommand;
use crate::reply_target::{BusCaller, ReplyTarget};
use crate::requests::send_reply;

/// Passes a command, a report or an outcome to the machine.
pub(super) async fn handle_command(driver: &Arc<Driver>, incoming: &Incoming) {
    match BusSubject::parse(&incoming.subject) {
        Ok(subject) => {
            let Some(reply) = checked_reply(incoming, |reply| is_expected_inbox(&subject, reply)) else {
                return;
            };
            let asked = ReceivedCommand::from_subject(&subject);
            let ticket = match driver.budgets.admit_command(&subject) {
                Ok(ticket) => ticket,
                Err(refusal) => return driver.refuse(reply, refusal).await,
            };
            if let BusSubject::Operator(operator, OperatorVerb::JournalQuarantine) = subject {
                let (driver, order) = (Arc::clone(driver), order(operator, incoming));
                tokio::spawn(async move {
                    let done = match order {
                        Ok((order, patience)) => driver.quarantine(order, patience).await,
                        Err(refusal) => Err(refusal),
                    };
                    driver.watch.commands.answered(asked, &done);
                    send_reply(driver.services.bus(), &reply, Form::Json, done).await;
                    drop(ticket);
                });
                return;
            }
            if let BusSubject::Operator(_, OperatorVerb::CellAcceptLog) = subject {
                let (driver, cell) = (Arc::clone(driver), named_cell(incoming));
                tokio::spawn(async move {
                    let done = match cell {
                        Ok((_, cell)) => relay::accept_log(&driver, cell).await,
                        Err(refusal) => Err(refusal),
                    };
                    driver.watch.commands.answered(asked, &done);
                    send_reply(driver.services.bus(), &reply, Form::Json, done).await;
                    drop(ticket);
                });
                return;
            }
            if let BusSubject::ExecIo(domain, client) = subject {
                let (driver, talk) = (Arc::clone(driver), codec::decode::<ExecIo>(&incoming.payload));
                tokio::spawn(async move {
                    let talked = match talk {
                        Ok((io, _)) => relay::talk(&driver, ForwardedExecIo { domain, client, io }).await,
                        Err(refusal) => Err(refusal),
                    };
                    send_reply(driver.services.bus(), &reply, Form::Json, talked).await;
                    drop(ticket);
                });
                return;
            }
            if let BusSubject::Seal(domain, _) = subject {
                let sealed =
                    to_seal(&domain, &incoming.payload).and_then(|item| item.sealed(&driver.keys.sealer()));
                let sealed = sealed.map(|item| item_to_json(&item));
                driver.watch.commands.answered(asked, &sealed);
                return send_reply(driver.services.bus(), &reply, Form::Json, sealed).await;
            }
            let (form, ask) = decode_command(&subject, incoming);
            let ask = ask.and_then(|ask| driver.seal_secrets(ask));
            let ask = match driver.stopped() {
                Some(why) => Err(Refusal::new(Code::Unavailable, format!("this BBS has stopped: {why}"))),
                None => ask,
            };
            let asker = BusCaller { to: reply, form, read_scope: ReadScope::Nothing, ticket, asked };
            driver.take(ReplyTarget::Bus(asker), ask).await;
        }
        Err(refusal) => {
            if let Some(reply) = checked_reply(incoming, is_command_inbox) {
                driver.refuse(reply, refusal).await;
            }
        }
    }
}

fn decode_command(subject: &BusSubject, incoming: &Incoming) -> (Form, Result<ChangeRequest, Refusal>) {
    match subject {
        BusSubject::Client(domain, client, verb) => {
            let (noun, verb) = verb.noun_and_verb();
            let read = schemas::spec::client_command(noun, verb, domain, &incoming.payload);
            let ask = read.map(|(envelope, command)| ChangeRequest::Client {
                domain: domain.clone(),
                client: client.clone(),
                envelope,
                command,
                digest: None,
            });
            (Form::Json, ask)
        }
        BusSubject::Operator(client, OperatorVerb::CellEvacuate) => {
            (Form::Json, cell_command(client, cell::Command::Evacuate, incoming))
        }
        BusSubject::Operator(client, OperatorVerb::CellCordon) => {
            (Form::Json, cell_command(client, cell::Command::Cordon, incoming))
        }
        BusSubject::Operator(client, OperatorVerb::CellUncordon) => {
            (Form::Json, cell_command(client, cell::Command::Uncordon, incoming))
        }
        BusSubject::Operator(client, OperatorVerb::CellForget) => {
            (Form::Json, cell_command(client, cell::Command::Forget, incoming))
        }
        BusSubject::Operator(client, OperatorVerb::ClusterPreemption) => {
            let command = |body: SwitchPreemption| cluster::Command::SwitchPreemption(body.enabled);
            (Form::Json, cluster_command(client, command, incoming))
        }
        BusSubject::Operator(client, OperatorVerb::ClusterShards) => {
            let command = |body: Reshard| cluster::Command::Reshard(body.shards);
            (Form::Json, cluster_command(client, command, incoming))
        }
        BusSubject::Operator(client, OperatorVerb::DomainLimit) => {
            (Form::Json, limit_command(client, incoming))
        }
        BusSubject::Attach(cell) => {
            decode_request(incoming, |attach| ChangeRequest::Attach { cell: cell.clone(), attach })
        }
        BusSubject::Leave(cell) => {
            decode_request(incoming, |leave| ChangeRequest::Leave { cell: cell.clone(), leave })
        }
        BusSubject::Report(cell) => {
            decode_request(incoming, |reports| ChangeRequest::Cell { cell: cell.clone(), reports })
        }
        BusSubject::Auctioneer(AuctioneerVerb::Outcome) => decode_request(incoming, ChangeRequest::Outcomes),
        BusSubject::Auctioneer(AuctioneerVerb::Lead) => decode_request(incoming, ChangeRequest::Lead),
        BusSubject::Operator(_, OperatorVerb::JournalQuarantine | OperatorVerb::CellAcceptLog)
        | BusSubject::Seal(..)
        | BusSubject::ExecIo(..)
        | BusSubject::Heartbeat(_)
        | BusSubject::Rep(..)
        | BusSubject::LeaderHeartbeat(_)
        | BusSubject::Elected(_)
        | BusSubject::Alive(_)
        | BusSubject::FoundingQuery
        | BusSubject::FoundingReply
        | BusSubject::Query(..)
        | BusSubject::ForwardedQuery(..) => {
            let problem = format!("{subject} is not a command");
            let refusal = Refusal::invalid(vec![BadField { field: "subject".into(), problem }]);
            (Form::Json, Err(refusal))
        }
    }
}

fn decode_request<Q: DeserializeOwned>(
    incoming: &Incoming,
    ask: impl FnOnce(Q) -> ChangeRequest,
) -> (Form, Result<ChangeRequest, Refusal>) {
    match codec::decode(&incoming.payload) {
        Ok((question, form)) => (form, Ok(ask(question))),
        Err(refusal) => (Form::Json, Err(refusal)),
    }
}

impl Driver {
    /// Seals every secret in a request. The machine and the log never see a plain secret.
    fn seal_secrets(&self, ask: ChangeRequest) -> Result<ChangeRequest, Refusal> {
        match ask {
            ChangeRequest::Client { domain, client, envelope, command, digest: _ } => {
                let command = command.sealed(&domain, &self.keys.sealer())?;
                Ok(ChangeRequest::client(domain, client, envelope, command))
            }
            ChangeRequest::Cell { .. }
            | ChangeRequest::Outcomes(_)
            | ChangeRequest::Attach { .. }
            | ChangeRequest::Leave { .. }
            | ChangeRequest::Operator { .. }
            | ChangeRequest::Cluster { .. }
            | ChangeRequest::Limit { .. }
            | ChangeRequest::Lead(_) => Ok(ask),
        }
    }

    /// Passes a request to the machine, or replies with the refusal.
    async fn take(&self, waiter: ReplyTarget, ask: Result<ChangeRequest, Refusal>) {
        match ask {
            Ok(ask) => self.queue_request(waiter, |requester| Input::Request { requester, ask }),
            Err(refusal) => self.reply(waiter, Reply::Done(Err(refusal))).await,
        }
    }
}

/// Decodes the envelope and the body of an operator's command.
fn decode_order<B: DeserializeOwned>(incoming: &Incoming) -> Result<(Envelope, B), Refusal> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Request<B> {
        #[serde(default)]
        envelope: Envelope,
        body: B,
    }
    let (Request { envelope, body }, _) = codec::decode::<Request<B>>(&incoming.payload)?;
    Ok((envelope, body))
}

/// Decodes an operator's quarantine order, and the time that the operator waits for its result. The driver
/// carries out the order, because a stopped machine cannot do so.
fn order(operator: ClientName, incoming: &Incoming) -> Result<(QuarantineOrder, Option<Duration>), Refusal> {
    let (envelope, body) = decode_order::<QuarantineEntry>(incoming)?;
    let patience = envelope.timeout_ms.map(Duration::from_millis);
    let reason = envelope.reason.unwrap_or_default();
    Ok((QuarantineOrder { position: body.position, actor: Actor::Operator(operator), reason }, patience))
}

fn cell_command(
    client: &ClientName,
    command: cell::Command,
    incoming: &Incoming,
) -> Result<ChangeRequest, Refusal> {
    let (envelope, cell) = named_cell(incoming)?;
    Ok(ChangeRequest::Operator { client: client.clone(), envelope, cell, command })
}

/// Decodes the envelope and the cell of an operator's command.
fn named_cell(incoming: &Incoming) -> Result<(Envelope, CellId), Refusal> {
    let (envelope, body) = decode_order::<CellCommand>(incoming)?;
    Ok((envelope, body.cell_id))
}

fn cluster_command<B: DeserializeOwned>(
    client: &ClientName,
    command: impl FnOnce(B) -> cluster::Command,
    incoming: &Incoming,
) -> Result<ChangeRequest, Refusal> {
    let (envelope, body) = decode_order(incoming)?;
    Ok(ChangeRequest::Cluster { client: client.clone(), envelope, command: command(body) })
}

fn limit_command(client: &ClientName, incoming: &Incoming) -> Result<ChangeRequest, Refusal> {
    let (envelope, body) = decode_order::<LimitDomain>(incoming)?;
    Ok(ChangeRequest::Limit { client: client.clone(), envelope, order: body })
}

static BAD_HEARTBEAT: LogLimit = LogLimit::new();

/// Passes a heartbeat of a rep to the machine.
pub(super) async fn handle_heartbeat(driver: &Driver, incoming: &Incoming) {
    let Ok((beat, _)) = codec::decode::<schemas::message::Heartbeat>(&incoming.payload) else {
        return BAD_HEARTBEAT.log(|| {
            tracing::warn!(
                subject = truncated(&incoming.subject),
                "a heartbeat is dropped: it can't be decoded"
            );
        });
    };
    if BusSubject::parse(&incoming.subject) == Ok(BusSubject::Heartbeat(beat.cell_id.clone())) {
        driver.watch.count_heartbeat();
        driver.feed(Input::Heartbeat(beat)).await;
    } else {
        BAD_HEARTBEAT.log(|| {
            let (subject, cell) = (truncated(&incoming.subject), &beat.cell_id);
            tracing::warn!(subject, %cell, "a heartbeat is dropped: it names another cell than its subject");
        });
    }
}
