//! Head of a story: size of the cluster and fault rates.

use std::fmt;
use std::time::Duration;

use scenario::words::{Bad, Time, Words};

use crate::journal::Replicas;
use crate::plan::Plan;
use crate::rates::Faults;
use crate::shape::Shape;

/// Maximum number of nodes of a kind.
const NODES: usize = 64;

/// Parsed head.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) seed: u64,
    pub(super) shape: Shape,
    pub(super) faults: Faults,
    pub(super) only_simulated: Option<String>,
    pub(super) peace_at: Option<Duration>,
}

impl Default for Head {
    fn default() -> Self {
        Self { seed: 0, shape: Shape::DEFAULT, faults: Faults::NONE, only_simulated: None, peace_at: None }
    }
}

/// Writes the parts of a head that differ from the default.
pub(super) fn write(f: &mut fmt::Formatter<'_>, plan: &Plan) -> fmt::Result {
    let basic = Shape::DEFAULT;
    let Shape {
        bbss,
        auctioneers,
        cells,
        tagged,
        mixed,
        roomy,
        narrow,
        evacuation,
        self_test,
        replicas,
        synced,
    } = plan.shape;
    if plan.seed != 0 {
        writeln!(f, "seed {}", plan.seed)?;
    }
    let counts = [
        ("cells", cells, basic.cells),
        ("bbss", bbss, basic.bbss),
        ("auctioneers", auctioneers, basic.auctioneers),
    ];
    for (name, count, _) in counts.iter().filter(|(_, count, basic)| count != basic) {
        writeln!(f, "{name} {count}")?;
    }
    for (is_so, word) in [(tagged, "tagged"), (mixed, "mixed"), (roomy, "roomy"), (narrow, "narrow")] {
        if is_so {
            writeln!(f, "{word}")?;
        }
    }
    let times = [("evacuation", evacuation, basic.evacuation), ("self-test", self_test, basic.self_test)];
    for (name, time, _) in times.iter().filter(|(_, time, basic)| time != basic) {
        writeln!(f, "{name} {}", Time(*time))?;
    }
    match replicas {
        Replicas::One => {}
        Replicas::Three => writeln!(f, "journal of three")?,
    }
    if !synced {
        writeln!(f, "journal without sync")?;
    }
    let mut faults = plan.faults;
    let rates = faults.rates().into_iter().filter(|(_, rate, calm)| **rate != *calm);
    let rates: Vec<String> = rates.map(|(name, rate, _)| format!("{name} {rate}")).collect();
    if rates.is_empty() { Ok(()) } else { writeln!(f, "faults {}", rates.join(", ")) }
}

impl Head {
    /// Parses a line of the head.
    pub(super) fn line(&mut self, words: &mut Words) -> Result<(), Bad> {
        let shape = &mut self.shape;
        if words.take("seed") {
            self.seed = words.number()?;
        } else if words.take("cells") {
            shape.cells = count(words)?;
        } else if words.take("bbss") {
            shape.bbss = count(words)?;
        } else if words.take("auctioneers") {
            shape.auctioneers = count(words)?;
        } else if words.take("tagged") {
            shape.tagged = true;
        } else if words.take("mixed") {
            shape.mixed = true;
        } else if words.take("roomy") {
            shape.roomy = true;
        } else if words.take("narrow") {
            shape.narrow = true;
        } else if words.take("evacuation") {
            shape.evacuation = words.duration()?;
        } else if words.take("self-test") {
            shape.self_test = words.duration()?;
        } else if words.take("journal of three") {
            shape.replicas = Replicas::Three;
        } else if words.take("journal without sync") {
            shape.synced = false;
        } else if words.take("faults") {
            self.faults(words)?;
        } else {
            return Err(words.wrong(
                "`at` and a time, or a word of the head: seed, cells, bbss, auctioneers, tagged, mixed, roomy, narrow, \
                 evacuation, self-test, journal of three, journal without sync, faults, only simulated: or peace at",
            ));
        }
        Ok(())
    }

    fn faults(&mut self, words: &mut Words) -> Result<(), Bad> {
        loop {
            let mut rates = self.faults.rates();
            let names: Vec<&str> = rates.iter().map(|(name, ..)| *name).collect();
            let expected = format!("a kind of fault: {}", names.join(", "));
            let at = words.read(&expected, |word| names.iter().position(|name| *name == word))?;
            *rates[at].1 = words.number()?;
            if !words.take(",") {
                return Ok(());
            }
        }
    }
}

fn count(words: &mut Words) -> Result<usize, Bad> {
    words.read("a number from 1 to 64", |word| word.parse().ok().filter(|count| (1..=NODES).contains(count)))
}
