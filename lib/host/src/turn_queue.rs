//! Queues in which client names take turns, so that a busy client does not delay the others.

use std::sync::Arc;

use bbs::Input;
use bbs::queue::FairQueue;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};

use super::drive::Source;

/// Maximum number of requests per turn of the machine, so that journal entries are taken in between.
const MAX_REQUESTS_PER_TURN: usize = 256;

/// Waiting items by name. The queue needs no limit of its own, because a budget has admitted every item.
#[derive(Debug)]
pub(super) struct TurnQueue<T> {
    waiting: Mutex<FairQueue<String, T>>,
    arrived: Notify,
}

impl<T> Default for TurnQueue<T> {
    fn default() -> Self {
        Self { waiting: Mutex::default(), arrived: Notify::new() }
    }
}

impl<T> TurnQueue<T> {
    /// Appends an item to the queue of a name. Never waits.
    pub(super) fn push(&self, name: &str, what: T) {
        self.waiting.lock().push(name.to_owned(), what);
        self.arrived.notify_one();
    }

    /// Takes the oldest item of the name whose turn it is.
    fn take(&self) -> Option<T> {
        self.waiting.lock().pop()
    }

    /// Takes the next item, and waits for one if necessary. Cancel-safe.
    pub(super) async fn next(&self) -> T {
        loop {
            if let Some(what) = self.take() {
                return what;
            }
            // `Notify` keeps a notification that arrived since the check.
            self.arrived.notified().await;
        }
    }
}

/// Inputs of a BBS. Events are taken first, in their order. Requests follow, and their client names take
/// turns.
#[derive(Debug)]
pub(super) struct BbsInputs {
    pub(super) events: mpsc::Receiver<Input>,
    pub(super) asked: Arc<TurnQueue<Input>>,
}

impl Source<Input> for BbsInputs {
    async fn take(&mut self, batch: &mut Vec<Input>, most: usize) -> usize {
        let count = tokio::select! {
            biased;
            count = self.events.recv_many(batch, most) => count,
            asked = self.asked.next() => {
                batch.push(asked);
                1
            }
        };
        if count == 0 {
            return 0;
        }
        batch.extend(std::iter::from_fn(|| self.asked.take()).take(MAX_REQUESTS_PER_TURN));
        batch.len()
    }
}

#[cfg(test)]
mod tests {
    use bbs::Query;
    use projections::Query as Rows;
    use schemas::query::Filter;

    use super::*;

    fn queried(requester: u64) -> Input {
        let query = Query::Rows(Rows::Lrps(Filter::default()));
        Input::Query { requester, at_least: None, query }
    }

    fn requesters(batch: &[Input]) -> Vec<Option<u64>> {
        let requester = |input: &Input| {
            if let Input::Query { requester, .. } = input { Some(*requester) } else { None }
        };
        batch.iter().map(requester).collect()
    }

    #[tokio::test]
    async fn events_precede_requests_and_names_take_turns() {
        let (sender, happened) = mpsc::channel(8);
        let lanes: Arc<TurnQueue<Input>> = Arc::default();
        (0..20_000).for_each(|number| lanes.push("loud", queried(number)));
        lanes.push("quiet", queried(100_000));
        sender.send(Input::Disconnected).await.unwrap();
        let mut inputs = BbsInputs { events: happened, asked: Arc::clone(&lanes) };
        let mut batch = vec![];
        assert_eq!(inputs.take(&mut batch, 1_024).await, 1 + MAX_REQUESTS_PER_TURN);
        assert_eq!(requesters(&batch)[..4], [None, Some(0), Some(100_000), Some(1)]);
        batch.clear();
        lanes.push("late", queried(200_000));
        inputs.take(&mut batch, 1_024).await;
        assert!(requesters(&batch)[..2].contains(&Some(200_000)), "{:?}", requesters(&batch));
        drop(sender);
        assert_eq!(inputs.take(&mut vec![], 1_024).await, 0, "no more inputs can arrive");
    }

    #[tokio::test]
    async fn push_wakes_waiting_receivers() {
        let lanes: Arc<TurnQueue<u32>> = Arc::default();
        let next = |lanes: &Arc<TurnQueue<u32>>| {
            let lanes = Arc::clone(lanes);
            tokio::spawn(async move { lanes.next().await })
        };
        let waiting = [next(&lanes), next(&lanes)];
        tokio::task::yield_now().await;
        lanes.push("a", 1);
        lanes.push("a", 2);
        let mut got = vec![];
        for one in waiting {
            got.push(one.await.unwrap());
        }
        got.sort_unstable();
        assert_eq!(got, [1, 2]);
    }
}
