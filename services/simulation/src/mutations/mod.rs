//! Mutations: rules broken on purpose, one at a time, to prove that the checkers can fail.
//!
//! `mutations.txt` lists them. Everything that the simulation is made of is copied, with every mutation written beside
//! the code that it replaces; the copy is built once, and run once for each mutation until it breaks the promise that
//! it is to break.
//!
//! | the file | holds |
//! |---|---|
//! | [`list`] | the list |
//! | [`schemata`] | mutations written into a source |
//! | [`copy`] | the mutated copy |
//! | [`runs`] | building it, and running it |
//! | [`report`] | what became of them |

pub mod copy;
pub mod list;
pub mod report;
pub mod runs;
pub mod schemata;

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use self::list::Mutation;
use self::report::{Report, Row};
use self::runs::Ran;

/// So many seeds are run without a mutation.
const UNMUTATED: u64 = 70;

/// A mutation with its number: its place in the list, from 1 on.
type Numbered = (usize, Mutation);

/// Which mutations of the list are run.
#[derive(Clone, Copy, Debug)]
pub struct Choice<'a> {
    /// Those whose names hold this.
    pub name: &'a str,
    /// Of the list only every so manieth.
    pub every: usize,
}

impl Choice<'_> {
    fn takes(self, (number, mutation): &Numbered) -> bool {
        mutation.name.contains(self.name) && number.is_multiple_of(self.every)
    }

    const fn is_all(self) -> bool {
        self.name.is_empty() && self.every == 1
    }
}

/// Builds the mutated copy, with every mutation of the list, in a target folder of Cargo's, and runs it with these seeds:
/// unmutated, and with each mutation that is chosen.
///
/// # Errors
/// What is wrong with the list, with the build, or with a run.
pub fn run(target: &Path, seeds: Range<u64>, choice: Choice<'_>) -> Result<Report, String> {
    let list = list_file();
    let text = fs::read_to_string(&list).map_err(|error| format!("{}: {error}", list.display()))?;
    let mutations = list::read(&text)?;
    let (source, said) = (target.join("mutations/source"), target.join("mutations/said"));
    fs::create_dir_all(&said).map_err(|error| format!("{}: {error}", said.display()))?;
    copy::write(workspace(), &source, &mutations)?;
    let program = runs::build(&source, target)?;
    let one = |number, mutation: &Mutation| {
        // Without a mutation the copy is what batches of seeds prove: some show that it is a copy.
        let end = if number == 0 { seeds.end.min(seeds.start + UNMUTATED) } else { seeds.end };
        let said = said.join(&mutation.name);
        runs::run(&program, (number, mutation), (&(seeds.start..end), &stories()), &said)
    };
    let none = (0, Mutation { name: "none".into(), ..Mutation::default() });
    let chosen = (1..).zip(mutations).filter(|numbered| choice.takes(numbered));
    let wanted: Vec<Numbered> = [none].into_iter().chain(chosen).collect();
    let mut rows = run_all(&wanted, one)?;
    let none = rows.remove(0).ran;
    Ok(Report { seeds, none, rows, whole: choice.is_all() })
}

/// The workspace whose simulation this is.
fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Mutations are tried on the stories as well, which meet what seeds seldom do.
fn stories() -> PathBuf {
    workspace().join("tests/stories")
}

fn list_file() -> PathBuf {
    workspace().join("services/simulation/mutations.txt")
}

/// Runs mutations, as many at once as there are cores. Answers the rows in their order.
fn run_all(
    mutations: &[Numbered],
    run: impl Fn(usize, &Mutation) -> Result<Ran, String> + Sync,
) -> Result<Vec<Row>, String> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Result<Row, String>)>> = Mutex::new(vec![]);
    let work = || {
        while let Some((number, mutation)) = mutations.get(next.fetch_add(1, Ordering::Relaxed)) {
            let row = run(*number, mutation).map(|ran| Row { mutation: mutation.clone(), ran });
            done.lock().push((*number, row));
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let mut rows = done.into_inner();
    rows.sort_by_key(|(number, _)| *number);
    rows.into_iter().map(|(_, row)| row).collect()
}
