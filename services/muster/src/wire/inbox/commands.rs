//! Commands, reports and outcomes on their way to the machine. The subject proves the caller.

use std::sync::Arc;
use std::time::Duration;

use bbs::{Ask, Input, Reply};
use bus::{Incoming, LogLimit, brief};
use projections::cluster_log::SetAsideOrder;
use schemas::bus::{AuctioneerVerb, BusSubject, OperatorVerb};
use schemas::codec::{self, Form};
use schemas::entry::Actor;
use schemas::exec::{Talk, Talking};
use schemas::message::{Envelope, OfCell, Reshard, SetAside, SwitchPreemption};
use schemas::names::{CellId, ClientName};
use schemas::quota::LimitDomain;
use schemas::sight::Sight;
use schemas::spec::{item_to_json, to_seal};
use schemas::{BadField, Code, Refusal, cell, cluster};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::authority::{is_commander, may_ask, reply_of};
use super::relay;
use crate::wire::asking::answer;
use crate::wire::bbs::{Asker, Driver, Waiter};
use crate::wire::watching::commands::Asked;

/// Passes a command, a report or an outcome to the machine.
pub(super) async fn command(driver: &Arc<Driver>, incoming: &Incoming) {
    match BusSubject::parse(&incoming.subject) {
        Ok(subject) => {
            let Some(reply) = reply_of(incoming, |reply| may_ask(&subject, reply)) else { return };
            let asked = Asked::on(&subject);
            let ticket = match driver.budgets.admit_command(&subject) {
                Ok(ticket) => ticket,
                Err(refusal) => return driver.refuse(reply, refusal).await,
            };
            if let BusSubject::Operator(operator, OperatorVerb::JournalSetAside) = subject {
                let (driver, order) = (Arc::clone(driver), order(operator, incoming));
                tokio::spawn(async move {
                    let done = match order {
                        Ok((order, patience)) => driver.set_aside(order, patience).await,
                        Err(refusal) => Err(refusal),
                    };
                    driver.watch.commands.answered(asked, &done);
                    answer(driver.services.bus(), &reply, Form::Json, done).await;
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
                    answer(driver.services.bus(), &reply, Form::Json, done).await;
                    drop(ticket);
                });
                return;
            }
            if let BusSubject::Talk(domain, client) = subject {
                let (driver, talk) = (Arc::clone(driver), codec::decode::<Talk>(&incoming.payload));
                tokio::spawn(async move {
                    let talked = match talk {
                        Ok((talk, _)) => relay::talk(&driver, Talking { domain, client, talk }).await,
                        Err(refusal) => Err(refusal),
                    };
                    answer(driver.services.bus(), &reply, Form::Json, talked).await;
                    drop(ticket);
                });
                return;
            }
            if let BusSubject::Seal(domain, _) = subject {
                let sealed =
                    to_seal(&domain, &incoming.payload).and_then(|item| item.sealed(&driver.keys.hand()));
                let sealed = sealed.map(|item| item_to_json(&item));
                driver.watch.commands.answered(asked, &sealed);
                return answer(driver.services.bus(), &reply, Form::Json, sealed).await;
            }
            let (form, ask) = read(&subject, incoming);
            let ask = ask.and_then(|ask| driver.sealed(ask));
            let ask = match driver.stopped() {
                Some(why) => Err(Refusal::new(Code::Unavailable, format!("this BBS has stopped: {why}"))),
                None => ask,
            };
            let asker = Asker { to: reply, form, sight: Sight::Nothing, ticket, asked };
            driver.take(Waiter::Bus(asker), ask).await;
        }
        Err(refusal) => {
            if let Some(reply) = reply_of(incoming, is_commander) {
                driver.refuse(reply, refusal).await;
            }
        }
    }
}

fn read(subject: &BusSubject, incoming: &Incoming) -> (Form, Result<Ask, Refusal>) {
    match subject {
        BusSubject::Client(domain, client, verb) => {
            let (noun, verb) = verb.noun_and_verb();
            let read = schemas::spec::client_command(noun, verb, domain, &incoming.payload);
            let ask = read.map(|(envelope, command)| Ask::Client {
                domain: domain.clone(),
                client: client.clone(),
                envelope,
                command,
            });
            (Form::Json, ask)
        }
        BusSubject::Operator(client, OperatorVerb::CellEvacuate) => {
            (Form::Json, of_cell(client, cell::Command::Evacuate, incoming))
        }
        BusSubject::Operator(client, OperatorVerb::CellCordon) => {
            (Form::Json, of_cell(client, cell::Command::Cordon, incoming))
        }
        BusSubject::Operator(client, OperatorVerb::CellUncordon) => {
            (Form::Json, of_cell(client, cell::Command::Uncordon, incoming))
        }
        BusSubject::Operator(client, OperatorVerb::CellForget) => {
            (Form::Json, of_cell(client, cell::Command::Forget, incoming))
        }
        BusSubject::Operator(client, OperatorVerb::ClusterPreemption) => {
            let command = |body: SwitchPreemption| cluster::Command::SwitchPreemption(body.on);
            (Form::Json, of_cluster(client, command, incoming))
        }
        BusSubject::Operator(client, OperatorVerb::ClusterShards) => {
            let command = |body: Reshard| cluster::Command::Reshard(body.shards);
            (Form::Json, of_cluster(client, command, incoming))
        }
        BusSubject::Operator(client, OperatorVerb::DomainLimit) => (Form::Json, limit(client, incoming)),
        BusSubject::Attach(cell) => decoded(incoming, |attach| Ask::Attach { cell: cell.clone(), attach }),
        BusSubject::Leave(cell) => decoded(incoming, |leave| Ask::Leave { cell: cell.clone(), leave }),
        BusSubject::Report(cell) => decoded(incoming, |reports| Ask::Cell { cell: cell.clone(), reports }),
        BusSubject::Auctioneer(AuctioneerVerb::Outcome) => decoded(incoming, Ask::Outcomes),
        BusSubject::Auctioneer(AuctioneerVerb::Lead) => decoded(incoming, Ask::Lead),
        BusSubject::Operator(_, OperatorVerb::JournalSetAside | OperatorVerb::CellAcceptLog)
        | BusSubject::Seal(..)
        | BusSubject::Talk(..)
        | BusSubject::Heartbeat(_)
        | BusSubject::Rep(..)
        | BusSubject::Beat(_)
        | BusSubject::Elected(_)
        | BusSubject::Alive(_)
        | BusSubject::FoundingAsked
        | BusSubject::FoundingKnown
        | BusSubject::Query(..)
        | BusSubject::QueryOf(..) => {
            let problem = format!("{subject} is not a command");
            let refusal = Refusal::invalid(vec![BadField { field: "subject".into(), problem }]);
            (Form::Json, Err(refusal))
        }
    }
}

fn decoded<Q: DeserializeOwned>(
    incoming: &Incoming,
    ask: impl FnOnce(Q) -> Ask,
) -> (Form, Result<Ask, Refusal>) {
    match codec::decode(&incoming.payload) {
        Ok((question, form)) => (form, Ok(ask(question))),
        Err(refusal) => (Form::Json, Err(refusal)),
    }
}

impl Driver {
    /// Seals every secret in a request. The machine and the log never see a plain secret.
    fn sealed(&self, ask: Ask) -> Result<Ask, Refusal> {
        match ask {
            Ask::Client { domain, client, envelope, command } => {
                let command = command.sealed(&domain, &self.keys.hand())?;
                Ok(Ask::Client { domain, client, envelope, command })
            }
            Ask::Cell { .. }
            | Ask::Outcomes(_)
            | Ask::Attach { .. }
            | Ask::Leave { .. }
            | Ask::Operator { .. }
            | Ask::Cluster { .. }
            | Ask::Limit { .. }
            | Ask::Lead(_) => Ok(ask),
        }
    }

    /// Passes a request to the machine, or replies with the refusal.
    async fn take(&self, waiter: Waiter, ask: Result<Ask, Refusal>) {
        match ask {
            Ok(ask) => self.ask_machine(waiter, |requester| Input::Asked { requester, ask }),
            Err(refusal) => self.reply(waiter, Reply::Done(Err(refusal))).await,
        }
    }
}

/// Decodes the envelope and the body of an operator's command.
fn ordered<B: DeserializeOwned>(incoming: &Incoming) -> Result<(Envelope, B), Refusal> {
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

/// Decodes an operator's quarantine order, and the time that the operator waits for it. The driver carries it
/// out, because a stopped machine cannot.
fn order(operator: ClientName, incoming: &Incoming) -> Result<(SetAsideOrder, Option<Duration>), Refusal> {
    let (envelope, body) = ordered::<SetAside>(incoming)?;
    let patience = envelope.patience_ms.map(Duration::from_millis);
    let reason = envelope.reason.unwrap_or_default();
    Ok((SetAsideOrder { position: body.position, actor: Actor::Operator(operator), reason }, patience))
}

fn of_cell(client: &ClientName, command: cell::Command, incoming: &Incoming) -> Result<Ask, Refusal> {
    let (envelope, cell) = named_cell(incoming)?;
    Ok(Ask::Operator { client: client.clone(), envelope, cell, command })
}

/// Decodes the envelope and the cell of an operator's command.
fn named_cell(incoming: &Incoming) -> Result<(Envelope, CellId), Refusal> {
    let (envelope, body) = ordered::<OfCell>(incoming)?;
    Ok((envelope, body.cell_id))
}

fn of_cluster<B: DeserializeOwned>(
    client: &ClientName,
    command: impl FnOnce(B) -> cluster::Command,
    incoming: &Incoming,
) -> Result<Ask, Refusal> {
    let (envelope, body) = ordered(incoming)?;
    Ok(Ask::Cluster { client: client.clone(), envelope, command: command(body) })
}

fn limit(client: &ClientName, incoming: &Incoming) -> Result<Ask, Refusal> {
    let (envelope, body) = ordered::<LimitDomain>(incoming)?;
    Ok(Ask::Limit { client: client.clone(), envelope, order: body })
}

static BAD_HEARTBEAT: LogLimit = LogLimit::new();

/// Passes a heartbeat of a rep to the machine.
pub(super) async fn heartbeat(driver: &Driver, incoming: &Incoming) {
    let Ok((beat, _)) = codec::decode::<schemas::message::Heartbeat>(&incoming.payload) else {
        return BAD_HEARTBEAT.log(|| {
            tracing::warn!(subject = brief(&incoming.subject), "a heartbeat is dropped: it can't be decoded");
        });
    };
    if BusSubject::parse(&incoming.subject) == Ok(BusSubject::Heartbeat(beat.cell_id.clone())) {
        driver.watch.heard();
        driver.feed(Input::Heartbeat(beat)).await;
    } else {
        BAD_HEARTBEAT.log(|| {
            let (subject, cell) = (brief(&incoming.subject), &beat.cell_id);
            tracing::warn!(subject, %cell, "a heartbeat is dropped: it names another cell than its subject");
        });
    }
}
