//! The feed: every event of an acknowledged entry, published to subscribers immediately. This module defines
//! the subjects. The messages are of type [`crate::cloudevent::CloudEvent`].

use crate::entry::{Aggregate, Event};
use crate::names::ClusterId;

/// Prefix of every subject of the feed.
pub const FEED_ROOT: &str = "muster.feed.";
/// Subject pattern for all events of the cluster.
pub const ALL_EVENTS: &str = "muster.feed.>";

/// Returns the subject of an event: `muster.feed.<noun>.<id>.<event>`, such as
/// `muster.feed.lrp.web.actual_claimed`. The cluster's own events are published under its id.
#[must_use]
pub fn subject(cluster: ClusterId, aggregate: &Aggregate, event: &Event) -> String {
    let event = token(event.type_name());
    match aggregate {
        Aggregate::Process { guid, .. } => format!("{FEED_ROOT}lrp.{guid}.{event}"),
        Aggregate::Task { guid, .. } => format!("{FEED_ROOT}task.{guid}.{event}"),
        Aggregate::Periodic { guid, .. } => format!("{FEED_ROOT}periodic.{guid}.{event}"),
        Aggregate::Parameterised { guid, .. } => format!("{FEED_ROOT}parameterised.{guid}.{event}"),
        Aggregate::Domain(domain) => format!("{FEED_ROOT}domain.{domain}.{event}"),
        Aggregate::Cell(cell) => format!("{FEED_ROOT}cell.{cell}.{event}"),
        Aggregate::Cluster => format!("{FEED_ROOT}cluster.{cluster}.{event}"),
    }
}

/// Returns the type of an event as one token of a subject, such as `actual_claimed` for `actual.claimed.v1`.
/// The token has no version, so that all versions of an event share a subject. The message contains the
/// version.
fn token(type_name: &str) -> String {
    let unversioned = type_name.rsplit_once(".v").map_or(type_name, |(name, _)| name);
    unversioned.replace('.', "_")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use uuid::Uuid;

    use super::*;
    use crate::cell;
    use crate::names::CellId;
    use crate::stored;

    #[test]
    fn event_types_have_distinct_subject_tokens() {
        let tokens: BTreeSet<String> = stored::Event::types().map(token).collect();
        let unversioned = stored::Event::types().map(|name| name.rsplit_once(".v").unwrap().0);
        assert_eq!(tokens.len(), unversioned.collect::<BTreeSet<_>>().len());
        let plain = |token: &String| token.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        assert!(tokens.iter().all(plain), "{tokens:?}");
        assert!(tokens.contains("actual_stop_requested") && tokens.contains("cell_appeared"));
    }

    #[test]
    fn subject_names_aggregate_and_event() {
        let of = |aggregate| subject(ClusterId(Uuid::nil()), &aggregate, &Event::Cell(cell::Event::Left {}));
        assert_eq!(of(Aggregate::Cell(CellId::new("c1").unwrap())), "muster.feed.cell.c1.cell_left");
        assert_eq!(
            of(Aggregate::Cluster),
            "muster.feed.cluster.00000000-0000-0000-0000-000000000000.cell_left"
        );
    }
}
