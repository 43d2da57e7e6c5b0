//! Pseudo-terminal of a test, with a program that uses it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};

/// User's side of a pseudo-terminal.
pub(crate) struct Terminal {
    user_side: File,
    /// Program's side, kept open so that the terminal's modes can be read after the program has exited.
    program_side: File,
}

impl Terminal {
    /// Opens a terminal of this size. Its output is also written to a file.
    pub(crate) fn open(columns: u16, lines: u16, log: &Path) -> Self {
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&person).unwrap();
        unlockpt(&person).unwrap();
        let path = ptsname(&person, vec![]).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let program: OwnedFd = rustix::fs::open(path.as_c_str(), flags, Mode::empty()).unwrap();
        let size = Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&program, size).unwrap();
        let user_side = File::from(person);
        let mut shown = user_side.try_clone().unwrap();
        let mut log = File::options().create(true).append(true).open(log).unwrap();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // A read fails when no process has the program's side open.
            while let Ok(count @ 1..) = shown.read(&mut bytes) {
                log.write_all(&bytes[..count]).unwrap();
            }
        });
        Self { user_side, program_side: File::from(program) }
    }

    /// Returns the program's side, for its standard input, output or error.
    pub(crate) fn program_side(&self) -> File {
        self.program_side.try_clone().unwrap()
    }

    /// Types keys into the program.
    pub(crate) fn type_keys(&self, keys: &str) {
        (&self.user_side).write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn resize(&self, columns: u16, lines: u16) {
        let size = Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.program_side, size).unwrap();
    }

    /// Returns `true` if the terminal has the modes that a shell expects: echo, line-by-line input, and
    /// signals.
    pub(crate) fn is_in_shell_mode(&self) -> bool {
        let modes: Termios = tcgetattr(&self.program_side).unwrap();
        modes.local_modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
    }
}
