//! Definitions and samples of metrics.

use std::fmt;

use crate::counters::HistogramSnapshot;

/// Service that exports a metric. The label `service` contains its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    Bbs,
    Auctioneer,
    Rep,
    Projector,
}

impl Service {
    /// Every service.
    pub const ALL: [Self; 4] = [Self::Bbs, Self::Auctioneer, Self::Rep, Self::Projector];

    /// Returns the value of the label.
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

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Current value.
    Gauge,
    /// Number of events. A counter never decreases, and starts at 0 with the program.
    Counter,
    /// Distribution of durations or quantities.
    Histogram,
}

impl Kind {
    /// Returns the name of the type in `OpenMetrics`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Histogram => "histogram",
        }
    }
}

/// Base unit of a metric. The unit is the suffix of the metric's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Quantity without a unit.
    None,
    Seconds,
    Bytes,
}

/// Definition of a metric.
#[derive(Debug, PartialEq, Eq)]
pub struct Family {
    /// Name without the suffixes for the unit and the kind.
    pub name: &'static str,
    pub unit: Unit,
    pub kind: Kind,
    /// Labels in addition to `service`.
    pub labels: &'static [&'static str],
    /// Services that export the metric.
    pub exported_by: &'static [Service],
    /// Help text on the page.
    pub help: &'static str,
}

impl Family {
    /// Returns the name with the suffix for the unit, as shown on the page.
    #[must_use]
    pub fn full_name(&self) -> String {
        match self.unit {
            Unit::None => self.name.to_owned(),
            Unit::Seconds => format!("{}_seconds", self.name),
            Unit::Bytes => format!("{}_bytes", self.name),
        }
    }

    /// Returns the names of the samples. Queries use these names.
    #[must_use]
    pub fn samples(&self) -> Vec<String> {
        let name = self.full_name();
        match self.kind {
            Kind::Gauge => vec![name],
            Kind::Counter => vec![format!("{name}_total")],
            Kind::Histogram => ["bucket", "sum", "count"].map(|of| format!("{name}_{of}")).to_vec(),
        }
    }

    /// Creates a sample of this metric.
    #[must_use]
    pub fn sample(&'static self, labels: Labels, value: impl Into<Value>) -> Sample {
        debug_assert!(
            self.labels.iter().eq(labels.iter().map(|(name, _)| name)),
            "unexpected labels of {}: {labels:?}",
            self.name
        );
        Sample { family: self, labels, value: value.into() }
    }

    /// Creates a sample without labels.
    #[must_use]
    pub fn value_sample(&'static self, value: impl Into<Value>) -> Sample {
        self.sample(vec![], value)
    }
}

/// Labels of a sample, in the order of the labels of its family.
pub type Labels = Vec<(&'static str, String)>;

/// Value of a metric with its labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub family: &'static Family,
    pub labels: Labels,
    pub value: Value,
}

/// Value of a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Quantity, or number of events.
    Count(u64),
    /// Measured value.
    Measure(f64),
    /// Snapshot of a histogram.
    Histogram(HistogramSnapshot),
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

impl From<HistogramSnapshot> for Value {
    fn from(observed: HistogramSnapshot) -> Self {
        Self::Histogram(observed)
    }
}
