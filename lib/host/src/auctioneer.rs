//! Effect driver of an auctioneer: performs the effects of the state machine.

use std::sync::Arc;
use std::time::Duration;

use auctioneer::{Auctioneer, Effect, Input, Settings};
use bus::{Bus, Subscription};
use journal::{Journal, StoredEntry};
use projections::Reader;
use projections::reader::{self, ReadMessage};
use schemas::bus::{BusPattern, BusSubject};
use schemas::cluster::Role;
use schemas::message::Program;
use schemas::names::ServiceId;
use schemas::verb::{AuctioneerVerb, RepVerb};
use schemas::{Position, Refusal, codec};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::drive::{INPUT_CAPACITY, drive, run_or_spawn};
use super::election_listener::ElectionListener;
use super::monitoring::auctioneer::{AuctioneerMetrics, AuctioneerObserver};
use super::past::{Cache, StartState};
use super::presence::{LeaderHeartbeats, PresencePublisher};
use super::requests::{REQUEST_TIMEOUT, ServiceClient};
use super::run_error::{RunError, UnreadableEntry};
use super::{follower, founding, quarantine};

/// Runs an auctioneer until `stop` is cancelled. An entry that this program does not understand stops the
/// machine. The machine stays stopped until an operator quarantines the entry. A new machine then reads the
/// log again, as after a start of the program.
///
/// # Errors
/// The journal or the bus fails.
pub(crate) async fn run(
    who: (ServiceId, Program),
    (journal, bus): (Journal, Bus),
    cache: Option<Cache>,
    watch: Arc<AuctioneerMetrics>,
    stop: CancellationToken,
) -> Result<(), RunError> {
    loop {
        let listening = ElectionListener::subscribe(&bus, Role::Auctioneer, who.0.clone()).await?;
        let Some(log) = quarantine::current_cluster_log(&journal, &stop).await? else { return Ok(()) };
        listening.set_leader(log.leader(Role::Auctioneer));
        let cluster_id = log.cluster_id();
        let _named = founding::report(&bus, format!("auctioneer {}", who.0), move || cluster_id).await?;
        let begin = StartState::load(&journal, cache.as_ref(), log.quarantined()).await;
        let lines = (journal.clone(), bus.clone());
        let ended = run_machine(who.clone(), (begin, listening), lines, &watch, &stop).await;
        watch.mark_idle();
        let why = match ended {
            Err(RunError::Unreadable(why)) => why,
            ended => return ended,
        };
        tracing::error!(
            "{why}. No data is lost. This auctioneer has stopped placing work. \
                 To quarantine the entry: muster journal quarantine POSITION --reason TEXT"
        );
        if !quarantine::wait_for_change(&journal, log.quarantined(), &stop).await? {
            return Err(why.into());
        }
        tracing::warn!("the entry that stopped this auctioneer is quarantined: continuing");
    }
}

/// Runs one machine until `stop` is cancelled or an error ends it.
async fn run_machine(
    who: (ServiceId, Program),
    (begin, listening): (StartState, ElectionListener),
    (journal, bus): (Journal, Bus),
    watch: &AuctioneerMetrics,
    stop: &CancellationToken,
) -> Result<(), RunError> {
    let (inputs, mut receiver) = mpsc::channel(INPUT_CAPACITY);
    let fatal = Arc::new(parking_lot::Mutex::new(None));
    let ends = stop.child_token();
    subscribe(&bus, &inputs).await?;
    let (reader, world) = begin.from;
    let from = (reader, world.position());
    let follower = tokio::spawn(follow(journal, from, inputs.clone(), ends.clone(), Arc::clone(&fatal)));
    let machine = Auctioneer::with_world(who.0.clone(), Settings::default(), world);
    let mut machine = machine.with_election(listening.into_election());
    let beating = PresencePublisher::new(bus.clone(), Role::Auctioneer, who);
    let services = Arc::new((ServiceClient::new(bus), LeaderHeartbeats::new(Role::Auctioneer)));
    let act = |effect| perform(effect, &services, &inputs);
    let beside = (|standing, may_lead| beating.say(standing, may_lead, None), AuctioneerObserver(watch));
    drive(&mut machine, &mut receiver, ends, act, beside).await;
    if let Some(beat) = machine.final_heartbeat() {
        let (services, beats) = &*services;
        beats.step_down(services, &beat).await;
    }
    follower.abort();
    let fatal = fatal.lock().take();
    fatal.map_or(Ok(()), Err)
}

/// Error that ended the follower of the journal. `run_machine` returns this error.
type Fatal = Arc<parking_lot::Mutex<Option<RunError>>>;

async fn follow(
    journal: Journal,
    (mut reader, after): (Reader, Position),
    inputs: mpsc::Sender<Input>,
    ends: CancellationToken,
    fatal: Fatal,
) {
    let read = |recorded| input(&mut reader, recorded);
    if let Err(why) = follower::follow(&journal, after, &inputs, Input::CaughtUp, read).await {
        *fatal.lock() = Some(why);
        ends.cancel();
    }
}

/// Converts a recorded entry to an input. A malformed entry counts as an empty entry. The BBS does the same,
/// so both fold the same World (the state derived from the log). An entry of a later program version is an
/// error.
fn input(reader: &mut Reader, recorded: StoredEntry) -> Result<Option<Input>, UnreadableEntry> {
    let StoredEntry { position, subject, bytes, .. } = recorded;
    let read = reader
        .read(position, &subject, &bytes)
        .map_err(|why| UnreadableEntry(format!("position {position}: {why}")))?;
    let entry = match read {
        ReadMessage::Entry(entry) => entry,
        ReadMessage::Quarantined(why) => {
            tracing::warn!(%position, subject, why, "quarantined an entry");
            reader::empty_entry()
        }
    };
    Ok(Some(Input::Recorded { position, entry: Arc::new(entry) }))
}

async fn subscribe(bus: &Bus, inputs: &mpsc::Sender<Input>) -> Result<(), bus::BusError> {
    let heartbeats = bus.subscribe(&BusPattern::Heartbeats.to_string(), None).await?;
    let beats = bus.subscribe(&BusPattern::LeaderHeartbeats(Role::Auctioneer).to_string(), None).await?;
    tokio::spawn(feed(heartbeats, inputs.clone(), Input::Heartbeat));
    tokio::spawn(feed(beats, inputs.clone(), Input::Beat));
    Ok(())
}

/// Passes the valid messages of a subscription to the machine.
async fn feed<T: DeserializeOwned>(
    mut messages: Subscription,
    inputs: mpsc::Sender<Input>,
    input: fn(T) -> Input,
) {
    while let Some(incoming) = messages.next().await {
        if let Ok((message, _)) = codec::decode(&incoming.payload)
            && inputs.send(input(message)).await.is_err()
        {
            return;
        }
    }
}

fn perform(effect: Effect, others: &Arc<(ServiceClient, LeaderHeartbeats)>, inputs: &mpsc::Sender<Input>) {
    let (others, inputs) = (Arc::clone(others), inputs.clone());
    run_or_spawn(async move {
        let (services, beats) = &*others;
        let input = match effect {
            Effect::Perform { cell, perform } => {
                let subject = BusSubject::Rep(cell.clone(), RepVerb::Perform).to_string();
                let answer = services.request(&subject, &perform, REQUEST_TIMEOUT).await;
                Some(Input::Performed { cell, id: perform.id, answer })
            }
            Effect::Outcomes { id, outcomes } => {
                let subject = BusSubject::Auctioneer(AuctioneerVerb::Outcome).to_string();
                let answer = services.request(&subject, &outcomes, REQUEST_TIMEOUT).await;
                Some(Input::OutcomesAnswered { id, answer })
            }
            Effect::Lead(lead) => {
                let patience = Duration::from_secs(2);
                let subject = BusSubject::Auctioneer(AuctioneerVerb::Lead).to_string();
                let answer: Option<Result<_, Refusal>> = services.request(&subject, &lead, patience).await;
                Some(Input::LeadAnswered(answer))
            }
            Effect::Beat(beat) => {
                beats.say(services, &beat).await;
                None
            }
        };
        if let Some(input) = input {
            // Sending fails only if the machine has ended.
            drop(inputs.send(input).await);
        }
    });
}
