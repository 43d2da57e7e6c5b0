//! Programs that clients run in containers of this cell, in addition to the programs of the definitions
//! (docs/guides/run-a-program-in-a-container.md).
//!
//! ```text
//!   client ── talk ──▶ BBS ──▶ ExecSessions ──▶ program ──▶ executor
//!      ▲                                         │ buffers unfetched output
//!      └──────────── reply ──────────────────────┘
//! ```
//!
//! Every message states the offsets that its sender has reached. Lost, delayed and duplicated messages are
//! therefore harmless. If a client is silent for too long, its program is ended. The output of an ended
//! program remains available for some time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64;
use executor::process::{ExecEvent, ExecInput, ExecOutput, Executor};
use parking_lot::Mutex;
use schemas::exec::{ExecEnd, ExecIo, ExecIoReply, ForwardedExecIo, OutputChunk, Stream, TerminalSize};
use schemas::limits::{EXEC_IO_BYTES, EXEC_IO_WAIT_MS};
use schemas::message::StartExec;
use schemas::names::{ClientName, Domain, RequestId};
use schemas::quota::EXEC_SESSIONS;
use schemas::{BadField, Refusal};
use text::chain;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::containers::Containers;

/// Maximum number of buffered output bytes of a program. The program waits while the buffer is full.
const MAX_OUTPUT_BYTES: usize = 256 * 1024;
/// Maximum number of input bytes that wait for a program.
const MAX_INPUT_BYTES: usize = 128 * 1024;
/// Maximum number of bytes per write to a program: the capacity of a pipe.
const MAX_WRITE_BYTES: usize = 64 * 1024;
/// Maximum time between two messages of a client. A program that has ended is kept for the same time.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of client programs that run on a cell.
const MAX_PROGRAMS: usize = 256;

/// Programs of clients on this cell.
#[derive(Clone, Debug, Default)]
pub(super) struct ExecSessions(Arc<Mutex<BTreeMap<SessionName, Arc<Program>>>>);

/// Name of a program: the domain, the client, and the client's request id.
type SessionName = (Domain, ClientName, RequestId);

/// A program of a client.
#[derive(Debug)]
struct Program {
    state: Mutex<State>,
    /// Signals work for the program: input, the end of the input, or a new terminal size.
    work_available: Notify,
    /// Signals new output, fetched output, or the end of the program.
    output_changed: watch::Sender<()>,
    /// Cancelled when the client ends the program.
    cancel: CancellationToken,
}

#[derive(Debug)]
struct State {
    input: VecDeque<u8>,
    /// Number of received input bytes.
    input_next: u64,
    input_ends: bool,
    size: Option<TerminalSize>,
    output: VecDeque<(Stream, Vec<u8>)>,
    /// Number of fetched output bytes.
    fetched: u64,
    /// Number of buffered output bytes.
    buffered: usize,
    end: Option<ExecEnd>,
    /// Time of the last message from the client.
    last_message: Instant,
}

/// Next action for a program.
enum NextAction {
    Resize(TerminalSize),
    Write(Vec<u8>),
    EndInput,
    Nothing,
}

/// Checks the limits of the cell and of the domain, whose quota is `quota`. Returns the reason why the domain
/// may not run another program. `None` if another program may run.
fn full(all: &BTreeMap<SessionName, Arc<Program>>, domain: &Domain, quota: u32) -> Option<String> {
    let running = || all.iter().filter(|(_, program)| program.is_running());
    let used = running().filter(|((of, ..), _)| of == domain).count();
    if used >= quota as usize {
        return Some(EXEC_SESSIONS.exceeded(domain, quota, &format!("{used} programs run on this cell")));
    }
    (running().count() >= MAX_PROGRAMS)
        .then(|| format!("the cell already runs {MAX_PROGRAMS} programs of clients, which is the maximum"))
}

impl ExecSessions {
    /// Runs a program for a client. The client fetches the output with [`ExecSessions::talk`].
    pub(super) fn enter(&self, containers: &Containers, enter: StartExec) {
        let program = Arc::new(Program::new());
        let name = (enter.domain.clone(), enter.client.clone(), enter.request_id.clone());
        {
            let mut all = self.0.lock();
            if all.contains_key(&name) {
                // The order was delivered twice.
                return;
            }
            if let Some(why) = full(&all, &enter.domain, enter.exec_sessions) {
                program.finish(ExecEnd::Failed(why));
            }
            all.insert(name.clone(), Arc::clone(&program));
        }
        let (talks, containers) = (self.clone(), containers.clone());
        tokio::spawn(async move {
            if program.is_running() {
                let end = match &containers {
                    Containers::Process(executor) => program.run(executor, &enter).await,
                    Containers::Scripted(_) => {
                        ExecEnd::Failed("scripted containers can't run programs".to_owned())
                    }
                };
                program.finish(end);
            }
            program.removable().await;
            talks.0.lock().remove(&name);
        });
    }

    /// Passes the input of a client to its program, and returns the output.
    pub(super) async fn talk(
        &self,
        ForwardedExecIo { domain, client, io }: ForwardedExecIo,
    ) -> Result<ExecIoReply, Refusal> {
        let ExecIo { request_id, cell_id, .. } = &io;
        let name = (domain, client, request_id.clone());
        let found = self.0.lock().get(&name).cloned();
        let program = found.ok_or_else(|| {
            Refusal::not_found(format!("a program of this client's request {request_id} on cell {cell_id}"))
        })?;
        program.take(&io)?;
        let Some(from) = io.output_from else { return Ok(program.nothing()) };
        let wait = Duration::from_millis(io.wait_ms.min(EXEC_IO_WAIT_MS));
        // The outcome of the wait does not matter: after a timeout, the reply contains the output that has
        // arrived.
        drop(timeout(wait, program.output_available(from)).await);
        program.output_reply(from)
    }
}

impl Program {
    fn new() -> Self {
        let state = State {
            input: VecDeque::new(),
            input_next: 0,
            input_ends: false,
            size: None,
            output: VecDeque::new(),
            fetched: 0,
            buffered: 0,
            end: None,
            last_message: Instant::now(),
        };
        let (output_changed, _) = watch::channel(());
        let cancel = CancellationToken::new();
        Self { state: Mutex::new(state), work_available: Notify::new(), output_changed, cancel }
    }

    /// Runs the program until it ends.
    async fn run(&self, executor: &Executor, enter: &StartExec) -> ExecEnd {
        let (input, output) = match executor.exec(enter.instance_guid, &enter.exec).await {
            Ok(streams) => streams,
            Err(error) => return ExecEnd::Failed(chain(&error)),
        };
        tokio::select! {
            end = self.buffer_output(output) => end,
            why = self.write_input(input) => ExecEnd::Failed(why),
            () = self.cancel.cancelled() => ExecEnd::Failed("the client ended the session".to_owned()),
            () = self.client_timeout() => ExecEnd::Failed(format!("no message from the client for {CLIENT_TIMEOUT:?}")),
        }
    }

    /// Buffers the output of the program, and waits while the buffer is full.
    async fn buffer_output(&self, mut output: ExecOutput) -> ExecEnd {
        loop {
            match output.next().await {
                ExecEvent::Output(stream, bytes) => self.push_output(stream, bytes),
                ExecEvent::Ended(end) => return end,
            }
            let mut fetched = self.output_changed.subscribe();
            while self.state.lock().buffered >= MAX_OUTPUT_BYTES {
                if fetched.changed().await.is_err() {
                    break;
                }
            }
        }
    }

    /// Writes the input of the client to the program. Returns only after an error.
    async fn write_input(&self, mut input: ExecInput) -> String {
        loop {
            match self.next_action() {
                NextAction::Resize(size) => {
                    if let Err(error) = input.resize(size) {
                        return format!("can't resize the terminal: {error}");
                    }
                }
                NextAction::Write(bytes) => tokio::select! {
                    written = input.write(&bytes) => match written {
                        Ok(count) => drop(self.state.lock().input.drain(..count)),
                        Err(error) => return format!("can't write to the program: {error}"),
                    },
                    // A program that does not read its input can still be resized.
                    () = self.work_available.notified() => {}
                },
                NextAction::EndInput => {
                    input.end_input();
                    self.work_available.notified().await;
                }
                NextAction::Nothing => self.work_available.notified().await,
            }
        }
    }

    fn next_action(&self) -> NextAction {
        let mut state = self.state.lock();
        if let Some(size) = state.size.take() {
            NextAction::Resize(size)
        } else if !state.input.is_empty() {
            NextAction::Write(state.input.iter().take(MAX_WRITE_BYTES).copied().collect())
        } else if state.input_ends {
            NextAction::EndInput
        } else {
            NextAction::Nothing
        }
    }

    /// Waits until the client has been silent for too long.
    async fn client_timeout(&self) {
        loop {
            let until = self.state.lock().last_message + CLIENT_TIMEOUT;
            if Instant::now() >= until {
                return;
            }
            sleep_until(until).await;
        }
    }

    /// Waits until an ended program can be removed.
    async fn removable(&self) {
        tokio::select! {
            () = self.client_timeout() => {}
            () = self.cancel.cancelled() => {}
        }
    }

    fn push_output(&self, stream: Stream, bytes: Vec<u8>) {
        let mut state = self.state.lock();
        state.buffered += bytes.len();
        state.output.push_back((stream, bytes));
        drop(state);
        self.output_changed.send_replace(());
    }

    fn is_running(&self) -> bool {
        self.state.lock().end.is_none()
    }

    fn finish(&self, end: ExecEnd) {
        self.state.lock().end = Some(end);
        self.output_changed.send_replace(());
    }

    /// Processes a message of the client.
    fn take(&self, talk: &ExecIo) -> Result<(), Refusal> {
        let bytes = BASE64
            .decode(talk.input.as_bytes())
            .map_err(|error| bad("input", format!("is not base64: {error}")))?;
        if bytes.len() > EXEC_IO_BYTES {
            return Err(bad("input", format!("has {} bytes: expected at most {EXEC_IO_BYTES}", bytes.len())));
        }
        let mut state = self.state.lock();
        state.last_message = Instant::now();
        let known =
            state.input_next.checked_sub(talk.input_from).and_then(|known| usize::try_from(known).ok());
        let known = known.ok_or_else(|| {
            bad(
                "input_from",
                format!("is {}, but the cell has only {} bytes of input", talk.input_from, state.input_next),
            )
        })?;
        let new = bytes.get(known..).unwrap_or_default();
        let room = MAX_INPUT_BYTES.saturating_sub(state.input.len());
        let taken = new.len().min(room);
        state.input.extend(&new[..taken]);
        state.input_next += taken as u64;
        state.input_ends |= talk.input_eof && taken == new.len();
        state.size = talk.size.or(state.size);
        if let Some(from) = talk.output_from {
            state.drop_before(from)?;
        }
        drop(state);
        if talk.hang_up {
            self.cancel.cancel();
        }
        self.work_available.notify_one();
        self.output_changed.send_replace(());
        Ok(())
    }

    /// Returns a reply without output.
    fn nothing(&self) -> ExecIoReply {
        let state = self.state.lock();
        ExecIoReply { output: vec![], output_next: state.fetched, input_next: state.input_next, end: None }
    }

    /// Waits until there is output after this offset, or the program has ended.
    async fn output_available(&self, from: u64) {
        let mut said = self.output_changed.subscribe();
        loop {
            {
                let state = self.state.lock();
                if state.end.is_some() || state.fetched + state.buffered as u64 > from {
                    return;
                }
            }
            if said.changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns the output after this offset.
    fn output_reply(&self, from: u64) -> Result<ExecIoReply, Refusal> {
        let mut state = self.state.lock();
        // Another request of the same client may have fetched output since.
        state.drop_before(from)?;
        let (mut output, mut room) = (vec![], EXEC_IO_BYTES);
        for (stream, bytes) in &state.output {
            let piece = &bytes[..bytes.len().min(room)];
            room -= piece.len();
            if !piece.is_empty() {
                output.push(OutputChunk { stream: *stream, data: BASE64.encode(piece) });
            }
        }
        let told = EXEC_IO_BYTES - room;
        let end = state.end.clone().filter(|_| told == state.buffered);
        let output_next = state.fetched + told as u64;
        Ok(ExecIoReply { output, output_next, input_next: state.input_next, end })
    }
}

impl State {
    /// Drops the output before this offset.
    fn drop_before(&mut self, from: u64) -> Result<(), Refusal> {
        let has = self.fetched + self.buffered as u64;
        if from < self.fetched || from > has {
            let why = format!("is {from}: expected {} to {has}", self.fetched);
            return Err(bad("output_from", why));
        }
        let mut rest = usize::try_from(from - self.fetched).unwrap_or(self.buffered);
        self.fetched = from;
        self.buffered -= rest;
        while rest > 0
            && let Some((_, bytes)) = self.output.front_mut()
        {
            if bytes.len() > rest {
                bytes.drain(..rest);
                rest = 0;
            } else {
                rest -= bytes.len();
                self.output.pop_front();
            }
        }
        Ok(())
    }
}

fn bad(field: &str, problem: String) -> Refusal {
    Refusal::invalid(vec![BadField { field: field.to_owned(), problem }])
}

#[cfg(test)]
mod tests {
    use schemas::Code;
    use schemas::names::CellId;

    use super::*;

    fn client_named(name: &str) -> (Domain, ClientName) {
        (Domain::new("shop").unwrap(), ClientName::new(name).unwrap())
    }

    fn request() -> RequestId {
        RequestId::new("r7").unwrap()
    }

    fn talk() -> ExecIo {
        ExecIo::new(request(), CellId::new("c1").unwrap())
    }

    fn program() -> Arc<Program> {
        Arc::new(Program::new())
    }

    fn with(program: &Arc<Program>) -> ExecSessions {
        let talks = ExecSessions::default();
        let (domain, client) = client_named("me");
        talks.0.lock().insert((domain, client, request()), Arc::clone(program));
        talks
    }

    async fn says(talks: &ExecSessions, io: ExecIo) -> Result<ExecIoReply, Refusal> {
        let (domain, client) = client_named("me");
        talks.talk(ForwardedExecIo { domain, client, io }).await
    }

    fn text(talked: &ExecIoReply) -> Vec<(Stream, String)> {
        let decoded = |written: &OutputChunk| BASE64.decode(written.data.as_bytes()).unwrap();
        let text = |written: &OutputChunk| (written.stream, String::from_utf8(decoded(written)).unwrap());
        talked.output.iter().map(text).collect()
    }

    fn pending_input(program: &Program) -> Vec<u8> {
        program.state.lock().input.iter().copied().collect()
    }

    #[tokio::test]
    async fn output_is_repeated_until_acknowledged() {
        let program = program();
        let talks = with(&program);
        program.push_output(Stream::Out, b"one".to_vec());
        program.push_output(Stream::Err, b"two".to_vec());
        for _lost in 0..2 {
            let told = says(&talks, ExecIo { output_from: Some(0), ..talk() }).await.unwrap();
            assert_eq!(text(&told), [(Stream::Out, "one".into()), (Stream::Err, "two".into())]);
            assert_eq!((told.output_next, told.end), (6, None));
        }
        program.finish(ExecEnd::Exited(3));
        let told = says(&talks, ExecIo { output_from: Some(4), ..talk() }).await.unwrap();
        assert_eq!(text(&told), [(Stream::Err, "wo".into())]);
        assert_eq!((told.output_next, told.end), (6, Some(ExecEnd::Exited(3))));
        // Output before a stated offset is dropped, and an offset beyond the end is refused.
        for (from, why) in [(3, "is 3: expected 4 to 6"), (7, "is 7: expected 4 to 6")] {
            let refused = says(&talks, ExecIo { output_from: Some(from), ..talk() }).await.unwrap_err();
            assert!(refused.to_string().contains(why), "{refused}");
        }
    }

    #[tokio::test]
    async fn end_is_reported_with_last_output() {
        let program = program();
        let talks = with(&program);
        program.push_output(Stream::Out, vec![b'x'; EXEC_IO_BYTES + 1]);
        program.finish(ExecEnd::Exited(0));
        let told = says(&talks, ExecIo { output_from: Some(0), ..talk() }).await.unwrap();
        assert_eq!((told.output_next, told.end), (EXEC_IO_BYTES as u64, None));
        let told = says(&talks, ExecIo { output_from: Some(told.output_next), ..talk() }).await.unwrap();
        assert_eq!((told.output_next, told.end), (EXEC_IO_BYTES as u64 + 1, Some(ExecEnd::Exited(0))));
    }

    #[tokio::test]
    async fn repeated_input_is_applied_once() {
        let program = program();
        let talks = with(&program);
        let input =
            |from, text: &str| ExecIo { input: BASE64.encode(text.as_bytes()), input_from: from, ..talk() };
        assert_eq!(says(&talks, input(0, "abc")).await.unwrap().input_next, 3);
        assert_eq!(says(&talks, input(0, "abc")).await.unwrap().input_next, 3);
        assert_eq!(says(&talks, input(2, "cd")).await.unwrap().input_next, 4);
        assert_eq!(pending_input(&program), b"abcd");
        let refused = says(&talks, input(9, "x")).await.unwrap_err();
        assert!(refused.to_string().contains("is 9, but the cell has only 4 bytes of input"), "{refused}");
        let refused = says(&talks, ExecIo { input: "?".into(), input_from: 4, ..talk() }).await.unwrap_err();
        assert!(refused.to_string().contains("is not base64"), "{refused}");
        // Only a part of this input fits, so the end of the input is not reached.
        let most = "x".repeat(EXEC_IO_BYTES);
        let told = says(&talks, ExecIo { input_eof: true, ..input(4, &most) }).await.unwrap();
        assert_eq!(told.input_next, MAX_INPUT_BYTES as u64);
        assert!(!program.state.lock().input_ends);
        program.state.lock().input.clear();
        let rest = ExecIo { input_eof: true, ..input(told.input_next, "xxxx") };
        assert_eq!(says(&talks, rest).await.unwrap().input_next, told.input_next + 4);
        assert!(program.state.lock().input_ends);
    }

    #[tokio::test]
    async fn domain_at_its_quota_of_programs_leaves_room_for_another() {
        let mut all: BTreeMap<SessionName, Arc<Program>> = BTreeMap::new();
        let (domain, client) = client_named("me");
        for number in 0..3 {
            assert_eq!(full(&all, &domain, 3), None);
            let name = (domain.clone(), client.clone(), RequestId::new(&format!("n{number}")).unwrap());
            all.insert(name, program());
        }
        let why = full(&all, &domain, 3).unwrap();
        assert!(why.contains(&format!("quota exec_sessions of domain {domain} is 3: 3 programs")), "{why}");
        assert_eq!(full(&all, &Domain::new("another").unwrap(), 3), None);
        all.values().next().unwrap().finish(ExecEnd::Exited(0));
        assert_eq!(full(&all, &domain, 3), None, "an ended program does not count");
        assert!(
            full(&all, &domain, 1).is_some(),
            "a lowered quota stops no program, but no further one starts"
        );
    }

    #[tokio::test]
    async fn program_is_not_found_for_other_client_or_request() {
        let talks = with(&program());
        let (domain, client) = client_named("you");
        let refused = talks.talk(ForwardedExecIo { domain, client, io: talk() }).await.unwrap_err();
        assert_eq!(refused.code, Code::ResourceNotFound);
        let other = ExecIo { request_id: RequestId::new("r8").unwrap(), ..talk() };
        assert_eq!(says(&talks, other).await.unwrap_err().code, Code::ResourceNotFound);
    }

    #[tokio::test(start_paused = true)]
    async fn talk_waits_for_output_until_timeout() {
        let program = program();
        let talks = with(&program);
        let asked = ExecIo { output_from: Some(0), wait_ms: u64::MAX, ..talk() };
        let begun = Instant::now();
        assert!(says(&talks, asked.clone()).await.unwrap().output.is_empty());
        assert_eq!(begun.elapsed(), Duration::from_millis(EXEC_IO_WAIT_MS));
        let later = async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            program.push_output(Stream::Out, b"now".to_vec());
        };
        let (told, ()) = tokio::join!(says(&talks, asked), later);
        assert_eq!(text(&told.unwrap()), [(Stream::Out, "now".into())]);
    }

    #[tokio::test(start_paused = true)]
    async fn program_ends_after_client_timeout_or_leave() {
        let program = program();
        let talks = with(&program);
        let begun = Instant::now();
        let speaks = async {
            tokio::time::sleep(CLIENT_TIMEOUT / 2).await;
            says(&talks, talk()).await.unwrap();
        };
        tokio::join!(program.client_timeout(), speaks);
        assert_eq!(begun.elapsed(), CLIENT_TIMEOUT / 2 + CLIENT_TIMEOUT);
        says(&talks, ExecIo { hang_up: true, ..talk() }).await.unwrap();
        program.cancel.cancelled().await;
    }
}
