//! Tests of downloads and uploads with real connections.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use executor::process::{FIRST_ID, IsolationPolicy, Settings};
use schemas::action::{
    Action, ChecksumAlgorithm, Download, ResourceLimits, Run, Secret, Timeout, Try, Upload,
};
use schemas::container::{Recipe, RunResult};
use schemas::definition::Sandbox;
use schemas::resources::Resources;

use crate::support::{Cell, eventually, group, lrp, processes_of, sh, task};

/// Blobstore that serves its blobs and stores posted ones. If the path is `/slow`, the blobstore sends half
/// of the blob and then waits.
struct Blobstore {
    port: u16,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    blobs: BTreeMap<String, Vec<u8>>,
    posted: BTreeMap<String, Vec<u8>>,
    requests: Vec<String>,
    /// Number of clients that are waiting for the second half of a blob.
    waiting: usize,
}

impl Blobstore {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, state) = (stream.unwrap(), Arc::clone(&shared));
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        Self { port, state }
    }

    fn url(&self, name: &str) -> Secret {
        Secret::Plain(format!("http://127.0.0.1:{}/{name}", self.port).into())
    }

    fn put(&self, name: &str, bytes: Vec<u8>) {
        self.state.lock().unwrap().blobs.insert(format!("/{name}"), bytes);
    }

    fn posted(&self, name: &str) -> Option<Vec<u8>> {
        self.state.lock().unwrap().posted.get(&format!("/{name}")).cloned()
    }

    fn request_count(&self) -> usize {
        self.state.lock().unwrap().requests.len()
    }

    fn waiting(&self) -> usize {
        self.state.lock().unwrap().waiting
    }
}

fn serve(stream: TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap() == 0 {
            return;
        }
    }
    let words: Vec<&str> = head.split_whitespace().take(2).collect();
    let (method, path) = (words[0], words[1].to_owned());
    let header = |name: &str| {
        let find = |line: &str| {
            Some(line.split_once(": ")?.1.to_owned()).filter(|_| line.to_ascii_lowercase().starts_with(name))
        };
        head.lines().find_map(find)
    };
    let mut stream = stream;
    if method == "POST" {
        let mut body = vec![0; header("content-length").unwrap().parse().unwrap()];
        reader.read_exact(&mut body).unwrap();
        state.lock().unwrap().posted.insert(path, body);
        stream.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
        return;
    }
    let (found, known) = {
        let mut state = state.lock().unwrap();
        state.requests.push(path.clone());
        (state.blobs.get(&path).cloned(), header("if-none-match").is_some())
    };
    let Some(bytes) = found else {
        stream
            .write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            .unwrap();
        return;
    };
    if known {
        stream.write_all(b"HTTP/1.1 304 Not Modified\r\nconnection: close\r\n\r\n").unwrap();
        return;
    }
    let head = format!(
        "HTTP/1.1 200 OK\r\netag: \"1\"\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        bytes.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    if path == "/slow" {
        stream.write_all(&bytes[..bytes.len() / 2]).unwrap();
        state.lock().unwrap().waiting += 1;
        // Returns when the client has closed the connection.
        let mut rest = [0; 16];
        while stream.read(&mut rest).is_ok_and(|count| count > 0) {}
        state.lock().unwrap().waiting -= 1;
    } else {
        stream.write_all(&bytes).unwrap();
    }
}

/// Builds a tar archive with gzip from files: path, permissions, and content.
fn archive(files: &[(&str, u32, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(flate2::write::GzEncoder::new(vec![], flate2::Compression::fast()));
    for (path, mode, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(*mode);
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, path, content.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

fn download(from: Secret, to: &str) -> Download {
    Download {
        artifact: "app".into(),
        from,
        to: to.into(),
        cache_key: String::new(),
        log_source: String::new(),
        user: String::new(),
        checksum_algorithm: None,
        checksum_value: String::new(),
    }
}

fn upload(from: &str, to: Secret) -> Upload {
    Upload {
        artifact: "droplet".into(),
        from: from.into(),
        to,
        log_source: String::new(),
        user: String::new(),
    }
}

fn serial<const N: usize>(actions: [Action; N]) -> Action {
    Action::Serial(group(actions))
}

fn with_isolation(settings: Settings) -> Settings {
    Settings { isolate: IsolationPolicy::BestEffort { first_id: FIRST_ID }, ..settings }
}

/// Returns a task whose result is the file `result`.
fn with_result(action: Action) -> Recipe {
    Recipe { result_file: "result".into(), ..task(action) }
}

fn succeeded(result: &str) -> RunResult {
    RunResult::Succeeded { result: result.into() }
}

#[tokio::test]
async fn download_unpacks_archive_and_upload_posts_file() {
    let (mut cell, blobs) = (Cell::new().await, Blobstore::new());
    blobs.put("app.tgz", archive(&[("bin/run", 0o755, "#!/bin/sh\necho built > droplet; echo $1\n")]));
    let fetched = Download { log_source: "STG".into(), ..download(blobs.url("app.tgz"), "app/deep") };
    let action = serial([
        Action::Download(fetched),
        sh("app/deep/bin/run hello > result"),
        Action::Upload(upload("droplet", blobs.url("droplets/1"))),
    ]);
    let guid = cell.run(with_result(action));
    assert_eq!(cell.wait_until_completed(guid).await, succeeded("hello\n"));
    assert_eq!(blobs.posted("droplets/1").unwrap(), b"built\n");
    let log = cell.log(guid).await;
    assert_eq!(log[0], "[STG/0] OUT Downloading app...");
    assert!(log[1].starts_with("[STG/0] OUT Downloaded app ("), "{log:?}");
    assert_eq!(log[2..], ["OUT Uploading droplet...", "OUT Uploaded droplet (6 bytes)"]);
    cell.delete_all().await;
}

#[tokio::test]
async fn failed_download_reports_reason() {
    let (mut cell, blobs) = (Cell::new().await, Blobstore::new());
    blobs.put("app.tgz", archive(&[("a", 0o644, "x")]));
    blobs.put("text", b"hello".to_vec());
    blobs.put("evil.tgz", {
        let mut header = tar::Header::new_gnu();
        header.set_size(0);
        header.set_mode(0o644);
        header.set_mtime(0);
        header.as_old_mut().name[..7].copy_from_slice(b"../evil");
        header.set_cksum();
        let mut builder = tar::Builder::new(vec![]);
        builder.append(&header, &b""[..]).unwrap();
        builder.into_inner().unwrap()
    });
    let missing = download(blobs.url("none"), "app");
    let wrong = Download {
        checksum_algorithm: Some(ChecksumAlgorithm::Md5),
        checksum_value: "0".repeat(32),
        ..download(blobs.url("text"), "app")
    };
    for (download, why) in [
        (missing, "Downloading app failed: the server answered 404"),
        (
            wrong,
            "Downloading app failed: md5 mismatch: got 5d41402abc4b2a76b9719d911017c592, expected 00000000000000000000000000000000",
        ),
        (
            download(blobs.url("text"), "app"),
            "Unpacking app failed: unknown archive format: expected tar, tar with gzip, or zip",
        ),
        (
            download(blobs.url("evil.tgz"), "app"),
            "Unpacking app failed: ../evil: invalid path ../evil: .. is not allowed",
        ),
        (
            download(blobs.url("app.tgz"), "/tmp/app"),
            "Unpacking app failed: /tmp/app is outside the work directory, and the container has no file \
             system of its own",
        ),
    ] {
        let guid = cell.run(task(Action::Download(download)));
        assert_eq!(cell.wait_for_failure(guid).await, why);
        assert_eq!(cell.log(guid).await.last().unwrap(), &format!("ERR {why}"));
    }
    let large = Recipe {
        resources: Resources::for_container(64, 1, 0),
        ..task(Action::Download(download(blobs.url("large.tgz"), ".")))
    };
    blobs.put("large.tgz", archive(&[("a", 0o644, &"x".repeat(2_000_000))]));
    let why = "Unpacking app failed: a: the archive is larger than 1048576 bytes when unpacked";
    assert_eq!(cell.run_to_failure(large).await, why);
    let tried = Action::Try(Try { action: Box::new(Action::Download(download(blobs.url("none"), "app"))) });
    let guid = cell.run(task(tried));
    assert_eq!(cell.wait_until_completed(guid).await, succeeded(""));
    cell.delete_all().await;
}

#[tokio::test]
async fn upload_refuses_files_outside_the_container() {
    let (mut cell, blobs) = (Cell::new().await, Blobstore::new());
    for (script, from, why) in [
        ("ln -s /etc/passwd out", "out", "out leads out of the work directory"),
        ("ln -s / top", "top/etc/passwd", "top/etc/passwd leads out of the work directory"),
        ("mkfifo pipe", "pipe", "pipe is not a file"),
        ("mkdir folder", "folder", "folder is not a file"),
        ("true", "none", "No such file or directory (os error 2)"),
        (
            "true",
            "/etc/passwd",
            "/etc/passwd is outside the work directory, and the container has no file system of its own",
        ),
    ] {
        let action = serial([sh(script), Action::Upload(upload(from, blobs.url("x")))]);
        assert_eq!(cell.run_to_failure(task(action)).await, format!("Reading droplet failed: {why}"));
    }
    assert_eq!(blobs.posted("x"), None);
    cell.delete_all().await;
}

#[tokio::test]
async fn archive_with_cache_key_is_reused_by_the_next_container() {
    let (mut cell, blobs) = (Cell::new().await, Blobstore::new());
    blobs.put("app.tgz", archive(&[("a", 0o644, "x")]));
    for number in 0..2 {
        let fetched = Download { cache_key: "app-1".into(), ..download(blobs.url("app.tgz"), ".") };
        let guid = cell.run(task(serial([Action::Download(fetched), sh("cat a")])));
        assert_eq!(cell.wait_until_completed(guid).await, succeeded(""));
        let kept = cell.log(guid).await[1].ends_with(", from cache)");
        assert_eq!(kept, number == 1);
    }
    cell.delete_all().await;
}

#[tokio::test]
async fn dependencies_are_downloaded_before_setup() {
    let (mut cell, blobs) = (Cell::new().await, Blobstore::new());
    blobs.put("lifecycle.tgz", archive(&[("launcher", 0o755, "#!/bin/sh\necho launched > result\n")]));
    let with = |name: &str, action| {
        let cached_dependencies = vec![download(blobs.url(name), "lifecycle")];
        let sandbox = Sandbox { cached_dependencies, log_source: "CELL".into(), ..Sandbox::default() };
        Recipe { sandbox: Some(sandbox.into()), ..with_result(action) }
    };
    let guid = cell.run(with("lifecycle.tgz", sh("lifecycle/launcher; echo out")));
    assert_eq!(cell.wait_until_completed(guid).await, succeeded("launched\n"));
    assert_eq!(cell.log(guid).await.last().unwrap(), "[CELL/0] OUT out");
    let why = "failed to download cached dependencies: Downloading app failed: the server answered 404";
    assert_eq!(cell.run_to_failure(with("none", sh("true"))).await, why);
    cell.delete_all().await;
}

#[tokio::test]
async fn stop_and_timeout_cancel_a_download() {
    let (mut cell, blobs) = (Cell::new().await, Blobstore::new());
    blobs.put("slow", archive(&[("a", 0o644, "x")]));
    let slow = || Box::new(Action::Download(download(blobs.url("slow"), ".")));
    let guid = cell.run(lrp(*slow()));
    eventually(async || blobs.waiting() == 1).await;
    cell.executor.stop(guid);
    assert_eq!(cell.wait_until_completed(guid).await, RunResult::Stopped);
    eventually(async || blobs.waiting() == 0).await;
    let limited = Action::Timeout(Timeout { action: slow(), timeout_ms: 100 });
    assert_eq!(cell.run_to_failure(task(limited)).await, "exceeded 100ms timeout");
    eventually(async || blobs.waiting() == 0).await;
    cell.delete_all().await;
}

#[tokio::test]
async fn download_continues_after_rep_restart() {
    let (mut cell, blobs) = (Cell::new().await, Blobstore::new());
    blobs.put("slow", archive(&[("a", 0o644, "x")]));
    let guid = cell.run(task(serial([Action::Download(download(blobs.url("slow"), ".")), sh("cat a")])));
    eventually(async || blobs.waiting() == 1).await;
    let mut cell = cell.reopen_after(async {}).await;
    // The next executor repeats the download, and again receives half of the archive.
    eventually(async || blobs.request_count() == 2 && blobs.waiting() == 1).await;
    cell.executor.stop(guid);
    assert_eq!(cell.wait_until_completed(guid).await, RunResult::Stopped);
    cell.delete_all().await;
}

#[tokio::test]
async fn isolated_container_transfers_use_its_own_paths_and_users() {
    let (mut cell, blobs) = (Cell::with(with_isolation).await, Blobstore::new());
    blobs.put("app.tgz", archive(&[("bin/run", 0o4755, "#!/bin/sh\nid -un\n"), ("data", 0o600, "mine")]));
    let as_root = Download { user: "root".into(), ..download(blobs.url("app.tgz"), "/tmp/by-root") };
    let script = "/tmp/app/bin/run; cat /tmp/app/data; echo; stat -c '%U %a' /tmp/app/bin/run /tmp/by-root/data; \
                  cat /tmp/by-root/data; tar cf /tmp/droplet -C /tmp app; ln -s /etc/hostname /tmp/link";
    let action = serial([
        Action::Download(download(blobs.url("app.tgz"), "/tmp/app")),
        Action::Download(as_root),
        sh(script),
        Action::Upload(upload("/tmp/droplet", blobs.url("droplets/1"))),
    ]);
    let guid = cell.run(task(action));
    assert_eq!(cell.wait_until_completed(guid).await, succeeded(""));
    let log = cell.log(guid).await;
    let told: Vec<&str> = log
        .iter()
        .filter_map(|line| line.strip_prefix("OUT "))
        .filter(|line| !line.contains("load"))
        .collect();
    assert_eq!(told, ["vcap", "mine", "vcap 755", "root 600"], "{log:?}");
    assert!(log.iter().any(|line| line.contains("/tmp/by-root/data: Permission denied")), "{log:?}");
    assert!(blobs.posted("droplets/1").unwrap().len() > 1024);
    for (to, why) in [("/etc/app", "create /etc/app"), ("/usr/app", "create /usr/app")] {
        let why = format!("Unpacking app failed: cannot {why}: ");
        let said = cell.run_to_failure(task(Action::Download(download(blobs.url("app.tgz"), to)))).await;
        assert!(said.starts_with(&why), "{said}");
    }
    let with_result = |file: &str| Recipe {
        result_file: file.into(),
        // The link is in a separate folder, since many kernels restrict links of other users in `/tmp`
        // itself.
        ..task(sh("echo 7 > /tmp/r; echo 8 > r; mkdir /tmp/own; ln -s /etc/passwd /tmp/own/out"))
    };
    for (file, result) in [("/tmp/r", "7\n"), ("/var/tmp/r", "7\n"), ("/home/vcap/r", "8\n"), ("r", "8\n")] {
        let guid = cell.run(with_result(file));
        assert_eq!(cell.wait_until_completed(guid).await, succeeded(result), "{file}");
    }
    let outside = "the result file out leads out of the work directory";
    assert_eq!(cell.run_to_failure(with_result("/tmp/own/out")).await, outside);
    // The container may not upload data of its first process or of root.
    for from in ["/proc/1/environ", "/root/x", "/etc/shadow"] {
        let said = cell.run_to_failure(task(Action::Upload(upload(from, blobs.url("x"))))).await;
        assert!(said.starts_with("Reading droplet failed: "), "{said}");
    }
    assert_eq!(blobs.posted("x"), None);
    cell.delete_all().await;
}

#[tokio::test]
async fn open_file_limit_applies_to_program() {
    for change in [std::convert::identity as fn(Settings) -> Settings, with_isolation] {
        let mut cell = Cell::with(change).await;
        let limits = ResourceLimits { nofile: Some(77) };
        let args = ["-c", "ulimit -n; ulimit -Hn"].map(str::to_owned).to_vec();
        let run = Run { path: "sh".into(), args, resource_limits: limits, ..Run::default() };
        let guid = cell.run(task(Action::Run(run)));
        assert_eq!(cell.wait_until_completed(guid).await, succeeded(""));
        assert_eq!(cell.log(guid).await, ["OUT 77", "OUT 77"]);
        assert!(processes_of(guid).is_empty());
        cell.delete_all().await;
    }
}
