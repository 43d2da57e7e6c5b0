//! Wall clocks that tests can set.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// Wall clock of the programs that are started with [`Clock::variables`].
#[derive(Debug)]
pub struct Clock {
    file: File,
    path: String,
    library: String,
}

impl Clock {
    /// Creates a correct clock, with its files in `folder`. Needs a C compiler, `cc`.
    ///
    /// # Errors
    /// Returns an error if the files can't be written or the compiler fails.
    pub fn new(folder: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let [path, library] = ["clock", "clock_shift.so"].map(|name| folder.join(name).display().to_string());
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/clock_shift.c");
        let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o", &library, source]).status()?;
        if !built.success() {
            return Err(io::Error::other(format!("cc cannot build {source}: {built}")));
        }
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
        let clock = Self { file, path, library };
        clock.set(0)?;
        Ok(clock)
    }

    /// Sets the clock to `ahead` seconds ahead of the correct time.
    ///
    /// # Errors
    /// Returns an error if the file of the clock can't be written.
    pub fn set(&self, ahead: i64) -> io::Result<()> {
        self.file.write_all_at(&ahead.to_ne_bytes(), 0)
    }

    /// Returns the environment variables that make a program use this clock.
    #[must_use]
    pub fn variables(&self) -> [(&'static str, &str); 2] {
        [("LD_PRELOAD", &self.library), ("CLOCK_SHIFT", &self.path)]
    }
}
