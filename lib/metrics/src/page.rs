//! What the services of a program tell, on one page.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit as NamedUnit};

use crate::catalogue::{BUILD, CATALOGUE, READY};
use crate::family::{Family, Kind, Labels, Sample, Service, Unit, Value};

/// What takes a while to be said.
pub type Saying<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A service that tells how it is.
pub trait Source: Send + Sync + 'static {
    /// Which it is.
    fn service(&self) -> Service;
    /// Its metrics in this moment.
    fn tell(&self) -> Saying<'_, Vec<Sample>>;
    /// What keeps it from going on, which a restart may mend; none: it lives.
    fn hangs(&self) -> Option<String>;
    /// What keeps it from doing its work; none: it is ready.
    fn lacks(&self) -> Saying<'_, Vec<String>>;
    /// Where it stands, in a few words for people.
    fn standing(&self) -> String;
    /// The cell that a rep is of: all that it tells has that as a label.
    fn cell(&self) -> Option<String> {
        None
    }
}

/// What a program tells. Clones are the same page.
#[derive(Clone)]
pub struct Page {
    version: &'static str,
    sources: Arc<Mutex<Vec<Arc<dyn Source>>>>,
    of_program: Arc<dyn Fn() -> Vec<Sample> + Send + Sync>,
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").field("sources", &self.lock().len()).finish_non_exhaustive()
    }
}

/// What a probe found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probed {
    /// What is wrong, by service; empty: nothing.
    pub wrong: BTreeMap<String, Vec<String>>,
}

impl Page {
    /// A page of a program of this version. Nobody tells anything yet.
    #[must_use]
    pub fn new(version: &'static str) -> Self {
        Self { version, sources: Arc::default(), of_program: Arc::new(Vec::new) }
    }

    /// The same page, with samples of the program that are added to each of its services.
    #[must_use]
    pub fn with(self, of_program: impl Fn() -> Vec<Sample> + Send + Sync + 'static) -> Self {
        Self { of_program: Arc::new(of_program), ..self }
    }

    /// Has a service tell how it is from now on.
    pub fn add(&self, source: Arc<dyn Source>) {
        self.lock().push(source);
    }

    /// Whether it lives.
    #[must_use]
    pub fn live(&self) -> Probed {
        let wrong =
            self.sources().into_iter().filter_map(|source| Some((title(&*source), vec![source.hangs()?])));
        Probed { wrong: wrong.collect() }
    }

    /// Whether it does its work.
    pub async fn ready(&self) -> Probed {
        let mut wrong = BTreeMap::new();
        let sources = self.sources();
        if sources.is_empty() {
            wrong.insert("program".to_owned(), vec!["it is starting, or waits for the log".to_owned()]);
        }
        for source in sources {
            let lacks = source.lacks().await;
            if !lacks.is_empty() {
                wrong.insert(title(&*source), lacks);
            }
        }
        Probed { wrong }
    }

    /// The page, as `OpenMetrics` has it.
    pub async fn text(&self) -> String {
        let mut told = Told::default();
        let build = BUILD.is(vec![("version", self.version.to_owned())], 1_u64);
        let of_program = (self.of_program)();
        for source in self.sources() {
            told.services.push(source.service());
            let ready = source.lacks().await.is_empty();
            let own = [READY.says(ready), build.clone()];
            for sample in source.tell().await.into_iter().chain(own).chain(of_program.clone()) {
                told.take(&*source, sample);
            }
        }
        let mut registry = Registry::default();
        registry.register_collector(Box::new(told));
        let mut page = String::new();
        text::encode(&mut page, &registry).expect("text takes all that is written");
        page
    }

    fn sources(&self) -> Vec<Arc<dyn Source>> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<dyn Source>>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A service, as people read which it is.
fn title(source: &dyn Source) -> String {
    let service = source.service();
    source.cell().map_or_else(|| service.to_string(), |cell| format!("{service} {cell}"))
}

/// What was told, by metric: one of them stands on the page once, whoever tells it.
#[derive(Debug, Default)]
struct Told {
    services: Vec<Service>,
    samples: BTreeMap<&'static str, Vec<(Labels, Value)>>,
}

impl Told {
    fn take(&mut self, of: &dyn Source, sample: Sample) {
        let Sample { family, labels: own, value } = sample;
        let mut labels = vec![("service", of.service().as_str().to_owned())];
        labels.extend(of.cell().map(|cell| ("cell", cell)));
        labels.extend(own);
        self.samples.entry(family.name).or_default().push((labels, value));
    }

    fn has(&self, family: &Family) -> bool {
        self.samples.contains_key(family.name) || family.told_by.iter().any(|by| self.services.contains(by))
    }
}

impl Collector for Told {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for family in CATALOGUE.iter().filter(|family| self.has(family)) {
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
                write(of_family.encode_family(labels)?, family.kind, value)?;
            }
        }
        Ok(())
    }
}

fn write(mut to: MetricEncoder<'_>, kind: Kind, value: &Value) -> Result<(), fmt::Error> {
    match (value, kind) {
        (Value::Observed(observed), _) => {
            to.encode_histogram::<NoLabelSet>(observed.sum, observed.count, &observed.buckets, None)
        }
        (Value::Count(count), Kind::Counter) => to.encode_counter::<NoLabelSet, _, u64>(count, None),
        (Value::Measure(measure), Kind::Counter) => to.encode_counter::<NoLabelSet, _, f64>(measure, None),
        (Value::Count(count), Kind::Gauge | Kind::Histogram) => to.encode_gauge(count),
        (Value::Measure(measure), Kind::Gauge | Kind::Histogram) => to.encode_gauge(measure),
    }
}
