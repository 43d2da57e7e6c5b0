//! Metrics page and probes for the services of a program.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit as NamedUnit};

use crate::catalogue::{BUILD, CATALOGUE, READY};
use crate::family::{Family, Kind, Labels, Sample, Service, Unit, Value};

/// Future that a source returns.
pub type SourceFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Service that exports its metrics and its health.
pub trait Source: Send + Sync + 'static {
    /// Returns the kind of service.
    fn service(&self) -> Service;
    /// Returns the current samples.
    fn tell(&self) -> SourceFuture<'_, Vec<Sample>>;
    /// Returns the reason that the service hangs, which a restart may fix. `None` if the service responds.
    fn hang_reason(&self) -> Option<String>;
    /// Returns the reasons that the service is not ready. Empty if the service is ready.
    fn unready_reasons(&self) -> SourceFuture<'_, Vec<String>>;
    /// Returns a short status for people.
    fn status_text(&self) -> String;
    /// Returns the cell if the service is a rep. The cell is a label of all samples of the rep. `None` for
    /// other services.
    fn cell(&self) -> Option<String> {
        None
    }
}

/// Metrics page and probes of a program. Clones share the same page.
#[derive(Clone)]
pub struct Page {
    version: &'static str,
    sources: Arc<Mutex<Vec<Arc<dyn Source>>>>,
    program_samples: Arc<dyn Fn() -> Vec<Sample> + Send + Sync>,
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").field("sources", &self.sources.lock().len()).finish_non_exhaustive()
    }
}

/// Result of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeResult {
    /// Problems by service. Empty if no service has problems.
    pub problems: BTreeMap<String, Vec<String>>,
}

impl Page {
    /// Creates a page without services. `version` is the version of the program.
    #[must_use]
    pub fn new(version: &'static str) -> Self {
        Self { version, sources: Arc::default(), program_samples: Arc::new(Vec::new) }
    }

    /// Sets a function that returns samples of the program. The page adds them to the samples of each
    /// service.
    #[must_use]
    pub fn with_program_samples(self, of_program: impl Fn() -> Vec<Sample> + Send + Sync + 'static) -> Self {
        Self { program_samples: Arc::new(of_program), ..self }
    }

    /// Adds a service to the page.
    pub fn add(&self, source: Arc<dyn Source>) {
        self.sources.lock().push(source);
    }

    /// Returns the result of the liveness probe.
    #[must_use]
    pub fn live(&self) -> ProbeResult {
        let wrong = self
            .sources()
            .into_iter()
            .filter_map(|source| Some((display_name(&*source), vec![source.hang_reason()?])));
        ProbeResult { problems: wrong.collect() }
    }

    /// Returns the result of the readiness probe.
    pub async fn ready(&self) -> ProbeResult {
        let mut problems = BTreeMap::new();
        let sources = self.sources();
        if sources.is_empty() {
            problems.insert("program".to_owned(), vec!["starting, or waiting for the log".to_owned()]);
        }
        for source in sources {
            let lacks = source.unready_reasons().await;
            if !lacks.is_empty() {
                problems.insert(display_name(&*source), lacks);
            }
        }
        ProbeResult { problems }
    }

    /// Returns the page in the `OpenMetrics` format.
    pub async fn text(&self) -> String {
        let mut told = SampleCollector::default();
        let build = BUILD.sample(vec![("version", self.version.to_owned())], 1_u64);
        let of_program = (self.program_samples)();
        for source in self.sources() {
            told.services.push(source.service());
            let ready = source.unready_reasons().await.is_empty();
            let own = [READY.value_sample(ready), build.clone()];
            for sample in source.tell().await.into_iter().chain(own).chain(of_program.clone()) {
                told.add_sample(&*source, sample);
            }
        }
        let mut registry = Registry::default();
        registry.register_collector(Box::new(told));
        let mut page = String::new();
        text::encode(&mut page, &registry).expect("writing to a string cannot fail");
        page
    }

    fn sources(&self) -> Vec<Arc<dyn Source>> {
        self.sources.lock().clone()
    }
}

/// Returns the display name of a service: its kind, and the cell if the service is a rep.
fn display_name(source: &dyn Source) -> String {
    let service = source.service();
    source.cell().map_or_else(|| service.to_string(), |cell| format!("{service} {cell}"))
}

/// Samples of all services, by metric. The page lists each metric once, even if several services export it.
#[derive(Debug, Default)]
struct SampleCollector {
    services: Vec<Service>,
    samples: BTreeMap<&'static str, Vec<(Labels, Value)>>,
}

impl SampleCollector {
    fn add_sample(&mut self, of: &dyn Source, sample: Sample) {
        let Sample { family, labels: own, value } = sample;
        let mut labels = vec![("service", of.service().as_str().to_owned())];
        labels.extend(of.cell().map(|cell| ("cell", cell)));
        labels.extend(own);
        self.samples.entry(family.name).or_default().push((labels, value));
    }

    fn includes(&self, family: &Family) -> bool {
        self.samples.contains_key(family.name)
            || family.exported_by.iter().any(|by| self.services.contains(by))
    }
}

impl Collector for SampleCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for family in CATALOGUE.iter().filter(|family| self.includes(family)) {
            let unit = match family.unit {
                Unit::None => None,
                Unit::Seconds => Some(NamedUnit::Seconds),
                Unit::Bytes => Some(NamedUnit::Bytes),
            };
            let kind = match family.kind {
                Kind::Gauge => MetricType::Gauge,
                Kind::Counter => MetricType::Counter,
                Kind::Histogram => MetricType::Histogram,
            };
            let mut of_family = encoder.encode_descriptor(family.name, family.help, unit.as_ref(), kind)?;
            for (labels, value) in self.samples.get(family.name).into_iter().flatten() {
                encode_value(of_family.encode_family(labels)?, family.kind, value)?;
            }
        }
        Ok(())
    }
}

fn encode_value(mut to: MetricEncoder<'_>, kind: Kind, value: &Value) -> Result<(), fmt::Error> {
    match (value, kind) {
        (Value::Histogram(observed), _) => {
            to.encode_histogram::<NoLabelSet>(observed.sum, observed.count, &observed.buckets, None)
        }
        (Value::Count(count), Kind::Counter) => to.encode_counter::<NoLabelSet, _, u64>(count, None),
        (Value::Measure(measure), Kind::Counter) => to.encode_counter::<NoLabelSet, _, f64>(measure, None),
        (Value::Count(count), Kind::Gauge | Kind::Histogram) => to.encode_gauge(count),
        (Value::Measure(measure), Kind::Gauge | Kind::Histogram) => to.encode_gauge(measure),
    }
}
