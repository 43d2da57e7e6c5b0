//! A terminal of a test's own, with a program on it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};

/// The side of a pseudo-terminal on which a person would sit.
pub(crate) struct Terminal {
    person: File,
    /// Kept open, so that its modes can be read when the program is gone.
    program: File,
}

impl Terminal {
    /// A terminal of this size. All that is written on it is also written to a file.
    pub(crate) fn open(columns: u16, lines: u16, log: &Path) -> Self {
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&person).unwrap();
        unlockpt(&person).unwrap();
        let path = ptsname(&person, vec![]).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let program: OwnedFd = rustix::fs::open(path.as_c_str(), flags, Mode::empty()).unwrap();
        let size = Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&program, size).unwrap();
        let person = File::from(person);
        let mut shown = person.try_clone().unwrap();
        let mut log = File::options().create(true).append(true).open(log).unwrap();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Reading fails when nobody has the other side open any more.
            while let Ok(count @ 1..) = shown.read(&mut bytes) {
                log.write_all(&bytes[..count]).unwrap();
            }
        });
        Self { person, program: File::from(program) }
    }

    /// The program's side, as its standard input, output or error.
    pub(crate) fn side(&self) -> File {
        self.program.try_clone().unwrap()
    }

    /// Types keys.
    pub(crate) fn types(&self, keys: &str) {
        (&self.person).write_all(keys.as_bytes()).unwrap();
    }

    /// Makes it larger or smaller.
    pub(crate) fn resize(&self, columns: u16, lines: u16) {
        let size = Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.program, size).unwrap();
    }

    /// Whether it shows what is typed, line by line, as a shell wants to find it.
    pub(crate) fn is_as_a_shell_wants_it(&self) -> bool {
        let modes: Termios = tcgetattr(&self.program).unwrap();
        modes.local_modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
    }
}
