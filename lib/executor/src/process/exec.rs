//! Has the shim of a container run one more program, and talks to it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use schemas::exec::{Exec, ExecEnd, Stream, TerminalSize};
use schemas::names::InstanceGuid;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use crate::exec::{Reply, SOCKET};
use crate::{isolation, socket};

/// Bytes that are read at once.
const READ_BYTES: usize = 16 * 1024;
/// How long what a program wrote may take to come after its end. What it left in the background may hold its streams for much
/// longer.
const LINGER: Duration = Duration::from_millis(200);

/// Why a program can't be run in a container.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// There is no such container here.
    #[error("no container {0} on this cell")]
    Unknown(InstanceGuid),
    /// It can't be asked for that.
    #[error("the container takes no further program: it has ended, or was started by an earlier version")]
    NotAsked(#[source] io::Error),
    /// It was asked, and said why not.
    #[error("{0}")]
    Refused(String),
}

/// What a program reads.
#[derive(Debug)]
pub struct ExecInput {
    stream: Option<AsyncFd<OwnedFd>>,
    is_terminal: bool,
}

/// What a program writes, and how it ends. It is ended when this is dropped.
#[derive(Debug)]
pub struct ExecOutput {
    out: Option<AsyncFd<OwnedFd>>,
    err: Option<AsyncFd<OwnedFd>>,
    waits: AbortOnDropHandle<ExecEnd>,
    ended: Option<(ExecEnd, Instant)>,
}

/// What comes of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// It wrote this.
    Wrote(Stream, Vec<u8>),
    /// It ended so, and nothing more comes.
    Ended(ExecEnd),
}

/// Asks the shim of the container in this folder.
pub(super) async fn begin(folder: &Path, exec: &Exec) -> Result<(ExecInput, ExecOutput), ExecError> {
    let begin = async || {
        let shim = socket::connect(folder, SOCKET).await?;
        socket::send(&shim, exec, &[]).await?;
        let (reply, streams) = socket::receive::<Reply>(&shim).await?;
        io::Result::Ok((shim, reply, streams))
    };
    let (shim, reply, streams) = begin().await.map_err(ExecError::NotAsked)?;
    match reply {
        Reply::Began => open(shim, streams).map_err(ExecError::NotAsked),
        Reply::Refused(why) => Err(ExecError::Refused(why)),
        Reply::Ended(_) => Err(ExecError::NotAsked(io::Error::other("it ended before it began"))),
    }
}

fn open(shim: UnixStream, streams: Vec<OwnedFd>) -> io::Result<(ExecInput, ExecOutput)> {
    let mut streams = streams.into_iter();
    let (input, out, err, is_terminal) = match (streams.next(), streams.next(), streams.next()) {
        (Some(terminal), None, None) => (terminal.try_clone()?, terminal, None, true),
        (Some(input), Some(out), Some(err)) => (input, out, Some(err), false),
        (_, _, _) => return Err(io::Error::other("its streams did not come")),
    };
    let input = ExecInput { stream: Some(watched(input)?), is_terminal };
    let waits = AbortOnDropHandle::new(tokio::spawn(ended(shim)));
    let (out, err) = (Some(watched(out)?), err.map(watched).transpose()?);
    Ok((input, ExecOutput { out, err, waits, ended: None }))
}

#[expect(
    deprecated,
    reason = "its successor asks for what an owned descriptor has: nobody closes it meanwhile"
)]
fn watched(stream: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    rustix::io::ioctl_fionbio(&stream, true)?;
    AsyncFd::new(stream)
}

/// How the program ended, as its shim has it.
async fn ended(shim: UnixStream) -> ExecEnd {
    match socket::receive::<Reply>(&shim).await {
        Ok((Reply::Ended(end), _)) => end,
        Ok((Reply::Began | Reply::Refused(_), _)) | Err(_) => {
            ExecEnd::Failed("the container ended".to_owned())
        }
    }
}

impl ExecInput {
    /// Writes some of these bytes, when there is room: says how many. A program that reads no more takes them all.
    ///
    /// # Errors
    /// Why they can't be written.
    pub async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let Some(stream) = &self.stream else { return Ok(bytes.len()) };
        loop {
            let mut ready = stream.writable().await?;
            match ready.try_io(|stream| Ok(rustix::io::write(stream, bytes)?)) {
                Ok(Err(error)) if is_end(&error) => return Ok(bytes.len()),
                Ok(written) => return written,
                Err(_would_block) => {}
            }
        }
    }

    /// Ends what the program reads. A terminal has no end: what is typed there says so.
    pub fn end(&mut self) {
        if !self.is_terminal {
            self.stream = None;
        }
    }

    /// Gives its terminal this size, if it has one.
    ///
    /// # Errors
    /// Why it can't have it.
    pub fn resize(&self, size: TerminalSize) -> io::Result<()> {
        match &self.stream {
            Some(terminal) if self.is_terminal => isolation::resize(terminal.as_fd(), size),
            Some(_) | None => Ok(()),
        }
    }
}

impl ExecOutput {
    /// Waits for what comes next; after the end, for ever the same. Whoever gives up waiting loses nothing.
    pub async fn next(&mut self) -> Said {
        loop {
            let over = self.ended.as_ref().map(|(_, until)| *until);
            tokio::select! {
                biased;
                bytes = read(self.out.as_ref()), if self.out.is_some() => {
                    if let Some(said) = wrote(Stream::Out, bytes, &mut self.out) {
                        return said;
                    }
                }
                bytes = read(self.err.as_ref()), if self.err.is_some() => {
                    if let Some(said) = wrote(Stream::Err, bytes, &mut self.err) {
                        return said;
                    }
                }
                end = &mut self.waits, if self.ended.is_none() => {
                    let end = end.unwrap_or_else(|error| ExecEnd::Failed(error.to_string()));
                    self.ended = Some((end, Instant::now() + LINGER));
                }
                () = linger(over), if self.ended.is_some() => (self.out, self.err) = (None, None),
            }
            if let (Some((end, _)), None, None) = (&self.ended, &self.out, &self.err) {
                return Said::Ended(end.clone());
            }
        }
    }
}

/// What was read; nothing: the stream has ended, and is closed.
fn wrote(from: Stream, bytes: Vec<u8>, stream: &mut Option<AsyncFd<OwnedFd>>) -> Option<Said> {
    if bytes.is_empty() {
        *stream = None;
        None
    } else {
        Some(Said::Wrote(from, bytes))
    }
}

async fn linger(until: Option<Instant>) {
    if let Some(until) = until {
        sleep_until(until).await;
    }
}

/// Some bytes; none: there are no more.
async fn read(stream: Option<&AsyncFd<OwnedFd>>) -> Vec<u8> {
    let Some(stream) = stream else { return vec![] };
    let mut bytes = vec![0; READ_BYTES];
    loop {
        // What can't be waited for or read is at its end.
        let Ok(mut ready) = stream.readable().await else { return vec![] };
        match ready.try_io(|stream| Ok(rustix::io::read(stream, &mut bytes)?)) {
            Ok(Ok(count)) => {
                bytes.truncate(count);
                return bytes;
            }
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(Err(_)) => return vec![],
            Err(_would_block) => {}
        }
    }
}

/// Whether nobody reads any more.
fn is_end(error: &io::Error) -> bool {
    [Errno::PIPE, Errno::IO].iter().any(|end| error.raw_os_error() == Some(end.raw_os_error()))
}
