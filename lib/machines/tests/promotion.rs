//! Tests of the conversion between a DesiredLRP and a deployment with one definition (Updatable LRPs,
//! "Promotion of existing DesiredLRP entities to `LRPDeployment` entities", "Projection of an `LRPDeployment`
//! entity down to a DesiredLRP entity").

use std::sync::Arc;

use machines::desired::Desired;
use machines::process::{self, Context, Process};
use proptest::prelude::*;
use schemas::container::Epoch;
use schemas::definition::{DesiredLrp, DesiredLrpUpdate, Mode};
use schemas::entry::Event;
use schemas::isolation::Isolation;
use schemas::names::{DecisionId, DefinitionId, Domain};
use schemas::process::{Command, Report, ReportStep};
use schemas::spec::{ClientCommand, client_command};
use schemas::stamp::Stamp;
use schemas::{Place, Timestamp, actual, desired};
use serde_json::json;

use crate::common::{id, instance, net_info};
use crate::strategies::{any_lrp, any_policies, any_update};

/// A process that the tests apply commands to.
struct Deployment {
    process: Process,
    now: Timestamp,
}

impl Deployment {
    /// Creates the deployment of a DesiredLRP.
    fn from_lrp(lrp: &DesiredLrp) -> Self {
        let now = Timestamp::from_millis(1_000_000_000);
        let process = Process::new(lrp.process_guid.clone(), lrp.domain.clone(), Epoch(now));
        let mut deployment = Self { process, now };
        deployment.apply(&Command::Desire(Box::new(lrp.clone())));
        deployment
    }

    fn apply(&mut self, command: &Command) -> Vec<Event> {
        self.now = self.now.next();
        let context = Context {
            now: self.now,
            is_fresh: true,
            is_present: &|_| true,
            is_known: &|_| true,
            for_each_cell: &|_| {},
        };
        let events = process::decide(Some(&self.process), command, context).unwrap();
        let decision = DecisionId(id(u128::from(self.now.0)));
        let stamp = Stamp::root(decision, self.now);
        process::evolve(&mut self.process, &events, &stamp);
        events
    }

    /// Reports the instance at index 0 of a definition as running.
    fn start(&mut self, definition_id: &DefinitionId) -> Vec<Event> {
        let place = Place::new(0, definition_id.clone());
        let start = actual::Command::Start { net: net_info(1), isolation: Isolation::NONE };
        self.apply(&Command::Report(Report {
            domain: self.process.domain.clone(),
            epoch: self.process.epoch,
            by: instance(7, "c1"),
            observed_at: self.process.changed_at(&place),
            steps: vec![ReportStep::Actual(start)],
            place,
        }))
    }

    fn desired(&self) -> &Desired {
        self.process.desired.as_deref().unwrap()
    }

    fn projected(&self) -> Option<DesiredLrp> {
        self.desired().project(&self.process.guid, &self.process.domain)
    }
}

/// Returns the DesiredLRP as a replicated process with few instances. The instances are healthy as soon as
/// they run.
fn without_monitor(mut lrp: DesiredLrp) -> DesiredLrp {
    lrp.mode = Mode::Replicated;
    lrp.policies.update.monitor_ms = 0;
    lrp.instances = lrp.instances % 20 + 1;
    lrp
}

proptest! {
    #![proptest_config(crate::strategies::cases(200))]

    #[test]
    fn promotion_and_projection_round_trip(lrp in any_lrp()) {
        let lrp = without_monitor(lrp);
        let mut deployment = Deployment::from_lrp(&lrp);
        prop_assert_eq!(deployment.projected(), Some(lrp.clone()));
        prop_assert_eq!(&deployment.desired().active_definition_id, &lrp.definition_id);
        prop_assert_eq!(&deployment.desired().healthy_definition_id, &None, "nothing ran yet");

        let events = deployment.start(&lrp.definition_id);
        let healthy = desired::Event::HealthyChanged { definition_id: lrp.definition_id.clone() };
        prop_assert!(events.contains(&Event::Desired(healthy)), "{:?}", events);
        prop_assert_eq!(&deployment.desired().healthy_definition_id, &Some(lrp.definition_id.clone()));
        prop_assert_eq!(deployment.projected(), Some(lrp));
        prop_assert_eq!(&deployment.process.rollout, &None, "nothing is rolled out");
    }

    /// The projection shows every change of an update. Only the active definition is shown.
    #[test]
    fn projection_reflects_updates(lrp in any_lrp(), update in any_update(), other in any_lrp()) {
        let lrp = without_monitor(lrp);
        let mut deployment = Deployment::from_lrp(&lrp);
        let update = DesiredLrpUpdate { instances: update.instances.map(|instances| instances % 20), ..update };
        let DesiredLrpUpdate { instances, priority, routes, annotation, policies } = update.clone();
        deployment.apply(&Command::Update(update));
        let changed = DesiredLrp {
            instances: instances.unwrap_or(lrp.instances),
            priority: priority.unwrap_or(lrp.priority),
            routes: routes.unwrap_or_else(|| lrp.routes.clone()),
            annotation: annotation.unwrap_or_else(|| lrp.annotation.clone()),
            policies: policies.unwrap_or_else(|| lrp.policies.clone()),
            ..lrp.clone()
        };
        prop_assert_eq!(deployment.projected(), Some(changed.clone()));

        let definition_id = DefinitionId::new("another-one").unwrap();
        let deploy = Command::Deploy {
            update: DesiredLrpUpdate::default(),
            definition_id: definition_id.clone(),
            definition: Arc::clone(&other.definition),
        };
        deployment.apply(&deploy);
        let definition_id = if *other.definition == *lrp.definition { lrp.definition_id } else { definition_id };
        let definition = other.definition;
        prop_assert_eq!(deployment.projected(), Some(DesiredLrp { definition_id, definition, ..changed }));
    }

    /// A row shows policies in a form that clients can send back.
    #[test]
    fn policies_round_trip_through_json_postcard_and_command(policies in any_policies()) {
        let shown = serde_json::to_value(&policies).unwrap();
        prop_assert_eq!(serde_json::from_value(shown.clone()).ok(), Some(policies.clone()));
        let packed = postcard::to_stdvec(&policies).unwrap();
        prop_assert_eq!(postcard::from_bytes(&packed).ok(), Some(policies.clone()));
        let body = json!({"body": {"process_guid": "web", "policies": shown}}).to_string();
        let (_, command) =
            client_command("lrp", "update", &Domain::new("apps").unwrap(), body.as_bytes()).unwrap();
        let ClientCommand::LrpUpdate { update, .. } = command else { panic!("{command:?}") };
        prop_assert_eq!(update.policies, Some(policies));
    }
}
