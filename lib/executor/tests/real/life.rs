//! Tests of the environment and the end of a container.

use std::io::Read;
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use executor::process::Settings;
use schemas::Timestamp;
use schemas::action::{Action, Run, Sealed, Secret, Timeout, Variable};
use schemas::container::{ContainerState, Recipe, RunResult};
use schemas::limits::TASK_RESULT_BYTES;
use schemas::names::{Domain, ProcessGuid};
use schemas::secret::{Binding, Owner, Purpose};
use secrets::{Key, Keys, Ring};

use crate::support::{
    Cell, eventually, group, kill, lrp, processes_of, program, sh, shim, shim_of, task, variable,
};

#[tokio::test]
async fn container_answers_on_its_port() {
    let mut cell = Cell::new().await;
    let guid = cell.run(Recipe { ports: vec![8080, 9090], ..lrp(program(shim(), &["serve"])) });
    assert_eq!(cell.get(guid).unwrap().state, ContainerState::Initializing);
    let net = cell.wait_until_running(guid).await;
    assert_eq!(net.address, "127.0.0.1");
    assert_eq!(net.ports.iter().map(|port| port.container_port).collect::<Vec<_>>(), [8080, 9090]);
    let answer = async || {
        let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, net.ports[0].host_port)) else {
            return false;
        };
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text == "hello from 3\n"
    };
    eventually(answer).await;
    cell.delete_all().await;
}

#[tokio::test]
async fn environment_contains_only_the_container_variables() {
    let mut cell = Cell::new().await;
    let guid = cell.run(Recipe {
        ports: vec![8080, 9090],
        environment_variables: vec![variable("A", "1"), variable("B", "x y"), variable("PORT", "8080")],
        ..lrp(sh("env; echo ready; exec sleep 60"))
    });
    let ports = cell.wait_until_running(guid).await.ports;
    let (first, second) = (ports[0].host_port, ports[1].host_port);
    cell.wait_for_line(guid, "ready").await;
    let log = cell.log(guid).await;
    let work = cell.root.path().canonicalize().unwrap().join(format!("data/containers/{guid}/work"));
    for wanted in [
        "A=1".to_owned(),
        "B=x y".to_owned(),
        format!("HOME={}", work.display()),
        format!("PWD={}", work.display()),
        format!("PORT={first}"),
        format!("PORT_8080={first}"),
        format!("PORT_9090={second}"),
        format!("MUSTER_PORTS={first},{second}"),
        format!("MUSTER_INSTANCE_GUID={guid}"),
        "MUSTER_PROCESS_GUID=web".to_owned(),
        "MUSTER_DEFINITION_ID=v2".to_owned(),
        "MUSTER_INDEX=3".to_owned(),
        "MUSTER_CELL_ID=cell-1".to_owned(),
        "MUSTER_DOMAIN=test".to_owned(),
        "INSTANCE_INDEX=3".to_owned(),
        format!("INSTANCE_GUID={guid}"),
        format!("CF_INSTANCE_GUID={guid}"),
        "CF_INSTANCE_INDEX=3".to_owned(),
        "CF_INSTANCE_IP=127.0.0.1".to_owned(),
        "CF_INSTANCE_INTERNAL_IP=127.0.0.1".to_owned(),
        format!("CF_INSTANCE_PORT={first}"),
        format!("CF_INSTANCE_ADDR=127.0.0.1:{first}"),
        format!(
            r#"CF_INSTANCE_PORTS=[{{"external":{first},"internal":8080}},{{"external":{second},"internal":9090}}]"#
        ),
    ] {
        assert!(log.contains(&format!("OUT {wanted}")), "{wanted} is not in {log:#?}");
    }
    assert!(
        !log.iter().any(|line| line.contains("CARGO")),
        "the container inherits the environment of the rep"
    );
    cell.delete_all().await;
}

#[tokio::test]
async fn failure_reason_describes_the_end() {
    let mut cell = Cell::new().await;
    assert_eq!(cell.run_to_failure(lrp(sh("exit 3"))).await, "Exited with status 3");
    assert_eq!(cell.run_to_failure(lrp(sh("exit 0"))).await, "Exited with status 0");
    let last_line = lrp(sh("echo starting >&2; echo 'address in use' >&2; echo bye; exit 1"));
    assert_eq!(cell.run_to_failure(last_line).await, "Exited with status 1: address in use");
    assert_eq!(cell.run_to_failure(lrp(sh("kill -9 $$"))).await, "Killed by signal 9 (KILL)");
    assert_eq!(cell.run_to_failure(task(sh("kill -15 $$"))).await, "Killed by signal 15 (TERM)");
    let setup = Recipe { setup: Some(sh("exit 4")), ..lrp(sh("exec sleep 60")) };
    assert_eq!(cell.run_to_failure(setup).await, "Setup failed: Exited with status 4");
    let missing = cell.run_to_failure(lrp(program("/no/such/program", &[]))).await;
    assert_eq!(missing, "cannot start /no/such/program: No such file or directory (os error 2)");
    let in_dir = |dir: &str| Action::Run(Run { path: "true".into(), dir: dir.into(), ..Run::default() });
    let no_dir = cell.run_to_failure(lrp(in_dir("no/such"))).await;
    assert_eq!(no_dir, "working directory `no/such` does not exist");
    let file = Recipe { setup: Some(sh("touch file")), ..lrp(in_dir("file")) };
    assert_eq!(cell.run_to_failure(file).await, "working directory `file` is not a directory");
    cell.delete_all().await;
}

#[tokio::test]
async fn exit_status_is_reported_only_if_it_caused_the_failure() {
    let mut cell = Cell::new().await;
    let sleeper = Action::Run(Run { path: "sleep".into(), args: vec!["60".into()], ..Run::default() });
    let limited = Action::Timeout(Timeout { action: Box::new(sleeper), timeout_ms: 50 });
    let setup = Recipe { setup: Some(sh("exit 4")), ..lrp(sh("exec sleep 60")) };
    for (recipe, wanted) in [
        (lrp(sh("exit 0")), Some(0)),
        (lrp(sh("exit 3")), Some(3)),
        (task(sh("exit 3")), Some(3)),
        (lrp(Action::Parallel(group([sh("exit 0"), sh("exit 5")]))), Some(5)),
        (lrp(Action::Parallel(group([sh("exit 4"), sh("exit 5")]))), None),
        (lrp(sh("kill -9 $$")), None),
        (lrp(limited), None),
        (setup, None),
    ] {
        let guid = cell.run(recipe.clone());
        let result = cell.wait_until_completed(guid).await;
        let RunResult::Failed { exit_status, .. } = result else { panic!("{result:?}") };
        assert_eq!(exit_status, wanted, "{:?} and {:?}", recipe.setup, recipe.action);
    }
    cell.delete_all().await;
}

#[tokio::test]
async fn setup_completes_before_the_action_starts() {
    let mut cell = Cell::new().await;
    let setup = Some(sh("sleep 0.1; echo made > file; echo set up"));
    let guid = cell.run(Recipe { setup, result_file: "file".into(), ..task(sh("cat file; echo acted")) });
    assert_eq!(cell.wait_until_completed(guid).await, RunResult::Succeeded { result: "made\n".into() });
    assert_eq!(cell.log(guid).await, ["OUT set up", "OUT made", "OUT acted"]);
    cell.delete_all().await;
}

#[tokio::test]
async fn task_result_is_limited_and_must_be_utf8() {
    let mut cell = Cell::new().await;
    let with = |file: &str, script: &str| Recipe { result_file: file.into(), ..task(sh(script)) };
    let guid = cell.run(with("out", "printf 42 > out"));
    assert_eq!(cell.wait_until_completed(guid).await, RunResult::Succeeded { result: "42".into() });
    let full = cell.run(with("out", &format!("head -c {TASK_RESULT_BYTES} /dev/zero | tr '\\0' x > out")));
    assert_eq!(
        cell.wait_until_completed(full).await,
        RunResult::Succeeded { result: "x".repeat(TASK_RESULT_BYTES) }
    );
    let script = format!("head -c {} /dev/zero > out", TASK_RESULT_BYTES + 1);
    assert_eq!(cell.run_to_failure(with("out", &script)).await, "result file is larger than 51200 bytes");
    let bytes = cell.run_to_failure(with("out", "printf 'a\\377b' > out")).await;
    assert_eq!(bytes, "result file is not UTF-8 text");
    let missing = cell.run_to_failure(with("out", "true")).await;
    assert_eq!(missing, "cannot read the result file out: No such file or directory (os error 2)");
    assert_eq!(cell.run_to_failure(with("out", "mkfifo out")).await, "the result file out is not a file");
    cell.delete_all().await;
}

#[tokio::test]
async fn container_that_cannot_be_created_completes_with_reason() {
    let mut cell = Cell::with(|settings| Settings { ports: 29_999..=29_999, ..settings }).await;
    let no_port = cell.run_to_failure(Recipe { ports: vec![1, 2], ..lrp(sh("true")) }).await;
    assert_eq!(no_port, "failed to create container: no free host port in 29999-29999");
    let sealed = Sealed { key: "k".into(), data: String::new() };
    let secret = Variable { name: "TOKEN".into(), value: Secret::Sealed(sealed.into()) };
    let unreadable =
        cell.run_to_failure(Recipe { environment_variables: vec![secret], ..lrp(sh("true")) }).await;
    assert_eq!(
        unreadable,
        "failed to create container: the secret TOKEN is sealed with key k, which this cell does not have"
    );
    cell.delete_all().await;

    let mut cell = Cell::with(|settings| Settings { shim: vec!["/no/shim".into()], ..settings }).await;
    let no_shim = cell.run_to_failure(lrp(sh("true"))).await;
    assert_eq!(no_shim, "failed to create container: No such file or directory (os error 2)");
    assert!(cell.executor.self_test().await.unwrap_err().to_string().contains("No such file"));
    cell.delete_all().await;
}

#[tokio::test]
async fn secrets_are_decrypted_only_in_the_container() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    Ring::from_key(Key::new([7; 32], Timestamp(0))).create(&file).unwrap();
    let keys = Keys::from_file(&file).unwrap();
    let seal = |name: &str, text: &str| {
        let owner = Owner::Process(ProcessGuid::new("web").unwrap());
        let purpose = Purpose::Variable(name.to_owned());
        let place = Binding { domain: Domain::new("test").unwrap(), owner, purpose };
        Variable { name: name.into(), value: Secret::Sealed(keys.seal(&place, text).unwrap().into()) }
    };
    let mut cell = Cell::with(|settings| Settings { keys: keys.clone(), ..settings }).await;
    let script = r#"echo "$A $B $C"; env | grep -c MUSTER_OPENED; exec sleep 60"#;
    let args = ["-c", script].map(str::to_owned).to_vec();
    let env = vec![seal("B", "second"), variable("C", "plain")];
    let action = Action::Run(Run { path: "sh".into(), args, env, ..Run::default() });
    let guid = cell.run(Recipe { environment_variables: vec![seal("A", "first")], ..lrp(action) });
    cell.wait_until_running(guid).await;
    cell.wait_for_line(guid, "first second plain").await;
    cell.wait_for_line(guid, "OUT 0").await;
    let spec = cell.root.path().join(format!("data/containers/{guid}/spec.json"));
    let spec = std::fs::read_to_string(spec).unwrap();
    assert!(spec.contains("sealed") && !spec.contains("first") && !spec.contains("second"), "{spec}");

    let stolen = Variable { name: "D".into(), ..seal("A", "first") };
    let failure = cell.run_to_failure(Recipe { environment_variables: vec![stolen], ..lrp(sh("env")) }).await;
    assert!(failure.starts_with("failed to create container: the secret D is sealed with key "), "{failure}");
    assert!(failure.ends_with(" for another place, or is damaged"), "{failure}");
    std::fs::write(&file, "").unwrap();
    let recipe = Recipe { environment_variables: vec![first_variable(&spec)], ..lrp(sh("env")) };
    let failure = cell.run_to_failure(recipe).await;
    assert!(
        failure.contains("which this cell cannot read: ") && failure.contains("is not a valid key file"),
        "{failure}"
    );
    cell.delete_all().await;
}

/// Returns the first variable in the spec of a container.
fn first_variable(spec: &str) -> Variable {
    let spec: serde_json::Value = serde_json::from_str(spec).unwrap();
    serde_json::from_value(spec["recipe"]["environment_variables"][0].clone()).unwrap()
}

#[tokio::test]
async fn killed_action_is_reported() {
    let mut cell = Cell::new().await;
    let guid = cell.run(lrp(sh("sleep 60 & exec sleep 61")));
    cell.wait_until_running(guid).await;
    eventually(async || processes_of(guid).len() == 3).await;
    let shim = shim_of(guid);
    let children = std::fs::read_to_string(format!("/proc/{shim}/task/{shim}/children")).unwrap();
    let begun = Instant::now();
    kill(children.trim().parse().unwrap());
    assert_eq!(cell.wait_for_failure(guid).await, "Killed by signal 9 (KILL)");
    println!("a killed action was reported after {:?}", begun.elapsed());
    assert!(processes_of(guid).is_empty());
    cell.delete_all().await;
}

#[tokio::test]
async fn self_test_is_not_listed() {
    let cell = Cell::new().await;
    let begun = Instant::now();
    cell.executor.self_test().await.unwrap();
    println!("a self test took {:?}", begun.elapsed());
    assert_eq!(cell.executor.list(), []);
    cell.delete_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_containers_run() {
    let mut cell = Cell::new().await;
    let begun = Instant::now();
    let guids: Vec<_> =
        (0..100).map(|_| cell.run(Recipe { ports: vec![8080], ..lrp(program("sleep", &["600"])) })).collect();
    let asked = begun.elapsed();
    let mut ports = std::collections::BTreeSet::new();
    for &guid in &guids {
        let net = cell.wait_until_running(guid).await;
        assert!(ports.insert(net.ports[0].host_port), "a port was allocated twice");
    }
    println!("100 containers: requested after {asked:?}, running after {:?}", begun.elapsed());
    let ending = Instant::now();
    cell.delete_all().await;
    println!("100 containers: deleted after {:?}", ending.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(60));
}
