//! Reports the cluster of a service to an operator who is about to found a cluster.

use bus::{Bus, BusError};
use schemas::bus::BusSubject;
use schemas::codec::{self, Form};
use schemas::message::KnownCluster;
use schemas::names::ClusterId;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Answers `muster cluster found` until the guard is dropped. `known` returns `None` while the service
/// belongs to no cluster.
///
/// # Errors
/// The bus cannot be subscribed to.
pub(crate) async fn report(
    bus: &Bus,
    service: String,
    known: impl Fn() -> Option<ClusterId> + Send + 'static,
) -> Result<DropGuard, BusError> {
    let mut asked = bus.subscribe(&BusSubject::FoundingQuery.to_string(), None).await?;
    let (bus, ends) = (bus.clone(), CancellationToken::new());
    let answers = async move {
        while asked.next().await.is_some() {
            let Some(cluster_id) = known() else { continue };
            let known = codec::encode(Form::Json, &KnownCluster { cluster_id, service: service.clone() });
            if let Err(error) = bus.publish(&BusSubject::FoundingReply.to_string(), known.into()).await {
                tracing::debug!(%error, "cluster not reported");
            }
        }
    };
    tokio::spawn(ends.clone().run_until_cancelled_owned(answers));
    Ok(ends.drop_guard())
}
