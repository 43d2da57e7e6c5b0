//! How stored shapes and today's become each other, field by field.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ecow::EcoString;
use smallvec::{Array, SmallVec};

use crate::attributes::Attributes;
use crate::container::Epoch;
use crate::isolation::{Isolation, Wall};
use crate::names::{
    CellId, ClientName, ClusterId, DecisionId, DefinitionId, DispatchKey, Domain, EntryId, EvaluationId,
    FolderId, Incarnation, InstanceGuid, ParameterisedGuid, PeriodicGuid, PlacementTag, ProcessGuid,
    RequestId, ServiceId, Stack, TaskGuid, Zone,
};
use crate::policy::Ratio;
use crate::rank::Priority;
use crate::resources::CellClass;
use crate::rules::Rules;
use crate::{Indices, Position, Timestamp};

/// Becomes the same on the other side of the seam. Total: what is stored is never argued with.
pub(super) trait Mirror<T> {
    fn mirror(self) -> T;
}

/// Words have one spelling, which never changes: they are the same on both sides.
macro_rules! words {
    ($($word:ty),* $(,)?) => {
        $(impl Mirror<$word> for $word {
            fn mirror(self) -> Self {
                self
            }
        })*
    };
}

words!(
    bool, u8, u16, u32, u64, i32, String, EcoString, Timestamp, Position, CellClass, Indices, Epoch, Ratio,
    Priority, Attributes, Rules, Isolation, Wall
);
words!(
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
words!(
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

/// Two structs with the same fields, or two enums with the same variants, become each other. A field or a variant that
/// only one of them has doesn't compile: then the conversions are written out.
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
