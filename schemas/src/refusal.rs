//! Refusals: a command that is not carried out says so with a stable code, and why.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limits;

/// Why a command was refused: programs match on it, so a code never changes its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Code {
    /// It exists already.
    ResourceExists,
    /// It doesn't exist.
    ResourceNotFound,
    /// The command expected another version than the current one.
    ResourceConflict,
    /// The record is in a state in which this can't be done.
    InvalidStateTransition,
    /// The command would grow its domain beyond a quota.
    QuotaExceeded,
    /// The instance is claimed or running elsewhere, or crashed.
    #[serde(rename = "ActualLRPCannotBeClaimed")]
    ActualLrpCannotBeClaimed,
    /// The instance runs elsewhere.
    #[serde(rename = "ActualLRPCannotBeStarted")]
    ActualLrpCannotBeStarted,
    /// The reporting container isn't the one that the record names.
    #[serde(rename = "ActualLRPCannotBeCrashed")]
    ActualLrpCannotBeCrashed,
    /// The reporting container isn't the one that the record names.
    #[serde(rename = "ActualLRPCannotBeRemoved")]
    ActualLrpCannotBeRemoved,
    /// The reporting container isn't the one that the record names, or there is nothing to give up.
    #[serde(rename = "ActualLRPCannotBeUnclaimed")]
    ActualLrpCannotBeUnclaimed,
    /// The evacuating record belongs to another cell.
    #[serde(rename = "ActualLRPCannotBeEvacuated")]
    ActualLrpCannotBeEvacuated,
    /// The task runs on another cell.
    RunningOnDifferentCell,
    /// The command speaks of another life of this guid.
    StaleEpoch,
    /// The report speaks of a record that has changed since.
    StaleRecord,
    /// The command comes from a leader of a lower term.
    StaleTerm,
    /// The cell is not present.
    CellAbsent,
    /// Another rep, with a data folder of its own, speaks for the cell.
    CellTaken,
    /// The command is malformed; every bad field is named.
    InvalidRequest,
    /// The command waited for the whole of its `patience_ms`.
    DeadlinePassed,
    /// The client gave the same request id to another command, or the same key to another dispatch.
    RequestIdReused,
    /// Content and subject name different domains or cells.
    Forbidden,
    /// Too many commands wait already; try again.
    Overloaded,
    /// The position that a cursor names is no longer held: list from the beginning.
    Expired,
    /// The program asked can't do that now: it doesn't lead, it is starting, or the log takes no entries. Try again with the same
    /// request id; the message says whether nothing was stored or the outcome is unknown.
    Unavailable,
    /// The bytes are of another schema; say it again as JSON.
    Unreadable,
}

/// What a code means for whoever asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// What it is about does not exist.
    NotFound,
    /// What is true, or another request, stands against it.
    Conflict,
    /// Nothing was judged: the same may be asked again later, or of somebody else.
    NotNow,
    /// It is wrong as it was asked, whenever it is asked.
    Invalid,
}

impl Code {
    /// Every one of them.
    pub const ALL: [Self; 25] = [
        Self::ResourceExists,
        Self::ResourceNotFound,
        Self::ResourceConflict,
        Self::InvalidStateTransition,
        Self::QuotaExceeded,
        Self::ActualLrpCannotBeClaimed,
        Self::ActualLrpCannotBeStarted,
        Self::ActualLrpCannotBeCrashed,
        Self::ActualLrpCannotBeRemoved,
        Self::ActualLrpCannotBeUnclaimed,
        Self::ActualLrpCannotBeEvacuated,
        Self::RunningOnDifferentCell,
        Self::StaleEpoch,
        Self::StaleRecord,
        Self::StaleTerm,
        Self::CellAbsent,
        Self::CellTaken,
        Self::InvalidRequest,
        Self::DeadlinePassed,
        Self::RequestIdReused,
        Self::Forbidden,
        Self::Overloaded,
        Self::Expired,
        Self::Unavailable,
        Self::Unreadable,
    ];

    /// What the code means for whoever asked: the one place that sorts codes.
    #[must_use]
    pub const fn class(self) -> Class {
        match self {
            Self::ResourceNotFound => Class::NotFound,
            Self::ResourceExists
            | Self::ResourceConflict
            | Self::InvalidStateTransition
            | Self::QuotaExceeded
            | Self::ActualLrpCannotBeClaimed
            | Self::ActualLrpCannotBeStarted
            | Self::ActualLrpCannotBeCrashed
            | Self::ActualLrpCannotBeRemoved
            | Self::ActualLrpCannotBeUnclaimed
            | Self::ActualLrpCannotBeEvacuated
            | Self::RunningOnDifferentCell
            | Self::StaleEpoch
            | Self::StaleRecord
            | Self::RequestIdReused => Class::Conflict,
            Self::CellAbsent
            | Self::CellTaken
            | Self::Unavailable
            | Self::Overloaded
            | Self::DeadlinePassed
            | Self::Unreadable => Class::NotNow,
            Self::StaleTerm | Self::InvalidRequest | Self::Expired | Self::Forbidden => Class::Invalid,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::ResourceExists => "ResourceExists",
            Self::ResourceNotFound => "ResourceNotFound",
            Self::ResourceConflict => "ResourceConflict",
            Self::InvalidStateTransition => "InvalidStateTransition",
            Self::QuotaExceeded => "QuotaExceeded",
            Self::ActualLrpCannotBeClaimed => "ActualLRPCannotBeClaimed",
            Self::ActualLrpCannotBeStarted => "ActualLRPCannotBeStarted",
            Self::ActualLrpCannotBeCrashed => "ActualLRPCannotBeCrashed",
            Self::ActualLrpCannotBeRemoved => "ActualLRPCannotBeRemoved",
            Self::ActualLrpCannotBeUnclaimed => "ActualLRPCannotBeUnclaimed",
            Self::ActualLrpCannotBeEvacuated => "ActualLRPCannotBeEvacuated",
            Self::RunningOnDifferentCell => "RunningOnDifferentCell",
            Self::StaleEpoch => "StaleEpoch",
            Self::StaleRecord => "StaleRecord",
            Self::StaleTerm => "StaleTerm",
            Self::CellAbsent => "CellAbsent",
            Self::CellTaken => "CellTaken",
            Self::InvalidRequest => "InvalidRequest",
            Self::DeadlinePassed => "DeadlinePassed",
            Self::RequestIdReused => "RequestIdReused",
            Self::Forbidden => "Forbidden",
            Self::Overloaded => "Overloaded",
            Self::Expired => "Expired",
            Self::Unavailable => "Unavailable",
            Self::Unreadable => "Unreadable",
        };
        f.pad(name)
    }
}

/// A field of a request, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BadField {
    /// Its path: `action.serial.actions[1].run.path`.
    pub field: String,
    /// What is wrong.
    pub problem: String,
}

/// The answer to a command that is not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Refusal {
    /// Why, for programs.
    pub code: Code,
    /// Why, for people: what, on which object, why.
    pub message: String,
    /// Every bad field, if the request was malformed.
    pub fields: Vec<BadField>,
}

impl Refusal {
    /// A refusal with a message.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: limits::cut(&message.into(), limits::REASON_BYTES), fields: vec![] }
    }

    /// A malformed request, with every bad field.
    #[must_use]
    pub fn invalid(fields: Vec<BadField>) -> Self {
        let named: Vec<String> = fields.iter().map(|bad| format!("{}: {}", bad.field, bad.problem)).collect();
        let mut refusal = Self::new(Code::InvalidRequest, named.join("; "));
        refusal.fields = fields;
        refusal
    }

    /// A later life of the guid than this BBS has heard of.
    #[must_use]
    pub fn behind() -> Self {
        Self::new(Code::Unavailable, "this BBS has not heard of that life of the guid yet: try again")
    }

    /// Nothing of that name.
    #[must_use]
    pub fn not_found(what: impl fmt::Display) -> Self {
        Self::new(Code::ResourceNotFound, format!("{what} does not exist"))
    }
}
