//! What a metric is, and what is told of one.

use std::fmt;

use crate::counted::Observed;

/// Who tells a metric, as the label `service` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// A BBS.
    Bbs,
    /// An auctioneer.
    Auctioneer,
    /// A rep.
    Rep,
    /// A projector.
    Projector,
}

impl Service {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Bbs, Self::Auctioneer, Self::Rep, Self::Projector];

    /// As the label has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bbs => "bbs",
            Self::Auctioneer => "auctioneer",
            Self::Rep => "rep",
            Self::Projector => "projector",
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// How the values of a metric are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// How it is now.
    Gauge,
    /// How often something happened; only ever grows, and begins again at 0 with the program.
    Counter,
    /// How long something took, or how much it was.
    Histogram,
}

impl Kind {
    /// As `OpenMetrics` has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Histogram => "histogram",
        }
    }
}

/// The base unit of a metric, which ends its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Numbers of things.
    None,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
}

/// A metric.
#[derive(Debug, PartialEq, Eq)]
pub struct Family {
    /// Its name, without its unit and without what its kind adds.
    pub name: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Its kind.
    pub kind: Kind,
    /// Its labels besides `service`.
    pub labels: &'static [&'static str],
    /// Who tells it.
    pub told_by: &'static [Service],
    /// What it says.
    pub help: &'static str,
}

impl Family {
    /// Its name with its unit: what the page calls it.
    #[must_use]
    pub fn full_name(&self) -> String {
        match self.unit {
            Unit::None => self.name.to_owned(),
            Unit::Seconds => format!("{}_seconds", self.name),
            Unit::Bytes => format!("{}_bytes", self.name),
        }
    }

    /// The names of its samples: what a query asks for.
    #[must_use]
    pub fn samples(&self) -> Vec<String> {
        let name = self.full_name();
        match self.kind {
            Kind::Gauge => vec![name],
            Kind::Counter => vec![format!("{name}_total")],
            Kind::Histogram => ["bucket", "sum", "count"].map(|of| format!("{name}_{of}")).to_vec(),
        }
    }

    /// Something that it says.
    #[must_use]
    pub fn is(&'static self, labels: Labels, value: impl Into<Value>) -> Sample {
        debug_assert!(
            self.labels.iter().eq(labels.iter().map(|(name, _)| name)),
            "{}: {labels:?}",
            self.name
        );
        Sample { family: self, labels, value: value.into() }
    }

    /// The same, of one without labels.
    #[must_use]
    pub fn says(&'static self, value: impl Into<Value>) -> Sample {
        self.is(vec![], value)
    }
}

/// The labels of a sample, in the order in which its family has them.
pub type Labels = Vec<(&'static str, String)>;

/// A value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The metric.
    pub family: &'static Family,
    /// Its labels.
    pub labels: Labels,
    /// Its value.
    pub value: Value,
}

/// What a sample says.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number of things, or how often something happened.
    Count(u64),
    /// A measure.
    Measure(f64),
    /// What was observed.
    Observed(Observed),
}

impl From<u64> for Value {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<u32> for Value {
    fn from(count: u32) -> Self {
        Self::Count(count.into())
    }
}

impl From<usize> for Value {
    fn from(count: usize) -> Self {
        Self::Count(u64::try_from(count).unwrap_or(u64::MAX))
    }
}

impl From<bool> for Value {
    fn from(so: bool) -> Self {
        Self::Count(so.into())
    }
}

impl From<f64> for Value {
    fn from(measure: f64) -> Self {
        Self::Measure(measure)
    }
}

impl From<Observed> for Value {
    fn from(observed: Observed) -> Self {
        Self::Observed(observed)
    }
}
