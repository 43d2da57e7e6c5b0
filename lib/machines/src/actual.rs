//! The ActualLRP: the record of one instance of a process (Diego Dev Notes, "ActualLRPs").
//!
//! ```text
//!                ┌────────── unclaim (cell lost, evacuation) ──────────┐
//!                ▼                                                     │
//! (create) ─▶ UNCLAIMED ── claim ──▶ CLAIMED ── start ──▶ RUNNING ─────┤
//!                ▲  └───────────────── start ───────────────▲          │
//!                │                      │ crash             │ crash    │
//!                └── restart when due ─ CRASHED ◀───────────┴──────────┘
//! ```
//!
//! An instance stays CRASHED if its restart policy does not allow a restart. An immediate restart is one
//! decision with the events `[crashed, unclaimed]`.

use serde::{Deserialize, Serialize};

use schemas::actual::{Command, Event, StopReason};
use schemas::container::{Instance, NetInfo};
use schemas::crash::{Attempts, NoRestartReason, Restart};
use schemas::evaluation::Duty;
use schemas::isolation::Isolation;
use schemas::refusal::{Code, Refusal};
use schemas::{Timestamp, limits};

/// Record of one instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actual {
    pub state: State,
    /// Start time of the current state. For an UNCLAIMED record, this time identifies the placement attempt.
    pub since: Timestamp,
    /// Crash count (see [`crash`](schemas::crash)).
    pub crash_count: u32,
    /// Reason of the last crash; empty if the instance never crashed.
    pub crash_reason: Box<str>,
    /// Container of the last crash. The log of the container stays available for a limited time.
    pub crashed_instance: Option<Box<Instance>>,
    /// Reason of the stop request, or `None` if the instance was not asked to stop.
    pub stop: Option<StopReason>,
    /// Restarts that count against the restart policy. `None` if the policy did not limit restarts at the
    /// time of the last crash.
    pub counted: Option<Box<CountedRestarts>>,
}

/// Restarts that count against a restart policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedRestarts {
    /// Attempts up to the last crash.
    pub attempts: Attempts,
    /// Times of the restarts, oldest first. The list is at most as long as the largest `max_attempts` that a
    /// policy may set.
    pub restarts: Vec<Timestamp>,
}

impl CountedRestarts {
    fn after_crash(actual: Option<&Actual>, attempts: Attempts) -> Self {
        Self { attempts, restarts: actual.map_or(&[][..], Actual::restarts).to_vec() }
    }

    fn push(&mut self, at: Timestamp) {
        if self.restarts.len() >= limits::RESTART_ATTEMPTS as usize {
            self.restarts.remove(0);
        }
        self.restarts.push(at);
    }
}

/// State of an ActualLRP. A state change drops the data of the old state. For example, the placement error is
/// dropped when a cell claims the instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Waits for placement by an auction.
    Unclaimed {
        /// Reason why the last auction could not place the instance. `None` if no auction has failed.
        placement_error: Option<Box<str>>,
    },
    /// Assigned to a cell. The cell is starting the instance.
    Claimed {
        /// Container that holds the instance.
        by: Instance,
        /// `true` if the instance was asked to stop.
        stopping: bool,
    },
    /// Running and ready to receive traffic or work.
    Running {
        /// Container that holds the instance.
        by: Instance,
        /// Address and ports of the instance.
        net: Box<NetInfo>,
        /// Isolation layers of the container.
        isolation: Isolation,
        /// `true` if the instance was asked to stop.
        stopping: bool,
    },
    /// Crashed, and no longer on a cell.
    Crashed { restart: Restart },
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
    /// Returns a new UNCLAIMED record.
    fn new(at: Timestamp) -> Self {
        Self {
            state: State::Unclaimed { placement_error: None },
            since: at,
            crash_count: 0,
            crash_reason: "".into(),
            crashed_instance: None,
            stop: None,
            counted: None,
        }
    }

    /// Returns the container that holds the instance, or `None` if it is UNCLAIMED or CRASHED.
    #[must_use]
    pub const fn holder(&self) -> Option<&Instance> {
        match &self.state {
            State::Claimed { by, .. } | State::Running { by, .. } => Some(by),
            State::Unclaimed { .. } | State::Crashed { .. } => None,
        }
    }

    /// Returns `true` if the instance is RUNNING.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        match &self.state {
            State::Running { .. } => true,
            State::Unclaimed { .. } | State::Claimed { .. } | State::Crashed { .. } => false,
        }
    }

    /// Returns `true` if the instance is RUNNING and was not asked to stop.
    #[must_use]
    pub const fn keeps_running(&self) -> bool {
        self.is_running() && !self.is_stopping()
    }

    /// Returns `true` if the instance is CLAIMED or RUNNING and was asked to stop.
    #[must_use]
    pub const fn is_stopping(&self) -> bool {
        self.state.is_stopping()
    }

    /// Returns `true` if the instance is UNCLAIMED, with or without a placement error.
    #[must_use]
    pub const fn is_unclaimed(&self) -> bool {
        matches!(self.state, State::Unclaimed { .. })
    }

    /// Returns the duty of the open evaluation that covers this record, or `None` if the record waits for
    /// nothing.
    #[must_use]
    pub const fn duty(&self) -> Option<Duty> {
        match self.state {
            State::Unclaimed { placement_error: None } => Some(Duty::Place),
            State::Unclaimed { placement_error: Some(_) } => Some(Duty::Unblock),
            State::Crashed { restart: Restart::At(_) } => Some(Duty::Restart),
            State::Crashed { restart: Restart::Immediate | Restart::Never(_) }
            | State::Claimed { .. }
            | State::Running { .. } => None,
        }
    }

    /// Returns `true` if an auction could not place the instance.
    #[must_use]
    pub const fn has_placement_error(&self) -> bool {
        matches!(self.state, State::Unclaimed { placement_error: Some(_) })
    }

    /// Returns the time at which a CRASHED instance restarts. `None` if it is not CRASHED or does not
    /// restart.
    #[must_use]
    pub const fn restart_at(&self) -> Option<Timestamp> {
        match self.state {
            State::Crashed { restart: Restart::Immediate } => Some(self.since),
            State::Crashed { restart: Restart::At(due) } => Some(due),
            State::Crashed { restart: Restart::Never(_) }
            | State::Unclaimed { .. }
            | State::Claimed { .. }
            | State::Running { .. } => None,
        }
    }

    /// Returns the end of the delay of a CRASHED instance. `None` if it is not CRASHED or has no delay.
    #[must_use]
    pub const fn delayed_until(&self) -> Option<Timestamp> {
        match self.state {
            State::Crashed { restart: Restart::At(due) } => Some(due),
            State::Crashed { restart: Restart::Immediate | Restart::Never(_) }
            | State::Unclaimed { .. }
            | State::Claimed { .. }
            | State::Running { .. } => None,
        }
    }

    /// Returns the reason why a CRASHED instance does not restart. `None` if it is not CRASHED or does
    /// restart.
    #[must_use]
    pub const fn no_restart_reason(&self) -> Option<NoRestartReason> {
        match self.state {
            State::Crashed { restart: Restart::Never(why) } => Some(why),
            State::Crashed { restart: Restart::Immediate | Restart::At(_) }
            | State::Unclaimed { .. }
            | State::Claimed { .. }
            | State::Running { .. } => None,
        }
    }

    /// Returns `true` if the instance is CRASHED and the restart condition of its policy prevents a restart.
    /// Such an instance does not count as missing.
    #[must_use]
    pub const fn is_kept_down(&self) -> bool {
        match self.no_restart_reason() {
            Some(NoRestartReason::Succeeded | NoRestartReason::RestartDisabled) => true,
            Some(NoRestartReason::AttemptsExhausted | NoRestartReason::CrashLimit) | None => false,
        }
    }

    /// Returns the times of the restarts that count against the restart policy, oldest first. Empty if the
    /// policy counts no restarts.
    #[must_use]
    pub fn restarts(&self) -> &[Timestamp] {
        self.counted.as_ref().map_or(&[], |counted| &counted.restarts)
    }

    /// Returns Diego's name of the state.
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

/// Effect of a rep's command on a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// No change: the record is already in the requested state.
    Nothing,
    /// The record becomes CLAIMED.
    Claim,
    /// The record becomes RUNNING.
    Start,
    /// The crash policy applies: the record becomes CRASHED, or UNCLAIMED for an immediate restart.
    Crash,
    /// The record is removed.
    Remove(StopReason),
    /// The record becomes UNCLAIMED.
    Unclaim,
}

/// Decides a command of the rep on a record: accepts it as a [`Step`], or refuses it. `by` is the container
/// that the command is about.
///
/// # Errors
/// Returns the refusal of the first matching row in the table below.
#[rustfmt::skip]
pub fn decide(actual: Option<&Actual>, command: &Command, by: &Instance) -> Result<Step, Refusal> {
    use Command as C;
    use State as S;
    let Some(actual) = actual else {
        return match command {
            C::Claim { .. }                   => refuse(Code::ActualLrpCannotBeClaimed,   "the record does \
                not exist"),
            C::Start { .. }                   => Ok(Step::Start),   // a report of a running container is authoritative
            C::Crash { .. }                   => Ok(Step::Crash),   // likewise for a report of a crash
            C::Remove                         => Ok(Step::Nothing),
            C::Unclaim                        => refuse(Code::ActualLrpCannotBeUnclaimed, "the record does \
                not exist"),
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
                                                       => Ok(Step::Remove(StopReason::Crashed)),
        (C::Crash { .. }, S::Claimed { .. } | S::Running { .. }) if mine
                                                       => Ok(Step::Crash),
        (C::Crash { .. }, S::Unclaimed { .. } | S::Claimed { .. } | S::Running { .. } | S::Crashed { .. })
                                                       => refuse(Code::ActualLrpCannotBeCrashed, "the record names another container, or none"),

        (C::Remove, S::Claimed { .. } | S::Running { .. }) if mine
                                                       => Ok(Step::Remove(StopReason::Stopped)),
        (C::Remove, S::Unclaimed { .. } | S::Claimed { .. } | S::Running { .. } | S::Crashed { .. })
                                                       => refuse(Code::ActualLrpCannotBeRemoved, "the record names another container, or none"),

        (C::Unclaim, S::Claimed { stopping: true, .. } | S::Running { stopping: true, .. }) if mine
                                                       => Ok(Step::Remove(StopReason::Evacuated)),
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

/// Applies an event to the record of one slot. Never fails, because entries of the log are always valid.
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
            crashed_instance: old.and_then(|old| old.crashed_instance.clone()),
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
        Event::ExecStarted { .. } => actual,
        Event::Crashed { by, reason, crash_count, restart, attempts, .. } => Some(Actual {
            counted: attempts.map(|attempts| CountedRestarts::after_crash(actual.as_ref(), attempts).into()),
            state: State::Crashed { restart: *restart },
            since: at,
            crash_count: *crash_count,
            crash_reason: limits::truncate(reason, limits::REASON_BYTES).into(),
            crashed_instance: Some(Box::new(by.clone())),
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
                counted.push(at);
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
