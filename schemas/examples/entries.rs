//! Measures the time to encode and to decode an entry: `cargo run --release -p schemas --example entries`.
#![expect(clippy::print_stderr, reason = "the example prints its results")]

use std::time::Instant;

use schemas::{Decision, Entry};

const ROUNDS: u32 = 2_000;

fn main() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/golden");
    let named = |name: &str| {
        let bytes = std::fs::read(format!("{folder}/{name}.json")).expect("the golden file exists");
        Entry::decode(&bytes).expect("a golden file is an entry").decisions
    };
    let many = |decisions: Vec<Decision>, count| decisions.into_iter().cycle().take(count).collect();
    for (name, count) in [
        ("desired.desired.v1", 10),
        ("actual.claimed.v1", 100),
        ("actual.started.v1", 100),
        ("task.desired.v1", 10),
    ] {
        let decisions: Vec<Decision> = many(named(name), count);
        let entry = Entry { id: schemas::names::EntryId(uuid::Uuid::nil()), format: 1, decisions };
        let begun = Instant::now();
        let mut length = 0;
        for _ in 0..ROUNDS {
            length = entry.encode().len();
        }
        let written = begun.elapsed();
        let bytes = entry.encode();
        let begun = Instant::now();
        for _ in 0..ROUNDS {
            assert!(Entry::decode(&bytes).is_ok());
        }
        let read = begun.elapsed();
        eprintln!(
            "{count:>4} {name:<20} {length:>6} bytes: encoded in {:>7.1?}, decoded in {:>7.1?}",
            written / ROUNDS,
            read / ROUNDS
        );
    }
}
