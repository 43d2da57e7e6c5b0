//! Server that runs additional programs in a container, beside the programs of the recipe.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, WaitStatus};
use schemas::action::{Action, Run, Secret, Variable};
use schemas::exec::{Exec, ExecEnd};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::actions::{Performer, cannot_start, confined_command};
use super::log_error;
use crate::exec::{MAX_CONCURRENT, Reply, SOCKET};
use crate::isolation::{Pty, Session};
use crate::socket;

/// Started program, with the client's ends of its streams.
struct StartedExec {
    pid: i32,
    end: oneshot::Receiver<WaitStatus>,
    streams: Vec<OwnedFd>,
}

/// Streams of an additional program.
struct Streams {
    /// Ends of the streams that the program uses: standard input, output and error.
    program_ends: [OwnedFd; 3],
    /// Ends of the streams that the client uses.
    client_ends: Vec<OwnedFd>,
    session: Session,
}

/// Delay after a failure to accept a connection.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(250);

/// Serves requests on the socket in the container's folder while the future is polled. If the future is
/// dropped, the programs that still run end with the container.
pub(super) async fn serve(performer: &Performer, folder: &Path) -> Infallible {
    let listener = match socket::listen(folder, SOCKET).and_then(UnixListener::from_std) {
        Ok(listener) => listener,
        // The container runs even if this service is not available.
        Err(error) => {
            log_error(&format!("cannot listen for additional programs: {error}"));
            return pending().await;
        }
    };
    let mut served = FuturesUnordered::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((asked, _)) => served.push(serve_one(performer, folder, asked, served.len())),
                Err(error) => {
                    log_error(&format!("cannot accept a request for an additional program: {error}"));
                    sleep(ACCEPT_RETRY_DELAY).await;
                }
            },
            Some(()) = served.next(), if !served.is_empty() => {}
        }
    }
}

async fn serve_one(performer: &Performer, folder: &Path, asked: UnixStream, others: usize) {
    // If the client is already gone, its request is ignored. If the client disconnects later, the reply
    // cannot be sent, and the error is ignored.
    let Ok((exec, _)) = socket::receive::<Exec>(&asked).await else { return };
    let begun = if others < MAX_CONCURRENT {
        start(performer, folder, &exec)
    } else {
        Err(format!("too many additional programs in the container: at most {MAX_CONCURRENT} run at a time"))
    };
    let StartedExec { pid, end, streams } = match begun {
        Ok(begun) => begun,
        Err(why) => return drop(socket::send(&asked, &Reply::Refused(why), &[]).await),
    };
    let outer: Vec<BorrowedFd<'_>> = streams.iter().map(AsFd::as_fd).collect();
    if socket::send(&asked, &Reply::Started, &outer).await.is_err() {
        return performer.terminate(pid, Signal::HUP).await;
    }
    // Close the client's ends in this process. The client then sees the end of its streams when the program
    // closes the other ends.
    drop(outer);
    drop(streams);
    tokio::select! {
        status = end => {
            let ended = status.map_or_else(|_| unknown_end(), |status| performer.exec_end(status));
            drop(socket::send(&asked, &Reply::Ended(ended), &[]).await);
        }
        () = socket::wait_until_closed(&asked) => performer.terminate(pid, Signal::HUP).await,
    }
}

fn unknown_end() -> ExecEnd {
    ExecEnd::Failed("the exit status is unknown".to_owned())
}

/// Starts a program in the same way as the programs of the action.
fn start(performer: &Performer, folder: &Path, exec: &Exec) -> Result<StartedExec, String> {
    let run = run_action(exec, &performer.spec.recipe.action);
    let failed = |error: io::Error| cannot_start(&run, &error);
    let Streams { program_ends: [input, output, errors], client_ends: outer, session } =
        open_streams(performer, folder, exec).map_err(failed)?;
    let (socket, mut command) = confined_command(output.into(), errors.into()).map_err(failed)?;
    let child = command.spawn().map_err(failed)?;
    // Close the program's ends in this process, so that the client notices when the program closes them.
    drop(command);
    let (pid, end) = performer.register_child(&child);
    performer.request_run(socket, &run, session, Some(input.as_fd()))?;
    Ok(StartedExec { pid, end, streams: outer })
}

fn open_streams(performer: &Performer, folder: &Path, exec: &Exec) -> io::Result<Streams> {
    match &exec.terminal {
        Some(terminal) => {
            let Pty { controller: outer, terminal: inner } =
                Pty::open(folder, performer.spec.plan.as_ref(), terminal.size)?;
            let inner = [inner.try_clone()?, inner.try_clone()?, inner];
            Ok(Streams { program_ends: inner, client_ends: vec![outer], session: Session::Terminal })
        }
        None => {
            let (input, to) = pipe_with(PipeFlags::CLOEXEC)?;
            let (from, output) = pipe_with(PipeFlags::CLOEXEC)?;
            let (from_errors, errors) = pipe_with(PipeFlags::CLOEXEC)?;
            let inner = [input, output, errors];
            Ok(Streams {
                program_ends: inner,
                client_ends: vec![to, from, from_errors],
                session: Session::Own,
            })
        }
    }
}

/// Returns the run action for a request. For settings that the request does not specify, the settings of the
/// first program of `action` apply.
fn run_action(exec: &Exec, action: &Action) -> Run {
    let first = action.first_run().cloned().unwrap_or_default();
    let or = |own: &str, first: String| if own.is_empty() { first } else { own.to_owned() };
    let mut env = first.env;
    env.extend(exec.terminal.as_ref().map(|terminal| Variable {
        name: "TERM".into(),
        value: Secret::Plain(terminal.kind.as_str().into()),
    }));
    Run {
        path: exec.path.clone(),
        args: exec.args.clone(),
        dir: or(&exec.dir, first.dir),
        env,
        user: or(&exec.user, first.user),
        resource_limits: first.resource_limits,
        ..Run::default()
    }
}
