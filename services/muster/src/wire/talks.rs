//! Programs that clients run in containers of this cell, in addition to the programs of the definitions
//! (docs/model.md, "Running a program in a container").
//!
//! ```text
//!   client ── talk ──▶ BBS ──▶ [`Talks`] ──▶ program ──▶ executor
//!      ▲                                      │ buffers unfetched output
//!      └──────────── talked ──────────────────┘
//! ```
//!
//! Every message states the offsets that its sender has reached, so messages may be lost, delayed or
//! duplicated. The program of a silent client is ended, and its output is kept for a while.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use data_encoding::BASE64;
use executor::process::{ExecInput, ExecOutput, Executor, Said};
use schemas::exec::{ExecEnd, Stream, Talk, Talked, Talking, TerminalSize, Written};
use schemas::limits::{TALK_BYTES, TALK_WAIT_MS};
use schemas::message::Enter;
use schemas::names::{ClientName, Domain, RequestId};
use schemas::quota::EXEC_SESSIONS;
use schemas::{BadField, Refusal};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::containers::Containers;
use crate::error::chain;

/// Maximum number of buffered output bytes of a program. The program waits while the buffer is full.
const KEPT_BYTES: usize = 256 * 1024;
/// Maximum number of input bytes that wait for a program.
const WAITING_BYTES: usize = 128 * 1024;
/// Maximum number of bytes per write to a program: the capacity of a pipe.
const WRITE_BYTES: usize = 64 * 1024;
/// Maximum time between two messages of a client. A program that ended is kept for the same time.
const SILENCE: Duration = Duration::from_secs(60);
/// Maximum number of programs of clients that run on a cell.
const PROGRAMS: usize = 256;

/// Programs of clients on this cell.
#[derive(Clone, Debug, Default)]
pub(super) struct Talks(Arc<Mutex<BTreeMap<Name, Arc<Program>>>>);

/// Name of a program: the domain, the client, and the client's request id.
type Name = (Domain, ClientName, RequestId);

/// A program of a client.
#[derive(Debug)]
struct Program {
    state: Mutex<State>,
    /// Signals work for the program: input, the end of the input, or a new terminal size.
    asked: Notify,
    /// Signals new output, fetched output, or the end of the program.
    said: watch::Sender<()>,
    /// Cancelled when the client ends the program.
    left: CancellationToken,
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
    kept: usize,
    end: Option<ExecEnd>,
    /// Time of the last message from the client.
    heard: Instant,
}

/// Next action for a program.
enum Todo {
    Resize(TerminalSize),
    Write(Vec<u8>),
    EndInput,
    Nothing,
}

/// Returns the reason that no further program of a domain with this quota may run, or `None` if one may.
fn full(all: &BTreeMap<Name, Arc<Program>>, domain: &Domain, quota: u32) -> Option<String> {
    let running = || all.iter().filter(|(_, program)| program.runs());
    let used = running().filter(|((of, ..), _)| of == domain).count();
    if used >= quota as usize {
        return Some(EXEC_SESSIONS.exceeded(domain, quota, &format!("{used} programs run on this cell")));
    }
    (running().count() >= PROGRAMS)
        .then(|| format!("{PROGRAMS} programs of clients run on this cell already"))
}

impl Talks {
    /// Runs a program for a client. The client fetches the output with [`Talks::talk`].
    pub(super) fn enter(&self, containers: &Containers, enter: Enter) {
        let program = Arc::new(Program::new());
        let name = (enter.domain.clone(), enter.client.clone(), enter.request_id.clone());
        {
            let mut all = lock(&self.0);
            if all.contains_key(&name) {
                // The order was delivered twice.
                return;
            }
            if let Some(why) = full(&all, &enter.domain, enter.exec_sessions) {
                program.ended(ExecEnd::Failed(why));
            }
            all.insert(name.clone(), Arc::clone(&program));
        }
        let (talks, containers) = (self.clone(), containers.clone());
        tokio::spawn(async move {
            if program.runs() {
                let end = match &containers {
                    Containers::Process(executor) => program.run(executor, &enter).await,
                    Containers::Scripted(_) => {
                        ExecEnd::Failed("scripted containers run no programs".to_owned())
                    }
                };
                program.ended(end);
            }
            program.forgotten().await;
            lock(&talks.0).remove(&name);
        });
    }

    /// Passes the input of a client to its program, and returns the output.
    pub(super) async fn talk(&self, Talking { domain, client, talk }: Talking) -> Result<Talked, Refusal> {
        let Talk { request_id, cell_id, .. } = &talk;
        let name = (domain, client, request_id.clone());
        let found = lock(&self.0).get(&name).cloned();
        let program = found.ok_or_else(|| {
            Refusal::not_found(format!("a program of this client's request {request_id} on cell {cell_id}"))
        })?;
        program.take(&talk)?;
        let Some(from) = talk.output_from else { return Ok(program.nothing()) };
        let wait = Duration::from_millis(talk.wait_ms.min(TALK_WAIT_MS));
        // Output that arrives during the wait is returned after a timeout as well.
        drop(timeout(wait, program.something_from(from)).await);
        program.told(from)
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
            kept: 0,
            end: None,
            heard: Instant::now(),
        };
        let (said, _) = watch::channel(());
        let left = CancellationToken::new();
        Self { state: Mutex::new(state), asked: Notify::new(), said, left }
    }

    /// Runs the program until it ends.
    async fn run(&self, executor: &Executor, enter: &Enter) -> ExecEnd {
        let (input, output) = match executor.exec(enter.instance_guid, &enter.exec).await {
            Ok(streams) => streams,
            Err(error) => return ExecEnd::Failed(chain(&error)),
        };
        tokio::select! {
            end = self.read(output) => end,
            why = self.write(input) => ExecEnd::Failed(why),
            () = self.left.cancelled() => ExecEnd::Failed("its client left".to_owned()),
            () = self.silence() => ExecEnd::Failed(format!("its client was silent for {SILENCE:?}")),
        }
    }

    /// Buffers the output of the program, and waits while the buffer is full.
    async fn read(&self, mut output: ExecOutput) -> ExecEnd {
        loop {
            match output.next().await {
                Said::Wrote(stream, bytes) => self.keep(stream, bytes),
                Said::Ended(end) => return end,
            }
            let mut fetched = self.said.subscribe();
            while lock(&self.state).kept >= KEPT_BYTES {
                if fetched.changed().await.is_err() {
                    break;
                }
            }
        }
    }

    /// Writes the input of the client to the program. Returns only after an error.
    async fn write(&self, mut input: ExecInput) -> String {
        loop {
            match self.todo() {
                Todo::Resize(size) => {
                    if let Err(error) = input.resize(size) {
                        return format!("its terminal can't have another size: {error}");
                    }
                }
                Todo::Write(bytes) => tokio::select! {
                    written = input.write(&bytes) => match written {
                        Ok(count) => drop(lock(&self.state).input.drain(..count)),
                        Err(error) => return format!("it can't be written to: {error}"),
                    },
                    // A program that does not read its input can still be resized.
                    () = self.asked.notified() => {}
                },
                Todo::EndInput => {
                    input.end();
                    self.asked.notified().await;
                }
                Todo::Nothing => self.asked.notified().await,
            }
        }
    }

    fn todo(&self) -> Todo {
        let mut state = lock(&self.state);
        if let Some(size) = state.size.take() {
            Todo::Resize(size)
        } else if !state.input.is_empty() {
            Todo::Write(state.input.iter().take(WRITE_BYTES).copied().collect())
        } else if state.input_ends {
            Todo::EndInput
        } else {
            Todo::Nothing
        }
    }

    /// Waits until the client has been silent for too long.
    async fn silence(&self) {
        loop {
            let until = lock(&self.state).heard + SILENCE;
            if Instant::now() >= until {
                return;
            }
            sleep_until(until).await;
        }
    }

    /// Waits until an ended program can be removed.
    async fn forgotten(&self) {
        tokio::select! {
            () = self.silence() => {}
            () = self.left.cancelled() => {}
        }
    }

    fn keep(&self, stream: Stream, bytes: Vec<u8>) {
        let mut state = lock(&self.state);
        state.kept += bytes.len();
        state.output.push_back((stream, bytes));
        drop(state);
        self.said.send_replace(());
    }

    fn runs(&self) -> bool {
        lock(&self.state).end.is_none()
    }

    fn ended(&self, end: ExecEnd) {
        lock(&self.state).end = Some(end);
        self.said.send_replace(());
    }

    /// Processes a message of the client.
    fn take(&self, talk: &Talk) -> Result<(), Refusal> {
        let bytes = BASE64
            .decode(talk.input.as_bytes())
            .map_err(|error| bad("input", format!("is not base64: {error}")))?;
        if bytes.len() > TALK_BYTES {
            return Err(bad("input", format!("has {} bytes, more than {TALK_BYTES}", bytes.len())));
        }
        let mut state = lock(&self.state);
        state.heard = Instant::now();
        let known =
            state.input_next.checked_sub(talk.input_from).and_then(|known| usize::try_from(known).ok());
        let known = known.ok_or_else(|| {
            bad(
                "input_from",
                format!("is {}, and the cell has {} bytes of input", talk.input_from, state.input_next),
            )
        })?;
        let new = bytes.get(known..).unwrap_or_default();
        let room = WAITING_BYTES.saturating_sub(state.input.len());
        let taken = new.len().min(room);
        state.input.extend(&new[..taken]);
        state.input_next += taken as u64;
        state.input_ends |= talk.input_ends && taken == new.len();
        state.size = talk.size.or(state.size);
        if let Some(from) = talk.output_from {
            state.forget(from)?;
        }
        drop(state);
        if talk.leave {
            self.left.cancel();
        }
        self.asked.notify_one();
        self.said.send_replace(());
        Ok(())
    }

    /// Returns a reply without output.
    fn nothing(&self) -> Talked {
        let state = lock(&self.state);
        Talked { output: vec![], output_next: state.fetched, input_next: state.input_next, end: None }
    }

    /// Waits until there is output after this offset, or the program has ended.
    async fn something_from(&self, from: u64) {
        let mut said = self.said.subscribe();
        loop {
            {
                let state = lock(&self.state);
                if state.end.is_some() || state.fetched + state.kept as u64 > from {
                    return;
                }
            }
            if said.changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns the output after this offset.
    fn told(&self, from: u64) -> Result<Talked, Refusal> {
        let mut state = lock(&self.state);
        // Another request of the same client may have fetched output since.
        state.forget(from)?;
        let (mut output, mut room) = (vec![], TALK_BYTES);
        for (stream, bytes) in &state.output {
            let piece = &bytes[..bytes.len().min(room)];
            room -= piece.len();
            if !piece.is_empty() {
                output.push(Written { stream: *stream, data: BASE64.encode(piece) });
            }
        }
        let told = TALK_BYTES - room;
        let end = state.end.clone().filter(|_| told == state.kept);
        let output_next = state.fetched + told as u64;
        Ok(Talked { output, output_next, input_next: state.input_next, end })
    }
}

impl State {
    /// Drops the output before this offset.
    fn forget(&mut self, from: u64) -> Result<(), Refusal> {
        let has = self.fetched + self.kept as u64;
        if from < self.fetched || from > has {
            let why = format!("is {from}, and the cell has bytes {} to {has} of the output", self.fetched);
            return Err(bad("output_from", why));
        }
        let mut rest = usize::try_from(from - self.fetched).unwrap_or(self.kept);
        self.fetched = from;
        self.kept -= rest;
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

/// Locks a mutex. A poisoned state is still consistent, because no code panics halfway through a change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use schemas::Code;
    use schemas::names::CellId;

    use super::*;

    fn of(name: &str) -> (Domain, ClientName) {
        (Domain::new("shop").unwrap(), ClientName::new(name).unwrap())
    }

    fn request() -> RequestId {
        RequestId::new("r7").unwrap()
    }

    fn talk() -> Talk {
        Talk::new(request(), CellId::new("c1").unwrap())
    }

    fn program() -> Arc<Program> {
        Arc::new(Program::new())
    }

    fn with(program: &Arc<Program>) -> Talks {
        let talks = Talks::default();
        let (domain, client) = of("me");
        lock(&talks.0).insert((domain, client, request()), Arc::clone(program));
        talks
    }

    async fn says(talks: &Talks, talk: Talk) -> Result<Talked, Refusal> {
        let (domain, client) = of("me");
        talks.talk(Talking { domain, client, talk }).await
    }

    fn text(talked: &Talked) -> Vec<(Stream, String)> {
        let decoded = |written: &Written| BASE64.decode(written.data.as_bytes()).unwrap();
        let text = |written: &Written| (written.stream, String::from_utf8(decoded(written)).unwrap());
        talked.output.iter().map(text).collect()
    }

    fn waiting(program: &Program) -> Vec<u8> {
        lock(&program.state).input.iter().copied().collect()
    }

    #[tokio::test]
    async fn output_is_told_until_it_is_here() {
        let program = program();
        let talks = with(&program);
        program.keep(Stream::Out, b"one".to_vec());
        program.keep(Stream::Err, b"two".to_vec());
        for _lost in 0..2 {
            let told = says(&talks, Talk { output_from: Some(0), ..talk() }).await.unwrap();
            assert_eq!(text(&told), [(Stream::Out, "one".into()), (Stream::Err, "two".into())]);
            assert_eq!((told.output_next, told.end), (6, None));
        }
        program.ended(ExecEnd::Exited(3));
        let told = says(&talks, Talk { output_from: Some(4), ..talk() }).await.unwrap();
        assert_eq!(text(&told), [(Stream::Err, "wo".into())]);
        assert_eq!((told.output_next, told.end), (6, Some(ExecEnd::Exited(3))));
        // Output before a stated offset is dropped, and an offset beyond the end is refused.
        for (from, why) in
            [(3, "is 3, and the cell has bytes 4 to 6"), (7, "is 7, and the cell has bytes 4 to 6")]
        {
            let refused = says(&talks, Talk { output_from: Some(from), ..talk() }).await.unwrap_err();
            assert!(refused.to_string().contains(why), "{refused}");
        }
    }

    #[tokio::test]
    async fn an_end_is_told_with_the_last_of_the_output() {
        let program = program();
        let talks = with(&program);
        program.keep(Stream::Out, vec![b'x'; TALK_BYTES + 1]);
        program.ended(ExecEnd::Exited(0));
        let told = says(&talks, Talk { output_from: Some(0), ..talk() }).await.unwrap();
        assert_eq!((told.output_next, told.end), (TALK_BYTES as u64, None));
        let told = says(&talks, Talk { output_from: Some(told.output_next), ..talk() }).await.unwrap();
        assert_eq!((told.output_next, told.end), (TALK_BYTES as u64 + 1, Some(ExecEnd::Exited(0))));
    }

    #[tokio::test]
    async fn input_is_taken_once_however_often_it_is_said() {
        let program = program();
        let talks = with(&program);
        let input =
            |from, text: &str| Talk { input: BASE64.encode(text.as_bytes()), input_from: from, ..talk() };
        assert_eq!(says(&talks, input(0, "abc")).await.unwrap().input_next, 3);
        assert_eq!(says(&talks, input(0, "abc")).await.unwrap().input_next, 3);
        assert_eq!(says(&talks, input(2, "cd")).await.unwrap().input_next, 4);
        assert_eq!(waiting(&program), b"abcd");
        let refused = says(&talks, input(9, "x")).await.unwrap_err();
        assert!(refused.to_string().contains("is 9, and the cell has 4 bytes of input"), "{refused}");
        let refused = says(&talks, Talk { input: "?".into(), input_from: 4, ..talk() }).await.unwrap_err();
        assert!(refused.to_string().contains("is not base64"), "{refused}");
        // Only a part of this input fits, so the end of the input is not reached.
        let most = "x".repeat(TALK_BYTES);
        let told = says(&talks, Talk { input_ends: true, ..input(4, &most) }).await.unwrap();
        assert_eq!(told.input_next, WAITING_BYTES as u64);
        assert!(!lock(&program.state).input_ends);
        lock(&program.state).input.clear();
        let rest = Talk { input_ends: true, ..input(told.input_next, "xxxx") };
        assert_eq!(says(&talks, rest).await.unwrap().input_next, told.input_next + 4);
        assert!(lock(&program.state).input_ends);
    }

    #[tokio::test]
    async fn domain_at_its_quota_of_programs_leaves_room_for_another() {
        let mut all: BTreeMap<Name, Arc<Program>> = BTreeMap::new();
        let (domain, client) = of("me");
        for number in 0..3 {
            assert_eq!(full(&all, &domain, 3), None);
            let name = (domain.clone(), client.clone(), RequestId::new(&format!("n{number}")).unwrap());
            all.insert(name, program());
        }
        let why = full(&all, &domain, 3).unwrap();
        assert!(why.contains(&format!("quota exec_sessions of domain {domain} is 3: 3 programs")), "{why}");
        assert_eq!(full(&all, &Domain::new("another").unwrap(), 3), None);
        all.values().next().unwrap().ended(ExecEnd::Exited(0));
        assert_eq!(full(&all, &domain, 3), None, "an ended program does not count");
        assert!(full(&all, &domain, 1).is_some(), "a lowered quota stops nothing and lets nothing start");
    }

    #[tokio::test]
    async fn nobody_else_is_heard() {
        let talks = with(&program());
        let (domain, client) = of("you");
        let refused = talks.talk(Talking { domain, client, talk: talk() }).await.unwrap_err();
        assert_eq!(refused.code, Code::ResourceNotFound);
        let other = Talk { request_id: RequestId::new("r8").unwrap(), ..talk() };
        assert_eq!(says(&talks, other).await.unwrap_err().code, Code::ResourceNotFound);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_waits_for_what_is_said_and_not_for_ever() {
        let program = program();
        let talks = with(&program);
        let asked = Talk { output_from: Some(0), wait_ms: u64::MAX, ..talk() };
        let begun = Instant::now();
        assert!(says(&talks, asked.clone()).await.unwrap().output.is_empty());
        assert_eq!(begun.elapsed(), Duration::from_millis(TALK_WAIT_MS));
        let later = async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            program.keep(Stream::Out, b"now".to_vec());
        };
        let (told, ()) = tokio::join!(says(&talks, asked), later);
        assert_eq!(text(&told.unwrap()), [(Stream::Out, "now".into())]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_silent_is_not_waited_for() {
        let program = program();
        let talks = with(&program);
        let begun = Instant::now();
        let speaks = async {
            tokio::time::sleep(SILENCE / 2).await;
            says(&talks, talk()).await.unwrap();
        };
        tokio::join!(program.silence(), speaks);
        assert_eq!(begun.elapsed(), SILENCE / 2 + SILENCE);
        says(&talks, Talk { leave: true, ..talk() }).await.unwrap();
        program.left.cancelled().await;
    }
}
