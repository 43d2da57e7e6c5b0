//! Programs that are run, and what they said.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(crate) use support::patience::so;
use support::patience::within;

/// How long a program may take, unless somebody says otherwise.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);
/// How often is looked whether it has ended.
const LOOK: Duration = Duration::from_millis(20);

/// What came of a program.
#[derive(Debug)]
pub(crate) struct Said {
    /// What was run, as somebody would type it.
    pub(crate) line: String,
    /// How it ended; none: it was killed.
    pub(crate) code: Option<i32>,
    /// Its standard output.
    pub(crate) out: String,
    /// Its standard error.
    pub(crate) err: String,
}

impl Said {
    /// Its standard output.
    ///
    /// # Errors
    /// It failed: what it was and what it said.
    pub(crate) fn done(self) -> Result<String, String> {
        let Self { line, code, out, err } = self;
        if code == Some(0) { Ok(out) } else { Err(format!("{line}: ended with {code:?}\n{out}{err}")) }
    }
}

/// Runs a program with a text as its standard input, to its end or for so long.
pub(crate) fn run_for(limit: Duration, mut command: Command, input: &str) -> Said {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let line = words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ");
    let [given, out, err] = [(); 3].map(|()| tempfile::tempfile().expect("there is room for a file"));
    rewound(&given, input);
    let file = |file: &File| Stdio::from(file.try_clone().expect("there is room for a descriptor"));
    command.stdin(file(&given)).stdout(file(&out)).stderr(file(&err));
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Said { line, code: None, out: String::new(), err: error.to_string() },
    };
    let end = Instant::now() + limit;
    let code = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status.code(),
            Ok(None) if Instant::now() < end => sleep(LOOK),
            Ok(None) | Err(_) => {
                child.kill().ok();
                child.wait().ok();
                break None;
            }
        }
    };
    Said { line, code, out: text(out), err: text(err) }
}

/// The same, for as long as programs usually may take, and without any input.
pub(crate) fn run(command: Command) -> Said {
    run_for(LIMIT, command, "")
}

fn rewound(mut file: &File, input: &str) {
    let written = file.write_all(input.as_bytes()).and_then(|()| file.seek(SeekFrom::Start(0)).map(drop));
    written.expect("there is room for a few bytes");
}

fn text(mut file: File) -> String {
    let mut bytes = vec![];
    file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut bytes)).expect("it can be read again");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Waits until something is so. Panics with the last reason why it isn't.
pub(crate) fn eventually<T>(what: &str, is_so: impl FnMut() -> Result<T, String>) -> T {
    within(LIMIT, what, is_so)
}
