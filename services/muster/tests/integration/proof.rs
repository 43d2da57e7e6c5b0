//! Export, import and replay of the log, and detection of every kind of change to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use audit::Message;
use audit::export::{ParsedLine, Reader, Writer};
#[cfg(feature = "parquet")]
use parquet::file::reader::{FileReader as _, SerializedFileReader};
#[cfg(feature = "parquet")]
use parquet::record::RowAccessor as _;
use schemas::entry::Event;
use schemas::names::{ClientName, ServiceId};
use schemas::stamp::Actor;
use schemas::{Entry, actual, cluster};
use serde_json::{Value, json};

use crate::dev::{LocalCluster, sleeper};
use crate::support::cluster::Server;
use crate::support::plain::PlainClient;
use crate::support::test_dir::ensure;
use crate::support::{Cluster, Muster, Service, TestDir, eventually};

fn export(muster: &Muster, to: &Path) -> Vec<u8> {
    muster.ok(&format!("export {}", to.display()));
    fs::read(to).unwrap()
}

/// Returns the header and the messages of an export.
fn messages(export: &[u8]) -> (audit::export::Header, Vec<Message>) {
    let (mut reader, mut head, mut messages) = (Reader::default(), None, vec![]);
    for line in export.split_inclusive(|byte| *byte == b'\n') {
        match reader.take(line).unwrap() {
            ParsedLine::Header(first) => head = Some(first),
            ParsedLine::Message(message) => messages.push(message),
            ParsedLine::Manifest(_) => {}
        }
    }
    (head.unwrap(), messages)
}

/// Returns an intact export of these messages, in this order.
fn export_of(head: &audit::export::Header, messages: &[Message]) -> Vec<u8> {
    let (mut writer, mut text) = Writer::start(&head.program, head.cluster, head.from);
    for (position, message) in (1..).zip(messages) {
        let message = Message { position: schemas::Position(position), ..message.clone() };
        text.extend(writer.add(&message).unwrap());
    }
    text.extend(writer.finish().1);
    text
}

#[test]
fn log_is_exported_and_imported_byte_for_byte() {
    let mut cluster = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c1"]);
    let (muster, place) = (cluster.muster(), TestDir::new());
    let file = cluster.place.write_file("web.toml", sleeper("web", 2));
    muster.ok(&format!("apply {}", file.display()));
    muster.wait_until_running("web", 2);
    // Messages that are not entries are part of the log as well.
    let mut plain = cluster.plain("foreign");
    for (subject, bytes) in
        [("muster.event.strange.subject", &b"garbage"[..]), ("muster.event.cell.c1", &[0, 159])]
    {
        let stored = plain.request(subject, bytes).json();
        assert!(stored["seq"].as_u64().is_some(), "{stored}");
    }
    muster.ok("lrp scale web=1");
    muster.wait_until_running("web", 1);
    let shown = muster.json("lrp list");
    for name in ["rep-c1", "auctioneer-1", "bbs-1"] {
        cluster.services.remove(name).unwrap().interrupt();
    }
    let path = place.path().join("log.jsonl");
    let log = export(&muster, &path);
    assert!(String::from_utf8_lossy(&log).contains("\"base64\":\"AJ8=\""));

    let data = place.path().join("data");
    let local = Muster::local(&data);
    let import = format!("import {}", path.display());
    local.ok(&import).expect_output(&["verified against the file"]);
    assert_eq!(export(&local, &place.path().join("again.jsonl")), log, "exported from SQLite");
    let other = Server::start(&place);
    let nats = Muster::nats(&other.url());
    nats.ok(&import);
    assert_eq!(export(&nats, &place.path().join("nats.jsonl")), log, "exported from another stream");

    // Without `--continue`, nothing is imported into a log that is not empty.
    for full in [&local, &nats] {
        full.exits(4, &import).expect_output(&["is not empty", "--continue"]);
        full.ok(&format!("{import} --continue"));
    }
    let (head, all) = messages(&log);
    let half = place.write_file("half.jsonl", export_of(&head, &all[..all.len() / 2]));
    let begun = place.path().join("begun");
    Muster::local(&begun).ok(&format!("import {}", half.display()));
    Muster::local(&begun).ok(&format!("{import} --continue"));
    assert_eq!(
        export(&Muster::local(&begun), &place.path().join("begun.jsonl")),
        log,
        "after a continued import"
    );
    assert_unusable_exports_are_refused(&place, &log, &all);
    assert_replay_is_read_only(&place, &path, &shown);
}

/// Checks that nothing is imported from an unusable file, that invalid ranges are refused, and that
/// CloudEvents have the manifest of an export.
fn assert_unusable_exports_are_refused(place: &TestDir, log: &[u8], all: &[Message]) {
    let data = place.path().join("nothing");
    let local = Muster::local(&data);
    let text = String::from_utf8(log.to_vec()).unwrap();
    let dropped: String = text
        .lines()
        .filter(|line| !line.contains("\"position\":4,"))
        .map(|line| format!("{line}\n"))
        .collect();
    let cases = [
        ("truncated", log[..log.len() / 2].to_vec(), "truncated: no manifest"),
        ("altered", text.replace("garbage", "garbagE").into_bytes(), "altered: the manifest has sha256"),
        ("dropped", dropped.into_bytes(), "found position 5, expected position 4"),
        ("foreign", b"{\"a\":1}\n".to_vec(), "not a Muster export"),
        ("empty", vec![], "not a Muster export"),
    ];
    for (name, content, told) in cases {
        let file = place.write_file(name, content);
        local.exits(1, &format!("import {}", file.display())).expect_output(&[told]);
    }
    local.exits(3, "import nowhere.jsonl").expect_output(&["does not exist"]);
    assert!(!data.exists(), "no data folder was created");
    let source = Muster::local(&place.path().join("data"));
    let part = place.path().join("part.jsonl");
    source.ok(&format!("export {} --from 3 --to 5", part.display()));
    assert_eq!(messages(&fs::read(&part).unwrap()).1, all[2..5]);
    local.exits(2, &format!("import {}", part.display())).expect_output(&["starts at position 3"]);
    let end = all.len();
    for (range, told) in [
        (format!("--to {}", end + 1), format!("expected 1 to {end}")),
        ("--from 0".into(), "invalid position 0: expected 1 to".into()),
        ("--from 5 --to 3".into(), "empty range".into()),
        ("--to 2001-01-01T00:00:00Z".into(), "the first entry is later".into()),
        ("--from 2501-01-01T00:00:00Z".into(), "is in the future".into()),
    ] {
        let none = place.path().join("none.jsonl");
        source.exits(2, &format!("export {} {range}", none.display())).expect_output(&[&told]);
        assert!(!none.exists());
    }
    let events = source.ok("export - --format cloudevents --to 3").out;
    let first: Value = serde_json::from_str(events.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["specversion"], &first["type"], &first["id"]),
        (&"1.0".into(), &"muster.cluster.founded.v1".into(), &"1-0".into())
    );
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let file = place.path().join("events.jsonl");
    let told = source.json(&format!("export {} --format cloudevents", file.display()));
    assert_eq!(told, last["manifest"], "same manifest as an export of the same range");
    assert_parquet_matches(place, &source, &text);
}

/// Checks that a program without the feature `parquet` names the feature and leaves no file.
#[cfg(not(feature = "parquet"))]
fn assert_parquet_matches(place: &TestDir, source: &Muster, _: &str) {
    let file = place.path().join("events.parquet");
    source
        .exits(2, &format!("export {} --format parquet", file.display()))
        .expect_output(&["built without the feature parquet", "cargo build --features parquet"]);
    assert!(!file.exists());
}

/// Checks that the Parquet format contains the same events and the manifest.
#[cfg(feature = "parquet")]
fn assert_parquet_matches(place: &TestDir, source: &Muster, log: &str) {
    let file = place.path().join("events.parquet");
    let told = source.ok(&format!("export {} --format parquet", file.display()));
    told.expect_output(&["as columns", "; 2 messages without an entry"]);
    let reader = SerializedFileReader::new(fs::File::open(&file).unwrap()).unwrap();
    let kept = reader.metadata().file_metadata().key_value_metadata().unwrap();
    let manifest = kept.iter().find(|pair| pair.key == "muster.manifest").unwrap();
    let last: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert_eq!(serde_json::from_str::<Value>(manifest.value.as_ref().unwrap()).unwrap(), last["manifest"]);

    let events = source.ok("export - --format cloudevents").out;
    let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.len(), events.len());
    for (row, event) in rows.iter().zip(&events) {
        let (position, nth) = (row.get_long(0).unwrap(), row.get_long(1).unwrap());
        assert_eq!(event["id"], format!("{position}-{nth}"));
        assert_eq!(event["type"], format!("muster.{}", row.get_string(3).unwrap()));
        assert_eq!(event["actor"], row.get_string(7).unwrap().as_str());
        let cause = row.get_column_iter().nth(10).map(|(_, field)| field.to_string().replace('"', ""));
        assert_eq!(event["cause"].as_str().unwrap_or("null"), cause.unwrap(), "the cause, or null");
        let body: Value = serde_json::from_str(row.get_string(14).unwrap()).unwrap();
        assert_eq!(event["data"], body);
    }
}

/// Checks that an export can be inspected on another machine, where nothing is decided.
fn assert_replay_is_read_only(place: &TestDir, export: &Path, shown: &Value) {
    let data = place.path().join("replay");
    let path = export.display().to_string();
    let args = ["dev", "--from-export", &path, "--paused", "--data", data.to_str().unwrap()];
    let mut service = Service::start("replay", &place.path().join("replay.log"), &args, &[]);
    service.wait_for_log("read-only: queries are answered");
    let muster = Muster::local(&data);
    assert_eq!(muster.json("lrp list"), *shown);
    muster.ok("why web/0").expect_output(&["web/0"]);
    muster.ok("history lrp web").expect_output(&["tester"]);
    eventually("the tables are filled", || {
        let said = muster.run(&["sql", "SELECT count(*) AS n FROM desired_lrps", "-o", "json"]);
        ensure(said.code == 0 && said.json()[0]["n"] == 1, || format!("{said:?}"))
    });
    muster.exits(4, "lrp scale web=3").expect_output(&["read-only: this BBS serves queries"]);
    assert_eq!(service.interrupt().code(), Some(0));
    let paused = Muster::local(&place.path().join("unpaused"));
    paused.exits(2, &format!("dev --from-export {path}")).expect_output(&["--paused"]);
}

/// Copies a data folder and changes its journal by SQL.
fn changed(place: &TestDir, data: &Path, name: &str, sql: &str) -> Muster {
    let copy = place.path().join(name);
    fs::create_dir(&copy).unwrap();
    for name in ["journal.db", "journal.db-wal"].into_iter().filter(|name| data.join(name).exists()) {
        fs::copy(data.join(name), copy.join(name)).unwrap();
    }
    let script = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.executescript(sys.argv[2]); c.commit(); c.close()";
    let done = Command::new("python3").args(["-c", script]).arg(copy.join("journal.db")).arg(sql).output();
    let done = done.unwrap_or_else(|error| panic!("can't run python3: {error}; install Python 3"));
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Muster::local(&copy)
}

/// Returns the findings of a verification, each as its kind and position.
fn findings(muster: &Muster, line: &str) -> Vec<String> {
    let args: Vec<&str> = line.split_whitespace().chain(["-o", "json"]).collect();
    let said = muster.run(&args);
    let rows = said.json();
    let rows = rows.as_array().unwrap();
    assert_eq!(said.code, if rows.is_empty() { 0 } else { 9 }, "{said:?}");
    let place = |row: &Value| match (&row["position"], &row["last_position"]) {
        (from, until) if from == until => from.to_string(),
        (from, until) => format!("{from}-{until}"),
    };
    rows.iter().map(|row| format!("{} {}", row["kind"].as_str().unwrap(), place(row))).collect()
}

/// Data folder of a local cluster with two checkpoints, and an export of its log.
struct SignedLog {
    place: TestDir,
    data: PathBuf,
    checkpoints: String,
    export: String,
    public: String,
    /// Position of the first checkpoint, and end of the log.
    first: u64,
    end: u64,
}

fn signed_log() -> SignedLog {
    let place = TestDir::new();
    let dev = LocalCluster::start(&place, &[]);
    let file = place.write_file("web.toml", sleeper("web", 2));
    dev.muster.ok(&format!("apply {}", file.display()));
    dev.muster.wait_until_running("web", 2);
    let path = |name: &str| place.path().join(name).display().to_string();
    let (key, checkpoints, export) = (path("audit.key"), path("checkpoints.jsonl"), path("log.jsonl"));
    let made = dev.muster.json(&format!("audit keygen {key}"));
    dev.muster.exits(4, &format!("audit keygen {key}")).expect_output(&["never overwritten"]);
    let sign = format!("audit checkpoint {checkpoints} --key {key}");
    let first = dev.muster.json(&sign)["position"].as_u64().unwrap();
    dev.muster.ok("lrp scale web=1");
    dev.end(&place);
    let data = place.path().join("data");
    let muster = Muster::local(&data);
    let end = muster.json(&sign)["position"].as_u64().unwrap();
    assert!(first < end);
    muster.ok(&format!("export {export}"));
    let public = made["public_key"].as_str().unwrap().to_owned();
    SignedLog { place, data, checkpoints, export, public, first, end }
}

#[test]
fn every_change_of_a_journal_is_found_and_named() {
    let SignedLog { place, data, checkpoints, export, public, first, end } = signed_log();
    let muster = Muster::local(&data);
    let against = format!("audit verify --against {checkpoints}");
    let both = format!("{against} --against {export}");
    muster
        .ok(&format!("{both} --key {public}"))
        .expect_output(&["2 of 2 checkpoints hold", "every decision was legal"]);
    assert_eq!(findings(&muster, &both), [""; 0]);
    assert_eq!(findings(&muster, &format!("{against} --export {export}")), [""; 0]);

    let at = first - 1;
    let stretch = format!("range_differs 1-{first}");
    let shift = |by: &str| {
        format!(
            "UPDATE entry SET position = -position WHERE position > {at}; UPDATE entry SET position = -position {by} WHERE position < 0;"
        )
    };
    let altered = format!(
        "UPDATE entry SET bytes = CAST(replace(CAST(bytes AS TEXT), '\"format\":1', '\"format\":2') AS BLOB) WHERE position = {at}"
    );
    let dropped = format!("DELETE FROM entry WHERE position = {at}; {}", shift("- 1"));
    let gap = format!("DELETE FROM entry WHERE position = {at}");
    let inserted = format!(
        "{} INSERT INTO entry SELECT {at} + 1, subject, id, bytes FROM entry WHERE position = 2;",
        shift("+ 1")
    );
    let swapped = format!(
        "UPDATE entry SET position = 1000000 WHERE position = {at}; UPDATE entry SET position = {at} WHERE position = {first}; UPDATE entry SET position = {first} WHERE position = 1000000;"
    );
    for (name, sql, exact) in [
        ("altered", altered, format!("altered {at}")),
        ("dropped", dropped, format!("missing {at}")),
        ("gap", gap, format!("missing {at}")),
        ("inserted", inserted, format!("inserted {first}")),
        ("swapped", swapped, format!("moved {at}")),
    ] {
        let copy = changed(&place, &data, name, &sql);
        let by_chain = findings(&copy, &against);
        assert!(by_chain.contains(&stretch), "{name}: {by_chain:?}");
        let by_export = findings(&copy, &format!("audit verify --against {export}"));
        assert!(by_export.contains(&exact), "{name}: {by_export:?}");
    }
    assert_log_with_gap_is_not_exported(&place, at);
    let damaged = format!(
        "UPDATE entry SET id = x'010203' WHERE position = {at}; UPDATE entry SET subject = CAST(x'ff' AS TEXT) WHERE position = {first}"
    );
    let told = findings(&changed(&place, &data, "damaged", &damaged), &against);
    for exact in [format!("altered {at}"), format!("invalid_entry {first}")] {
        assert!(told.contains(&exact), "{told:?}");
    }
    assert_deleted_messages_are_found(&place, &export, &against, (first, end));
    let cut = changed(&place, &data, "cut", &format!("DELETE FROM entry WHERE position > {first}"));
    assert_eq!(
        findings(&cut, &against),
        [format!(
            "missing {}",
            if end == first + 1 { end.to_string() } else { format!("{}-{end}", first + 1) }
        )]
    );
    cut.exits(
        9,
        &format!("audit checkpoint {checkpoints} --key {}", place.path().join("audit.key").display()),
    )
    .expect_output(&["entries are lost"]);
}

#[cfg(feature = "parquet")]
const EXPORT_FORMATS: [&str; 3] = ["jsonl", "cloudevents", "parquet"];
#[cfg(not(feature = "parquet"))]
const EXPORT_FORMATS: [&str; 2] = ["jsonl", "cloudevents"];

/// Checks that a log with a gap can't be exported or bundled, and that no partial output is left.
fn assert_log_with_gap_is_not_exported(place: &TestDir, at: u64) {
    let gap = Muster::local(&place.path().join("gap"));
    for format in EXPORT_FORMATS {
        let file = place.path().join("gap.out");
        let line = format!("export {} --format {format}", file.display());
        gap.exits(1, &line).expect_output(&[&format!("position {at} is missing")]);
        assert!(!file.exists());
    }
    gap.exits(1, &format!("bundle --around -0s {}", place.path().join("broken").display()));
    let left = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().contains("broken")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Checks that deleted messages of a stream are found and that the remaining messages can be exported.
fn assert_deleted_messages_are_found(place: &TestDir, export: &str, against: &str, (first, end): (u64, u64)) {
    let server = Server::start(place);
    let nats = Muster::nats(&server.url());
    nats.ok(&format!("import {export}"));
    let mut plain = PlainClient::connect(&server.url(), "spoiler");
    let mut config = plain.request_json("$JS.API.STREAM.INFO.MUSTER", &json!({}))["config"].clone();
    plain.request_json("$JS.API.STREAM.DELETE.MUSTER", &json!({}));
    config["deny_delete"] = json!(false);
    plain.request_json("$JS.API.STREAM.CREATE.MUSTER", &config);
    let (_, all) = messages(&fs::read(export).unwrap());
    for message in &all {
        plain.request(&message.subject, &message.bytes);
    }
    let mut delete = |position: u64| {
        let done = plain.request_json("$JS.API.STREAM.MSG.DELETE.MUSTER", &json!({"seq": position}));
        assert_eq!(done["success"], true, "{done}");
    };
    let at = first - 1;
    delete(at);
    let told = findings(&nats, against);
    assert!(told.contains(&format!("missing {at}")), "{told:?}");
    let rest = place.path().join("rest.jsonl");
    nats.ok(&format!("export {} --from {first}", rest.display()));
    assert_eq!(messages(&fs::read(rest).unwrap()).1.len() as u64, end - at);
    let (key, new) = (place.path().join("audit.key"), place.path().join("never.jsonl"));
    nats.exits(9, &format!("audit checkpoint {} --key {}", new.display(), key.display()))
        .expect_output(&[&format!("no entry at position {at}")]);
    assert!(!new.exists());
    delete(end);
    let told = findings(&nats, against);
    assert!(told.contains(&format!("missing {end}")), "{told:?}");
}

#[test]
fn keys_signatures_and_illegal_decisions_are_verified() {
    let SignedLog { place, data, checkpoints, export, first, .. } = signed_log();
    let muster = Muster::local(&data);
    let other = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";
    let against = format!("audit verify --against {checkpoints}");
    assert_eq!(findings(&muster, &format!("{against} --key {other}"))[0], format!("key {first}"));
    let text = fs::read_to_string(&checkpoints).unwrap();
    let changed = text.replacen(&format!("\"position\":{first}"), &format!("\"position\":{}", first - 1), 1);
    let file = place.write_file("forged.jsonl", changed);
    let told = findings(&muster, &format!("audit verify --against {}", file.display()));
    assert!(told.contains(&format!("signature {}", first - 1)), "{told:?}");
    let empty = place.write_file("empty.jsonl", "");
    assert_eq!(findings(&muster, &format!("audit verify --against {}", empty.display())), ["checkpoint 0"]);
    let wrong = place.write_file("wrong.jsonl", "{\"a\":1}\n".repeat(10));
    let said = muster.exits(2, &format!("audit verify --against {}", wrong.display()));
    said.expect_output(&["is neither a checkpoint file nor an export"]);
    // A file that is signed with another key is not continued. A line that could not be written leaves
    // nothing behind.
    let (key, other) = (place.path().join("audit.key"), place.path().join("other.key"));
    muster.ok(&format!("audit keygen {}", other.display()));
    let sign = |key: &Path| format!("audit checkpoint {checkpoints} --key {}", key.display());
    muster.exits(4, &sign(&other)).expect_output(&["is signed by key", "--key"]);
    assert_eq!(fs::read_to_string(&checkpoints).unwrap(), text);
    assert_failed_checkpoint_changes_nothing(&place, &data, &text, &key);
    // Checkpoints and log of different clusters.
    let elsewhere = TestDir::new();
    LocalCluster::start(&elsewhere, &[]).end(&elsewhere);
    let strange = Muster::local(&elsewhere.path().join("data"));
    assert!(findings(&strange, &against)[0].starts_with("cluster "));
    let import = format!("import {export} --continue");
    strange.exits(4, &import).expect_output(&["is not empty", "differs from"]);
    muster.exits(1, &format!("audit checkpoint {} --key {export}", place.path().join("new.jsonl").display()));
    // A decision that no service makes, in an otherwise intact log.
    let (head, all) = messages(&fs::read(&export).unwrap());
    let illegal = with_illegal_claim(all);
    let file = place.write_file("illegal.jsonl", export_of(&head, &illegal));
    let told = findings(&muster, &format!("audit verify --export {}", file.display()));
    let at = illegal.len();
    assert!(told.contains(&format!("illegal {at}")), "{told:?}");
    assert_quarantined_entry_is_no_finding(&place, &muster, &head, &messages(&fs::read(&export).unwrap()).1);
    let truncated = place.write_file("truncated.jsonl", &fs::read(&export).unwrap()[..2_000]);
    let told = findings(&muster, &format!("audit verify --export {}", truncated.display()));
    assert!(told.iter().any(|one| one.starts_with("missing ")), "{told:?}");
}

/// Checks that a checkpoint leaves its file unchanged if there is no space for it.
fn assert_failed_checkpoint_changes_nothing(place: &TestDir, data: &Path, checkpoints: &str, key: &Path) {
    let most = 1024 * 1024;
    let blank = "\n".repeat(most - checkpoints.len() - 100);
    let file = place.write_file("full.jsonl", blank + checkpoints);
    let before = fs::read(&file).unwrap();
    let script = "import os, resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); \
                  resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2); os.execv(sys.argv[2], sys.argv[2:])";
    let line = format!("audit checkpoint {} --key {}", file.display(), key.display());
    let mut within = Command::new("python3");
    within
        .args(["-c", script, &most.to_string(), env!("CARGO_BIN_EXE_muster")])
        .args(line.split_whitespace());
    let said = within.arg("--data").arg(data).output().unwrap();
    let told = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.code() == Some(1) && told.contains("can't write"), "{said:?}");
    assert!(fs::read(&file).unwrap() == before, "the file is unchanged");
    Muster::local(data).ok(&line);
}

/// Checks that a quarantined entry of a later program is reported without an alarm. If this program can read
/// the entry, that is reported as well.
fn assert_quarantined_entry_is_no_finding(
    place: &TestDir,
    muster: &Muster,
    head: &audit::export::Header,
    all: &[Message],
) {
    let aside = all.len() as u64 + 1;
    let reason = "a trial".into();
    let record = cluster::Event::EntryQuarantined { position: schemas::Position(aside), reason };
    let ada = ClientName::new("ada").unwrap();
    let record =
        following_message(all, "muster.event.cluster", Actor::Operator(ada), vec![Event::Cluster(record)]);
    let about = all.iter().rfind(|one| one.subject.starts_with("muster.event.lrp.")).unwrap();
    let newer = following_message(all, &about.subject, Actor::Bbs(ServiceId::new("b").unwrap()), vec![]);
    let mut then = all.to_vec();
    then.push(newer.clone());
    let mut later =
        following_message(&then, &about.subject, Actor::Bbs(ServiceId::new("b").unwrap()), vec![]);
    let mut entry = Entry::decode(&later.bytes).unwrap();
    let cause = Entry::decode(&newer.bytes).unwrap().decisions[0].id;
    (entry.decisions[0].cause, entry.decisions[0].correlation) = (Some(cause), cause);
    later.bytes = entry.encode();
    let text = String::from_utf8(newer.bytes.clone()).unwrap();
    let unreadable = text.replace("\"events\":[]", "\"events\":[{\"actual\":{\"painted.v9\":{}}}]");
    assert_ne!(unreadable, text);
    let unreadable = Message { bytes: unreadable.into_bytes(), ..newer.clone() };
    for (name, stands, is_noted) in [("unreadable", unreadable, false), ("readable", newer, true)] {
        let log = [all, &[stands, record.clone(), later.clone()]].concat();
        let file = place.write_file(&format!("{name}.jsonl"), export_of(head, &log));
        let said = muster.ok(&format!("audit verify --export {}", file.display()));
        let said =
            said.expect_output(&[&format!("1 position quarantined by operators ({aside})"), "was legal"]);
        assert_eq!(said.err.contains("this version can read"), is_noted, "{said:?}");
    }
}

/// Returns a message with a decision that follows the last one on a subject, about the same aggregate.
fn following_message(all: &[Message], subject: &str, actor: Actor, events: Vec<Event>) -> Message {
    let on = all.iter().filter(|one| one.subject == subject);
    let last = on.filter_map(|one| Entry::decode(&one.bytes).ok()).next_back().unwrap();
    let before = last.decisions.last().unwrap().clone();
    let id = schemas::names::DecisionId(uuid::Uuid::from_u128(before.id.0.as_u128() + 1));
    let decision = schemas::Decision {
        id,
        version: before.version + 1,
        at: schemas::Timestamp(before.at.0 + 1),
        actor,
        request_id: None,
        request_digest: None,
        cause: None,
        correlation: id,
        events,
        ..before
    };
    let id = schemas::names::EntryId(uuid::Uuid::from_u128(last.id.0.as_u128() + 1));
    let bytes = Entry { id, decisions: vec![decision], ..last }.encode();
    Message { position: schemas::Position(0), subject: subject.into(), id: Some(id), bytes }
}

/// Appends a claim, by another container, of an instance that already runs or is gone.
fn with_illegal_claim(mut all: Vec<Message>) -> Vec<Message> {
    let claim = |message: &Message| {
        let entry = Entry::decode(&message.bytes).ok()?;
        let claims = String::from_utf8_lossy(&message.bytes).contains("claimed.v1");
        claims.then(|| (message.clone(), entry))
    };
    let (message, mut entry) = all.iter().find_map(claim).unwrap();
    let last = all.iter().filter(|one| one.subject == message.subject);
    let last = last.filter_map(|one| Entry::decode(&one.bytes).ok()).next_back().unwrap();
    let decision = last.decisions.last().unwrap();
    for (nth, again) in (1..).zip(&mut entry.decisions) {
        again.id.0 = uuid::Uuid::from_u128(again.id.0.as_u128() + 1);
        again.version = decision.version + nth;
        again.at = schemas::Timestamp(decision.at.0 + nth);
        for event in &mut again.events {
            if let Event::Actual(actual::Event::Claimed { by, .. }) = event {
                by.instance_guid.0 = uuid::Uuid::from_u128(7);
            }
        }
    }
    entry.id.0 = uuid::Uuid::from_u128(entry.id.0.as_u128() + 1);
    all.push(Message { id: Some(entry.id), bytes: entry.encode(), ..message });
    all
}

#[test]
fn incident_bundle_is_replayed() {
    let place = TestDir::new();
    let dev = LocalCluster::start(&place, &[]);
    let file = place.write_file("web.toml", sleeper("web", 1));
    let position = dev.muster.json(&format!("apply {}", file.display()));
    dev.muster.wait_until_running("web", 1);
    let folder = place.path().join("incident");
    dev.muster.ok(&format!("bundle --around -0s {}", folder.display()));
    dev.muster
        .exits(4, &format!("bundle --around -0s {}", folder.display()))
        .expect_output(&["already exists"]);
    // The next bundle covers a time without events.
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    let quiet = place.path().join("quiet");
    dev.muster.ok(&format!("bundle --around -1s --minutes 0 {}", quiet.display()));
    dev.end(&place);
    let shown = |folder: &Path| fs::read_to_string(folder.join("events.txt")).unwrap();
    assert!(shown(&folder).contains("web/0"), "{}", shown(&folder));
    assert!(!shown(&quiet).is_empty());
    for name in ["README.md", "status.txt", "cluster.txt", "cells.txt", "instances.txt", "events.txt"] {
        assert!(!fs::read_to_string(folder.join(name)).unwrap().is_empty(), "{name}");
    }
    let said = fs::read_to_string(folder.join("instances.txt")).unwrap();
    assert!(said.contains("web/0"), "{said} {position}");
    let log = folder.join("log.jsonl");
    let data = place.path().join("replay");
    let args = ["dev", "--from-export", log.to_str().unwrap(), "--paused", "--data", data.to_str().unwrap()];
    let mut service = Service::start("replay", &place.path().join("replay.log"), &args, &[]);
    service.wait_for_log("read-only: queries are answered");
    assert_eq!(Muster::local(&data).instances("web").unwrap().len(), 1);
    service.interrupt();
}
