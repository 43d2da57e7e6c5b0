//! Logs and folders that must not be worked with.

use std::collections::BTreeSet;

use schemas::checksum::crc32c;
use serde_json::{Value, json};

use crate::dev::sleeper;
use crate::support::cluster::Server;
use crate::support::containers::{living_in, running_in};
use crate::support::place::so;
use crate::support::plain::Plain;
use crate::support::{Cluster, Muster, Service, eventually};

/// The stream as Muster makes it, or otherwise.
fn stream(otherwise: Value) -> Value {
    let mut config = json!({"name": "MUSTER", "subjects": ["muster.event.>"], "storage": "file", "retention": "limits",
        "discard": "new", "deny_delete": true, "deny_purge": true, "allow_direct": true, "num_replicas": 1,
        "max_msgs": -1, "max_bytes": -1, "max_age": 0, "max_msgs_per_subject": -1});
    let Value::Object(otherwise) = otherwise else { panic!("no object") };
    otherwise.into_iter().for_each(|(name, value)| config[name] = value);
    config
}

/// Where the log ends, as the server says.
fn end(plain: &mut Plain) -> u64 {
    let info = plain.ask("$JS.API.STREAM.INFO.MUSTER", b"").json();
    info["state"]["last_seq"].as_u64().unwrap_or_else(|| panic!("{info}"))
}

/// Puts bytes into the log, as nobody should who is not a BBS.
fn put(plain: &mut Plain, subject: &str, bytes: &[u8]) -> u64 {
    let stored = plain.ask(subject, bytes).json();
    stored["seq"].as_u64().unwrap_or_else(|| panic!("{stored}"))
}

/// An entry with the checksum that every program gives its own.
fn sealed(entry: &Value) -> Vec<u8> {
    let text = entry.to_string();
    let body = text.strip_prefix('{').unwrap();
    format!("{{\"crc32c\":\"{:08x}\",{body}", crc32c(body.as_bytes())).into_bytes()
}

/// Waits until a service ends, and answers what it said.
fn ends_badly(service: Service) -> String {
    let log = service.log().to_owned();
    let status = service.wait();
    let said = std::fs::read_to_string(log).unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    said
}

#[test]
fn a_stream_that_could_drop_is_refused() {
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
        // The server clears away the one before in its own time.
        eventually("the stream is made", || {
            let made = plain.ask_json("$JS.API.STREAM.CREATE.MUSTER", &stream(otherwise.clone()));
            so(made["error"].is_null(), || made.to_string())
        });
        for name in ["bbs-1", "auctioneer-1"] {
            cluster.add(name);
            let said = ends_badly(cluster.services.remove(name).unwrap());
            assert!(said.contains("the journal is refused") && said.contains(told), "{otherwise}: {said}");
            std::fs::remove_file(cluster.place.path().join(format!("{name}.log"))).unwrap();
        }
        let state = plain.ask("$JS.API.STREAM.INFO.MUSTER", b"").json();
        assert_eq!(state["state"]["messages"], 0, "nothing was written");
        let deleted = plain.ask("$JS.API.STREAM.DELETE.MUSTER", b"").json();
        assert_eq!(deleted["success"], true, "{deleted}");
    }
    // Without it, one is made as it must be.
    cluster.found();
    ["bbs-1", "auctioneer-1", "rep-c1"].iter().for_each(|name| cluster.add(name));
    cluster.ready(1);
}

#[test]
fn an_entry_of_a_later_version_stops_who_decides() {
    let future =
        json!({"id": "00000000-0000-7000-8000-000000000001", "format": 99, "decisions": {"new": "shape"}});
    let told = "entry is of format 99, this program reads up to 1: upgrade it";
    stops_at(&future, told);
}

#[test]
fn an_event_that_nobody_knows_stops_who_decides() {
    let decision = json!({"id": "00000000-0000-7000-8000-000000000002", "aggregate": {"cell": "c1"}, "version": 9,
        "at": "1970-01-01T00:00:00.000000001Z", "actor": {"bbs": "later"}, "correlation": "00000000-0000-7000-8000-000000000002",
        "events": [{"cell": {"painted.v1": {"colour": "blue"}}}]});
    let unknown = json!({"id": "00000000-0000-7000-8000-000000000001", "format": 1, "decisions": [decision]});
    stops_at(&unknown, "entry holds an event that this program does not know");
}

/// Nobody decides any more once an entry stands in the log that this program doesn't understand; it can be seen, and
/// nothing is lost.
fn stops_at(entry: &Value, told: &str) {
    let mut cluster = Cluster::start(&["bbs-1", "bbs-2", "auctioneer-1", "rep-c1"]);
    let file = cluster.place.file("web.toml", sleeper("web", 2));
    cluster.muster().ok(&format!("lrp desire {}", file.display()));
    let running = running_in(cluster.place.path());
    let mut plain = cluster.plain("later");
    let at = put(&mut plain, "muster.event.cell.c1", &sealed(entry));
    cluster.place.tell(&format!("an entry of a later version stands at {at}"));

    for name in ["bbs-1", "bbs-2", "auctioneer-1"] {
        let bbs = cluster.services.get_mut(name).unwrap();
        bbs.says(&format!("position {at}: {told}"));
        bbs.says("Nothing is lost");
    }
    cluster.muster().exits(5, "lrp scale web=1 --timeout 2s").tells(&[&format!("position {at}: {told}")]);
    cluster.muster().exits(5, "cluster show --timeout 1s").tells(&["this BBS has stopped", told]);

    it_is_seen(&cluster, at, told);
    let list = cluster.muster().ok("events list").out;
    assert!(list.lines().any(|line| line.contains("unknown entry on muster.event.cell.c1")), "{list}");
    assert_eq!(end(&mut plain), at, "nothing was written behind it");
    assert_eq!(running_in(cluster.place.path()), running, "what runs runs on");

    // Who starts later meets it, too; and who is told to end says once more why it was no use.
    cluster.add("bbs-3");
    cluster.services.get_mut("bbs-3").unwrap().says(&format!("position {at}: {told}"));
    it_is_seen(&cluster, at, told);
    let status = cluster.services.remove("bbs-1").unwrap().interrupt();
    assert_eq!(status.code(), Some(1));
    assert_eq!(end(&mut plain), at);

    let reader = cluster.muster();
    reader.exits(2, &format!("journal set-aside {at}")).tells(&["no reason is given", "--reason TEXT"]);
    reader.exits(1, "journal set-aside 1 --reason no").tells(&["holds an entry that this program can read"]);
    reader.exits(3, &format!("journal set-aside {} --reason no", at + 1)).tells(&["does not exist"]);
    assert_eq!(end(&mut plain), at, "nothing of that was written");
    reader.ok(&format!("journal set-aside {at} --reason trial")).tells(&[&format!("{at} is set aside")]);
    // Everybody goes on as they are: nobody has to start again.
    cluster.ready(1);
    cluster.settles(&[("web", 2)]);
    assert_eq!(running_in(cluster.place.path()), running, "what runs runs on");
    cluster.muster().ok("lrp scale web=3 --timeout 60s");
    cluster.settles(&[("web", 3)]);
    for name in ["bbs-2", "bbs-3", "auctioneer-1"] {
        // A standby may be the last to see it: until then it shows the position as before.
        cluster.services.get_mut(name).unwrap().says("an operator set it aside: trial");
        assert!(!cluster.services.get_mut(name).unwrap().has_ended(), "{name}");
    }
    it_is_told(&cluster, at);
    // Saying it again is saying it once; and who starts later passes over it, too.
    let end = end(&mut plain);
    cluster.muster().ok(&format!("journal set-aside {at} --reason again"));
    assert!(
        !cluster.log().iter().any(|entry| entry["position"].as_u64().unwrap() > end
            && entry.to_string().contains("position_set_aside"))
    );
    ["bbs-2", "bbs-3"].iter().for_each(|name| cluster.kill9(name));
    cluster.add("bbs-4");
    cluster.muster().ok("lrp scale web=1 --timeout 60s");
    it_is_told(&cluster, at);
}

/// Who set it aside, and why.
fn it_is_told(cluster: &Cluster, at: u64) {
    let shown = cluster.muster().json(&format!("events show {at}"));
    let why = shown["entry"]["unknown"]["why"].as_str().unwrap_or_else(|| panic!("{shown}"));
    assert_eq!(why, "an operator set it aside: trial");
    for line in ["events list", "events list --about cluster"] {
        let list = cluster.muster().ok(line).out;
        let told = format!("position {at} set aside: trial");
        let told = list.lines().find(|line| line.contains(&told)).unwrap_or_else(|| panic!("{list}"));
        assert!(told.contains("operator tester"), "{told}");
    }
    let shown = cluster.muster().ok("cluster show").out;
    assert!(shown.contains("an operator set it aside: trial"), "{shown}");
}

/// An entry that no program of this version reads.
fn of_a_later_format() -> Vec<u8> {
    sealed(
        &json!({"id": "00000000-0000-7000-8000-000000000001", "format": 99, "decisions": {"new": "shape"}}),
    )
}

#[test]
fn where_no_bbs_runs_the_journal_itself_is_told_what_is_set_aside() {
    let mut cluster = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c1"]);
    let file = cluster.place.file("web.toml", sleeper("web", 1));
    cluster.muster().ok(&format!("lrp desire {}", file.display()));
    let at = put(&mut cluster.plain("later"), "muster.event.cluster", &of_a_later_format());
    cluster.services.get_mut("bbs-1").unwrap().says("entry is of format 99");
    cluster.kill9("bbs-1");
    let set_aside = format!("journal set-aside {at} --reason trial --timeout 1s");
    cluster.muster().exits(1, "journal set-aside 2 --reason no --timeout 1s").tells(&["can read"]);
    cluster.muster().ok(&set_aside);
    cluster.add("bbs-1");
    cluster.ready(1);
    cluster.muster().ok("lrp scale web=2 --timeout 60s");
    cluster.settles(&[("web", 2)]);
    it_is_told(&cluster, at);
}

/// Puts an entry of a later format into the journal of a data folder that nobody uses.
fn put_into(data: &std::path::Path) -> u64 {
    use journal::{Append, Journal, Sqlite};
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let journal = Journal::Sqlite(Sqlite::open(data).await.unwrap());
        let subject = schemas::Subject::Domain(schemas::names::Domain::new("later").unwrap());
        let entry = schemas::names::EntryId(schemas::names::Ids::new(1).next(schemas::Timestamp(0)));
        let bytes = of_a_later_format().into();
        let append = Append { subject, expected: schemas::Position(0), entry, bytes };
        let position = journal.append(append).await.unwrap();
        journal.close().await;
        position.0
    })
}

#[test]
fn a_position_of_a_data_folder_is_set_aside() {
    let place = crate::support::Place::new();
    let data = place.path().join("data");
    let muster = Muster::local(&data);
    let file = place.file("web.toml", sleeper("web", 1));
    let dev = |name: &str| {
        let args = ["dev", "--plain", "--data", data.to_str().unwrap()];
        Service::start("dev", &place.path().join(name), &args, &[])
    };
    let first = dev("first.log");
    eventually("it takes commands", || muster.try_json("cluster show").map(drop));
    muster.ok(&format!("lrp desire {}", file.display()));
    assert_eq!(first.interrupt().code(), Some(0));
    let at = put_into(&data);
    muster.exits(2, &format!("journal set-aside {at}"));
    muster.exits(1, "journal set-aside 1 --reason no").tells(&["can read"]);
    muster.exits(3, "journal set-aside 99999 --reason no").tells(&["does not exist"]);
    muster.ok(&format!("journal set-aside {at} --reason offline"));
    let second = dev("second.log");
    muster.runs("web", 1);
    assert!(muster.ok("cluster show").out.contains("an operator set it aside: offline"));
    assert_eq!(second.interrupt().code(), Some(0));
}

#[test]
fn an_old_entry_that_is_appended_again_is_set_aside() {
    let cluster = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c1"]);
    let file = cluster.place.file("web.toml", sleeper("web", 1));
    cluster.muster().ok(&format!("lrp desire {}", file.display()));
    cluster.settles(&[("web", 1)]);
    let mut plain = cluster.plain("vandal");
    let old =
        cluster.log().into_iter().find(|entry| entry["subject"].as_str().unwrap().contains(".lrp.")).unwrap();
    let (first, subject) = (old["position"].as_u64().unwrap(), old["subject"].as_str().unwrap().to_owned());
    let bytes = plain.ask("$JS.API.DIRECT.GET.MUSTER", json!({"seq": first}).to_string().as_bytes());
    let again = put(&mut plain, &subject, &bytes.payload);
    eventually("it is set aside", || {
        let shown = cluster.muster().json(&format!("events show {again}"));
        let why = shown["entry"]["unknown"]["why"].as_str().ok_or_else(|| shown.to_string())?;
        so(why == format!("an old entry, written before at position {first}"), || why.to_owned())
    });
    let shown = cluster.muster().json(&format!("events show {first}"));
    assert!(shown["entry"]["unknown"].is_null(), "{shown}");
    cluster.muster().ok("lrp scale web=2 --timeout 60s");
    cluster.settles(&[("web", 2)]);
    cluster.muster().exits(1, &format!("journal set-aside {again} --reason no")).tells(&["can read"]);
}

#[test]
fn log_that_the_server_cannot_read_is_an_error_and_not_an_empty_log() {
    let mut cluster = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c1"]);
    let mut plain = cluster.plain("vandal");
    // A block of the stream has 8 MiB: the first one, with the founding of the cluster, is full.
    for _ in 0..12 {
        put(&mut plain, "muster.event.strange.subject", &[b'x'; 900_000]);
    }
    drop(plain);
    ["bbs-1", "auctioneer-1", "rep-c1"].iter().for_each(|name| cluster.kill9(name));
    let block = cluster.server.blocks().join("1.blk");
    cluster.server.stop();
    let whole = std::fs::read(&block).unwrap();
    std::fs::write(&block, [&b"cmp\x01"[..], &whole[4..]].concat()).unwrap();
    cluster.server.restart();

    let why = "for position 1, though its stream MUSTER holds positions 1 to ";
    ["bbs-2", "auctioneer-2"].iter().for_each(|name| cluster.add(name));
    let tables = format!("sqlite:{}", cluster.place.path().join("tables.db").display());
    cluster.spawn("projector-1", &["projector", "--database", &tables]);
    for name in ["bbs-2", "auctioneer-2", "projector-1"] {
        let service = cluster.services.get_mut(name).unwrap();
        service.says("ERROR");
        service.says("the journal cannot be read");
        service.says(why);
    }
    let muster = cluster.muster();
    let file = cluster.place.path().join("log.jsonl").display().to_string();
    muster.exits(1, &format!("export {file}")).tells(&[why]);
    let report = muster.run(&["doctor", "-o", "json"]).exits(9).json();
    let entries = report["checks"].as_array().unwrap().iter().find(|check| check["check"] == "entries");
    let entries = entries.unwrap();
    assert_eq!(entries["outcome"], "failed", "{entries}");
    assert!(entries["found"].as_str().unwrap().contains("position 1 can't be read"), "{entries}");

    cluster.server.stop();
    std::fs::write(&block, whole).unwrap();
    cluster.server.restart();
    eventually("a BBS leads again", || {
        let row = cluster.muster().try_json("cluster show")?;
        so(!row["bbs"].is_null(), || row.to_string())
    });
    cluster.muster().ok(&format!("export {file}"));
}

#[test]
fn an_auctioneer_needs_no_right_to_make_streams_or_entries() {
    let place = crate::support::Place::new();
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
    auctioneer.says("no cluster: the stream MUSTER does not exist");
    Muster::nats(&url("all")).ok("cluster found");
    let _bbs = start("bbs", "all", &["bbs"]);
    let data = place.path().join("rep-c1").display().to_string();
    let _rep = start("rep-c1", "all", &["rep", "--cell", "c1", "--zone", "z1", "--data", &data]);
    let muster = Muster::nats(&url("all"));
    eventually("the cluster is ready", || {
        let row = muster.try_json("cluster show")?;
        so(!row["auctioneer"].is_null() && row["cells"]["PRESENT"] == 1, || row.to_string())
    });
    let file = place.file("web.toml", sleeper("web", 1));
    muster.ok(&format!("lrp desire {}", file.display()));
    muster.runs("web", 1);
    assert!(!auctioneer.has_ended(), "{}", auctioneer.said());
}

fn it_is_seen(cluster: &Cluster, at: u64, told: &str) {
    let entry = cluster.muster().json(&format!("events show {at}"));
    let unknown = &entry["entry"]["unknown"];
    assert!(unknown["why"].as_str().unwrap().starts_with(told), "{entry}");
    assert!(unknown["raw"].as_str().unwrap().contains("00000000-0000-7000-8000-000000000001"), "{entry}");
}

#[test]
fn what_is_no_entry_is_set_aside() {
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
        put_there.insert(put(&mut plain, subject, bytes));
    }
    // What was put there took the places that others expected: they decide again, and go on.
    let file = cluster.place.file("web.toml", sleeper("web", 2));
    cluster.muster().ok(&format!("lrp desire {}", file.display()));
    cluster.settles(&[("web", 2)]);
    let unknown = |entry: &&Value| entry["entry"]["unknown"].is_object();
    let log = cluster.log();
    let found: BTreeSet<u64> =
        log.iter().filter(unknown).map(|entry| entry["position"].as_u64().unwrap()).collect();
    assert_eq!(found, put_there);
    let aside = cluster.muster().json("cluster show")["set_aside"].clone();
    assert_eq!(aside["count"], put_there.len(), "{aside}");
    let last = aside["last"].as_array().unwrap().iter();
    let last: BTreeSet<u64> = last.map(|one| one["position"].as_u64().unwrap()).collect();
    assert_eq!(last, put_there);
    let shown = cluster.muster().ok("cluster show").out;
    assert!(shown.contains("6 malformed entries"), "{shown}");
    assert!(shown.contains("muster.event.strange.subject is not a subject of Muster"), "{shown}");
    // Who starts anew passes over it as well.
    for name in ["bbs-1", "auctioneer-1"] {
        cluster.kill9(name);
        cluster.add(name);
    }
    cluster.muster().ok("lrp scale web=3 --timeout 60s");
    cluster.settles(&[("web", 3)]);
}

#[test]
fn a_folder_of_another_cluster_is_refused() {
    let mut one = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c1"]);
    let file = one.place.file("web.toml", sleeper("web", 1));
    one.muster().ok(&format!("lrp desire {}", file.display()));
    one.kill9("rep-c1");
    let running = running_in(one.place.path());

    let other = Cluster::start(&["bbs-1", "auctioneer-1"]);
    let data = one.place.path().join("rep-c1").display().to_string();
    let args = ["rep", "--cell", "c1", "--zone", "z1", "--data", &data, "--nats", &other.server.url()];
    let stray = Service::start("stray", &other.place.path().join("stray.log"), &args, &[]);
    let said = ends_badly(stray);
    let id =
        |cluster: &Cluster| cluster.muster().json("cluster show")["cluster_id"].as_str().unwrap().to_owned();
    for word in ["belongs to cluster", &id(&one), &id(&other), "choose another folder"] {
        assert!(said.contains(word), "no {word} in {said}");
    }
    assert_eq!(running_in(one.place.path()), running, "nothing of it was touched");
    assert_eq!(other.muster().json("cell list"), json!([]));
    // Where it belongs it goes on. The records say so anyway: that it has the folder it says itself.
    one.add("rep-c1");
    one.services.get_mut("rep-c1").unwrap().says("adopts web/0");
    one.settles(&[("web", 1)]);
    assert_eq!(running_in(one.place.path()), running);
    // One folder, one owner.
    let args = ["rep", "--cell", "c1", "--zone", "z1", "--data", &data, "--nats", &one.server.url()];
    let second = Service::start("second", &one.place.path().join("second.log"), &args, &[]);
    let said = ends_badly(second);
    assert!(said.contains("one data folder has one owner"), "{said}");
}

#[test]
fn a_journal_that_is_none_is_refused() {
    let place = crate::support::Place::new();
    let data = place.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let dev = |name: &str| {
        let args = ["dev", "--plain", "--data", data.to_str().unwrap()];
        Service::start("dev", &place.path().join(name), &args, &[])
    };
    std::fs::write(data.join("journal.db"), "this is no database, and long enough to be looked at as one")
        .unwrap();
    let said = ends_badly(dev("garbage.log"));
    assert!(said.contains("journal.db"), "{said}");
    let kept = std::fs::read_to_string(data.join("journal.db")).unwrap();
    assert!(kept.starts_with("this is no database"), "it is left as it was");

    // The same folder, once that file is out of the way.
    std::fs::remove_file(data.join("journal.db")).unwrap();
    let service = dev("good.log");
    let muster = Muster::local(&data);
    eventually("it is founded", || {
        let row = muster.try_json("cluster show")?;
        so(row["cluster_id"].is_string(), || row.to_string())
    });
    assert_eq!(service.interrupt().code(), Some(0));
    assert_eq!(living_in(place.path()), []);
}
