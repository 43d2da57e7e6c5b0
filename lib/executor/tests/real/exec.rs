//! Tests of additional programs in a container.

use std::time::Duration;

use executor::process::{ExecError, ExecEvent, ExecInput, ExecOutput, FIRST_ID, IsolationPolicy, Settings};
use schemas::action::{Action, Run};
use schemas::container::{Recipe, RunResult};
use schemas::exec::{Exec, ExecEnd, Stream, Terminal, TerminalSize};
use schemas::names::InstanceGuid;
use tokio::time::timeout;

use crate::support::{Cell, TIMEOUT, eventually, lrp, processes_of, sh, task, variable};

/// Complete output of a program, and its result.
#[derive(Debug, PartialEq, Eq)]
struct ExecResult {
    out: String,
    err: String,
    end: ExecEnd,
}

fn exec(script: &str) -> Exec {
    Exec { path: "sh".into(), args: vec!["-c".into(), script.into()], ..Exec::default() }
}

fn exec_on_terminal(script: &str) -> Exec {
    let size = TerminalSize { rows: 33, columns: 99 };
    Exec { terminal: Some(Terminal { kind: "vt100".into(), size }), ..exec(script) }
}

fn isolating(settings: Settings) -> Settings {
    Settings { isolate: IsolationPolicy::BestEffort { first_id: FIRST_ID }, ..settings }
}

async fn cell(isolated: bool) -> Cell {
    Cell::with(|settings| if isolated { isolating(settings) } else { settings }).await
}

/// Starts a container that runs until it is stopped.
async fn start_sleeper(cell: &mut Cell) -> InstanceGuid {
    let guid = cell.run(lrp(sh("exec sleep 600")));
    cell.wait_until_running(guid).await;
    guid
}

async fn read_to_end(mut output: ExecOutput) -> ExecResult {
    let (mut out, mut err) = (vec![], vec![]);
    loop {
        match timeout(TIMEOUT, output.next()).await.unwrap() {
            ExecEvent::Output(Stream::Out, bytes) => out.extend(bytes),
            ExecEvent::Output(Stream::Err, bytes) => err.extend(bytes),
            ExecEvent::Ended(end) => {
                let text = |bytes| String::from_utf8(bytes).unwrap();
                return ExecResult { out: text(out), err: text(err), end };
            }
        }
    }
}

/// Runs a program without input and returns its output.
async fn output_of(cell: &Cell, guid: InstanceGuid, exec: &Exec) -> ExecResult {
    let (mut input, output) = cell.executor.exec(guid, exec).await.unwrap();
    input.end_input();
    read_to_end(output).await
}

/// Waits until a program has written a text.
async fn wait_for_output(output: &mut ExecOutput, text: &str) -> String {
    let mut all = String::new();
    while !all.contains(text) {
        match timeout(TIMEOUT, output.next()).await.unwrap_or_else(|_| panic!("{all}")) {
            ExecEvent::Output(_, bytes) => all.push_str(&String::from_utf8(bytes).unwrap()),
            ExecEvent::Ended(end) => panic!("{end:?} {all}"),
        }
    }
    all
}

async fn write(input: &ExecInput, text: &[u8]) {
    let mut rest = text;
    while !rest.is_empty() {
        rest = &rest[input.write(rest).await.unwrap()..];
    }
}

#[tokio::test]
async fn additional_program_reports_output_and_end_and_is_not_logged() {
    for isolated in [false, true] {
        let mut cell = cell(isolated).await;
        let guid = start_sleeper(&mut cell).await;
        let told = output_of(&cell, guid, &exec("echo one; echo two >&2; exit 3")).await;
        let expected = ExecResult { out: "one\n".into(), err: "two\n".into(), end: ExecEnd::Exited(3) };
        assert_eq!(told, expected);
        let told = output_of(&cell, guid, &exec("kill -9 $$")).await;
        let reason = "Killed by signal 9 (KILL)".to_owned();
        assert_eq!(told.end, ExecEnd::Killed { signal: 9, reason });
        // A background process does not delay the end of the program. The background process ends with the
        // container.
        assert_eq!(output_of(&cell, guid, &exec("sleep 600 & echo left")).await.out, "left\n");
        assert_eq!(cell.log(guid).await, Vec::<String>::new());
        cell.executor.stop(guid);
        assert_eq!(cell.wait_until_completed(guid).await, RunResult::Stopped);
        cell.delete_all().await;
    }
}

#[tokio::test]
async fn program_reads_all_input_until_end() {
    let mut cell = Cell::new().await;
    let guid = start_sleeper(&mut cell).await;
    let (mut input, output) = cell.executor.exec(guid, &exec("sha256sum; echo read")).await.unwrap();
    let heard = tokio::spawn(read_to_end(output));
    // The input is larger than the capacity of a pipe.
    write(&input, &[b'x'; 1 << 20]).await;
    input.end_input();
    let heard = heard.await.unwrap();
    // head -c 1048576 /dev/zero | tr '\0' x | sha256sum
    let sum = "8f990ba0b577b51cf009ea049368c16bbda1b21e1b93be07a824758bb253c39b";
    assert_eq!(heard.out, format!("{sum}  -\nread\n"));
    // Unread input is not an error.
    let (input, mut output) =
        cell.executor.exec(guid, &exec("exec 0<&-; echo closed; sleep 600")).await.unwrap();
    wait_for_output(&mut output, "closed").await;
    write(&input, b"nobody").await;
    cell.delete_all().await;
}

#[tokio::test]
async fn program_has_environment_and_isolation_of_the_action() {
    let mut cell = Cell::with(isolating).await;
    let script = "mkdir -p sub; (env | sort; id; pwd; grep -e Cap -e NoNew -e Seccomp -e NSpid /proc/self/status | sed 's/NSpid.*/x/'; ulimit -c -n; cat /proc/self/cgroup) > own.new; mv own.new own; exec sleep 600";
    let run = Run {
        path: "sh".into(),
        args: vec!["-c".into(), script.into()],
        env: vec![variable("COLOUR", "green")],
        ..Run::default()
    };
    let recipe = Recipe { environment_variables: vec![variable("SHAPE", "round")], ..lrp(Action::Run(run)) };
    let guid = cell.run(recipe);
    cell.wait_until_running(guid).await;
    let both = "(env | sort; id; pwd; grep -e Cap -e NoNew -e Seccomp -e NSpid /proc/self/status | sed 's/NSpid.*/x/'; ulimit -c -n; cat /proc/self/cgroup) > other; until test -e own; do sleep 0.01; done; diff own other && grep -c -e COLOUR=green -e SHAPE=round other";
    let told = output_of(&cell, guid, &exec(both)).await;
    assert_eq!((told.out.as_str(), told.end), ("2\n", ExecEnd::Exited(0)), "{}", told.err);
    let told = output_of(
        &cell,
        guid,
        &Exec { dir: "sub".into(), user: "root".into(), ..exec("pwd; id -u; cat /proc/1/environ") },
    )
    .await;
    assert_eq!((told.out.as_str(), &told.end), ("/home/vcap/sub\n0\n", &ExecEnd::Exited(1)), "{}", told.err);
    cell.delete_all().await;
}

#[tokio::test]
async fn program_that_cannot_start_is_refused_with_reason() {
    for isolated in [false, true] {
        let mut cell = cell(isolated).await;
        let guid = start_sleeper(&mut cell).await;
        let why = async |exec: Exec| match cell.executor.exec(guid, &exec).await {
            Err(ExecError::Refused(why)) => why,
            other => panic!("{other:?}"),
        };
        let missing = Exec { path: "no-such-program".into(), ..Exec::default() };
        assert_eq!(
            why(missing).await,
            "cannot start no-such-program: No such file or directory (os error 2)"
        );
        assert_eq!(
            why(Exec { dir: "none".into(), ..exec("pwd") }).await,
            "working directory `none` does not exist"
        );
        if isolated {
            let told = why(Exec { user: "nobody-at-all".into(), ..exec("id") }).await;
            assert!(told.contains("nobody-at-all"), "{told}");
        }
        let unknown = InstanceGuid(uuid::Uuid::nil());
        let told = cell.executor.exec(unknown, &exec("id")).await.unwrap_err();
        assert!(matches!(told, ExecError::Unknown(_)), "{told:?}");
        cell.delete_all().await;
    }
}

#[tokio::test]
async fn terminal_has_size_owner_and_signals() {
    for isolated in [false, true] {
        let mut cell = cell(isolated).await;
        let guid = start_sleeper(&mut cell).await;
        let script = "stty size; echo $TERM; test -t 0 -a -t 1 -a -t 2 && echo all; test -w $(tty) && echo own; echo x >/dev/tty";
        let told = output_of(&cell, guid, &exec_on_terminal(script)).await;
        assert_eq!(told.out, "33 99\r\nvt100\r\nall\r\nown\r\nx\r\n", "isolated: {isolated}");
        assert_eq!(told.end, ExecEnd::Exited(0));

        // An interactive shell.
        let shell = Exec { args: vec!["-i".into()], ..exec_on_terminal("") };
        let (input, mut output) = cell.executor.exec(guid, &shell).await.unwrap();
        write(&input, b"PS1=; echo re''ady\n").await;
        wait_for_output(&mut output, "ready\r\n").await;
        input.resize(TerminalSize { rows: 10, columns: 20 }).unwrap();
        write(&input, b"stty size\n").await;
        wait_for_output(&mut output, "10 20\r\n").await;
        // The interrupt ends the program that runs in the shell. The shell itself continues.
        write(&input, b"sleep 500; echo inter''rupted $?\n").await;
        eventually(async || !with_argument(guid, "500").is_empty()).await;
        write(&input, b"\x03").await;
        eventually(async || with_argument(guid, "500").is_empty()).await;
        write(&input, b"echo go''on; exit 7\n").await;
        wait_for_output(&mut output, "goon\r\n").await;
        assert_eq!(read_to_end(output).await.end, ExecEnd::Exited(7));
        cell.delete_all().await;
    }
}

/// Returns the processes of a container with this argument.
fn with_argument(guid: InstanceGuid, argument: &str) -> Vec<i32> {
    let has = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|&byte| byte == 0).any(|one| one == argument.as_bytes())
    };
    processes_of(guid).into_iter().filter(has).collect()
}

#[tokio::test]
async fn dropped_output_ends_program_and_its_children() {
    for exec in [exec("sleep 501 & sleep 502"), exec_on_terminal("sleep 501 & sleep 502")] {
        let mut cell = Cell::new().await;
        let guid = start_sleeper(&mut cell).await;
        let (_input, output) = cell.executor.exec(guid, &exec).await.unwrap();
        let both = || with_argument(guid, "501").len() + with_argument(guid, "502").len();
        eventually(async || both() == 2).await;
        drop(output);
        eventually(async || both() == 0).await;
        // The container of the ended program continues.
        assert_eq!(output_of(&cell, guid, &self::exec("echo on")).await.out, "on\n");
        cell.delete_all().await;
    }
}

#[tokio::test]
async fn program_ends_with_its_container() {
    let mut cell = Cell::with(isolating).await;
    let guid = start_sleeper(&mut cell).await;
    let (_input, mut output) =
        cell.executor.exec(guid, &exec_on_terminal("echo up; sleep 600")).await.unwrap();
    wait_for_output(&mut output, "up").await;
    cell.executor.stop(guid);
    assert_eq!(read_to_end(output).await.end, ExecEnd::Failed("the container ended".into()));
    assert_eq!(cell.wait_until_completed(guid).await, RunResult::Stopped);
    assert_eq!(processes_of(guid), Vec::<i32>::new());
    cell.delete_all().await;
    // The completion of a task does not wait for additional programs.
    let mut cell = Cell::new().await;
    let guid = cell.run(task(sh("until test -e done; do sleep 0.01; done")));
    cell.wait_until_running(guid).await;
    let (_input, _output) = cell.executor.exec(guid, &exec("touch done; exec sleep 600")).await.unwrap();
    let end = timeout(Duration::from_secs(20), cell.wait_until_completed(guid)).await.unwrap();
    assert_eq!(end, RunResult::Succeeded { result: String::new() });
    cell.delete_all().await;
}

#[tokio::test]
async fn concurrent_programs_are_limited() {
    let mut cell = Cell::new().await;
    let guid = start_sleeper(&mut cell).await;
    let mut some = vec![];
    for _ in 0..16 {
        some.push(cell.executor.exec(guid, &exec("sleep 600")).await.unwrap());
    }
    let told = cell.executor.exec(guid, &exec("true")).await.unwrap_err().to_string();
    assert_eq!(told, "too many additional programs in the container: at most 16 run at a time");
    some.pop();
    eventually(async || cell.executor.exec(guid, &exec("true")).await.is_ok()).await;
    cell.delete_all().await;
}

#[tokio::test]
async fn adopted_container_runs_additional_programs() {
    let mut cell = Cell::with(isolating).await;
    let guid = start_sleeper(&mut cell).await;
    let (_input, output) = cell.executor.exec(guid, &exec("sleep 503")).await.unwrap();
    eventually(async || !with_argument(guid, "503").is_empty()).await;
    drop(output);
    let cell = cell.reopen_with(isolating, async {}).await;
    // The program of the earlier executor has ended together with that executor.
    eventually(async || with_argument(guid, "503").is_empty()).await;
    assert_eq!(output_of(&cell, guid, &exec("echo again")).await.out, "again\n");
    cell.delete_all().await;
}
