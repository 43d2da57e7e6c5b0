//! Tests of the bus subjects: each subject round-trips through its text, and other text is refused.

use proptest::prelude::*;
use proptest::sample::select;
use schemas::Code;
use schemas::bus::{BusPattern, BusSubject};
use schemas::caller::Caller;
use schemas::cluster::Role;
use schemas::names::{CellId, ClientName, Domain, ServiceId};
use schemas::verb::{AuctioneerVerb, ClientVerb, OperatorVerb, QueryVerb, RepVerb};

fn name() -> impl Strategy<Value = String> {
    "[A-Za-z0-9_-]{1,20}"
}

fn any_caller() -> impl Strategy<Value = Caller> {
    let client = || name().prop_map(|name| ClientName::new(&name).unwrap());
    prop_oneof![
        (name(), client()).prop_map(|(domain, name)| Caller::Client(Domain::new(&domain).unwrap(), name)),
        client().prop_map(Caller::Operator),
        client().prop_map(Caller::Auditor),
        client().prop_map(Caller::Gateway),
        name().prop_map(|cell| Caller::Rep(CellId::new(&cell).unwrap())),
        Just(Caller::Auctioneer),
        Just(Caller::Bbs),
    ]
}

fn any_subject() -> impl Strategy<Value = BusSubject> {
    let cell = || name().prop_map(|name| CellId::new(&name).unwrap());
    let client = || name().prop_map(|name| ClientName::new(&name).unwrap());
    let domain = || name().prop_map(|name| Domain::new(&name).unwrap());
    prop_oneof![
        (domain(), client()).prop_map(|(domain, client)| BusSubject::Seal(domain, client)),
        (domain(), client()).prop_map(|(domain, client)| BusSubject::ExecIo(domain, client)),
        (domain(), client(), select(ClientVerb::ALL))
            .prop_map(|(domain, client, verb)| BusSubject::Client(domain, client, verb)),
        (client(), select(OperatorVerb::ALL))
            .prop_map(|(operator, verb)| BusSubject::Operator(operator, verb)),
        cell().prop_map(BusSubject::Report),
        cell().prop_map(BusSubject::Attach),
        cell().prop_map(BusSubject::Leave),
        cell().prop_map(BusSubject::Heartbeat),
        (cell(), select(RepVerb::ALL)).prop_map(|(cell, verb)| BusSubject::Rep(cell, verb)),
        select(AuctioneerVerb::ALL).prop_map(BusSubject::Auctioneer),
        select(Role::ALL).prop_map(BusSubject::LeaderHeartbeat),
        select(Role::ALL).prop_map(BusSubject::Elected),
        select(Role::ALL).prop_map(BusSubject::Alive),
        Just(BusSubject::FoundingQuery),
        Just(BusSubject::FoundingReply),
        (any_caller(), select(QueryVerb::ALL)).prop_map(|(caller, verb)| BusSubject::Query(caller, verb)),
        (name(), any_caller(), select(QueryVerb::ALL)).prop_map(|(bbs, caller, verb)| {
            BusSubject::ForwardedQuery(ServiceId::new(&bbs).unwrap(), caller, verb)
        }),
    ]
}

/// Returns the patterns that match a subject.
fn patterns(subject: &BusSubject) -> Vec<BusPattern> {
    match subject {
        BusSubject::Client(..) | BusSubject::Seal(..) | BusSubject::ExecIo(..) => vec![BusPattern::Clients],
        BusSubject::Operator(..) => vec![BusPattern::Operators],
        BusSubject::Report(_) | BusSubject::Attach(_) | BusSubject::Leave(_) => vec![BusPattern::Reports],
        BusSubject::Heartbeat(_) => vec![BusPattern::Heartbeats],
        BusSubject::Rep(cell, _) => vec![BusPattern::Rep(cell.clone())],
        BusSubject::Auctioneer(_) => vec![BusPattern::Auctioneers],
        BusSubject::LeaderHeartbeat(role) => vec![BusPattern::LeaderHeartbeats(*role)],
        BusSubject::Elected(_) => vec![BusPattern::Elected],
        BusSubject::Alive(_) => vec![BusPattern::Alive],
        BusSubject::FoundingQuery | BusSubject::FoundingReply => vec![],
        BusSubject::Query(..) => vec![BusPattern::Queries],
        BusSubject::ForwardedQuery(bbs, ..) => vec![BusPattern::ForwardedQueries(bbs.clone())],
    }
}

fn matches(pattern: &str, subject: &str) -> bool {
    let (pattern, subject): (Vec<_>, Vec<_>) = (pattern.split('.').collect(), subject.split('.').collect());
    if let Some((&">", before)) = pattern.split_last() {
        return subject.len() > before.len()
            && before.iter().zip(&subject).all(|(one, other)| *one == "*" || one == other);
    }
    pattern.len() == subject.len()
        && pattern.iter().zip(&subject).all(|(one, other)| *one == "*" || one == other)
}

proptest! {
    #[test]
    fn subject_round_trips_and_matches_its_patterns_only(subject in any_subject(), other in any_subject()) {
        let text = subject.to_string();
        prop_assert_eq!(BusSubject::parse(&text), Ok(subject.clone()));
        prop_assert_eq!(subject == other, text == other.to_string());
        prop_assert!(schemas::Subject::parse(&text).is_none(), "a bus subject is not a journal subject");
        for pattern in patterns(&subject) {
            prop_assert!(matches(&pattern.to_string(), &text), "{} on {}", text, pattern);
        }
        for pattern in patterns(&other).into_iter().filter(|pattern| !patterns(&subject).contains(pattern)) {
            prop_assert!(!matches(&pattern.to_string(), &text), "{} on {}", text, pattern);
        }
    }

    #[test]
    fn parsed_subject_formats_as_its_text(text in "(muster\\.)?(client|operator|cell|query|beat|alive|auctioneer)(\\.[a-z*>. ]{0,9}){0,5}") {
        if let Ok(subject) = BusSubject::parse(&text) {
            prop_assert_eq!(subject.to_string(), text);
        }
    }
}

#[test]
fn caller_of_query_is_parsed_from_subject_root() {
    let of = Caller::from_subject;
    let client = Caller::Client(Domain::new("d").unwrap(), ClientName::new("operator").unwrap());
    assert_eq!(of("muster.query.client.d.operator.lrp.burn"), Some(client.clone()));
    assert_eq!(of("muster.forwarded-query.b1.client.d.operator.lrp.list"), Some(client));
    assert_eq!(of("muster.query.rep.c1"), Some(Caller::Rep(CellId::new("c1").unwrap())));
    for text in [
        "muster.query.lrp.list",
        "muster.query.client.d",
        "muster.client.d.n.lrp.desire",
        "muster.query.rep.>",
    ] {
        assert_eq!(of(text), None, "{text}");
    }
}

#[test]
fn invalid_subject_is_refused_with_suggestion() {
    let refusal = |text: &str| BusSubject::parse(text).unwrap_err();
    for text in [
        "",
        "muster",
        "muster.event.cluster",
        "muster.cell.c1",
        "muster.client.a.b.lrp",
        "x.query.lrp.list",
        "muster.query.lrp.list",
    ] {
        assert_eq!(refusal(text).code, Code::InvalidRequest, "{text}");
    }
    assert!(refusal("muster.query.bbs.lrp.lst").to_string().contains("did you mean lrp.list?"));
    let old = refusal("muster.query.lrp.list").to_string();
    assert!(old.contains("muster.query.client.DOMAIN.CLIENT.NOUN.VERB"), "{old}");
    assert!(refusal("muster.client.shop.me.cell.burn").to_string().contains("use one of lrp.desire, "));
    assert!(refusal("muster.cell.a*b.heartbeat").to_string().contains("is not a valid cell id"));
}
