//! The ActualLRP: one place of a process (Diego Dev Notes, "ActualLRPs").
//!
//! ```text
//!                ┌────────── unclaim (cell lost, evacuation) ──────────┐
//!                ▼                                                     │
//! (create) ─▶ UNCLAIMED ── claim ──▶ CLAIMED ── start ──▶ RUNNING ─────┤
//!                ▲  └───────────────── start ───────────────▲          │
//!                │                      │ crash             │ crash    │
//!                └── restart when due ─ CRASHED ◀───────────┴──────────┘
//! ```
//! What its restart policy declines to restart stays CRASHED.
//! A crash that restarts at once is the story `[crashed, unclaimed]` in one decision.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::container::{Instance, NetInfo};
use crate::crash::{Attempts, Declined, Restart};
use crate::evaluation::Duty;
use crate::exec::Exec;
use crate::isolation::Isolation;
use crate::key::{Place, Places};
use crate::placement::Explanation;
use crate::refusal::{Code, Refusal};
use crate::{Timestamp, limits};

/// What is true of one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actual {
    /// Its state, with what that state has.
    pub state: State,
    /// When the state was entered. An UNCLAIMED record's `since` names the attempt to place it.
    pub since: Timestamp,
    /// Crashes counted (see [`crash`](crate::crash)).
    pub crash_count: u32,
    /// Why it last crashed; empty: it never did.
    pub crash_reason: Box<str>,
    /// The container that crashed last: its log is there for a while.
    pub crashed_in: Option<Box<Instance>>,
    /// Why it was asked to stop, if it was.
    pub stop: Option<Ended>,
    /// The restarts that its policy counts; none: it didn't when it last crashed.
    pub counted: Option<Box<Counted>>,
}

/// The restarts that a policy counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// As it was at the last crash.
    pub attempts: Attempts,
    /// When it was restarted, the newest last: as many as a policy can ask for.
    pub restarts: Vec<Timestamp>,
}

impl Counted {
    fn after(actual: Option<&Actual>, attempts: Attempts) -> Self {
        Self { attempts, restarts: actual.map_or(&[][..], Actual::restarts).to_vec() }
    }

    fn count(&mut self, at: Timestamp) {
        if self.restarts.len() >= limits::RESTART_ATTEMPTS as usize {
            self.restarts.remove(0);
        }
        self.restarts.push(at);
    }
}

/// The state of an ActualLRP. What a state has, it alone has: a placement error can't outlive an auction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Being scheduled by an auction.
    Unclaimed {
        /// Why it could not be placed, if so.
        placement_error: Option<Box<str>>,
    },
    /// Assigned to a cell and being started.
    Claimed {
        /// The container.
        by: Instance,
        /// Whether it was asked to stop.
        stopping: bool,
    },
    /// Running, ready to receive traffic or work.
    Running {
        /// The container.
        by: Instance,
        /// Where it is reached.
        net: Box<NetInfo>,
        /// How it is kept apart.
        isolation: Isolation,
        /// Whether it was asked to stop.
        stopping: bool,
    },
    /// Crashed; no longer on a cell.
    Crashed {
        /// Whether and when it is restarted.
        restart: Restart,
    },
}

/// What a container's rep asks of the record. `by` is the container that speaks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// The container has a reservation and wants to run.
    Claim {
        /// Why it was placed there, as the auction said.
        placement: Option<Box<Explanation>>,
    },
    /// The container runs.
    Start {
        /// Where it is reached.
        net: NetInfo,
        /// How it is kept apart.
        #[serde(default)]
        isolation: Isolation,
    },
    /// The container ended without having been asked to.
    Crash {
        /// Why.
        reason: String,
        /// The status that its action exited with, if that is why.
        exit_status: Option<i32>,
    },
    /// The container was stopped, or is not there.
    Remove,
    /// The container's cell evacuates: somebody else shall run it.
    Unclaim,
}

/// Why an instance was unclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unclaimed {
    /// It crashed and restarts at once.
    Crash,
    /// Its wait after a crash is over.
    Restart,
    /// Its cell disappeared.
    CellLost,
    /// Its cell evacuates.
    Evacuation,
}

impl Unclaimed {
    /// Whether a restart policy counts it.
    const fn is_attempt(self) -> bool {
        match self {
            Self::Crash | Self::Restart => true,
            Self::CellLost | Self::Evacuation => false,
        }
    }
}

/// Why an instance is asked to stop, or was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The process was removed.
    Removed,
    /// Fewer instances are desired.
    Scale,
    /// Its cell doesn't fit the definition any more.
    CellUnfit,
    /// Somebody stopped this instance.
    Retired,
    /// The process was desired anew; this belongs to its earlier life.
    Superseded,
    /// Nobody desires it, and the domain is fresh.
    Undesired,
    /// The rep stopped it, or has no container for it.
    Stopped,
    /// It crashed while it was being stopped.
    Crashed,
    /// Its cell disappeared while it was being stopped, nobody desires it, or another definition takes its place.
    CellLost,
    /// Its cell evacuated it while it was being stopped, or another definition takes its place.
    Evacuated,
    /// Another definition takes its place.
    Replaced,
    /// Its rollout gave it up: it failed or was too late, or everything goes back because others failed.
    RolloutFailed,
    /// Something more urgent gets its room.
    Preempted,
}

/// What happens to ActualLRPs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// UNCLAIMED records were created.
    Created {
        /// Which.
        places: Places,
    },
    /// A cell took one.
    Claimed {
        /// Which.
        place: Place,
        /// The container.
        by: Instance,
        /// Why there.
        placement: Option<Box<Explanation>>,
    },
    /// One runs.
    Started {
        /// Which.
        place: Place,
        /// The container.
        by: Instance,
        /// Where it is reached.
        net: NetInfo,
        /// How it is kept apart.
        isolation: Isolation,
    },
    /// A client has a program run in the container of one that runs. Nothing of it changes by that.
    Entered {
        /// Which.
        place: Place,
        /// The container.
        by: Instance,
        /// What is run.
        exec: Box<Exec>,
    },
    /// One crashed.
    Crashed {
        /// Which.
        place: Place,
        /// The container.
        by: Instance,
        /// Why.
        reason: String,
        /// The status that its action exited with, if that is why.
        exit_status: Option<i32>,
        /// Crashes counted, with this one.
        crash_count: u32,
        /// Whether and when it is restarted.
        restart: Restart,
        /// How many restarts its policy allows, and how many it counts; none: any number.
        attempts: Option<Attempts>,
    },
    /// An auction could not place some.
    PlacementFailed {
        /// Which.
        places: Places,
        /// Why, as users read it.
        error: String,
        /// Why, cell by cell.
        explanation: Option<Box<Explanation>>,
    },
    /// Some have to be placed anew.
    Unclaimed {
        /// Which.
        places: Places,
        /// Why.
        cause: Unclaimed,
    },
    /// Some were asked to stop: their reps are ordered again until they are gone.
    StopRequested {
        /// Which.
        places: Places,
        /// Why.
        cause: Ended,
    },
    /// Some records are gone.
    Removed {
        /// Which.
        places: Places,
        /// Why.
        cause: Ended,
    },
}

impl State {
    const fn is_stopping(&self) -> bool {
        match self {
            Self::Claimed { stopping, .. } | Self::Running { stopping, .. } => *stopping,
            Self::Unclaimed { .. } | Self::Crashed { .. } => false,
        }
    }
}

impl Actual {
    /// A record that was created just now.
    fn new(at: Timestamp) -> Self {
        Self {
            state: State::Unclaimed { placement_error: None },
            since: at,
            crash_count: 0,
            crash_reason: "".into(),
            crashed_in: None,
            stop: None,
            counted: None,
        }
    }

    /// The container that holds it, if one does.
    #[must_use]
    pub const fn holder(&self) -> Option<&Instance> {
        match &self.state {
            State::Claimed { by, .. } | State::Running { by, .. } => Some(by),
            State::Unclaimed { .. } | State::Crashed { .. } => None,
        }
    }

    /// Whether it is RUNNING.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        match &self.state {
            State::Running { .. } => true,
            State::Unclaimed { .. } | State::Claimed { .. } | State::Crashed { .. } => false,
        }
    }

    /// Whether it is RUNNING and nobody asked it to stop.
    #[must_use]
    pub const fn runs_on(&self) -> bool {
        self.is_running() && !self.is_stopping()
    }

    /// Whether it was asked to stop and is still there.
    #[must_use]
    pub const fn is_stopping(&self) -> bool {
        self.state.is_stopping()
    }

    /// Whether an auction has to place it.
    #[must_use]
    pub const fn is_unclaimed(&self) -> bool {
        matches!(self.state, State::Unclaimed { .. })
    }

    /// What an open evaluation stands for of it; none: it waits for nothing.
    #[must_use]
    pub const fn duty(&self) -> Option<Duty> {
        match self.state {
            State::Unclaimed { placement_error: None } => Some(Duty::Place),
            State::Unclaimed { placement_error: Some(_) } => Some(Duty::Unblock),
            State::Crashed { restart: Restart::At(_) } => Some(Duty::Restart),
            State::Crashed { restart: Restart::AtOnce | Restart::Never(_) }
            | State::Claimed { .. }
            | State::Running { .. } => None,
        }
    }

    /// Whether an auction could not place it.
    #[must_use]
    pub const fn is_unplaced(&self) -> bool {
        matches!(self.state, State::Unclaimed { placement_error: Some(_) })
    }

    /// When a CRASHED instance is to be restarted; none: it isn't CRASHED, or it is not restarted.
    #[must_use]
    pub const fn restart_at(&self) -> Option<Timestamp> {
        match self.state {
            State::Crashed { restart: Restart::AtOnce } => Some(self.since),
            State::Crashed { restart: Restart::At(due) } => Some(due),
            State::Crashed { restart: Restart::Never(_) }
            | State::Unclaimed { .. }
            | State::Claimed { .. }
            | State::Running { .. } => None,
        }
    }

    /// When the wait of a CRASHED instance is over; none: it isn't CRASHED, or waits for nothing.
    #[must_use]
    pub const fn waits_until(&self) -> Option<Timestamp> {
        match self.state {
            State::Crashed { restart: Restart::At(due) } => Some(due),
            State::Crashed { restart: Restart::AtOnce | Restart::Never(_) }
            | State::Unclaimed { .. }
            | State::Claimed { .. }
            | State::Running { .. } => None,
        }
    }

    /// Why a CRASHED instance is not restarted; none: it isn't CRASHED, or it is restarted.
    #[must_use]
    pub const fn declined(&self) -> Option<Declined> {
        match self.state {
            State::Crashed { restart: Restart::Never(why) } => Some(why),
            State::Crashed { restart: Restart::AtOnce | Restart::At(_) }
            | State::Unclaimed { .. }
            | State::Claimed { .. }
            | State::Running { .. } => None,
        }
    }

    /// Whether it ended and its policy's condition says that it shall not be restarted: nothing is missing.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        match self.declined() {
            Some(Declined::Succeeded | Declined::NoRestarts) => true,
            Some(Declined::UsedUp | Declined::GivenUp) | None => false,
        }
    }

    /// When its policy's restarts of it were; none: it counts none.
    #[must_use]
    pub fn restarts(&self) -> &[Timestamp] {
        self.counted.as_ref().map_or(&[], |counted| &counted.restarts)
    }

    /// The name of the state, as Diego writes it.
    #[must_use]
    pub const fn state_name(&self) -> &'static str {
        match self.state {
            State::Unclaimed { .. } => "UNCLAIMED",
            State::Claimed { .. } => "CLAIMED",
            State::Running { .. } => "RUNNING",
            State::Crashed { .. } => "CRASHED",
        }
    }
}

/// What a rep's command does to a record; the steps in which it does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is so already.
    Nothing,
    /// The record becomes CLAIMED.
    Claim,
    /// The record becomes RUNNING.
    Start,
    /// The crash policy decides: UNCLAIMED at once, or CRASHED.
    Crash,
    /// The record goes.
    Remove(Ended),
    /// The record becomes UNCLAIMED.
    Unclaim,
}

/// Judges what the rep of container `by` asks against the record.
///
/// # Errors
/// The refusal that the table below names.
#[rustfmt::skip]
pub fn decide(actual: Option<&Actual>, command: &Command, by: &Instance) -> Result<Step, Refusal> {
    use Command as C;
    use State as S;
    let Some(actual) = actual else {
        return match command {
            C::Claim { .. }                   => refuse(Code::ActualLrpCannotBeClaimed,   "there is no record to claim"),
            C::Start { .. }                   => Ok(Step::Start),   // a running container says what is true
            C::Crash { .. }                   => Ok(Step::Crash),   // so does one that just crashed
            C::Remove                         => Ok(Step::Nothing),
            C::Unclaim                        => refuse(Code::ActualLrpCannotBeUnclaimed, "there is no record to give up"),
        };
    };
    let mine = actual.holder() == Some(by);
    match (command, &actual.state) {
        (C::Claim { .. }, S::Unclaimed { .. })         => Ok(Step::Claim),
        (C::Claim { .. }, S::Claimed { .. }) if mine   => Ok(Step::Nothing),
        (C::Claim { .. }, S::Claimed { .. })           => refuse(Code::ActualLrpCannotBeClaimed, "it is claimed by another container"),
        (C::Claim { .. }, S::Running { .. }) if mine   => Ok(Step::Claim),
        (C::Claim { .. }, S::Running { .. })           => refuse(Code::ActualLrpCannotBeClaimed, "it runs in another container"),
        (C::Claim { .. }, S::Crashed { .. })           => refuse(Code::ActualLrpCannotBeClaimed, "it is CRASHED"),

        (C::Start { .. }, S::Unclaimed { .. })         => Ok(Step::Start),
        (C::Start { .. }, S::Claimed { .. })           => Ok(Step::Start),
        (C::Start { net, .. }, S::Running { net: known, .. }) if mine =>
                                                          Ok(if **known == *net { Step::Nothing } else { Step::Start }),
        (C::Start { .. }, S::Running { .. })           => refuse(Code::ActualLrpCannotBeStarted, "it runs in another container"),
        (C::Start { .. }, S::Crashed { .. })           => Ok(Step::Start),

        (C::Crash { .. }, S::Claimed { stopping: true, .. } | S::Running { stopping: true, .. }) if mine
                                                       => Ok(Step::Remove(Ended::Crashed)),
        (C::Crash { .. }, S::Claimed { .. } | S::Running { .. }) if mine
                                                       => Ok(Step::Crash),
        (C::Crash { .. }, S::Unclaimed { .. } | S::Claimed { .. } | S::Running { .. } | S::Crashed { .. })
                                                       => refuse(Code::ActualLrpCannotBeCrashed, "the record names another container, or none"),

        (C::Remove, S::Claimed { .. } | S::Running { .. }) if mine
                                                       => Ok(Step::Remove(Ended::Stopped)),
        (C::Remove, S::Unclaimed { .. } | S::Claimed { .. } | S::Running { .. } | S::Crashed { .. })
                                                       => refuse(Code::ActualLrpCannotBeRemoved, "the record names another container, or none"),

        (C::Unclaim, S::Claimed { stopping: true, .. } | S::Running { stopping: true, .. }) if mine
                                                       => Ok(Step::Remove(Ended::Evacuated)),
        (C::Unclaim, S::Claimed { .. } | S::Running { .. }) if mine
                                                       => Ok(Step::Unclaim),
        (C::Unclaim, S::Unclaimed { .. })              => Ok(Step::Nothing),
        (C::Unclaim, S::Claimed { .. } | S::Running { .. } | S::Crashed { .. })
                                                       => refuse(Code::ActualLrpCannotBeUnclaimed, "the record names another container, or none"),
    }
}

fn refuse(code: Code, why: &str) -> Result<Step, Refusal> {
    Err(Refusal::new(code, why))
}

/// Folds what happened to one place. Total: the log is never argued with.
#[must_use]
pub fn evolve(actual: Option<Actual>, event: &Event, at: Timestamp) -> Option<Actual> {
    let stopping = actual.as_ref().is_some_and(Actual::is_stopping);
    let enter = |state: State| {
        let old = actual.as_ref();
        let stop = old.and_then(|old| old.stop).filter(|_| state.is_stopping());
        Some(Actual {
            stop,
            state,
            since: at,
            crash_count: old.map_or(0, |old| old.crash_count),
            crash_reason: old.map_or_else(|| "".into(), |old| old.crash_reason.clone()),
            crashed_in: old.and_then(|old| old.crashed_in.clone()),
            counted: old.and_then(|old| old.counted.clone()),
        })
    };
    match event {
        Event::Created { .. } => Some(Actual::new(at)),
        Event::Claimed { by, .. } => {
            actual.as_ref()?;
            enter(State::Claimed { by: by.clone(), stopping })
        }
        Event::Started { by, net, isolation, .. } => {
            let (by, net, isolation) = (by.clone(), net.clone().into(), *isolation);
            enter(State::Running { by, net, isolation, stopping })
        }
        Event::Entered { .. } => actual,
        Event::Crashed { by, reason, crash_count, restart, attempts, .. } => Some(Actual {
            counted: attempts.map(|attempts| Counted::after(actual.as_ref(), attempts).into()),
            state: State::Crashed { restart: *restart },
            since: at,
            crash_count: *crash_count,
            crash_reason: limits::cut(reason, limits::REASON_BYTES).into(),
            crashed_in: Some(Box::new(by.clone())),
            stop: None,
        }),
        Event::PlacementFailed { error, .. } => {
            let old = actual?;
            let state = match old.state {
                State::Unclaimed { .. } => State::Unclaimed { placement_error: Some(error.as_str().into()) },
                held @ (State::Claimed { .. } | State::Running { .. } | State::Crashed { .. }) => held,
            };
            Some(Actual { state, ..old })
        }
        Event::Unclaimed { cause, .. } => {
            actual.as_ref()?;
            let mut new = enter(State::Unclaimed { placement_error: None })?;
            if let Some(counted) = new.counted.as_mut().filter(|_| cause.is_attempt()) {
                counted.count(at);
            }
            Some(new)
        }
        Event::StopRequested { cause, .. } => {
            let mut old = actual?;
            match &mut old.state {
                State::Claimed { stopping, .. } | State::Running { stopping, .. } => {
                    *stopping = true;
                    old.stop = Some(*cause);
                }
                State::Unclaimed { .. } | State::Crashed { .. } => {}
            }
            Some(old)
        }
        Event::Removed { .. } => None,
    }
}

impl Event {
    /// Whether it makes work: now, or, after a crash, when the wait is over.
    #[must_use]
    pub const fn makes_work(&self) -> bool {
        match self {
            Self::Created { .. } | Self::Unclaimed { .. } | Self::Crashed { .. } => true,
            Self::Claimed { .. }
            | Self::Started { .. }
            | Self::Entered { .. }
            | Self::PlacementFailed { .. }
            | Self::StopRequested { .. }
            | Self::Removed { .. } => false,
        }
    }

    /// Whether instances stay no longer on their cells, where they were in the way of their siblings.
    #[must_use]
    pub const fn ends_stay(&self) -> bool {
        match self {
            Self::Crashed { .. }
            | Self::Unclaimed { .. }
            | Self::StopRequested { .. }
            | Self::Removed { .. } => true,
            Self::Created { .. }
            | Self::Claimed { .. }
            | Self::Started { .. }
            | Self::Entered { .. }
            | Self::PlacementFailed { .. } => false,
        }
    }

    /// The places that it speaks of.
    #[must_use]
    pub fn places(&self) -> Places {
        match self {
            Self::Created { places, .. }
            | Self::PlacementFailed { places, .. }
            | Self::Unclaimed { places, .. }
            | Self::StopRequested { places, .. }
            | Self::Removed { places, .. } => places.clone(),
            Self::Claimed { place, .. }
            | Self::Started { place, .. }
            | Self::Entered { place, .. }
            | Self::Crashed { place, .. } => place.clone().into(),
        }
    }
}
