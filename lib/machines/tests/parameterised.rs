//! Tests of parameterised tasks: their specs, the environment of dispatched tasks, and the state machine with
//! random steps.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use machines::parameterised::{Context, Parameterised, decide, evolve, repeated_dispatch};
use proptest::prelude::*;
use schemas::action::{Secret, Variable};
use schemas::definition::{DesiredParameterised, Overflow, PayloadRule};
use schemas::limits::{DISPATCH_KEYS, DISPATCHES_QUEUED, PAYLOAD_BYTES};
use schemas::names::{DecisionId, DispatchKey, ParameterisedGuid, TaskGuid};
use schemas::parameterised::{Command, Dispatch, Event, WithdrawReason};
use schemas::spec::{self, ClientCommand};
use schemas::stamp::Stamp;
use schemas::{Code, Refusal, Timestamp};
use serde_json::{Value, json};

use crate::common::{domain, id};

fn guid() -> ParameterisedGuid {
    ParameterisedGuid::new("resize").unwrap()
}

fn key(text: &str) -> DispatchKey {
    DispatchKey::new(text).unwrap()
}

fn template(concurrency: Option<u32>, overflow: Overflow) -> DesiredParameterised {
    DesiredParameterised {
        parameterised_guid: guid(),
        domain: domain("apps"),
        payload: PayloadRule::Optional,
        required_parameters: BTreeSet::new(),
        optional_parameters: ["width".to_owned()].into(),
        concurrency,
        overflow,
        definition: fixtures::task_definition().into(),
    }
}

/// A parameterised task, and its tasks in the states PENDING and RUNNING.
#[derive(Default)]
struct Harness {
    known: Option<Parameterised>,
    live: RefCell<BTreeSet<TaskGuid>>,
    at: u64,
}

impl Harness {
    fn with(desired: DesiredParameterised) -> Self {
        let mut stage = Self::default();
        stage.apply(&Command::Desire(Box::new(desired)));
        stage
    }

    /// Decides a command and folds the events. Launched tasks run immediately.
    fn try_apply(&mut self, command: &Command) -> Result<Vec<Event>, Refusal> {
        let fewer =
            |_: &ParameterisedGuid, most: u32| self.live.borrow().len() < usize::try_from(most).unwrap();
        let exists = |task: &TaskGuid| self.live.borrow().contains(task);
        let events = decide(
            self.known.as_ref(),
            command,
            Context { has_fewer_live_tasks: &fewer, task_exists: &exists },
        )?;
        if !events.is_empty() {
            self.at += 1;
            let stamp = Stamp::root(DecisionId(id(self.at.into())), Timestamp(self.at));
            self.known = evolve(self.known.take(), &events, &stamp);
        }
        for event in &events {
            if let Event::Launched { task_guid, .. } = event {
                assert!(self.live.borrow_mut().insert(task_guid.clone()), "{task_guid} is launched twice");
            }
        }
        Ok(events)
    }

    fn apply(&mut self, command: &Command) -> Vec<Event> {
        self.try_apply(command).unwrap()
    }

    fn dispatch(&mut self, key: Option<&str>, payload: &str) -> Result<Vec<Event>, Refusal> {
        let key = key.map(self::key);
        let payload = Some(spec::payload(payload.as_bytes()));
        self.try_apply(&Command::Dispatch(Box::new(Dispatch { payload, key, ..Dispatch::default() })))
    }

    fn end_task(&self, number: u64) {
        assert!(
            self.live.borrow_mut().remove(&guid().dispatched_task_guid(number).unwrap()),
            "task {number} is not running"
        );
    }

    fn waiting_numbers(&self) -> Vec<u64> {
        self.known.as_ref().unwrap().queue.iter().map(|waiting| waiting.number).collect()
    }
}

/// Returns the numbers of two kinds of dispatches: those that were accepted, and those that were launched.
fn numbers(events: &[Event]) -> (Vec<u64>, Vec<u64>) {
    let (mut dispatched, mut launched) = (vec![], vec![]);
    for event in events {
        match event {
            Event::Dispatched { number, .. } => dispatched.push(*number),
            Event::Launched { number, .. } => launched.push(*number),
            Event::Desired { .. }
            | Event::Updated { .. }
            | Event::Repeated { .. }
            | Event::Withdrawn { .. }
            | Event::Removed {} => {}
        }
    }
    (dispatched, launched)
}

#[test]
fn dispatch_launches_immediately_below_concurrency_limit() {
    let mut stage = Harness::with(template(Some(2), Overflow::Queued));
    assert_eq!(numbers(&stage.dispatch(None, "a").unwrap()), (vec![2], vec![2]));
    assert_eq!(numbers(&stage.dispatch(None, "b").unwrap()), (vec![3], vec![3]));
    assert_eq!(numbers(&stage.dispatch(None, "c").unwrap()), (vec![4], vec![]));
    assert_eq!(numbers(&stage.dispatch(None, "d").unwrap()), (vec![5], vec![]));
    assert!(stage.apply(&Command::Converge).is_empty(), "two tasks run");
    stage.end_task(2);
    // Waiting dispatches go first, even if the concurrency limit allows new launches again.
    assert_eq!(numbers(&stage.dispatch(None, "e").unwrap()), (vec![6], vec![]));
    assert_eq!(numbers(&stage.apply(&Command::Converge)), (vec![], vec![4]));
    assert!(stage.apply(&Command::Converge).is_empty(), "two tasks run again");
    assert_eq!(stage.waiting_numbers(), [5, 6]);
}

#[test]
fn dispatch_beyond_limit_is_refused_if_overflow_is_refused() {
    let mut stage = Harness::with(template(Some(1), Overflow::Refused));
    stage.dispatch(None, "a").unwrap();
    let refusal = stage.dispatch(None, "b").unwrap_err();
    assert_eq!(refusal.code, Code::InvalidStateTransition);
    assert!(
        refusal.message.starts_with(
            "resize has reached its limit of PENDING and RUNNING \
        tasks (1)"
        ),
        "{refusal}"
    );
    stage.end_task(2);
    assert_eq!(numbers(&stage.dispatch(None, "b").unwrap()), (vec![3], vec![3]));
}

#[test]
fn dispatch_beyond_queue_limit_is_overloaded() {
    let mut stage = Harness::with(template(Some(1), Overflow::Queued));
    for at in 0..=DISPATCHES_QUEUED {
        stage.dispatch(None, &at.to_string()).unwrap();
    }
    let refusal = stage.dispatch(None, "one more").unwrap_err();
    assert_eq!(refusal.code, Code::Overloaded);
    assert!(refusal.message.contains("at most 1024 are allowed"), "{refusal}");
}

#[test]
fn repeated_key_returns_first_dispatch_and_other_content_is_refused() {
    let mut stage = Harness::with(template(None, Overflow::Queued));
    stage.dispatch(Some("k"), "a").unwrap();
    stage.dispatch(None, "other").unwrap();
    assert_eq!(
        stage.dispatch(Some("k"), "a").unwrap(),
        [Event::Repeated { number: 2 }],
        "no task is created"
    );
    let asked = |payload: &str| {
        let payload = Some(spec::payload(payload.as_bytes()));
        Command::Dispatch(Box::new(Dispatch { payload, key: Some(key("k")), ..Dispatch::default() }))
    };
    assert_eq!(
        repeated_dispatch(stage.known.as_ref(), &asked("a")),
        Ok(Some(2)),
        "the number is that of \
        the first dispatch"
    );
    let refusal = stage.dispatch(Some("k"), "b").unwrap_err();
    assert_eq!(refusal.code, Code::RequestIdReused);
    assert!(refusal.message.starts_with("key k belongs to dispatch 2 of resize"), "{refusal}");
    stage.apply(&Command::Remove);
    stage.apply(&Command::Desire(Box::new(template(None, Overflow::Queued))));
    assert_eq!(
        repeated_dispatch(stage.known.as_ref(), &asked("b")),
        Ok(None),
        "a new epoch has its \
        own keys"
    );
    assert_eq!(numbers(&stage.dispatch(Some("k"), "b").unwrap()).0, [7], "the numbers continue");
}

#[test]
fn oldest_key_of_finished_dispatch_is_evicted() {
    let mut stage = Harness::with(template(None, Overflow::Queued));
    for at in 0..DISPATCH_KEYS {
        stage.dispatch(Some(&format!("k{at}")), "a").unwrap();
    }
    let refusal = stage.dispatch(Some("new"), "a").unwrap_err();
    assert_eq!(refusal.code, Code::Overloaded, "all of them run: {refusal}");
    assert_eq!(
        stage.dispatch(None, "a").map(|events| events.len()),
        Ok(2),
        "a dispatch without a key is \
        accepted"
    );
    stage.end_task(4);
    let events = stage.dispatch(Some("new"), "a").unwrap();
    assert!(matches!(&events[0], Event::Dispatched { evicted_key, .. } if *evicted_key == Some(key("k2"))));
    let known = stage.known.as_ref().unwrap();
    assert_eq!(known.keys.len(), DISPATCH_KEYS);
    assert!(known.keys.iter().all(|known| known.key != key("k2")));
}

#[test]
fn waiting_dispatch_can_be_withdrawn_and_ends_with_template() {
    let mut stage = Harness::with(template(Some(1), Overflow::Queued));
    for payload in ["a", "b", "c", "d"] {
        stage.dispatch(None, payload).unwrap();
    }
    let withdrawn = |numbers: &[u64], reason| Event::Withdrawn { numbers: numbers.to_vec(), reason };
    assert_eq!(stage.apply(&Command::Withdraw(4)), [withdrawn(&[4], WithdrawReason::Requested)]);
    for number in [2, 4, 99] {
        let refusal = stage.try_apply(&Command::Withdraw(number)).unwrap_err();
        assert_eq!(refusal.code, Code::ResourceNotFound, "{number}");
    }
    let gone = [withdrawn(&[3, 5], WithdrawReason::Removed), Event::Removed {}];
    assert_eq!(stage.apply(&Command::Remove), gone);
    for command in [Command::Remove, Command::Withdraw(3), Command::Dispatch(Box::default())] {
        assert_eq!(stage.try_apply(&command).unwrap_err().code, Code::ResourceNotFound, "{command:?}");
    }
    assert!(stage.apply(&Command::Converge).is_empty());
}

#[test]
fn waiting_dispatch_keeps_template_of_its_dispatch() {
    let mut stage = Harness::with(template(Some(1), Overflow::Queued));
    stage.dispatch(None, "a").unwrap();
    stage.dispatch(None, "b").unwrap();
    let known = stage.known.clone().unwrap();
    let launched =
        |number| Event::Launched { number, task_guid: guid().dispatched_task_guid(number).unwrap() };
    let before = known.tasks(&[launched(3)]);
    let mut other = template(Some(1), Overflow::Queued);
    let definition = schemas::definition::TaskDefinition { memory_mb: 4_711, ..fixtures::task_definition() };
    other.definition = definition.into();
    stage.apply(&Command::Update(Box::new(other)));
    assert_eq!(stage.known.as_ref().unwrap().tasks(&[launched(3)]), before);
    stage.dispatch(None, "c").unwrap();
    assert_eq!(stage.known.as_ref().unwrap().tasks(&[launched(5)])[0].definition.memory_mb, 4_711);
}

#[test]
fn dispatched_values_are_in_task_environment() {
    let variable =
        |name: &str, value: &str| Variable { name: name.into(), value: Secret::Plain(value.into()) };
    let of = |payload: &[u8]| {
        let dispatch = Dispatch {
            payload: Some(spec::payload(payload)),
            parameters: vec![variable("width", "640")],
            key: Some(key("k")),
            priority: None,
        };
        let all = dispatch.environment(&guid());
        let entry = |one: Variable| (one.name, one.value.plain().unwrap().to_owned());
        all.into_iter().map(entry).collect::<BTreeMap<_, _>>()
    };
    let text = of("grüß dich".as_bytes());
    let expected = [
        ("MUSTER_DISPATCH_KEY", "k"),
        ("MUSTER_PARAMETERISED_GUID", "resize"),
        ("MUSTER_PARAM_width", "640"),
        ("MUSTER_PAYLOAD", "grüß dich"),
        ("MUSTER_PAYLOAD_BASE64", "Z3LDvMOfIGRpY2g="),
    ];
    assert_eq!(
        text.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect::<Vec<_>>(),
        expected
    );
    for bytes in [&b"a\0b"[..], &[0xff, 0xfe][..]] {
        assert!(!of(bytes).contains_key("MUSTER_PAYLOAD"), "{bytes:?} is not a valid value of a variable");
    }
    assert_eq!(of(b"")["MUSTER_PAYLOAD_BASE64"], "", "an empty payload is a payload");
}

#[test]
fn template_environment_is_default_for_dispatch_parameters() {
    let variable =
        |name: &str, value: &str| Variable { name: name.into(), value: Secret::Plain(value.into()) };
    let mut desired = template(None, Overflow::Queued);
    let environment_variables = vec![variable("MUSTER_PARAM_width", "100"), variable("A", "b")];
    desired.definition =
        schemas::definition::TaskDefinition { environment_variables, ..fixtures::task_definition() }.into();
    let mut stage = Harness::with(desired);
    let mut width = |parameters: Vec<Variable>| {
        let events =
            stage.apply(&Command::Dispatch(Box::new(Dispatch { parameters, ..Dispatch::default() })));
        let before = stage.known.clone().unwrap();
        let [task] = &before.tasks(&events)[..] else { panic!("{events:?}") };
        let all = task.definition.environment_variables.clone();
        all.into_iter().filter(|one| one.name == "MUSTER_PARAM_width").collect::<Vec<_>>()
    };
    assert_eq!(width(vec![]), [variable("MUSTER_PARAM_width", "100")]);
    assert_eq!(width(vec![variable("width", "640")]), [variable("MUSTER_PARAM_width", "640")]);
}

#[test]
fn dispatch_that_violates_template_names_every_fault() {
    let mut desired = template(None, Overflow::Queued);
    desired.payload = PayloadRule::Required;
    desired.required_parameters = ["height".to_owned()].into();
    let mut stage = Harness::with(desired.clone());
    let variable = |name: &str| Variable { name: name.into(), value: Secret::Plain("1".into()) };
    let mut fields = |dispatch: Dispatch| {
        let refusal = stage.try_apply(&Command::Dispatch(Box::new(dispatch))).unwrap_err();
        assert_eq!(refusal.code, Code::InvalidRequest);
        refusal.fields.into_iter().map(|bad| format!("{}: {}", bad.field, bad.problem)).collect::<Vec<_>>()
    };
    let bad = fields(Dispatch { parameters: vec![variable("depth")], ..Dispatch::default() });
    let expected = [
        "payload: is missing: resize requires one",
        "parameters: height is missing: resize requires it",
        "parameters: depth is not a parameter of resize: it takes height, width",
    ];
    assert_eq!(bad, expected);
    desired.payload = PayloadRule::Forbidden;
    stage = Harness::with(desired);
    let payload = Some(spec::payload(b"x"));
    let refusal = stage.try_apply(&Command::Dispatch(Box::new(Dispatch {
        payload,
        parameters: vec![variable("height")],
        ..Dispatch::default()
    })));
    assert!(refusal.unwrap_err().message.contains("payload: is not allowed: resize takes none"));
}

#[test]
fn dispatch_beyond_environment_limit_is_refused() {
    let variable = Variable { name: "LARGE".into(), value: Secret::Plain("x".repeat(40_000).into()) };
    let mut desired = template(None, Overflow::Queued);
    let definition = schemas::definition::TaskDefinition {
        environment_variables: vec![variable],
        ..fixtures::task_definition()
    };
    desired.definition = definition.into();
    let mut stage = Harness::with(desired);
    assert!(stage.dispatch(None, "small").is_ok());
    let refusal = stage.dispatch(None, &"y".repeat(PAYLOAD_BYTES)).unwrap_err();
    assert!(refusal.message.contains("environment: is larger than 65536 bytes"), "{refusal}");
}

/// Parses a command as sent by a client.
fn read(verb: &str, body: &Value) -> Result<ClientCommand, Refusal> {
    let message = json!({"body": body}).to_string();
    spec::client_command("parameterised", verb, &domain("apps"), message.as_bytes())
        .map(|(_, command)| command)
}

#[test]
fn invalid_dispatch_field_is_refused_by_name() {
    let long = "x".repeat(65);
    let large = data_encoding::BASE64.encode(&vec![0; PAYLOAD_BYTES + 1]);
    let bad = [
        (
            json!({"payload": "a"}),
            "body.payload: must be base64 (RFC 4648, with padding): invalid length at 0",
        ),
        (json!({"payload": large}), "body.payload: has 16385 bytes, more than 16384"),
        (json!({"parameters": {"9a": "x"}}), "body.parameters: \"9a\" is not a valid parameter name"),
        (json!({"parameters": {long: "x"}}), "is not a valid parameter name: use 1 to 64 of A-Z a-z 0-9 _"),
        (
            json!({"parameters": {"a": "x".repeat(16_384)}}),
            "body.parameters: has 16385 bytes, more than 16384",
        ),
        (json!({"key": "a b"}), "body.key: \"a b\" is not a valid key of a dispatch: use 1 to 128"),
        (json!({"priority": 101}), "body.priority: must be from 1 to 100"),
        (json!({"payloads": ""}), "body.payloads: is unknown: did you mean payload?"),
    ];
    for (mut body, problem) in bad {
        body["parameterised_guid"] = "resize".into();
        let refusal = read("dispatch", &body).unwrap_err();
        assert!(refusal.message.contains(problem), "{problem}: {refusal}");
    }
    let order = |names: [&str; 2]| {
        let list = names.map(|name| json!({"name": name, "value": name}));
        read("dispatch", &json!({"parameterised_guid": "resize", "parameters": list})).unwrap()
    };
    assert_eq!(order(["a", "b"]), order(["b", "a"]), "the order of parameters does not matter");
    let empty = read("dispatch", &json!({"parameterised_guid": "resize", "payload": ""})).unwrap();
    assert_eq!(
        empty.body(),
        json!({"parameterised_guid": "resize", "payload": ""}),
        "an empty payload is a payload"
    );
}

#[test]
fn invalid_template_field_is_refused_by_name() {
    let bad = [
        (json!({"parameterised_guid": "a--b"}), "its tasks are named a--b--dispatch-NUMBER"),
        (json!({"parameterised_guid": "a".repeat(97)}), "parameterised_guid: has 97 bytes, more than 96"),
        (json!({"payload": "maybe"}), "payload: "),
        (
            json!({"required_parameters": ["a b"]}),
            "required_parameters[0]: \"a b\" is not a valid \
            parameter name",
        ),
        (json!({"required_parameters": ["a", "a"]}), "required_parameters[1]: is given twice"),
        (
            json!({"required_parameters": ["a"], "optional_parameters": ["a"]}),
            "a is also in \
            required_parameters",
        ),
        (json!({"concurrency": 0}), "concurrency: must be from 1 to 10000"),
        (json!({"overflow": "queued"}), "overflow: has no effect without concurrency"),
        (json!({"overlap": "queued"}), "overlap: is unknown"),
    ];
    for (fields, problem) in bad {
        let mut body = json!({"parameterised_guid": "a", "domain": "apps", "action": {"run": {"path": "x"}}});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let refusal = spec::parameterised(body).unwrap_err();
        assert!(refusal.message.contains(problem), "{problem}: {refusal}");
    }
}

#[test]
fn parameterised_spec_round_trips_through_json() {
    for desired in [template(Some(3), Overflow::Refused), template(None, Overflow::Queued)] {
        assert_eq!(spec::parameterised(spec::parameterised_to_json(&desired)), Ok(desired));
    }
}

/// A random step of the test.
#[derive(Clone, Debug)]
enum Step {
    Dispatch(Option<u8>, u8),
    /// The oldest task ends.
    EndOldest,
    Withdraw(u8),
    Update(Option<u32>, Overflow),
    Remove,
    Desire,
}

fn step() -> impl Strategy<Value = Step> {
    let overflow = || prop_oneof![Just(Overflow::Queued), Just(Overflow::Refused)];
    prop_oneof![
        8 => (prop::option::of(0..3_u8), 0..2_u8).prop_map(|(key, payload)| Step::Dispatch(key, payload)),
        4 => Just(Step::EndOldest),
        1 => any::<u8>().prop_map(Step::Withdraw),
        1 => (prop::option::of(1..4_u32), overflow()).prop_map(|(most, overflow)| Step::Update(most, overflow)),
        1 => Just(Step::Remove),
        2 => Just(Step::Desire),
    ]
}

proptest! {
    /// Each dispatch is launched or withdrawn exactly once and in order. The concurrency limit is never
    /// exceeded.
    #[test]
    fn each_dispatch_is_launched_or_withdrawn_exactly_once(steps in prop::collection::vec(step(), 1..80)) {
        let mut stage = Harness::with(template(Some(2), Overflow::Queued));
        let (mut open, mut over) = (BTreeSet::new(), BTreeSet::new());
        let mut all: Vec<Event> = vec![];
        for step in steps {
            let asked = match step {
                Step::Dispatch(key, payload) => {
                    stage.dispatch(key.map(|key| format!("k{key}")).as_deref(), &payload.to_string())
                }
                Step::EndOldest => {
                    stage.live.borrow_mut().pop_first();
                    Ok(vec![])
                }
                Step::Withdraw(number) => stage.try_apply(&Command::Withdraw(number.into())),
                Step::Update(most, overflow) => stage.try_apply(&Command::Update(Box::new(template(most, overflow)))),
                Step::Remove => stage.try_apply(&Command::Remove),
                Step::Desire => stage.try_apply(&Command::Desire(Box::new(template(Some(2), Overflow::Queued)))),
            };
            all.extend(asked.unwrap_or_default());
            loop {
                let launched = stage.apply(&Command::Converge);
                if launched.is_empty() { break }
                all.extend(launched);
            }
        }
        for event in &all {
            match event {
                Event::Dispatched { number, .. } => {
                    prop_assert!(open.insert(*number) && !over.contains(number));
                }
                Event::Launched { number, .. } => {
                    prop_assert_eq!(open.first(), Some(number), "launched in order");
                    prop_assert!(open.remove(number) && over.insert(*number));
                }
                Event::Withdrawn { numbers, .. } => {
                    for number in numbers {
                        prop_assert!(open.remove(number) && over.insert(*number));
                    }
                }
                Event::Desired { .. }
                | Event::Updated { .. }
                | Event::Repeated { .. }
                | Event::Removed {} => {}
            }
        }
        let known = stage.known.as_ref().unwrap();
        prop_assert_eq!(stage.waiting_numbers(), open.into_iter().collect::<Vec<_>>());
        let most = known.desired.as_ref().and_then(|desired| desired.concurrency);
        let live = stage.live.borrow().len();
        prop_assert!(known.queue.is_empty() || most.is_some_and(|most| live >= most as usize), "{known:?}");
    }
}
