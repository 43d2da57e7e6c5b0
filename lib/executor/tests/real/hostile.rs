//! Hostile definitions, generated from a seed. The cell must survive all of them and clean up completely.
//!
//! By default, the test runs only a few definitions. The command below runs a larger number. As root, the
//! test covers all isolation layers. As another user, it covers a cell without root:
//!
//! ```text
//! MUSTER_HOSTILE=300 MUSTER_SEED=7 cargo test -p executor --test real hostile -- --nocapture
//! ```

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use executor::process::{FIRST_ID, IsolationPolicy, Settings};
use schemas::action::Action;
use schemas::container::{ContainerState, Recipe};
use schemas::isolation::{Isolation, IsolationLayer};
use schemas::names::{CellId, InstanceGuid};
use schemas::resources::Resources;
use tempfile::TempDir;

use crate::support::{Cell, TIMEOUT, eventually, lrp, processes_of, program, sh, task};

/// Default number of definitions.
const COUNT: u64 = 24;
/// Default seed.
const SEED: u64 = 1;
/// Number of containers that run at once.
const CONCURRENT: usize = 6;
/// Content of the key files that no container may read.
const KEY: &str = "key-that-no-container-reads";

/// Pseudorandom numbers from a seed (`SplitMix64`).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }
}

/// Generator of hostile definitions.
struct Generator {
    random: Random,
    walls: Isolation,
    /// Paths of files with keys.
    keys: Vec<String>,
}

impl Generator {
    /// Generates the next definition.
    fn definition(&mut self) -> Recipe {
        let actions: Vec<Action> = (0..self.random.between(1, 3)).map(|_| self.action()).collect();
        let action = Action::Parallel(schemas::action::Group { actions });
        let mut recipe = if self.random.chance(2) { lrp(action) } else { task(action) };
        recipe.resources = Resources::for_container(64, 16, 0);
        recipe.grace_period_ms = self.random.below(200);
        if self.random.chance(4) {
            recipe.monitor = Some(sh("sleep 5550 & yes | head -c 100000; exit 1"));
            recipe.start_timeout_ms = self.random.between(1, 300);
        }
        if self.random.chance(4) {
            recipe.result_file =
                ["result", "../spec.json", "d", "pipe", "/etc/muster/key"][self.choice(5)].into();
        }
        recipe
    }

    fn choice(&mut self, count: u64) -> usize {
        usize::try_from(self.random.below(count)).unwrap()
    }

    fn action(&mut self) -> Action {
        match self.random.below(15) {
            0..3 => self.tree(),
            3..6 => self.files(),
            6 => self.disk(),
            7..9 => self.processes(),
            9 => self.signals(),
            10..12 => self.output(),
            12 => self.memory(),
            _ => self.access_outside(),
        }
    }

    /// Folders: deeply nested, numerous, with long names, or without permissions.
    fn tree(&mut self) -> Action {
        let (levels, length) = (self.random.between(1, 16_000), self.random.between(1, 200));
        let wide = self.random.between(1, 2_000);
        let script = match self.random.below(4) {
            0 => format!("for (1..{levels}) {{ mkdir q(d); chdir q(d) or die }}"),
            1 => format!(
                "$n = q(l) x {length}; for (1..40) {{ mkdir $n; mkdir q(closed), 0; chdir $n or die }}"
            ),
            2 => format!("for (1..{wide}) {{ mkdir qq(w$_); mkdir qq(w$_/in); open F, qq(>w$_/f) }}"),
            _ => "for (1..20) { mkdir q(d); chdir q(d) or die } for (1..20) { chmod 0, q(.); chdir q(..) }"
                .into(),
        };
        perl(&script)
    }

    /// Links, pipes, sockets, and names with arbitrary bytes.
    fn files(&mut self) -> Action {
        let count = self.random.between(1, 500);
        let length = self.random.between(1, 255);
        let script = match self.random.below(4) {
            0 => format!("symlink q(/), q(root); symlink q(loop), q(loop); symlink q(../..), q(result);
                open F, q(>f); for (1..{count}) {{ link q(f), qq(h$_) }}"),
            1 => format!("use POSIX; mkfifo(q(pipe), 0600); mkfifo(q(result), 0); for (1..{count}) {{ mkfifo(qq(p$_), 0) }}"),
            2 => "use Socket; for (1..50) { socket($s[$_], PF_UNIX, SOCK_STREAM, 0); bind($s[$_], pack_sockaddr_un(qq(s$_))) }".into(),
            _ => format!("for (1..{count}) {{ open F, q(>), join q(), map {{ chr(1 + int rand 255) }} 1..{length} }}
                open F, qq(>\\n); open F, qq(>\\e[2J); open F, qq(>..\\\\x)"),
        };
        perl(&script)
    }

    /// Disk use: sparse files, deleted files that stay open, and very many files.
    fn disk(&mut self) -> Action {
        let count = self.random.between(1, 30);
        let script = match self.random.below(3) {
            0 => "truncate(F, 1 << 40) if open F, q(>sparse); sleep 1".into(),
            1 => format!(
                "for (1..{count}) {{ open $f[$_], q(>open); unlink q(open); syswrite $f[$_], q(x) x 1000000 }} sleep 1"
            ),
            _ => "for (1..6000) { open F, qq(>/tmp/e$_) } sleep 1".to_owned(),
        };
        perl(&script)
    }

    /// Processes: many, detached, or with ignored signals.
    fn processes(&mut self) -> Action {
        let count = self.random.between(1, 60);
        match self.random.below(4) {
            0 => perl(&format!("for (1..{count}) {{ fork or sleep 100 }}")),
            1 => perl("for (1..40) { last if fork } sleep 100"),
            2 => sh(
                "for i in 1 2 3; do (setsid env -i sh -c 'cd /; trap \"\" TERM HUP; sleep 600 & wait' >/dev/null 2>&1 </dev/null &); done",
            ),
            _ => sh("trap '' TERM HUP INT; while true; do sleep 0.1; done"),
        }
    }

    fn signals(&mut self) -> Action {
        let signal = ["KILL", "STOP", "TERM", "SEGV", "CHLD", "USR1"][self.choice(6)];
        let to = ["-1", "1", "$$", "$PPID", "0"][self.choice(5)];
        sh(&format!("kill -{signal} {to}; sleep 0.2"))
    }

    /// Output: endless, without line ends, or with arbitrary bytes.
    fn output(&mut self) -> Action {
        match self.random.below(4) {
            0 => sh("exec yes"),
            1 => sh("yes | tr -d '\\n'"),
            2 => sh("exec head -c 300000 /dev/urandom"),
            _ => sh("printf '\\033[2J\\033]0;x\\007\\302'; printf half; exec sleep 1"),
        }
    }

    /// Memory: if memory is limited, all available memory; otherwise about 100 MB per process.
    fn memory(&mut self) -> Action {
        let limit = if self.walls.has(IsolationLayer::Memory) { "unlimited" } else { "100000" };
        sh(&format!("ulimit -v {limit}; tail /dev/zero & wait; exec tail /dev/zero"))
    }

    /// Access to paths outside of the container: reads, writes and mounts.
    fn access_outside(&mut self) -> Action {
        let keys = self.keys.join(" ");
        let script = match self.random.below(3) {
            0 => format!("for f in {keys}; do cat $f; cp $f stolen; cat < $f; cat /proc/1/root$f /proc/1/cwd/../../..$f; done"),
            1 => "cat /proc/*/environ /proc/*/cmdline /proc/1/fd/* </dev/null; ls -R /etc/muster /var/lib/muster /run/muster".into(),
            _ => "rm -rf ../* ../../*; mount -t tmpfs x /tmp; unshare -Urm true; chroot / true; echo x > /etc/hosts".to_owned(),
        };
        sh(&format!("({script}) 2>&1 | head -c 200000"))
    }
}

fn perl(script: &str) -> Action {
    program("perl", &["-e", script])
}

fn env_number(name: &str, default_value: u64) -> u64 {
    std::env::var(name).map_or(default_value, |text| text.parse().unwrap())
}

/// Creates a key file that containers could read if the file were not masked. `None` if this user may not
/// create the file.
fn visible_key() -> Option<TempDir> {
    let folder = tempfile::tempdir_in("/opt").ok()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).ok()?;
    fs::write(folder.path().join("key"), KEY).ok()?;
    fs::set_permissions(folder.path().join("key"), fs::Permissions::from_mode(0o644)).ok()?;
    Some(folder)
}

/// Runs definitions concurrently. A container that exceeds its time limit is deleted while it runs.
async fn run(cell: &mut Cell, definitions: Vec<(Recipe, Duration)>) {
    let mut guids = vec![];
    for (recipe, patience) in definitions {
        guids.push((cell.run(recipe), patience));
    }
    for (guid, patience) in &guids {
        let completed = async {
            while cell.get(*guid).is_some_and(|one| !matches!(one.state, ContainerState::Completed(_))) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        drop(tokio::time::timeout(*patience, completed).await);
        assert_reads_no_key(cell, *guid).await;
        cell.executor.delete(*guid);
    }
    for (guid, _) in &guids {
        eventually(async || cell.get(*guid).is_none()).await;
        eventually(async || processes_of(*guid).is_empty()).await;
    }
}

async fn assert_reads_no_key(cell: &Cell, guid: InstanceGuid) {
    let mut from = 0;
    while let Ok(chunk) = cell.executor.logs(guid, from, usize::MAX).await
        && !chunk.text.is_empty()
        && chunk.next > from
    {
        assert!(!chunk.text.contains(KEY), "{guid} read a key");
        from = chunk.next;
    }
}

/// Returns the control groups whose names start with `name`.
fn groups_of(name: &str) -> Vec<String> {
    let (mut found, mut open) = (vec![], vec![std::path::PathBuf::from("/sys/fs/cgroup")]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(name) {
                found.push(entry.path().display().to_string());
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(entry.path());
            }
        }
    }
    found
}

/// Returns the processes with a working directory, root or mount below a folder.
fn processes_in(folder: &Path) -> Vec<String> {
    let text = folder.display().to_string();
    let is_in = |pid: &String| {
        let link =
            |name: &str| fs::read_link(format!("/proc/{pid}/{name}")).is_ok_and(|to| to.starts_with(folder));
        let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        link("cwd") || link("root") || mounts.contains(&text)
    };
    let names = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.parse::<i32>().is_ok()).filter(is_in).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cell_survives_hostile_definitions_and_cleans_up() {
    let (count, seed) = (env_number("MUSTER_HOSTILE", COUNT), env_number("MUSTER_SEED", SEED));
    let key = visible_key();
    let hidden: Vec<_> = key.iter().map(|folder| folder.path().join("key")).collect();
    let name = format!("hostile-{}", std::process::id());
    let change = |settings: Settings| Settings {
        cell_id: CellId::new(&name).unwrap(),
        isolate: IsolationPolicy::BestEffort { first_id: FIRST_ID },
        masked: hidden.clone(),
        ..settings
    };
    let mut cell = Cell::in_memory(change).await;
    let walls = cell.executor.isolation();
    assert!(
        walls.has(IsolationLayer::Files) && walls.has(IsolationLayer::Processes),
        "isolation {walls} is insufficient: run this test as root"
    );
    let own = cell.root.path().join("data/secrets.keys");
    fs::write(&own, KEY).unwrap();
    let keys = hidden.iter().chain([&own]).map(|path| path.display().to_string()).collect();
    let mut generator = Generator { random: Random(seed), walls, keys };
    let begun = std::time::Instant::now();
    let mut definitions = vec![];
    for at in 0..count {
        let patience = Duration::from_millis(generator.random.between(0, 1_500));
        definitions.push((generator.definition(), patience));
        if definitions.len() == CONCURRENT || at + 1 == count {
            run(&mut cell, std::mem::take(&mut definitions)).await;
        }
    }
    println!("{count} hostile definitions of seed {seed} with isolation {walls}: {:?}", begun.elapsed());

    cell.executor.self_test().await.unwrap();
    tokio::time::timeout(TIMEOUT, cell.executor.delete_all()).await.unwrap();
    eventually(async || fs::read_dir(cell.root.path().join("data/trash")).unwrap().count() == 0).await;
    assert_eq!(cell.executor.unremoved_folders(), 0);
    assert_eq!(groups_of(&format!("muster-{name}")), [""; 0]);
    assert_eq!(processes_in(cell.root.path()), [""; 0]);
    cell.delete_all().await;
}
