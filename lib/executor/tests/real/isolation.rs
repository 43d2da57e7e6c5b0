//! Tests of isolated containers. They cover operations that must work inside of a container, and operations
//! that must fail there.
//!
//! Run these tests as root, because `muster rep` runs as root in production. If another user runs the tests,
//! they cover fewer isolation layers.

use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;

use executor::process::{FIRST_ID, IsolationPolicy, MAX_PROCESSES, RANGE_LEN, Settings};
use schemas::container::{Recipe, RunResult};
use schemas::isolation::{Isolation, IsolationLayer, Level};
use schemas::names::InstanceGuid;
use schemas::resources::Resources;

use crate::support::{Cell, eventually, kill, lrp, processes_of, program, sh, shim, task, variable};

fn with_isolation(settings: Settings) -> Settings {
    Settings { isolate: IsolationPolicy::BestEffort { first_id: FIRST_ID }, ..settings }
}

async fn cell() -> Cell {
    let cell = Cell::with(with_isolation).await;
    let isolation = cell.executor.isolation();
    assert!(
        isolation.has(IsolationLayer::Files) && isolation.has(IsolationLayer::Processes),
        "{isolation}: run these tests as root"
    );
    cell
}

/// Runs a program in an isolated container and returns its standard output. Panics if the program fails.
async fn output_of(cell: &mut Cell, recipe: Recipe) -> Vec<String> {
    let guid = cell.run(recipe);
    let end = cell.wait_until_completed(guid).await;
    let log = cell.log(guid).await;
    assert!(matches!(end, RunResult::Succeeded { .. }), "{end:?} {log:#?}");
    log.iter().filter_map(|line| line.strip_prefix("OUT ")).map(str::to_owned).collect()
}

async fn output(cell: &mut Cell, script: &str) -> Vec<String> {
    output_of(cell, task(sh(script))).await
}

fn folder(cell: &Cell, guid: InstanceGuid) -> PathBuf {
    cell.root.path().join(format!("data/containers/{guid}"))
}

#[tokio::test]
async fn shim_program_in_a_writable_folder_is_read_only_inside() {
    let place = tempfile::tempdir_in("/tmp").unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = place.path().join("shim");
    fs::copy(shim(), &copy).unwrap();
    let name = copy.display().to_string();
    let settings =
        |settings| Settings { shim: vec![name.clone().into(), "shim".into()], ..with_isolation(settings) };
    let mut cell = Cell::with(settings).await;
    let walls = cell.executor.isolation();
    assert!(walls.has(IsolationLayer::Files) && walls.has(IsolationLayer::Processes), "{walls}");
    let script = format!(
        "ls {name}; (echo x > {name}) 2>/dev/null || echo stays; echo x > /tmp/mine && cat /tmp/mine"
    );
    assert_eq!(output(&mut cell, &script).await, [&name, "stays", "x"]);
    cell.delete_all().await;
}

#[tokio::test]
async fn container_has_its_own_user_processes_and_hostname() {
    let mut cell = cell().await;
    let script =
        "id -u; id -un; pwd; echo $HOME; cat /proc/1/comm; ls /proc > all; grep -c '^[0-9]*$' all; hostname";
    let guid = cell.run(task(sh(script)));
    cell.wait_until_completed(guid).await;
    let log = cell.log(guid).await;
    let hostname = format!("OUT {guid}");
    // The three processes are the first process of the container, the shell, and one program.
    let expected =
        ["OUT 2000", "OUT vcap", "OUT /home/vcap", "OUT /home/vcap", "OUT shim", "OUT 3", &hostname];
    assert_eq!(log, expected);
    let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(folder(&cell, guid).join("work")).unwrap());
    assert!(
        owner >= FIRST_ID && (owner - FIRST_ID) % RANGE_LEN == 2000,
        "{owner} is not an id from a container range"
    );
    cell.delete_all().await;
}

#[tokio::test]
async fn container_writes_only_to_its_writable_folders() {
    let mut cell = cell().await;
    let secret = cell.root.path().join("secret");
    fs::write(&secret, "of the host").unwrap();
    let script = format!(
        "echo a > mine && cat mine; echo b > /tmp/mine && cat /var/tmp/mine; echo c > /run/mine && cat /run/mine
         for path in /etc/mine /usr/mine /mine /proc/sys/kernel/hostname /sys/mine /dev/mine; do
             (echo x > $path) 2>/dev/null && echo \"$path is written\"
         done
         for path in {} {} /root/.bashrc /var/lib /srv /boot /etc/shadow /proc/kcore; do
             cat $path 2>/dev/null; ls $path/* 2>/dev/null
         done
         exit 0",
        secret.display(),
        cell.root.path().join("data").display(),
    );
    assert_eq!(output(&mut cell, &script).await, ["a", "b", "c"]);
    cell.delete_all().await;
}

#[tokio::test]
async fn container_has_no_capabilities_and_cannot_gain_any() {
    let mut cell = cell().await;
    let script = "grep -E 'Cap|NoNewPrivs|Seccomp:|Groups' /proc/self/status; ls /proc/self/fd | wc -l; ulimit -c
        for attempt in 'mount -t tmpfs none /tmp' 'unshare -r true' 'unshare -m true' 'chroot / true' \
                       'mknod /tmp/d c 1 3' 'chown root mine' 'nice -n -5 true' 'su -c true' 'kill -9 1' 'dmesg'; do
            touch mine; $attempt >/dev/null 2>said && [ ! -s said ] && [ \"$attempt\" != 'kill -9 1' ] && echo \"$attempt works\"
        done
        kill -0 1 2>/dev/null && echo lives; exit 0";
    let none = "0000000000000000";
    let mut expected: Vec<String> = vec!["Groups:\t2000 ".into()];
    expected.extend(["Inh", "Prm", "Eff", "Bnd", "Amb"].map(|set| format!("Cap{set}:\t{none}")));
    // One of the descriptors belongs to the listing of the folder itself.
    expected.extend(["NoNewPrivs:\t1", "Seccomp:\t2", "4", "0"].map(str::to_owned));
    let found = output(&mut cell, script).await;
    let groups = found.iter().map(|line| if line.starts_with("Groups") { "Groups:\t2000 " } else { line });
    assert_eq!(groups.collect::<Vec<_>>(), expected);
    cell.delete_all().await;
}

/// System calls with their names, numbers on `x86_64`, and arguments. The calls would have an effect if they
/// were allowed.
#[cfg(target_arch = "x86_64")]
const REFUSED_CALLS: &[(&str, &str)] = &[
    ("ptrace", "101, 0, 0, 0, 0"),
    ("process_vm_readv", "310, 1, 0, 0, 0, 0, 0"),
    ("keyctl", "250, 0, -3, 0, 0, 0"),
    ("add_key", "248, 0, 0, 0, 0, 0"),
    ("bpf", "321, 0, 0, 0"),
    ("perf_event_open", "298, 0, 0, -1, -1, 0"),
    ("userfaultfd", "323, 0"),
    ("io_uring_setup", "425, 1, 0"),
    ("unshare", "272, 0x10000000"),
    ("setns", "308, 0, 0"),
    ("mount", "165, 0, 0, 0, 0, 0"),
    ("open_by_handle_at", "304, 0, 0, 0"),
    ("clone with a user namespace", "56, 0x10000011, 0, 0, 0, 0"),
    ("kexec_load", "246, 0, 0, 0, 0"),
    ("reboot", "169, 0, 0, 0, 0"),
    ("init_module", "175, 0, 0, 0"),
    ("settimeofday", "164, 0, 0"),
    ("ioctl TIOCSTI", "16, 0, 0x5412, 0"),
    ("socket of virtual machines", "41, 40, 1, 0"),
];

#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn refused_system_calls_fail() {
    let mut cell = cell().await;
    // Perl is installed on every Debian system. EPERM is 1, and ENOSYS is 38. The bit 1 << 30 selects the
    // call numbers of a different ABI.
    let mut script = String::new();
    for (name, arguments) in REFUSED_CALLS {
        script += &format!(
            "$r = syscall({arguments}); print \"{name}: $r \", $!+0, \"\\n\" unless $r == -1 && $! == 1;"
        );
    }
    script += "$r = syscall(435, 0, 0); print \"clone3: \", $!+0, \"\\n\" unless $! == 38;";
    script += "$r = syscall((1 << 30) + 101, 0, 0, 0, 0); print \"x32: \", $!+0, \"\\n\" unless $! == 38;";
    script += "print \"tried\\n\"";
    assert_eq!(output_of(&mut cell, task(program("perl", &["-e", &script]))).await, ["tried"]);
    cell.delete_all().await;
}

#[tokio::test]
async fn abstract_sockets_of_the_host_are_unreachable() {
    let mut cell = cell().await;
    if !cell.executor.isolation().has(IsolationLayer::Landlock) {
        // An older kernel cannot isolate abstract sockets, and the cell reports that.
        assert_eq!(cell.executor.isolation().level(), Level::Degraded);
        return;
    }
    let name = format!("muster-test-{}", std::process::id());
    let _listens = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let script = format!(
        "use Socket; socket(S, AF_UNIX, SOCK_STREAM, 0); print connect(S, pack_sockaddr_un(\"\\0{name}\")) ? 'in' : 'out'"
    );
    assert_eq!(output_of(&mut cell, task(program("perl", &["-e", &script]))).await, ["out"]);
    cell.delete_all().await;
}

#[tokio::test]
async fn environment_of_a_definition_does_not_affect_the_shim() {
    let mut cell = cell().await;
    let script = "cat /proc/1/environ 2>/dev/null; echo $LD_PRELOAD $MUSTER_SECRETS";
    let mut recipe = task(sh(script));
    recipe.environment_variables = vec![variable("LD_PRELOAD", "/home/vcap/evil.so")];
    let guid = cell.run(recipe);
    cell.wait_until_completed(guid).await;
    let log = cell.log(guid).await;
    assert!(log.contains(&"OUT /home/vcap/evil.so".to_owned()), "{log:#?}");
    // The loader prints errors about the missing library when the shell and its children start inside the
    // container.
    assert!(
        log.iter().all(|line| line.starts_with("OUT /home") || line.contains("ld.so: object")),
        "{log:#?}"
    );
    let complaints = fs::read_to_string(folder(&cell, guid).join("shim.err")).unwrap();
    assert!(!complaints.contains("ld.so"), "{complaints}");
    cell.delete_all().await;
}

#[tokio::test]
async fn fork_bomb_is_limited() {
    let mut cell = cell().await;
    if !cell.executor.isolation().has(IsolationLayer::Pids) {
        return;
    }
    let script = "$| = 1; while (1) { $p = fork; last unless defined $p; if (!$p) { sleep 100; exit } $n++ } print \"$n\\n\"";
    let resources = Resources::for_container(0, 0, 0);
    let guid = cell.run(Recipe { resources, ..task(program("perl", &["-e", script])) });
    cell.wait_until_completed(guid).await;
    let log = cell.log(guid).await;
    let forked: u32 = log.iter().find_map(|line| line.strip_prefix("OUT ")?.parse().ok()).unwrap();
    assert!((MAX_PROCESSES / 2..MAX_PROCESSES).contains(&forked), "{forked}");
    cell.delete_all().await;
}

#[tokio::test]
async fn container_beyond_memory_limit_fails_and_neighbour_survives() {
    let mut cell = cell().await;
    if !cell.executor.isolation().has(IsolationLayer::Memory) {
        return;
    }
    let resources = Resources::for_container(64, 64, 0);
    let neighbour = cell.run(lrp(sh("echo here; exec sleep 1000")));
    cell.wait_for_line(neighbour, "here").await;
    for hog in ["exec tail /dev/zero", "tail /dev/zero; exit 3", "tail /dev/zero & wait $!; exit 4"] {
        let recipe = Recipe { resources, ..lrp(sh(hog)) };
        assert_eq!(cell.run_to_failure(recipe).await, "out of memory (limit 64 MiB)", "{hog}");
    }
    assert!(!processes_of(neighbour).is_empty());
    cell.delete_all().await;
}

#[tokio::test]
async fn container_beyond_disk_limit_fails_with_reason() {
    let mut cell = cell().await;
    let resources = Resources::for_container(0, 16, 0);
    let many = "i=0; while true; do head -c 1000000 /dev/zero > $i; i=$((i+1)); sleep 0.02; done";
    let hidden = "mkdir -p a/b/c; cd a/b/c; for i in 1 2 3; do head -c 9000000 /dev/zero > /tmp/$i; done; exec sleep 100";
    for filler in [many, hidden] {
        let recipe = Recipe { resources, ..lrp(sh(filler)) };
        assert_eq!(cell.run_to_failure(recipe).await, "out of disk (limit 16 MiB)", "{filler}");
    }
    let one = Recipe { resources, ..lrp(sh("exec head -c 20000000 /dev/zero > large")) };
    assert_eq!(cell.run_to_failure(one).await, "Killed by signal 25 (XFSZ)");
    cell.delete_all().await;
}

#[tokio::test]
async fn deleted_files_long_paths_and_inodes_count_as_disk_use() {
    let mut cell = cell().await;
    let resources = Resources::for_container(0, 16, 0);
    let deleted =
        "for (1..30) { open $f[$_], q(>f); unlink q(f); syswrite $f[$_], q(x) x 1000000 } sleep 100";
    let long = "for (1..30) { $n = q(l) x 200; mkdir $n; chdir $n }
        for (1..30) { open F, qq(>f$_); syswrite F, q(x) x 1000000 } sleep 100";
    let empty = "for (1..6000) { open F, qq(>f$_) } sleep 100";
    for script in [deleted, long, empty] {
        let recipe = Recipe { resources, ..lrp(program("perl", &["-e", script])) };
        assert_eq!(cell.run_to_failure(recipe).await, "out of disk (limit 16 MiB)", "{script}");
    }
    cell.delete_all().await;
}

#[tokio::test]
async fn containers_have_distinct_users_after_rep_restart() {
    let mut cell = cell().await;
    let users = |cell: &Cell, guids: &[InstanceGuid]| -> std::collections::BTreeSet<u32> {
        let owner = |guid| {
            std::os::unix::fs::MetadataExt::uid(&fs::metadata(folder(cell, guid).join("work")).unwrap())
        };
        guids.iter().map(|guid| owner(*guid)).collect()
    };
    let mut guids = vec![];
    for again in 0..2 {
        for _ in 0..3 {
            let guid = cell.run(lrp(sh("exec sleep 1000")));
            cell.wait_until_running(guid).await;
            guids.push(guid);
        }
        if again == 0 {
            let ended = guids.remove(1);
            cell.executor.delete(ended);
            eventually(async || cell.get(ended).is_none()).await;
            cell = cell.reopen_with(with_isolation, async {}).await;
        }
    }
    assert_eq!(users(&cell, &guids).len(), guids.len());
    cell.delete_all().await;
}

#[tokio::test]
async fn container_does_not_use_quotas_of_others() {
    let mut cell = cell().await;
    // Each process uses one inotify instance, or reports that none is available.
    let greedy = "touch f; for i in $(seq 150); do tail -f f 2>>said & done
        while ! grep -q inotify said; do sleep 0.05; done; echo none left; wait";
    let guid = cell.run(Recipe { resources: Resources::for_container(0, 0, 0), ..lrp(sh(greedy)) });
    cell.wait_for_line(guid, "none left").await;
    rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC).unwrap();
    let modest = "touch f; timeout 0.2 tail -f f 2>said; cat said";
    assert_eq!(output(&mut cell, &format!("{modest}; exit 0")).await, [""; 0]);
    cell.delete_all().await;
}

#[tokio::test]
async fn masked_paths_of_the_host_are_hidden() {
    let place = tempfile::tempdir_in("/opt").unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = |name: &str| place.path().join(name);
    fs::create_dir(path("keys")).unwrap();
    std::os::unix::fs::symlink("keys", path("link")).unwrap();
    for name in ["keys/secret", "single", "seen"] {
        fs::write(path(name), "visible").unwrap();
        fs::set_permissions(path(name), fs::Permissions::from_mode(0o644)).unwrap();
    }
    fs::set_permissions(path("keys"), fs::Permissions::from_mode(0o755)).unwrap();
    let masked = vec![path("link"), path("single"), path("absent")];
    let mut cell = Cell::with(|settings| Settings { masked, ..with_isolation(settings) }).await;
    let script =
        "cd OPT; cat seen; echo; cat keys/secret link/secret single; ls keys; ls /etc/muster; exit 0";
    let script = script.replace("OPT", &place.path().display().to_string());
    assert_eq!(output(&mut cell, &script).await, ["visible"]);
    cell.delete_all().await;
}

#[tokio::test]
async fn result_file_must_be_a_file_of_the_container() {
    let mut cell = cell().await;
    let result = |script: &str| Recipe { result_file: "result".into(), ..task(sh(script)) };
    let guid = cell.run(result("echo -n yes > real; ln -s real result"));
    assert_eq!(cell.wait_until_completed(guid).await, RunResult::Succeeded { result: "yes".into() });
    let out = "the result file result leads out of the work directory";
    assert_eq!(cell.run_to_failure(result("ln -s /etc/passwd result")).await, out);
    assert_eq!(cell.run_to_failure(result("ln -s ../spec.json result")).await, out);
    assert_eq!(cell.run_to_failure(result("mkfifo result")).await, "the result file result is not a file");
    cell.delete_all().await;
}

#[tokio::test]
async fn isolated_container_is_adopted_and_stopped() {
    let mut cell = cell().await;
    let guid = cell.run(lrp(sh("trap 'echo bye; exit 0' TERM; echo here; while true; do sleep 0.05; done")));
    cell.wait_for_line(guid, "here").await;
    let mut cell = cell.reopen_with(with_isolation, async {}).await;
    cell.wait_until_running(guid).await;
    cell.executor.stop(guid);
    assert_eq!(cell.wait_until_completed(guid).await, RunResult::Stopped);
    cell.wait_for_line(guid, "bye").await;
    cell.delete_all().await;
}

#[tokio::test]
async fn container_is_cleaned_up_after_either_shim_is_killed() {
    let mut cell = cell().await;
    for at in 0..2 {
        let guid = cell.run(lrp(sh("(setsid sh -c 'exec sleep 1000' &); echo here; exec sleep 1000")));
        cell.wait_for_line(guid, "here").await;
        // The first shim in the list is outside of the container. The second one is process 1 of the
        // container.
        let mut shims: Vec<i32> = processes_of(guid)
            .into_iter()
            .filter(|pid| {
                fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().contains("\0shim\0")
            })
            .collect();
        shims.sort_unstable();
        assert_eq!(shims.len(), 2);
        kill(shims[at]);
        if at == 0 {
            // The container continues without the outer shim, just as a container continues without its rep.
            cell.executor.stop(guid);
            assert_eq!(cell.wait_until_completed(guid).await, RunResult::Stopped);
        } else {
            assert_eq!(cell.wait_for_failure(guid).await, "the shim of the container ended unexpectedly");
        }
        eventually(async || processes_of(guid).is_empty()).await;
    }
    cell.delete_all().await;
}

#[tokio::test]
async fn isolated_program_that_cannot_start_fails_with_reason() {
    let mut cell = cell().await;
    let absent = cell.run_to_failure(task(program("no-such-program", &[]))).await;
    assert_eq!(absent, "cannot start no-such-program: No such file or directory (os error 2)");
    let dir = |dir: &str| {
        let run = schemas::action::Run { path: "true".into(), dir: dir.into(), ..Default::default() };
        task(schemas::action::Action::Run(run))
    };
    assert_eq!(cell.run_to_failure(dir("nowhere")).await, "working directory `nowhere` does not exist");
    assert_eq!(
        cell.run_to_failure(dir("/etc/passwd")).await,
        "working directory `/etc/passwd` is not a directory"
    );
    let locked = Recipe { setup: Some(sh("mkdir locked; chmod 0 locked")), ..dir("locked") };
    let denied = "cannot use the working directory `locked`: Permission denied (os error 13)";
    assert_eq!(cell.run_to_failure(locked).await, denied);
    cell.delete_all().await;
}

#[tokio::test]
async fn isolation_is_off_by_default() {
    let cell = Cell::new().await;
    assert_eq!(cell.executor.isolation(), Isolation::NONE);
    cell.delete_all().await;
}
