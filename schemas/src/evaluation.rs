//! Evaluations: the record of every scheduling attempt and its cause (docs/model.md, "Evaluations").
//!
//! ```text
//! (cause) ──▶ pending ──▶ complete     everything was placed
//!               │  └────▶ canceled     nothing was left to place
//!               │  └────▶ failed       a task that no cell could take
//!               ▼
//!            blocked ───▶ complete     capacity appeared
//!                  └────▶ canceled     superseded by a new cause, or nothing left to place
//! ```
//! A process or a task has at most one that is pending or blocked.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::entry::Stamp;
use crate::names::DecisionId;

/// One scheduling attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evaluation {
    /// Its id: that of the decision that created it.
    pub id: DecisionId,
    /// The first command of the chain that led to it.
    pub correlation: DecisionId,
    /// What made the work.
    pub trigger: Trigger,
    /// Where it stands.
    pub status: Status,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its status last changed.
    pub since: Timestamp,
    /// The evaluation that it supersedes.
    pub previous: Option<DecisionId>,
}

/// What made the work. In brackets: the `TriggeredBy` of Nomad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// A process was desired, or a task (job-register).
    Desire,
    /// More instances were desired (job-scaling).
    Scale,
    /// An instance was stopped and is still wanted (alloc-stop).
    Stop,
    /// An instance crashed and restarts at once (alloc-failure).
    Crash,
    /// A CRASHED instance's wait is over (alloc-failure).
    Restart,
    /// A cell disappeared (node-update).
    CellLost,
    /// A cell evacuates (node-drain).
    Evacuation,
    /// A rollout replaces an instance (rolling-update, deployment-watcher).
    Rollout,
    /// A global process runs on another cell, or on one that takes work again (node-update).
    CellsChanged,
    /// Only convergence found it. In a healthy cluster this stays at 0.
    Convergence,
}

/// Where an evaluation stands. Scheduling, applying, delayed and deleted are derived, not stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// To be scheduled.
    Pending,
    /// What is left could not be placed; tried again the moment capacity appears.
    Blocked {
        /// Why.
        reason: String,
    },
    /// Everything was placed.
    Complete,
    /// The work will not be placed.
    Failed {
        /// Why.
        reason: String,
    },
    /// Nothing was left to place, or another cause superseded it.
    Canceled,
}

impl Status {
    /// Whether work waits on it.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        match self {
            Self::Pending | Self::Blocked { .. } => true,
            Self::Complete | Self::Failed { .. } | Self::Canceled => false,
        }
    }
}

/// What happens to evaluations. Each but `created` speaks of the open one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Work appeared. An evaluation that is still open is superseded: canceled.
    Created {
        /// What made it.
        trigger: Trigger,
    },
    /// What is left could not be placed.
    Blocked {
        /// Why.
        reason: String,
    },
    /// Everything was placed.
    Completed {},
    /// The work will not be placed.
    Failed {
        /// Why.
        reason: String,
    },
    /// Nothing was left to place.
    Canceled {},
}

/// The work that a decision leaves behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// UNCLAIMED indices, or 1 for a PENDING task.
    pub unclaimed: u32,
    /// Those of them that carry a placement error.
    pub unplaced: u32,
    /// Whether the decision placed something.
    pub placed: bool,
}

/// What a decision means for the evaluation: at most one event. `made` is the trigger if the decision made work, and
/// `error` the placement error if it brought one.
#[must_use]
pub fn decide(
    open: Option<&Evaluation>,
    made: Option<Trigger>,
    left: Left,
    error: Option<&str>,
) -> Option<Event> {
    let pending = open.is_some_and(|evaluation| evaluation.status == Status::Pending);
    let unanswered = left.unclaimed > left.unplaced;
    match (made, open) {
        (Some(_), Some(_)) if pending && unanswered => None,
        (Some(trigger), Some(_)) if unanswered => Some(Event::Created { trigger }),
        (Some(trigger), None) if left.unclaimed > 0 => Some(Event::Created { trigger }),
        (_, None) => None,
        (_, Some(_)) if left.unclaimed == 0 && left.placed => Some(Event::Completed {}),
        (_, Some(_)) if left.unclaimed == 0 => Some(Event::Canceled {}),
        (_, Some(open)) if left.unplaced == left.unclaimed => {
            let reason = error?.to_owned();
            let blocked = Status::Blocked { reason: reason.clone() };
            (open.status != blocked).then_some(Event::Blocked { reason })
        }
        (_, Some(_)) => None,
    }
}

/// Folds what happened into the row of evaluations, the newest last.
pub fn evolve(evaluations: &mut Vec<Evaluation>, event: &Event, stamp: &Stamp) {
    let at = stamp.at;
    let status = match event {
        Event::Created { .. } | Event::Canceled {} => Status::Canceled,
        Event::Blocked { reason } => Status::Blocked { reason: reason.clone() },
        Event::Completed {} => Status::Complete,
        Event::Failed { reason } => Status::Failed { reason: reason.clone() },
    };
    let previous = evaluations.last_mut().filter(|last| last.status.is_open()).map(|last| {
        last.status = status;
        last.since = at;
        last.id
    });
    if let Event::Created { trigger } = event {
        let trigger = *trigger;
        if evaluations.len() >= crate::limits::KEPT_EVALUATIONS {
            evaluations.remove(0);
        }
        evaluations.reserve_exact(1);
        evaluations.push(Evaluation {
            id: stamp.decision,
            correlation: stamp.correlation,
            trigger,
            status: Status::Pending,
            created_at: at,
            since: at,
            previous,
        });
    }
}

/// The evaluation that is pending or blocked.
#[must_use]
pub fn open(evaluations: &[Evaluation]) -> Option<&Evaluation> {
    evaluations.last().filter(|last| last.status.is_open())
}
