//! Refusals of a BBS without a journal. Queries and commands are refused with the reason, so that clients do
//! not time out.

use std::sync::Arc;

use bus::{Bus, Incoming};
use parking_lot::Mutex;
use schemas::bus::{BusPattern, BusSubject};
use schemas::codec::Form;
use schemas::{Code, Refusal};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::QUERY_GROUP;
use super::authority::{checked_reply, is_expected_inbox};
use crate::requests::send_reply;

/// Responder that refuses queries and commands until it is dropped.
#[derive(Debug)]
pub(crate) struct NoJournalResponder {
    queries: Bus,
    commands: Bus,
    reason: Arc<Mutex<Option<String>>>,
    ends: CancellationToken,
    _guard: DropGuard,
}

impl NoJournalResponder {
    /// Creates a responder that refuses no requests yet.
    pub(crate) fn new(queries: Bus, commands: Bus) -> Self {
        let ends = CancellationToken::new();
        Self { queries, commands, reason: Arc::default(), _guard: ends.clone().drop_guard(), ends }
    }

    /// Refuses requests for this reason from now on.
    pub(crate) fn refuse(&self, why: &str) {
        let before = self.reason.lock().replace(why.to_owned());
        if before.is_some() {
            return;
        }
        let all = [
            (&self.queries, BusPattern::Queries),
            (&self.commands, BusPattern::Clients),
            (&self.commands, BusPattern::Operators),
        ];
        for (bus, pattern) in all {
            let refuses = refuse_all(bus.clone(), pattern, Arc::clone(&self.reason));
            tokio::spawn(self.ends.clone().run_until_cancelled_owned(refuses));
        }
    }
}

/// Refuses every request on a pattern. Waiting BBSs share a queue group, so that only one of them answers.
async fn refuse_all(bus: Bus, pattern: BusPattern, why: Arc<Mutex<Option<String>>>) {
    let mut asked = match bus.subscribe(&pattern.to_string(), Some(QUERY_GROUP)).await {
        Ok(asked) => asked,
        Err(error) => return tracing::warn!(%error, "can't report to clients why this BBS is waiting"),
    };
    while let Some(incoming) = asked.next().await {
        let why = why.lock().clone().unwrap_or_default();
        refuse(&bus, &incoming, why).await;
    }
}

async fn refuse(bus: &Bus, incoming: &Incoming, why: String) {
    let Ok(subject) = BusSubject::parse(&incoming.subject) else { return };
    if let Some(reply) = checked_reply(incoming, |reply| is_expected_inbox(&subject, reply)) {
        send_reply::<()>(bus, &reply, Form::Json, Err(Refusal::new(Code::Unavailable, why))).await;
    }
}
