//! Conversion between stored types and the current types, field by field.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ecow::EcoString;
use serde::{Serialize, Serializer};
use smallvec::SmallVec;

use crate::attributes::Attributes;
use crate::container::Epoch;
use crate::definition::Ports;
use crate::exec::Exec;
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

/// A stored type. Its serialized form is that of the log: a value of the current type is written by reference,
/// and a stored value is read and then converted. The conversion always succeeds: stored data is never rejected.
pub(super) trait Stored: Sized {
    /// The current type with the same meaning.
    type Today;

    /// Converts a stored value.
    fn read(self) -> Self::Today;

    /// Writes a current value in the stored form.
    fn write<S: Serializer>(today: &Self::Today, to: S) -> Result<S::Ok, S::Error>;

    /// Returns `true` if a field with this value may be left out.
    fn is_default(_: &Self::Today) -> bool {
        false
    }
}

/// A current value that is written in the form of the stored type `T`.
pub(super) struct By<'a, T: Stored>(pub(super) &'a T::Today);

impl<T: Stored> By<'_, T> {
    pub(super) fn is_default(&self) -> bool {
        T::is_default(self.0)
    }
}

impl<T: Stored> Serialize for By<'_, T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        T::write(self.0, to)
    }
}

/// Implements [`Stored`] for types whose stored form never changes. A type may have a condition under which a
/// field may be left out.
macro_rules! unchanged {
    ($($word:ty $(= $is_default:expr)?),* $(,)?) => {
        $(impl Stored for $word {
            type Today = Self;

            fn read(self) -> Self {
                self
            }

            fn write<S: Serializer>(today: &Self, to: S) -> Result<S::Ok, S::Error> {
                today.serialize(to)
            }

            $(fn is_default(today: &Self) -> bool {
                $is_default(today)
            })?
        })*
    };
}

unchanged!(String = String::is_empty, EcoString = EcoString::is_empty, Exec, Ports);
unchanged!(
    bool,
    u8,
    u16,
    u32,
    u64,
    i32,
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
unchanged!(
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
unchanged!(
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
unchanged!(
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

impl<A: Stored> Stored for Option<A> {
    type Today = Option<A::Today>;

    fn read(self) -> Self::Today {
        self.map(A::read)
    }

    fn write<S: Serializer>(today: &Self::Today, to: S) -> Result<S::Ok, S::Error> {
        today.as_ref().map(By::<A>).serialize(to)
    }

    fn is_default(today: &Self::Today) -> bool {
        today.is_none()
    }
}

impl<A: Stored> Stored for Box<A> {
    type Today = Box<A::Today>;

    fn read(self) -> Self::Today {
        Box::new((*self).read())
    }

    fn write<S: Serializer>(today: &Self::Today, to: S) -> Result<S::Ok, S::Error> {
        A::write(today, to)
    }
}

impl<A: Stored + Clone> Stored for Arc<A> {
    type Today = Arc<A::Today>;

    fn read(self) -> Self::Today {
        Arc::new(Self::unwrap_or_clone(self).read())
    }

    fn write<S: Serializer>(today: &Self::Today, to: S) -> Result<S::Ok, S::Error> {
        A::write(today, to)
    }
}

impl<A: Stored> Stored for Vec<A> {
    type Today = Vec<A::Today>;

    fn read(self) -> Self::Today {
        self.into_iter().map(A::read).collect()
    }

    fn write<S: Serializer>(today: &Self::Today, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(today.iter().map(By::<A>))
    }

    fn is_default(today: &Self::Today) -> bool {
        today.is_empty()
    }
}

impl<A: Stored> Stored for SmallVec<[A; 4]> {
    type Today = SmallVec<[A::Today; 4]>;

    fn read(self) -> Self::Today {
        self.into_iter().map(A::read).collect()
    }

    fn write<S: Serializer>(today: &Self::Today, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(today.iter().map(By::<A>))
    }
}

impl<A: Stored<Today: Ord>> Stored for BTreeSet<A> {
    type Today = BTreeSet<A::Today>;

    fn read(self) -> Self::Today {
        self.into_iter().map(A::read).collect()
    }

    fn write<S: Serializer>(today: &Self::Today, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(today.iter().map(By::<A>))
    }

    fn is_default(today: &Self::Today) -> bool {
        today.is_empty()
    }
}

impl<A: Stored> Stored for BTreeMap<String, A> {
    type Today = BTreeMap<String, A::Today>;

    fn read(self) -> Self::Today {
        self.into_iter().map(|(key, value)| (key, value.read())).collect()
    }

    fn write<S: Serializer>(today: &Self::Today, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(today.iter().map(|(key, value)| (key, By::<A>(value))))
    }
}

/// Declares a stored type and its conversion. If a field or a variant exists only in the stored type or only in
/// the current type, the code does not compile.
///
/// ```text
/// pub struct Run = action::Run { .. }                    a struct with the fields of action::Run
/// pub enum Placement = definition::Placement {           an enum
///     Fail = Fail,                                       a variant, and the variant of the current type
///     Answered(status: u16) = Answered,                  a variant with one value, and a name for the value
///     SetV1 { index: u32 } = Set { place: Place { .. } } a variant whose fields are elsewhere in the current type
/// }
/// pub enum Task("task") = task::Event {                the events of a state machine, each with the version that
///     "desired.v1": DesiredV1(task: Box<..>) = Desired,  the log names
/// }
/// ```
///
/// An attribute `written` of a field is a `serde` attribute that applies when the field is written.
macro_rules! stored {
    // A variant of a current type, as a pattern and as an expression: with the fields of the stored variant, or in
    // another shape.
    (@shape $today:ident $target:ident [$($same:tt)*] []) => {
        $today::$target $($same)*
    };
    (@shape $today:ident $target:ident [$($same:tt)*] [$($other:tt)+]) => {
        $today::$target $($other)+
    };
    (
        $(#[doc = $doc:expr])* $(#[schemars($($schemars:tt)*)])* $(#[serde($($serde:tt)*)])*
        pub struct $name:ident = $today:ty {
            $(
                $(#[doc = $about:expr])* $(#[schemars($($of_schema:tt)*)])? $(#[serde($($of_field:tt)*)])?
                $(#[written($($of_written:tt)*)])?
                pub $field:ident: $type:ty,
            )*
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug, serde::Deserialize, schemars::JsonSchema)]
        $(#[schemars($($schemars)*)])* $(#[serde($($serde)*)])*
        pub struct $name {
            $(
                $(#[doc = $about])* $(#[schemars($($of_schema)*)])? $(#[serde($($of_field)*)])?
                pub $field: $type,
            )*
        }

        impl Stored for $name {
            type Today = $today;

            fn read(self) -> $today {
                type Today = $today;
                let Self { $($field),* } = self;
                Today { $($field: $field.read()),* }
            }

            fn write<S: serde::Serializer>(today: &$today, to: S) -> Result<S::Ok, S::Error> {
                type Today = $today;
                #[derive(serde::Serialize)]
                $(#[serde($($serde)*)])*
                struct Written<'a> {
                    $($(#[serde($($of_written)*)])? $field: By<'a, $type>,)*
                }
                let Today { $($field),* } = today;
                serde::Serialize::serialize(&Written { $($field: By($field)),* }, to)
            }
        }
    };
    (
        $(#[doc = $doc:expr])* $(#[schemars($($schemars:tt)*)])* $(#[serde($($serde:tt)*)])*
        pub enum $name:ident = $today:ty {
            $(
                $(#[doc = $about:expr])* $(#[serde($($of_variant:tt)*)])?
                $variant:ident
                $(($bind:ident: $inner:ty))?
                $({
                    $(
                        $(#[doc = $meaning:expr])* $(#[serde($($of_field:tt)*)])?
                        $field:ident: $type:ty,
                    )*
                })?
                = $target:ident $({ $($shape:tt)* })?,
            )*
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug, serde::Deserialize, schemars::JsonSchema)]
        $(#[schemars($($schemars)*)])* $(#[serde($($serde)*)])*
        pub enum $name {
            $(
                $(#[doc = $about])* $(#[serde($($of_variant)*)])?
                $variant
                $(($inner))?
                $({ $($(#[doc = $meaning])* $(#[serde($($of_field)*)])? $field: $type,)* })?,
            )*
        }

        impl Stored for $name {
            type Today = $today;

            fn read(self) -> $today {
                type Today = $today;
                match self {
                    $(Self::$variant $(($bind))? $({ $($field),* })? => {
                        $(let $bind = $bind.read();)?
                        $($(let $field = $field.read();)*)?
                        stored!(@shape Today $target [$(($bind))? $({ $($field),* })?] [$({ $($shape)* })?])
                    })*
                }
            }

            fn write<S: serde::Serializer>(today: &$today, to: S) -> Result<S::Ok, S::Error> {
                type Today = $today;
                #[derive(serde::Serialize)]
                $(#[serde($($serde)*)])*
                enum Written<'a> {
                    $(
                        $(#[serde($($of_variant)*)])?
                        $variant
                        $((By<'a, $inner>))?
                        $({ $($(#[serde($($of_field)*)])? $field: By<'a, $type>,)* })?,
                    )*
                }
                let written = match today {
                    $(stored!(@shape Today $target [$(($bind))? $({ $($field),* })?] [$({ $($shape)* })?]) => {
                        Written::$variant $((By($bind)))? $({ $($field: By($field)),* })?
                    })*
                };
                serde::Serialize::serialize(&written, to)
            }
        }
    };
    (
        $(#[doc = $doc:expr])* $(#[schemars($($schemars:tt)*)])*
        pub enum $name:ident($machine:literal) = $today:ty {
            $(
                $(#[doc = $about:expr])*
                $tag:literal: $variant:ident
                $(($bind:ident: $inner:ty))?
                $({
                    $(
                        $(#[doc = $meaning:expr])* $(#[serde($($of_field:tt)*)])?
                        $field:ident: $type:ty,
                    )*
                })?
                = $target:ident $({ $($shape:tt)* })?,
            )*
        }
    ) => {
        stored! {
            $(#[doc = $doc])* $(#[schemars($($schemars)*)])*
            pub enum $name = $today {
                $(
                    $(#[doc = $about])* #[serde(rename = $tag)]
                    $variant
                    $(($bind: $inner))?
                    $({ $($(#[doc = $meaning])* $(#[serde($($of_field)*)])? $field: $type,)* })?
                    = $target $({ $($shape)* })?,
                )*
            }
        }

        impl $name {
            /// Every event type, in the newest version.
            pub(super) const TYPES: &[&str] = &[$(concat!($machine, ".", $tag)),*];

            /// Returns the event type with its stored version.
            pub(super) const fn type_name(today: &$today) -> &'static str {
                type Today = $today;
                match today {
                    $(Today::$target { .. } => concat!($machine, ".", $tag),)*
                }
            }
        }
    };
}

pub(super) use stored;
