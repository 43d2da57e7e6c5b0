//! Refusals: answers to commands that are not carried out, with a stable code and a message.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::VariantArray;

use crate::limits;

/// Code of a refusal. Programs match on codes, so a code never changes its meaning.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::VariantArray,
)]
pub enum Code {
    /// The object exists already.
    ResourceExists,
    /// The object does not exist.
    ResourceNotFound,
    /// The command conflicts with the current state of the object, for example with its version.
    ResourceConflict,
    /// The state of the record does not allow the command.
    InvalidStateTransition,
    /// The command would make its domain exceed a quota.
    QuotaExceeded,
    /// The instance is claimed or running elsewhere, has crashed, is not desired, or must not run on this
    /// cell.
    #[serde(rename = "ActualLRPCannotBeClaimed")]
    ActualLrpCannotBeClaimed,
    /// The instance runs elsewhere, or its index belongs to another cell.
    #[serde(rename = "ActualLRPCannotBeStarted")]
    ActualLrpCannotBeStarted,
    /// The record names a different container than the reporting one.
    #[serde(rename = "ActualLRPCannotBeCrashed")]
    ActualLrpCannotBeCrashed,
    /// The record names a different container than the reporting one, or no container.
    #[serde(rename = "ActualLRPCannotBeRemoved")]
    ActualLrpCannotBeRemoved,
    /// The record does not exist, or does not name the reporting container.
    #[serde(rename = "ActualLRPCannotBeUnclaimed")]
    ActualLrpCannotBeUnclaimed,
    /// The evacuating record belongs to another cell, or the slot must not have an evacuating instance.
    #[serde(rename = "ActualLRPCannotBeEvacuated")]
    ActualLrpCannotBeEvacuated,
    /// The task runs on another cell.
    RunningOnDifferentCell,
    /// The command refers to another epoch of the guid.
    StaleEpoch,
    /// The report refers to a record that has changed since the reporting program read it.
    StaleRecord,
    /// The command comes from a leader of a lower term.
    StaleTerm,
    /// The cell is not present.
    CellAbsent,
    /// Another rep, with a different data folder, represents the cell.
    CellTaken,
    /// The command is malformed. Every invalid field is listed.
    InvalidRequest,
    /// The command waited in the BBS longer than its `timeout_ms`.
    DeadlinePassed,
    /// The client used the same request id for another command, or the same key for another dispatch.
    RequestIdReused,
    /// The command names a different domain or cell than its subject or its object.
    Forbidden,
    /// Too many commands are waiting. The client should try again.
    Overloaded,
    /// The position that a cursor names is no longer kept. The client has to list from the beginning.
    Expired,
    /// The program cannot answer now: it does not lead, it is starting, or the log accepts no entries. The
    /// client should try again with the same request id. The message states whether nothing was stored, or
    /// whether the outcome is unknown.
    Unavailable,
    /// The program cannot read the schema of the message. The client should send the message again as JSON.
    Unreadable,
}

/// Consequence of a code for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The object does not exist.
    NotFound,
    /// The current state or another request conflicts with the command.
    Conflict,
    /// The program did not decide on the command. The client may send it again later, or to another program.
    Retryable,
    /// The command itself is invalid and would be refused at any time.
    Invalid,
}

impl Code {
    /// List of every code.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Returns the class of the code. No other function classifies codes.
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
            | Self::Unreadable => Class::Retryable,
            Self::StaleTerm | Self::InvalidRequest | Self::Expired | Self::Forbidden => Class::Invalid,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Invalid field of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BadField {
    /// Path of the field, for example `action.serial.actions[1].run.path`.
    pub field: String,
    /// Problem with the field.
    pub problem: String,
}

/// Answer to a command that is not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Refusal {
    /// Reason, for programs.
    pub code: Code,
    /// Reason, for users: the action, the object and the problem.
    pub message: String,
    /// Invalid fields, if the request was malformed.
    pub fields: Vec<BadField>,
}

impl Refusal {
    /// Creates a refusal. The message is cut to a fixed length.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: limits::truncate(&message.into(), limits::REASON_BYTES), fields: vec![] }
    }

    /// Creates the refusal of a malformed request, with every invalid field.
    #[must_use]
    pub fn invalid(fields: Vec<BadField>) -> Self {
        let named: Vec<String> = fields.iter().map(|bad| format!("{}: {}", bad.field, bad.problem)).collect();
        let mut refusal = Self::new(Code::InvalidRequest, named.join("; "));
        refusal.fields = fields;
        refusal
    }

    /// Creates the refusal of a command for an epoch that is newer than the log entries that this BBS has
    /// read.
    #[must_use]
    pub fn unknown_epoch() -> Self {
        Self::new(Code::Unavailable, "this BBS has not read that epoch of the guid yet: try again")
    }

    /// Creates the refusal of a command for an object that does not exist.
    #[must_use]
    pub fn not_found(what: impl fmt::Display) -> Self {
        Self::new(Code::ResourceNotFound, format!("{what} does not exist"))
    }
}
