//! Required properties of the table of roles.
#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use access::pattern::{covers, example};
use access::probes::{Probe, probes, sample_roles};
use access::{Role, User, server};
use proptest::prelude::*;
use schemas::bus::{BusSubject, INBOX_ROOT, InboxKind};
use schemas::caller::Caller;
use schemas::names::{CellId, ClientName, Domain};
use schemas::subject::Subject;
use schemas::verb::{ClientVerb, OperatorVerb, QueryVerb, RepVerb};

fn may_publish(role: &Role, subject: &str) -> bool {
    role.rights().unwrap().publishes.iter().any(|right| covers(right, subject))
}

fn may_subscribe(role: &Role, pattern: &str) -> bool {
    role.rights().unwrap().subscribes.iter().any(|right| covers(right, pattern))
}

/// Returns each role that sends queries, with the caller that its query subjects contain.
fn callers() -> impl Iterator<Item = (Role, Caller)> {
    sample_roles().into_iter().filter_map(|role| {
        let caller = match role.clone() {
            Role::Client(domain, name) => Caller::Client(domain, name),
            Role::Operator(name) => Caller::Operator(name),
            Role::Auditor(name) => Caller::Auditor(name),
            Role::Gateway(name) => Caller::Gateway(name),
            Role::Rep(cell) => Caller::Rep(cell),
            Role::Auctioneer => Caller::Auctioneer,
            Role::Bbs => Caller::Bbs,
            Role::BbsWriter | Role::Projector | Role::Admin(_) | Role::System => return None,
        };
        Some((role, caller))
    })
}

#[test]
fn only_bbs_writer_publishes_events() {
    for role in sample_roles() {
        let writes = may_publish(&role, &Subject::Lrp(0).to_string());
        assert_eq!(writes, role == Role::BbsWriter, "{role}");
    }
    for pattern in Role::BbsWriter.rights().unwrap().publishes {
        let founds = pattern == BusSubject::FoundingQuery.to_string();
        assert!(
            founds || pattern.starts_with("muster.event.") || pattern.starts_with("$JS.API."),
            "{pattern}"
        );
    }
}

#[test]
fn only_admin_changes_the_stream() {
    for role in sample_roles() {
        for question in
            ["STREAM.UPDATE", "STREAM.DELETE", "STREAM.PURGE", "STREAM.MSG.DELETE", "STREAM.RESTORE"]
        {
            let may = may_publish(&role, &format!("$JS.API.{question}.MUSTER"));
            assert_eq!(may, matches!(role, Role::Admin(_)), "{role}: {question}");
        }
    }
    assert!(
        may_publish(&Role::BbsWriter, "$JS.API.STREAM.CREATE.MUSTER")
            && !may_publish(&Role::Bbs, "$JS.API.STREAM.CREATE.MUSTER")
    );
}

#[test]
fn auditor_publishes_only_reads() {
    let auditor: Role = "auditor a".parse().unwrap();
    for pattern in auditor.rights().unwrap().publishes {
        let asks =
            ["muster.query.", "$JS.API.STREAM.INFO.", "$JS.API.STREAM.MSG.GET.", "$JS.API.DIRECT.GET."];
        assert!(asks.iter().any(|root| pattern.starts_with(root)), "{pattern}");
    }
}

#[test]
fn every_order_command_and_query_has_one_sender() {
    let cell = CellId::new("c1").unwrap();
    for verb in RepVerb::ALL.iter().copied() {
        let order = BusSubject::Rep(cell.clone(), verb).to_string();
        let givers: Vec<Role> = sample_roles().into_iter().filter(|role| may_publish(role, &order)).collect();
        assert_eq!(givers.len(), 1, "{order}: {givers:?}");
        assert!([Role::Bbs, Role::Auctioneer].contains(&givers[0]), "{order}");
        assert!(
            may_subscribe(&Role::Rep(cell.clone()), &order)
                && !may_subscribe(&"rep c2".parse().unwrap(), &order)
        );
    }
    let (domain, name) = (Domain::new("d").unwrap(), ClientName::new("n").unwrap());
    let of_client = ClientVerb::ALL
        .iter()
        .copied()
        .map(|verb| BusSubject::Client(domain.clone(), name.clone(), verb).to_string());
    let beside =
        [BusSubject::Seal(domain.clone(), name.clone()), BusSubject::ExecIo(domain.clone(), name.clone())];
    for command in of_client.into_iter().chain(beside.map(|subject| subject.to_string())) {
        let givers: Vec<Role> =
            sample_roles().into_iter().filter(|role| may_publish(role, &command)).collect();
        assert_eq!(givers, [Role::Client(domain.clone(), name.clone())], "{command}");
        assert!(may_subscribe(&Role::Bbs, &command), "{command}");
    }
    for verb in OperatorVerb::ALL.iter().copied() {
        let command = BusSubject::Operator(ClientName::new("o").unwrap(), verb).to_string();
        let givers: Vec<String> =
            sample_roles().iter().filter(|role| may_publish(role, &command)).map(Role::to_string).collect();
        assert_eq!(givers, ["operator o"], "{command}");
    }
    for (verb, (role, caller)) in QueryVerb::ALL.iter().flat_map(|verb| callers().map(|of| (*verb, of))) {
        let query = caller.query(verb);
        assert!(may_subscribe(&Role::Bbs, &query), "{query}");
        let askers: Vec<Role> = sample_roles().into_iter().filter(|role| may_publish(role, &query)).collect();
        let granted = !matches!(caller, Caller::Rep(_))
            || [QueryVerb::CellRecords, QueryVerb::ClusterShow].contains(&verb);
        assert_eq!(askers, Vec::from_iter(granted.then_some(role)), "{query}");
    }
}

#[test]
fn inbox_has_one_subscriber_and_bbs_may_answer_every_caller() {
    for kind in InboxKind::ALL.iter().copied() {
        let all = format!("{INBOX_ROOT}{}.>", kind.as_str());
        let hear = sample_roles().into_iter().filter(|role| may_subscribe(role, &all)).count();
        assert!(hear <= 1, "{hear} roles subscribe to {kind:?}");
    }
    for (role, caller) in callers() {
        let inbox = format!("{INBOX_ROOT}{caller}.>");
        assert!(role.rights().unwrap().subscribes.contains(&inbox), "{role} does not subscribe to {inbox}");
        assert!(may_publish(&Role::Bbs, &example(&inbox)), "{role} sends queries and must get their answers");
    }
}

#[test]
fn only_reps_may_answer_any_reply_subject() {
    for role in sample_roles() {
        assert_eq!(role.rights().unwrap().answers, matches!(role, Role::Rep(_)), "{role}");
    }
}

#[test]
fn probes_agree_with_the_table() {
    for role in sample_roles() {
        let all = probes(&role);
        assert!(!all.allowed.is_empty() && all.denied.len() > 40, "{role}");
        assert!(all.allowed.is_disjoint(&all.denied), "{role}");
        for probe in &all.denied {
            match probe {
                Probe::Publish(subject) => assert!(!may_publish(&role, subject), "{role}: {subject}"),
                Probe::Subscribe(pattern) => assert!(!may_subscribe(&role, pattern), "{role}: {pattern}"),
            }
        }
    }
}

#[test]
fn configuration_lists_every_user_once_with_permissions() {
    let user =
        |role: Role| User { name: role.default_name(), nkey: format!("U{}", role.default_name()), role };
    let users: Vec<User> = sample_roles().into_iter().chain([Role::System]).map(user).collect();
    let text = server::users_configuration(&users);
    for User { name, nkey, role } in &users {
        assert_eq!(text.matches(&format!("# {name}: {role}\n")).count(), 1);
        assert_eq!(
            text.matches(&format!("nkey: {nkey} ")).count() + text.matches(&format!("nkey: {nkey},")).count(),
            1
        );
    }
    let (system, muster) = text.split_once("MUSTER {").unwrap();
    assert!(system.contains("nkey: Usystem ") && !muster.contains("Usystem"));
    assert_eq!(muster.matches("permissions").count(), sample_roles().len());
}

proptest! {
    #[test]
    fn role_text_round_trips(one in "[A-Za-z0-9_-]{1,128}", other in "[A-Za-z0-9_-]{1,128}") {
        for text in [format!("rep {one}"), format!("client {one} {other}"), format!("operator {one}"), format!("auditor {one}"),
                     format!("admin {one}"), format!("gateway {one}")] {
            let role: Role = text.parse().unwrap();
            prop_assert_eq!(role.to_string(), text);
        }
    }

    #[test]
    fn arbitrary_text_never_yields_unsafe_patterns(text in ".{0,40}") {
        if let Ok(role) = text.parse::<Role>() {
            for pattern in role.rights().map(|rights| [rights.publishes, rights.subscribes].concat()).unwrap_or_default() {
                prop_assert!(pattern.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"'), "{}", pattern);
            }
        }
    }
}
