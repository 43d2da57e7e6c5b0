//! Downloads and files of an instance, and the combined logs of all instances of a process.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use crate::dev::LocalCluster;
use crate::support::test_dir::ensure;
use crate::support::{TestDir, eventually};

/// Starts a server that sends this archive to every client. Returns the port of the server.
fn blobstore(archive: Vec<u8>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            send_archive(&stream.unwrap(), &archive);
        }
    });
    port
}

fn send_archive(mut stream: &TcpStream, archive: &[u8]) {
    let mut lines = BufReader::new(stream).lines();
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    let head = format!(
        "HTTP/1.1 200 OK\r\netag: \"1\"\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        archive.len()
    );
    // The client may have disconnected.
    drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(archive)));
}

/// Returns an archive with a program that prints its index and runs until it is stopped.
fn archive(place: &TestDir) -> Vec<u8> {
    let folder = place.path().join("app");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(
        folder.join("run.sh"),
        "echo I am $INSTANCE_INDEX; mkfifo pipe; ln -s /etc/passwd out; exec sleep 100000\n",
    )
    .unwrap();
    let made = Command::new("tar").args(["czf", "-", "-C"]).arg(&folder).arg("run.sh").output().unwrap();
    assert!(made.status.success(), "{made:?}");
    made.stdout
}

#[test]
fn instance_runs_downloaded_program_and_lists_its_files() {
    let place = TestDir::new();
    let port = blobstore(archive(&place));
    let dev = LocalCluster::start(&place, &[]);
    let muster = &dev.muster;
    let spec = format!(
        "process_guid = \"web\"\ndomain = \"shop\"\ninstances = 3\nmemory_mb = 8\nlog_source = \"APP/PROC/WEB\"\nlog_guid = \"app-7\"\n\
         setup.download = {{ artifact = \"app\", from = \"http://127.0.0.1:{port}/app\", to = \"app\", cache_key = \"app-1\" }}\n\
         action.run = {{ path = \"sh\", args = [\"app/run.sh\"] }}\n"
    );
    let file = place.write_file("web.toml", spec).display().to_string();
    muster.ok(&format!("apply {file}"));
    muster.wait_until_running("web", 3);
    let log_of_all = eventually("each instance has printed its index", || {
        let log = muster.ok("logs web").out;
        ensure((0..3).all(|index| log.contains(&format!("I am {index}"))), || log.clone()).map(|()| log)
    });
    for index in 0..3 {
        let of = format!("web/{index} | ");
        let lines: Vec<&str> = log_of_all.lines().filter_map(|line| line.strip_prefix(&of)).collect();
        let told: Vec<&str> = lines.iter().map(|line| line.split_once(' ').unwrap().1).collect();
        let label = format!("[APP/PROC/WEB/{index}] OUT");
        assert_eq!(told[0], format!("{label} Downloading app..."));
        assert!(told[1].starts_with(&format!("{label} Downloaded app (")), "{told:?}");
        assert_eq!(told[2], format!("{label} I am {index}"));
    }
    let times: Vec<&str> = log_of_all.lines().map(|line| line.split(' ').nth(2).unwrap()).collect();
    assert!(times.is_sorted(), "{log_of_all}");

    muster.ok("instance files web/1").expect_output(&["app/", "out -> /etc/passwd", "pipe"]);
    let names: Vec<String> = muster
        .json("instance files web/1 app")
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["run.sh"]);
    assert!(muster.ok("instance files web/1 app/run.sh").out.starts_with("echo I am "));
    muster.exits(1, "instance files web/1 out").expect_output(&["out leads out of the work directory"]);
    muster.exits(1, "instance files web/1 pipe").expect_output(&["pipe is neither a file nor a folder"]);
    muster.exits(3, "instance files web/1 none").expect_output(&["there is no none in the work directory"]);
    muster.exits(3, "instance files web/7").expect_output(&["instance web/7"]);

    let mut logs = muster.start(&place.path().join("logs"), &["logs", "-f", "web"]);
    logs.wait_for_log("web/2 | ");
    muster.ok("lrp scale web=4");
    logs.wait_for_log("I am 3");
    assert_eq!(logs.interrupt().code(), Some(0));
    dev.end(&place);
}
