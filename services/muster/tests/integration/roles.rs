//! Each role as a user of its own, with exactly the permissions that the documentation has for it.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::dev::sleeper;
use crate::support::cluster::Server;
use crate::support::place::so;
use crate::support::plain::Plain;
use crate::support::{Muster, Place, Service, eventually};

/// The permissions of a role, as a row of the table in `docs/operations.md` has them.
struct Role {
    user: &'static str,
    publishes: Vec<String>,
    subscribes: Vec<String>,
    answers: bool,
}

/// Reads the table: the rows by how they begin. The names that stand for any are the table's own.
fn roles() -> Vec<Role> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md");
    let text = fs::read_to_string(path).unwrap();
    let users = [
        ("| client `n` of domain `d` |", "client"),
        ("| operator `n` |", "operator"),
        ("| rep of cell `c1` |", "rep"),
        ("| auctioneer |", "auctioneer"),
        ("| projector |", "projector"),
        ("| BBS |", "bbs"),
    ];
    let role = |(begin, user): (&str, &'static str)| {
        let row =
            text.lines().find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("no row {begin}"));
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let subjects = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
        Role {
            user,
            publishes: subjects(cells[2]),
            subscribes: subjects(cells[3]),
            answers: cells[4] == "yes",
        }
    };
    users.into_iter().map(role).collect()
}

fn configuration(roles: &[Role]) -> String {
    let list = |subjects: &[String]| {
        format!("[{}]", subjects.iter().map(|one| format!("{one:?}")).collect::<Vec<_>>().join(", "))
    };
    let user = |Role { user, publishes, subscribes, answers }: &Role| {
        let (publish, subscribe) = (list(publishes), list(subscribes));
        let answers = if *answers { ", allow_responses: true" } else { "" };
        format!(
            "{{ user: {user}, password: pw, permissions: {{ publish: {publish}, subscribe: {subscribe}{answers} }} }}"
        )
    };
    format!("authorization {{ users: [\n{}\n] }}\n", roles.iter().map(user).collect::<Vec<_>>().join("\n"))
}

#[test]
fn each_role_can_do_with_its_permissions_what_it_must_and_nothing_of_others() {
    let place = Place::new();
    let server = Server::start_with(&place, &configuration(&roles()));
    let url = |user: &str| server.url().replace("nats://", &format!("nats://{user}:pw@"));
    let start = |name: &str, args: &[&str]| {
        let log = place.path().join(format!("{name}.log"));
        Service::start(name, &log, args, &[("MUSTER_NATS_URL", &url(name))])
    };
    let data = place.path().join("c1").display().to_string();
    let tables = format!("sqlite:{}", place.path().join("tables.db").display());
    let services = [
        start("auctioneer", &["auctioneer"]),
        start("projector", &["projector", "--database", &tables]),
        start("bbs", &["bbs"]),
        start(
            "rep",
            &[
                "rep",
                "--cell",
                "c1",
                "--zone",
                "z1",
                "--memory-mb",
                "512",
                "--disk-mb",
                "512",
                "--data",
                &data,
            ],
        ),
    ];
    let muster = Muster::nats(&url("bbs"));
    eventually("the cluster is ready", || {
        let row = muster.try_json("cluster show")?;
        so(!row["auctioneer"].is_null() && row["cells"]["PRESENT"] == 1, || row.to_string())
    });

    a_client_is_served(&url("client"));
    let mut operator = Plain::connect_as(&url("operator"), "muster.inbox.client.d.n");
    let answer = operator.ask_json("muster.operator.n.cell.evacuate", &json!({"body": {"cell_id": "c1"}}));
    assert!(answer["ok"].is_object(), "{answer}");
    eventually("the cell has left", || {
        let row = operator.ask_json("muster.query.cell.show", &json!({"id": "c1"}))["ok"]["row"].clone();
        so(row["state"] == "ABSENT", || row.to_string())
    });
    eventually("the tables know it", || {
        let cells = "SELECT state FROM cells";
        let said = Muster::with("MUSTER_DATABASE", &tables).run(&["sql", cells, "-o", "csv"]);
        so(said.out == "state\nABSENT\n", || format!("{said:?}"))
    });
    for service in &services {
        let said = service.said();
        assert!(!said.contains("Permissions Violation") && !said.contains("ermissions violation"), "{said}");
    }
    nobody_does_what_is_others(&url);
    let file = place.file("late.toml", sleeper("late", 0));
    muster.exits(0, &format!("lrp desire {} --detach", file.display()));
}

/// A process of a client is placed, runs, is read, and ends; a task runs.
fn a_client_is_served(url: &str) {
    let mut client = Plain::connect_as(url, "muster.inbox.client.d.n");
    let mut listener = Plain::connect_as(url, "muster.inbox.client.d.n.listener");
    listener.subscribe("muster.feed.lrp.web.desired_desired");
    listener.ask("muster.query.cluster.show", b"");
    let mut ask = |subject: &str, question: serde_json::Value| {
        let answer = client.ask_json(subject, &question);
        assert!(answer["ok"].is_object() || answer["ok"].is_array(), "{subject}: {answer}");
        answer["ok"].clone()
    };
    let body = json!({
        "process_guid": "web", "domain": "d", "memory_mb": 8, "monitor": {"run": {"path": "true"}},
        "action": {"run": {"path": "sh", "args": ["-c", "echo here; exec sleep 100000"]}},
    });
    ask("muster.client.d.n.lrp.desire", json!({"body": body}));
    eventually("it runs", || {
        let row = ask("muster.query.instance.show", json!({"id": "web/0"}))["row"][0].clone();
        so(row["state"] == "RUNNING", || row.to_string())
    });
    assert!(ask("muster.query.instance.logs", json!({"id": "web/0"})).to_string().contains("here"));
    ask("muster.query.instance.health", json!({"id": "web/0"}));
    ask("muster.query.events.read", json!({"after": 0, "limit": 1}));
    let heard = listener.next().map(|message| message.subject);
    assert_eq!(heard.as_deref(), Some("muster.feed.lrp.web.desired_desired"));
    let task = json!({"task_guid": "t", "domain": "d", "memory_mb": 8, "action": {"run": {"path": "true"}}});
    ask("muster.client.d.n.task.desire", json!({"body": task}));
    eventually("the task has run", || {
        let row = ask("muster.query.task.show", json!({"id": "t"}))["row"].clone();
        so(row["state"] == "COMPLETED" && row["failed"] == false, || row.to_string())
    });
    ask("muster.client.d.n.lrp.remove", json!({"body": {"process_guid": "web"}}));
    eventually("it is gone", || {
        let page = ask("muster.query.instance.list", json!({}));
        so(page["rows"] == json!([]), || page.to_string())
    });
}

/// Each role with an inbox of its own, and what it must not publish on.
const FORBIDDEN: [(&str, &str, &[&str]); 4] = [
    (
        "client",
        "client.d.n",
        &[
            "muster.client.other.n.lrp.desire",
            "muster.client.d.other.lrp.desire",
            "muster.operator.n.cell.evacuate",
            "muster.cell.c1.bbs.report",
            "muster.cell.c1.heartbeat",
            "muster.cell.c1.rep.perform",
            "muster.beat.bbs",
            "muster.feed.lrp.web.actual_claimed",
            "muster.event.cluster",
            "$JS.API.STREAM.DELETE.MUSTER",
            "$JS.API.STREAM.PURGE.MUSTER",
        ],
    ),
    (
        "operator",
        "client.d.n",
        &[
            "muster.client.d.n.lrp.desire",
            "muster.event.cluster",
            "muster.beat.auctioneer",
            "muster.feed.cell.c1.cell_disappeared",
        ],
    ),
    (
        "rep",
        "rep.c1",
        &[
            "muster.cell.c2.bbs.report",
            "muster.cell.c2.heartbeat",
            "muster.cell.c1.rep.stop",
            "muster.auctioneer.bbs.lead",
            "muster.client.d.n.lrp.desire",
            "muster.beat.bbs",
            "muster.elected.auctioneer",
            "muster.feed.cell.c1.cell_disappeared",
            "muster.event.cell.c1",
        ],
    ),
    (
        "auctioneer",
        "auctioneer.a1",
        &[
            "muster.cell.c1.bbs.report",
            "muster.cell.c1.heartbeat",
            "muster.client.d.n.lrp.desire",
            "muster.operator.n.cell.forget",
            "muster.beat.bbs",
            "muster.feed.lrp.web.actual_claimed",
            "muster.event.cluster",
            "$JS.API.STREAM.CREATE.MUSTER",
            "$JS.API.STREAM.PURGE.MUSTER",
        ],
    ),
];

/// What a role must not do the server refuses.
fn nobody_does_what_is_others(url: &impl Fn(&str) -> String) {
    for (user, inbox, subjects) in FORBIDDEN {
        let mut plain = Plain::connect_as(&url(user), &format!("muster.inbox.{inbox}"));
        for subject in subjects {
            plain.try_publish(subject, b"{}");
            let complaint = plain.complaint().unwrap_or_else(|| panic!("{user} may publish on {subject}"));
            assert!(
                complaint.contains("Permissions Violation for Publish") && complaint.contains(subject),
                "{complaint}"
            );
        }
        let foreign = "muster.inbox.client.d.somebody.>";
        if user != "operator" {
            plain.subscribe(foreign);
            let complaint = plain.complaint().unwrap_or_else(|| panic!("{user} may read {foreign}"));
            assert!(complaint.contains("Permissions Violation for Subscription"), "{complaint}");
        }
    }
}
