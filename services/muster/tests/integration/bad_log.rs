//! Invalid streams and entries, and data folders that a service must refuse.

use std::collections::BTreeSet;

use schemas::checksum::crc32c;
use serde_json::{Value, json};

use crate::dev::sleeper;
use crate::support::cluster::Server;
use crate::support::containers::{processes_in, running_in};
use crate::support::plain::PlainClient;
use crate::support::test_dir::ensure;
use crate::support::{Cluster, Muster, Service, eventually};

/// Returns the configuration of Muster's stream with these fields replaced.
fn stream_config(otherwise: Value) -> Value {
    let mut config = json!({"name": "MUSTER", "subjects": ["muster.event.>"], "storage": "file", "retention": "limits",
        "discard": "new", "deny_delete": true, "deny_purge": true, "allow_direct": true, "num_replicas": 1,
        "max_msgs": -1, "max_bytes": -1, "max_age": 0, "max_msgs_per_subject": -1});
    let Value::Object(otherwise) = otherwise else { panic!("not a JSON object") };
    otherwise.into_iter().for_each(|(name, value)| config[name] = value);
    config
}

/// Returns the last position of the log, as reported by the server.
fn end(plain: &mut PlainClient) -> u64 {
    let info = plain.request("$JS.API.STREAM.INFO.MUSTER", b"").json();
    info["state"]["last_seq"].as_u64().unwrap_or_else(|| panic!("{info}"))
}

/// Appends bytes to the log directly, bypassing the BBS. Returns the position of the bytes.
fn append_raw(plain: &mut PlainClient, subject: &str, bytes: &[u8]) -> u64 {
    let stored = plain.request(subject, bytes).json();
    stored["seq"].as_u64().unwrap_or_else(|| panic!("{stored}"))
}

/// Returns an entry with its checksum, in the encoding that every program writes.
fn with_checksum(entry: &Value) -> Vec<u8> {
    let text = entry.to_string();
    let body = text.strip_prefix('{').unwrap();
    format!("{{\"crc32c\":\"{:08x}\",{body}", crc32c(body.as_bytes())).into_bytes()
}

/// Waits until a service exits with status 1, and returns its log.
fn wait_for_failure(service: Service) -> String {
    let log = service.log_path().to_owned();
    let status = service.wait();
    let said = std::fs::read_to_string(log).unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    said
}

#[test]
fn stream_that_may_drop_entries_is_refused() {
    let mut cluster = Cluster::unfounded();
    let mut plain = cluster.plain("admin");
    let configured = [
        (json!({"max_msgs": 1000, "discard": "old"}), "max_msgs with discard old drops entries"),
        (
            json!({"max_age": 3_600_000_000_000_u64, "duplicate_window": 1_000_000_000}),
            "max_age drops entries",
        ),
        (json!({"max_msgs_per_subject": 1}), "max_msgs_per_subject drops entries"),
        (json!({"storage": "memory"}), "storage isn't file"),
        (json!({"deny_delete": false}), "deny_delete isn't set"),
        (json!({"deny_purge": false, "retention": "interest"}), "retention isn't limits"),
        (json!({"subjects": ["muster.event.lrp.*"]}), "its subjects aren't exactly muster.event.>"),
    ];
    for (otherwise, told) in configured {
        // The server removes the previous stream with a delay.
        eventually("the stream is created", || {
            let made = plain.request_json("$JS.API.STREAM.CREATE.MUSTER", &stream_config(otherwise.clone()));
            ensure(made["error"].is_null(), || made.to_string())
        });
        for name in ["bbs-1", "auctioneer-1"] {
            cluster.start_service(name);
            let said = wait_for_failure(cluster.services.remove(name).unwrap());
            assert!(said.contains("the journal is refused") && said.contains(told), "{otherwise}: {said}");
            std::fs::remove_file(cluster.place.path().join(format!("{name}.log"))).unwrap();
        }
        let state = plain.request("$JS.API.STREAM.INFO.MUSTER", b"").json();
        assert_eq!(state["state"]["messages"], 0, "nothing was written");
        let deleted = plain.request("$JS.API.STREAM.DELETE.MUSTER", b"").json();
        assert_eq!(deleted["success"], true, "{deleted}");
    }
    // Without a stream, founding a cluster creates a correct one.
    cluster.found();
    ["bbs-1", "auctioneer-1", "rep-c1"].iter().for_each(|name| cluster.start_service(name));
    cluster.wait_until_ready(1);
}

#[test]
fn entry_of_later_format_stops_services_until_quarantined() {
    let future =
        json!({"id": "00000000-0000-7000-8000-000000000001", "format": 99, "decisions": {"new": "shape"}});
    let told = "entry has format 99, but this program reads formats up to 1: upgrade this program";
    assert_stops_at(&future, told);
}

#[test]
fn unknown_event_stops_services_until_quarantined() {
    let decision = json!({"id": "00000000-0000-7000-8000-000000000002", "aggregate": {"cell": "c1"}, "version": 9,
        "at": "1970-01-01T00:00:00.000000001Z", "actor": {"bbs": "later"}, "correlation": "00000000-0000-7000-8000-000000000002",
        "events": [{"cell": {"painted.v1": {"colour": "blue"}}}]});
    let unknown = json!({"id": "00000000-0000-7000-8000-000000000001", "format": 1, "decisions": [decision]});
    assert_stops_at(&unknown, "entry contains an unknown event");
}

/// Checks that no service decides after an entry that this program does not understand. The entry is visible,
/// and no data is lost. After an operator quarantines the entry, all services continue.
fn assert_stops_at(entry: &Value, told: &str) {
    let mut cluster = Cluster::start(&["bbs-1", "bbs-2", "auctioneer-1", "rep-c1"]);
    let file = cluster.place.write_file("web.toml", sleeper("web", 2));
    cluster.muster().ok(&format!("apply {}", file.display()));
    let running = running_in(cluster.place.path());
    let mut plain = cluster.plain("later");
    let at = append_raw(&mut plain, "muster.event.cell.c1", &with_checksum(entry));
    cluster.place.print_event(&format!("an entry of a later version is at position {at}"));

    for name in ["bbs-1", "bbs-2", "auctioneer-1"] {
        let bbs = cluster.services.get_mut(name).unwrap();
        bbs.wait_for_log(&format!("position {at}: {told}"));
        bbs.wait_for_log("No data is lost");
    }
    cluster
        .muster()
        .exits(5, "lrp scale web=1 --timeout 2s")
        .expect_output(&[&format!("position {at}: {told}")]);
    cluster.muster().exits(5, "cluster show --timeout 1s").expect_output(&["this BBS has stopped", told]);

    assert_unknown_entry_is_shown(&cluster, at, told);
    let list = cluster.muster().ok("events list").out;
    assert!(list.lines().any(|line| line.contains("unknown entry on muster.event.cell.c1")), "{list}");
    assert_eq!(end(&mut plain), at, "no entry was written after it");
    assert_eq!(running_in(cluster.place.path()), running, "containers keep running");

    // A service that starts later also stops at the entry. On an interrupt at the entry, it exits with status
    // 1.
    cluster.start_service("bbs-3");
    cluster.services.get_mut("bbs-3").unwrap().wait_for_log(&format!("position {at}: {told}"));
    assert_unknown_entry_is_shown(&cluster, at, told);
    let status = cluster.services.remove("bbs-1").unwrap().interrupt();
    assert_eq!(status.code(), Some(1));
    assert_eq!(end(&mut plain), at);

    let reader = cluster.muster();
    reader
        .exits(2, &format!("journal quarantine {at}"))
        .expect_output(&["no reason is set", "--reason TEXT"]);
    reader
        .exits(1, "journal quarantine 1 --reason no")
        .expect_output(&["has an entry that this program can read"]);
    reader.exits(3, &format!("journal quarantine {} --reason no", at + 1)).expect_output(&["does not exist"]);
    assert_eq!(end(&mut plain), at, "refused commands write nothing");
    reader
        .ok(&format!("journal quarantine {at} --reason trial"))
        .expect_output(&[&format!("{at} is quarantined")]);
    // Every service continues without a restart.
    cluster.wait_until_ready(1);
    cluster.wait_until_settled(&[("web", 2)]);
    assert_eq!(running_in(cluster.place.path()), running, "containers keep running");
    cluster.muster().ok("lrp scale web=3 --timeout 60s");
    cluster.wait_until_settled(&[("web", 3)]);
    for name in ["bbs-2", "bbs-3", "auctioneer-1"] {
        // A standby may be the last service to read the quarantine. Before it reads the quarantine, it
        // reports the same position as before.
        cluster.services.get_mut(name).unwrap().wait_for_log("quarantined by an operator: trial");
        assert!(!cluster.services.get_mut(name).unwrap().has_exited(), "{name}");
    }
    assert_quarantine_is_shown(&cluster, at);
    // A repeated quarantine of the entry appends nothing. A service that starts later also skips the entry.
    let end = end(&mut plain);
    cluster.muster().ok(&format!("journal quarantine {at} --reason again"));
    assert!(
        !cluster.entries().iter().any(|entry| entry["position"].as_u64().unwrap() > end
            && entry.to_string().contains("entry_quarantined"))
    );
    ["bbs-2", "bbs-3"].iter().for_each(|name| cluster.kill9(name));
    cluster.start_service("bbs-4");
    cluster.muster().ok("lrp scale web=1 --timeout 60s");
    assert_quarantine_is_shown(&cluster, at);
}

/// Checks that the operator and the reason of the quarantine are shown.
fn assert_quarantine_is_shown(cluster: &Cluster, at: u64) {
    let shown = cluster.muster().json(&format!("events show {at}"));
    let why = shown["entry"]["unknown"]["reason"].as_str().unwrap_or_else(|| panic!("{shown}"));
    assert_eq!(why, "quarantined by an operator: trial");
    for line in ["events list", "events list --about cluster"] {
        let list = cluster.muster().ok(line).out;
        let told = format!("position {at} quarantined: trial");
        let told = list.lines().find(|line| line.contains(&told)).unwrap_or_else(|| panic!("{list}"));
        assert!(told.contains("operator tester"), "{told}");
    }
    let shown = cluster.muster().ok("cluster show").out;
    assert!(shown.contains("quarantined by an operator: trial"), "{shown}");
}

/// Returns an entry of a format that this version can't read.
fn entry_of_later_format() -> Vec<u8> {
    with_checksum(
        &json!({"id": "00000000-0000-7000-8000-000000000001", "format": 99, "decisions": {"new": "shape"}}),
    )
}

#[test]
fn entry_is_quarantined_without_a_running_bbs() {
    let mut cluster = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c1"]);
    let file = cluster.place.write_file("web.toml", sleeper("web", 1));
    cluster.muster().ok(&format!("apply {}", file.display()));
    let at = append_raw(&mut cluster.plain("later"), "muster.event.cluster", &entry_of_later_format());
    cluster.services.get_mut("bbs-1").unwrap().wait_for_log("entry has format 99");
    cluster.kill9("bbs-1");
    let set_aside = format!("journal quarantine {at} --reason trial --timeout 1s");
    cluster.muster().exits(1, "journal quarantine 2 --reason no --timeout 1s").expect_output(&["can read"]);
    cluster.muster().ok(&set_aside);
    cluster.start_service("bbs-1");
    cluster.wait_until_ready(1);
    cluster.muster().ok("lrp scale web=2 --timeout 60s");
    cluster.wait_until_settled(&[("web", 2)]);
    assert_quarantine_is_shown(&cluster, at);
}

/// Appends an entry of a later format to the journal of an unused data folder. Returns its position.
fn append_to_folder(data: &std::path::Path) -> u64 {
    use journal::{Append, Journal, Sqlite};
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let journal = Journal::Sqlite(Sqlite::open(data).await.unwrap());
        let subject = schemas::Subject::Domain(schemas::names::Domain::new("later").unwrap());
        let entry = schemas::names::EntryId(schemas::names::IdGenerator::new(1).next(schemas::Timestamp(0)));
        let bytes = entry_of_later_format().into();
        let append = Append { subject, expected: schemas::Position(0), entry, bytes };
        let position = journal.append(append).await.unwrap();
        journal.close().await;
        position.0
    })
}

#[test]
fn entry_of_data_folder_is_quarantined() {
    let place = crate::support::TestDir::new();
    let data = place.path().join("data");
    let muster = Muster::local(&data);
    let file = place.write_file("web.toml", sleeper("web", 1));
    let dev = |name: &str| {
        let args = ["dev", "--plain", "--data", data.to_str().unwrap()];
        Service::start("dev", &place.path().join(name), &args, &[])
    };
    let first = dev("first.log");
    eventually("the cluster accepts commands", || muster.try_json("cluster show").map(drop));
    muster.ok(&format!("apply {}", file.display()));
    assert_eq!(first.interrupt().code(), Some(0));
    let at = append_to_folder(&data);
    muster.exits(2, &format!("journal quarantine {at}"));
    muster.exits(1, "journal quarantine 1 --reason no").expect_output(&["can read"]);
    muster.exits(3, "journal quarantine 99999 --reason no").expect_output(&["does not exist"]);
    muster.ok(&format!("journal quarantine {at} --reason offline"));
    let second = dev("second.log");
    muster.wait_until_running("web", 1);
    assert!(muster.ok("cluster show").out.contains("quarantined by an operator: offline"));
    assert_eq!(second.interrupt().code(), Some(0));
}

#[test]
fn duplicate_of_old_entry_is_quarantined() {
    let cluster = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c1"]);
    let file = cluster.place.write_file("web.toml", sleeper("web", 1));
    cluster.muster().ok(&format!("apply {}", file.display()));
    cluster.wait_until_settled(&[("web", 1)]);
    let mut plain = cluster.plain("vandal");
    let old = cluster
        .entries()
        .into_iter()
        .find(|entry| entry["subject"].as_str().unwrap().contains(".lrp."))
        .unwrap();
    let (first, subject) = (old["position"].as_u64().unwrap(), old["subject"].as_str().unwrap().to_owned());
    let bytes = plain.request("$JS.API.DIRECT.GET.MUSTER", json!({"seq": first}).to_string().as_bytes());
    let again = append_raw(&mut plain, &subject, &bytes.payload);
    eventually("the entry is quarantined", || {
        let shown = cluster.muster().json(&format!("events show {again}"));
        let why = shown["entry"]["unknown"]["reason"].as_str().ok_or_else(|| shown.to_string())?;
        ensure(why == format!("repeated entry: first written at position {first}"), || why.to_owned())
    });
    let shown = cluster.muster().json(&format!("events show {first}"));
    assert!(shown["entry"]["unknown"].is_null(), "{shown}");
    cluster.muster().ok("lrp scale web=2 --timeout 60s");
    cluster.wait_until_settled(&[("web", 2)]);
    cluster
        .muster()
        .exits(1, &format!("journal quarantine {again} --reason no"))
        .expect_output(&["can read"]);
}

#[test]
fn unreadable_log_is_an_error_and_not_an_empty_log() {
    let mut cluster = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c1"]);
    let mut plain = cluster.plain("vandal");
    // A block of the stream has 8 MiB. These messages fill the first block, which contains the founding of
    // the cluster.
    for _ in 0..12 {
        append_raw(&mut plain, "muster.event.strange.subject", &[b'x'; 900_000]);
    }
    drop(plain);
    ["bbs-1", "auctioneer-1", "rep-c1"].iter().for_each(|name| cluster.kill9(name));
    let block = cluster.server.blocks().join("1.blk");
    cluster.server.stop();
    let whole = std::fs::read(&block).unwrap();
    std::fs::write(&block, [&b"cmp\x01"[..], &whole[4..]].concat()).unwrap();
    cluster.server.restart();

    let why = "for position 1, though its stream MUSTER holds positions 1 to ";
    ["bbs-2", "auctioneer-2"].iter().for_each(|name| cluster.start_service(name));
    let tables = format!("sqlite:{}", cluster.place.path().join("tables.db").display());
    cluster.spawn("projector-1", &["projector", "--database", &tables]);
    for name in ["bbs-2", "auctioneer-2", "projector-1"] {
        let service = cluster.services.get_mut(name).unwrap();
        service.wait_for_log("ERROR");
        service.wait_for_log("the journal cannot be read");
        service.wait_for_log(why);
    }
    let muster = cluster.muster();
    let file = cluster.place.path().join("log.jsonl").display().to_string();
    muster.exits(1, &format!("export {file}")).expect_output(&[why]);
    let report = muster.run(&["doctor", "-o", "json"]).expect_status(9).json();
    let entries = report["checks"].as_array().unwrap().iter().find(|check| check["check"] == "entries");
    let entries = entries.unwrap();
    assert_eq!(entries["outcome"], "failed", "{entries}");
    assert!(entries["found"].as_str().unwrap().contains("position 1 can't be read"), "{entries}");

    cluster.server.stop();
    std::fs::write(&block, whole).unwrap();
    cluster.server.restart();
    eventually("a BBS leads again", || {
        let row = cluster.muster().try_json("cluster show")?;
        ensure(!row["bbs"].is_null(), || row.to_string())
    });
    cluster.muster().ok(&format!("export {file}"));
}

#[test]
fn auctioneer_needs_no_permission_to_create_streams_or_entries() {
    let place = crate::support::TestDir::new();
    let users = r#"authorization { users: [
        { user: all, password: pw }
        { user: auctioneer, password: pw, permissions: { publish: { deny: [
            "$JS.API.STREAM.CREATE.>", "$JS.API.STREAM.UPDATE.>", "muster.event.>", "muster.client.>",
            "muster.operator.>", "muster.cell.*.bbs.>" ] } } }
    ] }"#;
    let server = Server::start_with(&place, users);
    let url = |user: &str| server.url().replace("nats://", &format!("nats://{user}:pw@"));
    let start = |name: &str, user: &str, args: &[&str]| {
        let log = place.path().join(format!("{name}.log"));
        Service::start(name, &log, args, &[("MUSTER_NATS_URL", &url(user))])
    };
    let mut auctioneer = start("auctioneer", "auctioneer", &["auctioneer"]);
    auctioneer.wait_for_log("no cluster: the stream MUSTER does not exist");
    Muster::nats(&url("all")).ok("cluster found");
    let _bbs = start("bbs", "all", &["bbs"]);
    let data = place.path().join("rep-c1").display().to_string();
    let _rep = start("rep-c1", "all", &["rep", "--cell", "c1", "--zone", "z1", "--data", &data]);
    let muster = Muster::nats(&url("all"));
    eventually("the cluster is ready", || {
        let row = muster.try_json("cluster show")?;
        ensure(!row["auctioneer"].is_null() && row["cells"]["PRESENT"] == 1, || row.to_string())
    });
    let file = place.write_file("web.toml", sleeper("web", 1));
    muster.ok(&format!("apply {}", file.display()));
    muster.wait_until_running("web", 1);
    assert!(!auctioneer.has_exited(), "{}", auctioneer.log());
}

fn assert_unknown_entry_is_shown(cluster: &Cluster, at: u64, told: &str) {
    let entry = cluster.muster().json(&format!("events show {at}"));
    let unknown = &entry["entry"]["unknown"];
    assert!(unknown["reason"].as_str().unwrap().starts_with(told), "{entry}");
    assert!(unknown["raw"].as_str().unwrap().contains("00000000-0000-7000-8000-000000000001"), "{entry}");
}

#[test]
fn malformed_messages_are_quarantined() {
    let mut cluster = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c1"]);
    let mut plain = cluster.plain("vandal");
    let mut put_there = BTreeSet::new();
    let garbage: [(&str, &[u8]); 6] = [
        ("muster.event.lrp.1", br#"{"format":99}"#),
        ("muster.event.cell.c1", b"garbage"),
        ("muster.event.lrp.0", b""),
        ("muster.event.lrp.0", b"{\"id\": 1}"),
        ("muster.event.strange.subject", b"{}"),
        ("muster.event.cluster", &[0xff; 100]),
    ];
    for (subject, bytes) in garbage {
        put_there.insert(append_raw(&mut plain, subject, bytes));
    }
    // These messages occupy positions that services expected for their own entries. The services decide again
    // and continue.
    let file = cluster.place.write_file("web.toml", sleeper("web", 2));
    cluster.muster().ok(&format!("apply {}", file.display()));
    cluster.wait_until_settled(&[("web", 2)]);
    let unknown = |entry: &&Value| entry["entry"]["unknown"].is_object();
    let log = cluster.entries();
    let found: BTreeSet<u64> =
        log.iter().filter(unknown).map(|entry| entry["position"].as_u64().unwrap()).collect();
    assert_eq!(found, put_there);
    let aside = cluster.muster().json("cluster show")["quarantined_entries"].clone();
    assert_eq!(aside["count"], put_there.len(), "{aside}");
    let last = aside["last"].as_array().unwrap().iter();
    let last: BTreeSet<u64> = last.map(|one| one["position"].as_u64().unwrap()).collect();
    assert_eq!(last, put_there);
    let shown = cluster.muster().ok("cluster show").out;
    assert!(shown.contains("6 malformed entries"), "{shown}");
    assert!(shown.contains("muster.event.strange.subject is not a subject of Muster"), "{shown}");
    // A restarted service also skips these messages.
    for name in ["bbs-1", "auctioneer-1"] {
        cluster.kill9(name);
        cluster.start_service(name);
    }
    cluster.muster().ok("lrp scale web=3 --timeout 60s");
    cluster.wait_until_settled(&[("web", 3)]);
}

#[test]
fn data_folder_of_another_cluster_is_refused() {
    let mut one = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c1"]);
    let file = one.place.write_file("web.toml", sleeper("web", 1));
    one.muster().ok(&format!("apply {}", file.display()));
    one.kill9("rep-c1");
    let running = running_in(one.place.path());

    let other = Cluster::start(&["bbs-1", "auctioneer-1"]);
    let data = one.place.path().join("rep-c1").display().to_string();
    let args = ["rep", "--cell", "c1", "--zone", "z1", "--data", &data, "--nats", &other.server.url()];
    let stray = Service::start("stray", &other.place.path().join("stray.log"), &args, &[]);
    let said = wait_for_failure(stray);
    let id =
        |cluster: &Cluster| cluster.muster().json("cluster show")["cluster_id"].as_str().unwrap().to_owned();
    for word in ["belongs to cluster", &id(&one), &id(&other), "choose another folder"] {
        assert!(said.contains(word), "no {word} in {said}");
    }
    assert_eq!(running_in(one.place.path()), running, "no container was touched");
    assert_eq!(other.muster().json("cell list"), json!([]));
    // In its own cluster the rep continues. A new container would lead to the same records, so the rep's log
    // must show that it adopted the container.
    one.start_service("rep-c1");
    one.services.get_mut("rep-c1").unwrap().wait_for_log("adopts web/0");
    one.wait_until_settled(&[("web", 1)]);
    assert_eq!(running_in(one.place.path()), running);
    // A data folder has only one owner at a time.
    let args = ["rep", "--cell", "c1", "--zone", "z1", "--data", &data, "--nats", &one.server.url()];
    let second = Service::start("second", &one.place.path().join("second.log"), &args, &[]);
    let said = wait_for_failure(second);
    assert!(said.contains("belong to another running process"), "{said}");
}

#[test]
fn invalid_journal_file_is_refused_and_kept() {
    let place = crate::support::TestDir::new();
    let data = place.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let dev = |name: &str| {
        let args = ["dev", "--plain", "--data", data.to_str().unwrap()];
        Service::start("dev", &place.path().join(name), &args, &[])
    };
    std::fs::write(data.join("journal.db"), "this is not a database, but long enough to be read as one")
        .unwrap();
    let said = wait_for_failure(dev("garbage.log"));
    assert!(said.contains("journal.db"), "{said}");
    let kept = std::fs::read_to_string(data.join("journal.db")).unwrap();
    assert!(kept.starts_with("this is not a database"), "the file is unchanged");

    // The same folder works after that file is removed.
    std::fs::remove_file(data.join("journal.db")).unwrap();
    let service = dev("good.log");
    let muster = Muster::local(&data);
    eventually("the cluster is founded", || {
        let row = muster.try_json("cluster show")?;
        ensure(row["cluster_id"].is_string(), || row.to_string())
    });
    assert_eq!(service.interrupt().code(), Some(0));
    assert_eq!(processes_in(place.path()), []);
}
