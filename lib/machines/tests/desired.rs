//! Tests of the desired state of a process.

use machines::desired::evolve;
use schemas::definition::DesiredLrpUpdate;
use schemas::desired;
use schemas::policy::Policies;
use schemas::priority::Priority;

use crate::common::lrp;

#[test]
fn update_difference_contains_changed_fields_only() {
    let lrp = lrp("d", 3);
    let known = evolve(None, &desired::Event::Desired(Box::new(lrp.clone()))).unwrap();
    let same = DesiredLrpUpdate {
        instances: Some(lrp.instances),
        priority: Some(lrp.priority),
        routes: Some(lrp.routes.clone()),
        annotation: Some(lrp.annotation),
        policies: Some(lrp.policies),
    };
    assert_eq!(known.difference(&same), None);
    assert_eq!(known.difference(&DesiredLrpUpdate::default()), None);
    let none = DesiredLrpUpdate::default;
    let policies = Policies { min_running: Some(1), ..Policies::default() };
    let routes = [("other".to_owned(), "1".to_owned())].into();
    for change in [
        DesiredLrpUpdate { instances: Some(4), ..none() },
        DesiredLrpUpdate { priority: Priority::new(1), ..none() },
        DesiredLrpUpdate { routes: Some(routes), ..none() },
        DesiredLrpUpdate { annotation: Some("other".into()), ..none() },
        DesiredLrpUpdate { policies: Some(policies), ..none() },
    ] {
        assert_eq!(known.difference(&change), Some(change.clone()));
        let with_the_same = DesiredLrpUpdate {
            instances: change.instances.or(same.instances),
            priority: change.priority.or(same.priority),
            routes: change.routes.clone().or_else(|| same.routes.clone()),
            annotation: change.annotation.clone().or_else(|| same.annotation.clone()),
            policies: change.policies.clone().or_else(|| same.policies.clone()),
        };
        assert_eq!(known.difference(&with_the_same), Some(change));
    }
}
