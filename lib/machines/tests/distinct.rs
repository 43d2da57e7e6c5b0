//! Tests of the constraints `distinct_cell` and `distinct_attribute`: a claim beyond the limit is refused,
//! regardless of the origin of the placement.

use std::collections::BTreeMap;
use std::sync::Arc;

use machines::cell::Cell;
use machines::process::{self, Context, Process};
use schemas::cell::{self, Presence};
use schemas::container::{Epoch, Instance};
use schemas::definition::{Definition, DesiredLrp};
use schemas::names::{CellId, DecisionId};
use schemas::process::{Command, Report, ReportStep};
use schemas::resources::Constraint;
use schemas::rules::{Operator, Rule, Rules};
use schemas::stamp::Stamp;
use schemas::{Code, Place, Refusal, Timestamp, actual};
use uuid::Uuid;

use crate::common::{domain, instance, lrp};

struct Stage {
    process: Process,
    cells: BTreeMap<CellId, Cell>,
    decisions: u64,
}

impl Stage {
    /// Creates a process with four instances, and four cells: two cells in rack r1, one in rack r2, and one
    /// without a rack.
    fn new(rule: Rule) -> Self {
        let stamp = stamp(1);
        let appear = |(id, attributes): (&str, &[(&str, &str)])| {
            let presence = Presence { attributes: fixtures::attributes(attributes), ..fixtures::presence(1) };
            let cell = machines::cell::evolve(None, &cell::Event::Appeared(presence), &stamp).unwrap();
            (fixtures::cell_id(id), cell)
        };
        let r1 = &[("rack", "r1")][..];
        let cells = [("c1", r1), ("c2", r1), ("c3", &[("rack", "r2")][..]), ("c4", &[])].map(appear);
        let rules = Rules { constraints: vec![rule], ..Rules::default() };
        let constraint = Constraint { rules: Some(Box::new(rules)), ..Constraint::default() };
        let definition = Arc::new(Definition { constraint: constraint.into(), ..fixtures::definition() });
        let web = DesiredLrp { definition, ..lrp("shop", 4) };
        let process = Process::new(web.process_guid.clone(), domain("shop"), Epoch(stamp.at));
        let mut stage = Self { process, cells: cells.into(), decisions: 1 };
        stage.apply(&Command::Desire(Box::new(web)));
        stage
    }

    fn apply(&mut self, command: &Command) {
        self.try_apply(command).unwrap();
    }

    fn try_apply(&mut self, command: &Command) -> Result<(), Refusal> {
        self.decisions += 1;
        let stamp = stamp(self.decisions);
        let numbered = |visit: process::CellVisitor<'_>| {
            (0..).zip(&self.cells).for_each(|(ordinal, (id, cell))| visit(ordinal, id, cell));
        };
        let context = Context {
            now: stamp.at,
            is_fresh: true,
            is_present: &|_| true,
            is_known: &|_| true,
            for_each_cell: &numbered,
        };
        let known = Some(&self.process).filter(|process| process.desired.is_some());
        let events = process::decide(known, command, context)?;
        process::evolve(&mut self.process, &events, &stamp);
        Ok(())
    }

    fn claim(&mut self, index: u32, cell: &str) -> Result<(), String> {
        let definition = self.process.desired.as_ref().unwrap().active_definition_id.clone();
        let by = Instance { cell_id: fixtures::cell_id(cell), ..instance(self.decisions.into(), "c0") };
        let place = Place::new(index, definition);
        let (epoch, observed_at) = (self.process.epoch, self.process.changed_at(&place));
        let steps = vec![ReportStep::Actual(actual::Command::Claim { placement: None })];
        let report = Report { domain: domain("shop"), place, epoch, by, observed_at, steps };
        self.try_apply(&Command::Report(report)).map_err(|refusal| {
            assert_eq!(refusal.code, Code::ActualLrpCannotBeClaimed);
            refusal.message
        })
    }
}

fn stamp(number: u64) -> Stamp {
    let decision = DecisionId(Uuid::from_u128(number.into()));
    Stamp::root(decision, Timestamp::from_millis(number))
}

#[test]
fn claim_beyond_distinct_cell_limit_is_refused() {
    let mut stage =
        Stage::new(Rule { attribute: None, operator: Operator::DistinctCell, value: String::new().into() });
    stage.claim(0, "c1").unwrap();
    let refused = stage.claim(1, "c1").unwrap_err();
    assert!(
        refused.contains(
            "constraint distinct_cell: instances of the process already \
                              there: 1"
        ),
        "{refused}"
    );
    stage.claim(1, "c2").unwrap();
    // An instance that is being stopped does not count.
    stage.apply(&Command::Retire { index: 0, definition_id: None });
    stage.claim(2, "c1").unwrap();
    stage.claim(3, "c1").unwrap_err();
}

#[test]
fn claim_beyond_distinct_attribute_limit_is_refused() {
    let mut stage = Stage::new(Rule {
        attribute: Some("rack".parse().unwrap()),
        operator: Operator::DistinctAttribute,
        value: "2".to_owned().into(),
    });
    stage.claim(0, "c1").unwrap();
    stage.claim(1, "c2").unwrap();
    let refused = stage.claim(2, "c1").unwrap_err();
    assert!(
        refused.contains(
            "constraint distinct_attribute rack 2: instances of the process already \
                              there: 2"
        ),
        "{refused}"
    );
    stage.claim(2, "c3").unwrap();
}
