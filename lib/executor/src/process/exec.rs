//! Runs an additional program in a container by a request to the container's shim.

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

/// Size of the read buffer, in bytes.
const READ_BYTES: usize = 16 * 1024;
/// Time limit for reading the remaining output after the program has ended. Background processes of the
/// program may keep its streams open for much longer.
const LINGER: Duration = Duration::from_millis(200);

/// Reason why a program cannot be run in a container.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// There is no such container on this cell.
    #[error("no container {0} on this cell")]
    Unknown(InstanceGuid),
    /// The shim could not be reached.
    #[error(
        "the container accepts no additional program: it has ended, or was started by an earlier version"
    )]
    Unreachable(#[source] io::Error),
    /// The shim refused the request, for this reason.
    #[error("{0}")]
    Refused(String),
}

/// Input of a program.
#[derive(Debug)]
pub struct ExecInput {
    stream: Option<AsyncFd<OwnedFd>>,
    is_terminal: bool,
}

/// Output and result of a program. Dropping this value ends the program.
#[derive(Debug)]
pub struct ExecOutput {
    out: Option<AsyncFd<OwnedFd>>,
    err: Option<AsyncFd<OwnedFd>>,
    shim_reply: AbortOnDropHandle<ExecEnd>,
    ended: Option<(ExecEnd, Instant)>,
}

/// Event of a running program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecEvent {
    /// The program wrote these bytes.
    Output(Stream, Vec<u8>),
    /// The program ended. No event follows.
    Ended(ExecEnd),
}

/// Sends the request to the shim of the container in this folder.
pub(super) async fn start(folder: &Path, exec: &Exec) -> Result<(ExecInput, ExecOutput), ExecError> {
    let begin = async || {
        let shim = socket::connect(folder, SOCKET).await?;
        socket::send(&shim, exec, &[]).await?;
        let (reply, streams) = socket::receive::<Reply>(&shim).await?;
        io::Result::Ok((shim, reply, streams))
    };
    let (shim, reply, streams) = begin().await.map_err(ExecError::Unreachable)?;
    match reply {
        Reply::Started => open_streams(shim, streams).map_err(ExecError::Unreachable),
        Reply::Refused(why) => Err(ExecError::Refused(why)),
        Reply::Ended(_) => {
            Err(ExecError::Unreachable(io::Error::other("the program ended before it started")))
        }
    }
}

fn open_streams(shim: UnixStream, streams: Vec<OwnedFd>) -> io::Result<(ExecInput, ExecOutput)> {
    let mut streams = streams.into_iter();
    let (input, out, err, is_terminal) = match (streams.next(), streams.next(), streams.next()) {
        (Some(terminal), None, None) => (terminal.try_clone()?, terminal, None, true),
        (Some(input), Some(out), Some(err)) => (input, out, Some(err), false),
        (_, _, _) => return Err(io::Error::other("the shim sent no streams")),
    };
    let input = ExecInput { stream: Some(to_async_fd(input)?), is_terminal };
    let shim_reply = AbortOnDropHandle::new(tokio::spawn(wait_for_end(shim)));
    let (out, err) = (Some(to_async_fd(out)?), err.map(to_async_fd).transpose()?);
    Ok((input, ExecOutput { out, err, shim_reply, ended: None }))
}

#[expect(
    deprecated,
    reason = "the successor requires a descriptor that stays open, which an owned descriptor does"
)]
fn to_async_fd(stream: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    rustix::io::ioctl_fionbio(&stream, true)?;
    AsyncFd::new(stream)
}

/// Waits for the shim to report the end of the program.
async fn wait_for_end(shim: UnixStream) -> ExecEnd {
    match socket::receive::<Reply>(&shim).await {
        Ok((Reply::Ended(end), _)) => end,
        Ok((Reply::Started | Reply::Refused(_), _)) | Err(_) => {
            ExecEnd::Failed("the container ended".to_owned())
        }
    }
}

impl ExecInput {
    /// Waits until the program's input accepts data, writes a part of `bytes`, and returns the length of this
    /// part. If the program no longer reads, all bytes are discarded and counted as written.
    ///
    /// # Errors
    ///
    /// The error of the system call.
    pub async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let Some(stream) = &self.stream else { return Ok(bytes.len()) };
        loop {
            let mut ready = stream.writable().await?;
            match ready.try_io(|stream| Ok(rustix::io::write(stream, bytes)?)) {
                Ok(Err(error)) if is_closed(&error) => return Ok(bytes.len()),
                Ok(written) => return written,
                Err(_would_block) => {}
            }
        }
    }

    /// Ends the program's input. Does nothing if the program has a terminal. In this case, the client must
    /// send an end-of-file character instead.
    pub fn end_input(&mut self) {
        if !self.is_terminal {
            self.stream = None;
        }
    }

    /// Sets the size of the program's terminal, if it has one.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn resize(&self, size: TerminalSize) -> io::Result<()> {
        match &self.stream {
            Some(terminal) if self.is_terminal => isolation::resize(terminal.as_fd(), size),
            Some(_) | None => Ok(()),
        }
    }
}

impl ExecOutput {
    /// Waits for the next event. After the program has ended, every call returns the end. Dropping the future
    /// loses no output.
    pub async fn next(&mut self) -> ExecEvent {
        loop {
            let over = self.ended.as_ref().map(|(_, until)| *until);
            tokio::select! {
                biased;
                bytes = read(self.out.as_ref()), if self.out.is_some() => {
                    if let Some(said) = output_event(Stream::Out, bytes, &mut self.out) {
                        return said;
                    }
                }
                bytes = read(self.err.as_ref()), if self.err.is_some() => {
                    if let Some(said) = output_event(Stream::Err, bytes, &mut self.err) {
                        return said;
                    }
                }
                end = &mut self.shim_reply, if self.ended.is_none() => {
                    let end = end.unwrap_or_else(|error| ExecEnd::Failed(error.to_string()));
                    self.ended = Some((end, Instant::now() + LINGER));
                }
                () = linger(over), if self.ended.is_some() => (self.out, self.err) = (None, None),
            }
            if let (Some((end, _)), None, None) = (&self.ended, &self.out, &self.err) {
                return ExecEvent::Ended(end.clone());
            }
        }
    }
}

/// Returns the event for bytes that were read. If there are no bytes, the stream has ended and is closed.
fn output_event(from: Stream, bytes: Vec<u8>, stream: &mut Option<AsyncFd<OwnedFd>>) -> Option<ExecEvent> {
    if bytes.is_empty() {
        *stream = None;
        None
    } else {
        Some(ExecEvent::Output(from, bytes))
    }
}

async fn linger(until: Option<Instant>) {
    if let Some(until) = until {
        sleep_until(until).await;
    }
}

/// Reads some bytes. The result is empty at the end of the stream.
async fn read(stream: Option<&AsyncFd<OwnedFd>>) -> Vec<u8> {
    let Some(stream) = stream else { return vec![] };
    let mut bytes = vec![0; READ_BYTES];
    loop {
        // A stream that cannot be polled or read has ended.
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

/// Returns `true` if the error means that no process reads the stream.
fn is_closed(error: &io::Error) -> bool {
    [Errno::PIPE, Errno::IO].iter().any(|end| error.raw_os_error() == Some(end.raw_os_error()))
}
