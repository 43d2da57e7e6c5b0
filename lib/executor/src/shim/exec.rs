//! Server for additional programs in a container, beside those of the recipe.

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

use super::complain;
use super::perform::{Performer, cannot_start, inside};
use crate::exec::{AT_ONCE, Reply, SOCKET};
use crate::isolation::{Pair, Session};
use crate::socket;

/// Started program, with the client's ends of its streams.
struct Begun {
    pid: i32,
    end: oneshot::Receiver<WaitStatus>,
    streams: Vec<OwnedFd>,
}

/// Streams of an additional program.
struct Streams {
    /// Ends of the program: standard input, output and error.
    inner: [OwnedFd; 3],
    /// Ends of the client.
    outer: Vec<OwnedFd>,
    session: Session,
}

/// Delay after a failure to accept a connection.
const PAUSE: Duration = Duration::from_millis(250);

/// Serves requests on the socket in the container's folder while it is polled. A program that still runs
/// afterwards ends with the container.
pub(super) async fn serve(performer: &Performer, folder: &Path) -> Infallible {
    let listener = match socket::listen(folder, SOCKET).and_then(UnixListener::from_std) {
        Ok(listener) => listener,
        // The container runs without this service.
        Err(error) => {
            complain(&format!("nobody can ask for a program: {error}"));
            return pending().await;
        }
    };
    let mut served = FuturesUnordered::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((asked, _)) => served.push(serve_one(performer, folder, asked, served.len())),
                Err(error) => {
                    complain(&format!("cannot be asked to run a program: {error}"));
                    sleep(PAUSE).await;
                }
            },
            Some(()) = served.next(), if !served.is_empty() => {}
        }
    }
}

async fn serve_one(performer: &Performer, folder: &Path, asked: UnixStream, others: usize) {
    // Nothing is done for a client that is already gone, and nothing is sent to one that leaves later.
    let Ok((exec, _)) = socket::receive::<Exec>(&asked).await else { return };
    let begun = if others < AT_ONCE {
        begin(performer, folder, &exec)
    } else {
        Err(format!("{AT_ONCE} programs run in the container already, beside its own: no more may"))
    };
    let Begun { pid, end, streams } = match begun {
        Ok(begun) => begun,
        Err(why) => return drop(socket::send(&asked, &Reply::Refused(why), &[]).await),
    };
    let outer: Vec<BorrowedFd<'_>> = streams.iter().map(AsFd::as_fd).collect();
    if socket::send(&asked, &Reply::Began, &outer).await.is_err() {
        return performer.end(pid, Signal::HUP).await;
    }
    // Close these ends here, so that the client sees the end of its streams when the program closes its own.
    drop(outer);
    drop(streams);
    tokio::select! {
        status = end => {
            let ended = status.map_or_else(|_| unknown(), |status| performer.end_of(status));
            drop(socket::send(&asked, &Reply::Ended(ended), &[]).await);
        }
        () = socket::gone(&asked) => performer.end(pid, Signal::HUP).await,
    }
}

fn unknown() -> ExecEnd {
    ExecEnd::Failed("nobody saw how it ended".to_owned())
}

/// Starts a program in the same way as those of the action.
fn begin(performer: &Performer, folder: &Path, exec: &Exec) -> Result<Begun, String> {
    let run = run(exec, &performer.spec.recipe.action);
    let failed = |error: io::Error| cannot_start(&run, &error);
    let Streams { inner: [input, output, errors], outer, session } =
        streams(performer, folder, exec).map_err(failed)?;
    let (socket, mut command) = inside(output.into(), errors.into()).map_err(failed)?;
    let child = command.spawn().map_err(failed)?;
    // Close the program's ends here, so that their end is visible to the client.
    drop(command);
    let (pid, end) = performer.expect(&child);
    performer.become_run(socket, &run, session, Some(input.as_fd()))?;
    Ok(Begun { pid, end, streams: outer })
}

fn streams(performer: &Performer, folder: &Path, exec: &Exec) -> io::Result<Streams> {
    match &exec.terminal {
        Some(terminal) => {
            let Pair { outer, inner } = Pair::make(folder, performer.spec.plan.as_ref(), terminal.size)?;
            let inner = [inner.try_clone()?, inner.try_clone()?, inner];
            Ok(Streams { inner, outer: vec![outer], session: Session::Terminal })
        }
        None => {
            let (input, to) = pipe_with(PipeFlags::CLOEXEC)?;
            let (from, output) = pipe_with(PipeFlags::CLOEXEC)?;
            let (from_errors, errors) = pipe_with(PipeFlags::CLOEXEC)?;
            let inner = [input, output, errors];
            Ok(Streams { inner, outer: vec![to, from, from_errors], session: Session::Own })
        }
    }
}

/// Returns the run action for a request. Unspecified settings are those of the action's first program.
fn run(exec: &Exec, action: &Action) -> Run {
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
