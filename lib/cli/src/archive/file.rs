//! Files that are written completely or not at all, and the reader of an export's lines.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use audit::export::{ExportError, LINE_BYTES, ParsedLine, Reader};
use cli_base::failure::Failure;
use runtime::exit::Exit;

use super::{failed, file_failure};

/// Buffer size of readers and writers, in bytes.
const BUFFER_BYTES: usize = 256 * 1024;

/// Destination of an export. A file gets its name only after it has been synced to the disk. After an earlier
/// error, no file remains.
pub(crate) struct Sink {
    out: Out,
    path: PathBuf,
}

enum Out {
    Stdout(BufWriter<io::Stdout>),
    File { file: BufWriter<File>, part: TempFile },
}

/// Path of a temporary file. The file is deleted on drop unless it has been renamed.
struct TempFile(Option<PathBuf>);

impl Drop for TempFile {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            // The file may be gone already.
            fs::remove_file(path).ok();
        }
    }
}

impl Sink {
    /// Creates a file that only this user can read, because a log may contain secrets. `-` is standard
    /// output.
    ///
    /// # Errors
    /// The file cannot be created.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let path = path.to_owned();
        if path == Path::new("-") {
            return Ok(Self { out: Out::Stdout(BufWriter::with_capacity(BUFFER_BYTES, io::stdout())), path });
        }
        let name = path
            .file_name()
            .ok_or_else(|| Failure::usage(format!("invalid path {}: expected a file", path.display())))?;
        if path.is_dir() {
            return Err(Failure::usage(format!("{} is a folder: expected a file", path.display())));
        }
        let part = path.with_file_name(format!(".{}.{}.part", name.to_string_lossy(), std::process::id()));
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part);
        let file = made.map_err(|error| failed(format!("can't create {}: {error}", part.display())))?;
        let out =
            Out::File { file: BufWriter::with_capacity(BUFFER_BYTES, file), part: TempFile(Some(part)) };
        Ok(Self { out, path })
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// The bytes cannot be written. The temporary file is deleted when `self` is dropped.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let written = match &mut self.out {
            Out::Stdout(out) => out.write_all(bytes),
            Out::File { file, .. } => file.write_all(bytes),
        };
        written.map_err(|error| self.write_failure(&error))
    }

    /// Syncs the complete file to the disk, and gives it its name.
    ///
    /// # Errors
    /// The file cannot be written. The temporary file is deleted.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        let path = self.path.clone();
        let finished = match &mut self.out {
            Out::Stdout(out) => out.flush(),
            Out::File { file, part } => commit(file, part, &path),
        };
        finished.map_err(|error| self.write_failure(&error))
    }

    fn write_failure(&self, error: &io::Error) -> Failure {
        match &self.out {
            Out::Stdout(_) if error.kind() == io::ErrorKind::BrokenPipe => Failure::broken_pipe(),
            Out::Stdout(_) => failed(format!("can't write to standard output: {error}")),
            Out::File { .. } => failed(format!("can't write {}: {error}", self.path.display()))
                .advise("the partial file was removed: free disk space, or choose another path"),
        }
    }
}

/// Syncs a complete file, renames it, and syncs its folder.
fn commit(file: &mut BufWriter<File>, part: &mut TempFile, path: &Path) -> io::Result<()> {
    file.flush()?;
    file.get_ref().sync_all()?;
    if let Some(made) = part.0.as_ref() {
        fs::rename(made, path)?;
        part.0 = None;
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// Reader that validates the lines of an export.
pub(crate) struct ExportReader {
    file: BufReader<File>,
    reader: Reader,
    path: PathBuf,
}

/// Reason that the next line of an export cannot be returned.
pub(crate) enum ReadError {
    /// The file cannot be read.
    File(Failure),
    /// The file is not an export, or is damaged or incomplete.
    Export(ExportError),
}

impl ExportReader {
    /// Opens an export.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        if path == Path::new("-") {
            return Err(Failure::usage(
                "can't read an export from standard input: it is read more than once; name a file",
            ));
        }
        let file = File::open(path).map_err(|error| file_failure(&error, path))?;
        let file = BufReader::with_capacity(BUFFER_BYTES, file);
        Ok(Self { file, reader: Reader::default(), path: path.to_owned() })
    }

    /// Returns the next line, or `None` after the last line of a complete export.
    pub(crate) fn next(&mut self) -> Result<Option<ParsedLine>, ReadError> {
        let mut line = Vec::new();
        let most = u64::try_from(LINE_BYTES).unwrap_or(u64::MAX);
        let read = (&mut self.file).take(most).read_until(b'\n', &mut line);
        let failure = |error: io::Error| {
            ReadError::File(failed(format!("can't read {}: {error}", self.path.display())))
        };
        if read.map_err(failure)? == 0 {
            return match std::mem::take(&mut self.reader).finish() {
                Ok(_) => Ok(None),
                Err(error) => Err(ReadError::Export(error)),
            };
        }
        self.reader.take(&line).map(Some).map_err(ReadError::Export)
    }

    /// Returns the next line, or `None` after the last line. For callers that cannot use a damaged export.
    ///
    /// # Errors
    /// The file cannot be read, or is not a complete export.
    pub(crate) fn next_valid(&mut self) -> Result<Option<ParsedLine>, Failure> {
        self.next().map_err(|broken| match broken {
            ReadError::File(failure) => failure,
            ReadError::Export(error) => {
                let why = format!("{} can't be used: {error}", self.path.display());
                Failure::new(Exit::Failed, "InvalidExport", why)
            }
        })
    }
}
