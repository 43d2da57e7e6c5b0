//! Field-by-field conversion between stored types and the current types.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ecow::EcoString;
use smallvec::{Array, SmallVec};

use crate::attributes::Attributes;
use crate::container::Epoch;
use crate::isolation::{Isolation, IsolationLayer};
use crate::names::{
    CellId, ClientName, ClusterId, DecisionId, DefinitionId, DispatchKey, Domain, EntryId, EvaluationId,
    FolderId, Incarnation, InstanceGuid, ParameterisedGuid, PeriodicGuid, PlacementTag, ProcessGuid,
    RequestId, ServiceId, Stack, TaskGuid, Zone,
};
use crate::policy::Ratio;
use crate::priority::Priority;
use crate::resources::CellClass;
use crate::rules::Rules;
use crate::{
    Indices, Position, Timestamp, action, actual, cluster, crash, definition, evacuating, evaluation,
    parameterised, periodic, policy, rollout,
};

/// Conversion between a stored type and the current type with the same meaning. The conversion always
/// succeeds: stored data is never rejected.
pub(super) trait Mirror<T> {
    fn mirror(self) -> T;
}

/// Implements [`Mirror`] as the identity, for types whose stored form never changes.
macro_rules! identity {
    ($($word:ty),* $(,)?) => {
        $(impl Mirror<$word> for $word {
            fn mirror(self) -> Self {
                self
            }
        })*
    };
}

identity!(
    bool,
    u8,
    u16,
    u32,
    u64,
    i32,
    String,
    EcoString,
    Timestamp,
    Position,
    CellClass,
    Indices,
    Epoch,
    Ratio,
    Priority,
    Attributes,
    Rules,
    Isolation,
    IsolationLayer
);
identity!(
    CellId,
    ClientName,
    ClusterId,
    DecisionId,
    DefinitionId,
    Domain,
    EntryId,
    EvaluationId,
    FolderId,
    Incarnation,
    InstanceGuid,
    PeriodicGuid
);
identity!(
    DispatchKey,
    ParameterisedGuid,
    PlacementTag,
    ProcessGuid,
    RequestId,
    ServiceId,
    Stack,
    TaskGuid,
    Zone
);
// The words of these enums are frozen (`words_of_stored_enums_are_frozen` in tests/golden.rs).
identity!(
    action::ChecksumAlgorithm,
    actual::StopReason,
    actual::UnclaimReason,
    cluster::Role,
    crash::NoRestartReason,
    definition::Mode,
    definition::Network,
    definition::Overflow,
    definition::Overlap,
    definition::PayloadRule,
    evacuating::RemovalReason,
    evaluation::CancelReason,
    evaluation::Trigger,
    parameterised::WithdrawReason,
    periodic::LaunchReason,
    periodic::SkipReason,
    policy::FailureAction,
    policy::RestartCondition,
    policy::UpdateOrder,
    rollout::Kind,
    rollout::PauseReason,
);

impl<A: Mirror<B>, B> Mirror<Option<B>> for Option<A> {
    fn mirror(self) -> Option<B> {
        self.map(Mirror::mirror)
    }
}

impl<A: Mirror<B>, B> Mirror<Box<B>> for Box<A> {
    fn mirror(self) -> Box<B> {
        Box::new((*self).mirror())
    }
}

impl<A: Mirror<B> + Clone, B> Mirror<Arc<B>> for Arc<A> {
    fn mirror(self) -> Arc<B> {
        Arc::new(Self::unwrap_or_clone(self).mirror())
    }
}

impl<A: Mirror<B>, B> Mirror<Vec<B>> for Vec<A> {
    fn mirror(self) -> Vec<B> {
        self.into_iter().map(Mirror::mirror).collect()
    }
}

impl<A: Array, B: Array> Mirror<SmallVec<B>> for SmallVec<A>
where
    A::Item: Mirror<B::Item>,
{
    fn mirror(self) -> SmallVec<B> {
        self.into_iter().map(Mirror::mirror).collect()
    }
}

impl<A: Mirror<B>, B: Ord> Mirror<BTreeSet<B>> for BTreeSet<A> {
    fn mirror(self) -> BTreeSet<B> {
        self.into_iter().map(Mirror::mirror).collect()
    }
}

impl<A: Mirror<B>, B> Mirror<BTreeMap<String, B>> for BTreeMap<String, A> {
    fn mirror(self) -> BTreeMap<String, B> {
        self.into_iter().map(|(key, value)| (key, value.mirror())).collect()
    }
}

/// Implements [`Mirror`] in both directions between two structs with the same fields, or two enums with the
/// same variants. If a field or a variant exists on one side only, the code does not compile. In that case,
/// the conversions have to be written by hand.
macro_rules! mirror {
    (struct $stored:ident = $today:ty { $($field:ident),* $(,)? }) => {
        impl Mirror<$today> for $stored {
            fn mirror(self) -> $today {
                type Today = $today;
                let Self { $($field),* } = self;
                Today { $($field: $field.mirror()),* }
            }
        }

        impl Mirror<$stored> for $today {
            fn mirror(self) -> $stored {
                let Self { $($field),* } = self;
                $stored { $($field: $field.mirror()),* }
            }
        }
    };
    (enum $stored:ident = $today:ty { $($variant:ident $(($inner:ident))? $({ $($field:ident),* })?),* $(,)? }) => {
        impl Mirror<$today> for $stored {
            fn mirror(self) -> $today {
                type Today = $today;
                match self {
                    $(Self::$variant $(($inner))? $({ $($field),* })? => {
                        Today::$variant $(($inner.mirror()))? $({ $($field: $field.mirror()),* })?
                    })*
                }
            }
        }

        impl Mirror<$stored> for $today {
            fn mirror(self) -> $stored {
                match self {
                    $(Self::$variant $(($inner))? $({ $($field),* })? => {
                        $stored::$variant $(($inner.mirror()))? $({ $($field: $field.mirror()),* })?
                    })*
                }
            }
        }
    };
}

pub(super) use mirror;
