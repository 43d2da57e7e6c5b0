//! `muster instance exec`: runs an additional program in the container of an instance.
//!
//! Input and output travel in separate messages at the same time. Each message contains the byte offset that
//! its sender has reached, so data of a lost message is sent again.

use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::time::Duration;

use clap::Args;
use cli_base::failure::Failure;
use cli_base::options::Global;
use cli_base::output;
use client::{Client, Error};
use crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use data_encoding::BASE64;
use runtime::exit::Exit;
use schemas::exec::{Exec, ExecEnd, ExecIo, ExecIoReply, OutputChunk, Stream, Terminal, TerminalSize};
use schemas::limits::{EXEC_IO_BYTES, EXEC_IO_WAIT_MS};
use schemas::names::{CellId, RequestId};
use schemas::query::InstanceRow;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::find::{self, FoundInstance, no_container};

/// Maximum time to retry an unanswered message. Default of `--timeout` for this command.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause before an unanswered message is sent again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Pause before more input is sent to a program that has not read the previous input.
const INPUT_FULL_PAUSE: Duration = Duration::from_millis(50);
/// Pause before a retry if the cell does not know the program yet.
const START_PAUSE: Duration = Duration::from_millis(10);
/// Maximum number of bytes per read of standard input.
const READ_BYTES: usize = 32 * 1024;
/// Size of a terminal that does not report its size.
const DEFAULT_SIZE: TerminalSize = TerminalSize { rows: 24, columns: 80 };
/// Terminal type if `TERM` is not set.
const DEFAULT_TERM: &str = "xterm";
/// Control character (Ctrl-D) that ends the input of a program on a terminal.
const END_OF_INPUT: u8 = 4;
/// Base of exit statuses for signals, as in shells. The number of the signal is added: 137 for signal 9.
const SIGNAL_STATUS_BASE: i32 = 128;

/// Session with a program in a container.
struct Session {
    client: Client,
    request_id: RequestId,
    cell_id: CellId,
    timeout: Duration,
    on_terminal: bool,
}

/// Program to run in the container of an instance.
#[derive(Clone, Debug, Args)]
pub struct ExecArgs {
    /// PROCESS/INDEX, PROCESS/INDEX@DEFINITION, or a prefix or suffix of an instance guid
    pub(crate) id: String,
    /// Allocate a terminal [default: if standard input and output are terminals]
    #[arg(short, long)]
    pub(crate) tty: bool,
    /// Allocate no terminal
    #[arg(short = 'T', long, conflicts_with = "tty")]
    pub(crate) no_tty: bool,
    /// Send no standard input to the program
    #[arg(short = 'n', long)]
    pub(crate) no_stdin: bool,
    /// User that runs the program [default: the user of the action's first program]
    #[arg(short, long, value_name = "USER[:GROUP]", default_value = "", hide_default_value = true)]
    pub(crate) user: String,
    /// Folder to run in, below the work directory [default: the folder of the action's first program]
    #[arg(short = 'w', long, value_name = "FOLDER", default_value = "", hide_default_value = true)]
    pub(crate) dir: String,
    /// Program and its arguments; the log records them, so let the program read secrets itself
    #[arg(required = true, last = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<String>,
}

/// Runs a program, and exits with its status.
pub(super) async fn run(client: &Client, global: &Global, args: ExecArgs) -> Result<(), Failure> {
    let FoundInstance { name, rows } = find::instance(client, &args.id).await?;
    let holder = rows.into_iter().find(|row| row.cell_id.is_some());
    let Some(InstanceRow { process_guid, index, definition_id, domain, cell_id: Some(cell_id), .. }) = holder
    else {
        return Err(no_container(&args.id));
    };
    let client = client.in_domain(find::check_domain(global, format!("process {process_guid}"), domain)?);
    let on_terminal = args.tty || !args.no_tty && io::stdin().is_terminal() && io::stdout().is_terminal();
    let begun = client.exec(process_guid, index, Some(definition_id), args.exec(on_terminal)).await;
    let request_id =
        begun.map_err(|error| Failure::from(error).while_doing(format!("run a program in {name}")))?;
    let timeout = global.timeout.unwrap_or(DEFAULT_TIMEOUT);
    let talking = Session { client, request_id, cell_id, timeout, on_terminal };
    // In raw mode, the local terminal neither echoes nor interprets the input of the program.
    let raw = RawTerminal::enable(on_terminal && io::stdin().is_terminal())?;
    let end = Box::pin(talking.transfer(!args.no_stdin)).await;
    drop(raw);
    status_of(end?, &name)
}

impl ExecArgs {
    fn exec(&self, on_terminal: bool) -> Exec {
        let terminal = on_terminal.then(|| Terminal {
            kind: std::env::var("TERM")
                .ok()
                .filter(|kind| !kind.is_empty())
                .unwrap_or_else(|| DEFAULT_TERM.to_owned()),
            size: terminal_size(),
        });
        let (path, args) = self
            .command
            .split_first()
            .map_or_else(|| (String::new(), vec![]), |(path, args)| (path.clone(), args.to_vec()));
        Exec { path, args, dir: self.dir.clone(), user: self.user.clone(), terminal }
    }
}

/// Converts the end of the program in the container to the result of this command.
fn status_of(end: ExecEnd, name: &str) -> Result<(), Failure> {
    match end {
        ExecEnd::Exited(0) => Ok(()),
        ExecEnd::Exited(status) => Err(Failure::program_status(status)),
        ExecEnd::Killed { signal, reason } => {
            output::note(&format!("{name}: {reason}"));
            Err(Failure::program_status(SIGNAL_STATUS_BASE + signal))
        }
        ExecEnd::Failed(why) => Err(Failure::new(Exit::NotStarted, "Exec", format!("{name}: {why}"))),
    }
}

fn terminal_size() -> TerminalSize {
    match crossterm::terminal::size() {
        Ok((columns, rows)) if columns > 0 && rows > 0 => TerminalSize { rows, columns },
        Ok(_) | Err(_) => DEFAULT_SIZE,
    }
}

impl Session {
    /// Transfers input and output until the program ends.
    async fn transfer(&self, reads: bool) -> Result<ExecEnd, Failure> {
        let signals =
            |kind| signal(kind).map_err(|error| Failure::new(Exit::Failed, "Signal", error.to_string()));
        let (mut interrupt, mut terminate, mut hangup) = (
            signals(SignalKind::interrupt())?,
            signals(SignalKind::terminate())?,
            signals(SignalKind::hangup())?,
        );
        let resized = signals(SignalKind::window_change())?;
        let end = tokio::select! {
            end = self.forward_output() => end,
            failure = self.forward_input(reads, resized) => Err(failure),
            _ = interrupt.recv() => Err(signal_failure(SignalKind::interrupt())),
            _ = terminate.recv() => Err(signal_failure(SignalKind::terminate())),
            _ = hangup.recv() => Err(signal_failure(SignalKind::hangup())),
        };
        // If this message is lost, the cell detects that no client polls the program.
        drop(self.client.talk(&ExecIo { hang_up: true, ..self.empty_message() }).await);
        end
    }

    /// Writes the program's output until the program ends.
    async fn forward_output(&self) -> Result<ExecEnd, Failure> {
        let mut from = 0;
        loop {
            let talk = ExecIo { output_from: Some(from), wait_ms: EXEC_IO_WAIT_MS, ..self.empty_message() };
            let ExecIoReply { output, output_next, end, .. } = self.send(&talk).await?;
            output.into_iter().try_for_each(write_output)?;
            from = output_next;
            if let Some(end) = end {
                return Ok(end);
            }
        }
    }

    /// Sends input and terminal sizes to the program. Returns only on failure.
    async fn forward_input(&self, reads: bool, mut resized: tokio::signal::unix::Signal) -> Failure {
        let mut typed = if reads { read_stdin() } else { no_input() };
        let (mut input, mut input_from, mut ended) = (vec![], 0, false);
        loop {
            let mut new_size = None;
            if input.is_empty() {
                tokio::select! {
                    more = typed.recv(), if !ended => {
                        ended = more.is_none();
                        input = more.unwrap_or_else(|| self.end_of_input());
                    }
                    Some(()) = resized.recv(), if self.on_terminal => new_size = Some(terminal_size()),
                    else => return std::future::pending().await,
                }
            }
            let talk = ExecIo {
                input: BASE64.encode(&input),
                input_from,
                input_eof: ended,
                size: new_size,
                ..self.empty_message()
            };
            let taken = match self.send(&talk).await {
                Ok(talked) => talked.input_next.saturating_sub(input_from),
                Err(failure) => return failure,
            };
            input_from += taken;
            input.drain(..usize::try_from(taken).unwrap_or(usize::MAX).min(input.len()));
            if !input.is_empty() {
                sleep(INPUT_FULL_PAUSE).await;
            }
        }
    }

    fn end_of_input(&self) -> Vec<u8> {
        if self.on_terminal { vec![END_OF_INPUT] } else { vec![] }
    }

    /// Sends a message, and retries until it is answered or the timeout has elapsed.
    async fn send(&self, talk: &ExecIo) -> Result<ExecIoReply, Failure> {
        let begun = Instant::now();
        loop {
            let error = match self.client.talk(talk).await {
                Ok(talked) => return Ok(talked),
                Err(error) => error,
            };
            let pause = if error.is_not_found() { START_PAUSE } else { RETRY_PAUSE };
            if begun.elapsed() >= self.timeout || !(error.is_transient() || error.is_not_found()) {
                return Err(self.session_error(error));
            }
            sleep(pause).await;
        }
    }

    fn session_error(&self, error: Error) -> Failure {
        let unknown = error.is_not_found();
        let failure = Failure::from(error).while_doing("reach the program");
        let why = "the cell does not know the program: the cell's rep restarted, or \
                   the instance moved to another cell";
        if unknown { failure.advise(why) } else { failure }
    }

    fn empty_message(&self) -> ExecIo {
        ExecIo::new(self.request_id.clone(), self.cell_id.clone())
    }
}

/// Returns the failure for a signal that this program received.
fn signal_failure(signal: SignalKind) -> Failure {
    Failure::program_status(SIGNAL_STATUS_BASE + signal.as_raw_value())
}

/// Writes output of the program to the same stream that the program wrote it to.
fn write_output(OutputChunk { stream, data }: OutputChunk) -> Result<(), Failure> {
    let bytes = output::decode_base64(&data)?;
    match stream {
        Stream::Out => output::write_bytes(&bytes),
        Stream::Err => {
            let mut out = io::stderr().lock();
            // The session continues even if standard error is closed.
            drop(out.write_all(&bytes).and_then(|()| out.flush()));
            Ok(())
        }
    }
}

/// Reads standard input in chunks on a thread. A blocking read cannot be cancelled, so the thread ends with
/// the process.
fn read_stdin() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut bytes = [0; READ_BYTES];
        loop {
            match io::stdin().read(&mut bytes) {
                Ok(0) => return,
                Ok(count) if sender.blocking_send(bytes[..count].to_vec()).is_ok() => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A read error counts as the end of the input.
                Ok(_) | Err(_) => return,
            }
        }
    });
    receiver
}

fn no_input() -> mpsc::Receiver<Vec<u8>> {
    mpsc::channel(1).1
}

/// Raw mode of the terminal. Dropping it restores the previous mode.
struct RawTerminal;

impl RawTerminal {
    fn enable(is_taken: bool) -> Result<Option<Self>, Failure> {
        if !is_taken {
            return Ok(None);
        }
        enable_raw_mode().map_err(|error| {
            Failure::new(Exit::Failed, "Terminal", format!("can't set the terminal to raw mode: {error}"))
        })?;
        Ok(Some(Self))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        drop(disable_raw_mode());
    }
}

const _: () = assert!(READ_BYTES <= EXEC_IO_BYTES, "one read of standard input must fit into one message");
