//! Queues in which names take turns, so that a busy client does not delay the others.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bbs::Input;
use bbs::queue::Turns;
use tokio::sync::{Notify, mpsc};

use super::drive::Source;

/// Maximum number of requests per turn of the machine, so that journal entries are taken in between.
const ASKED_IN_A_TURN: usize = 256;

/// Waiting items by name. Needs no limit of its own, because a budget has admitted every item.
#[derive(Debug)]
pub(super) struct Lanes<T> {
    waiting: Mutex<Turns<String, T>>,
    arrived: Notify,
}

impl<T> Default for Lanes<T> {
    fn default() -> Self {
        Self { waiting: Mutex::default(), arrived: Notify::new() }
    }
}

impl<T> Lanes<T> {
    /// Appends an item to the queue of a name. Never waits.
    pub(super) fn put(&self, name: &str, what: T) {
        self.lock().push(name.to_owned(), what);
        self.arrived.notify_one();
    }

    /// Takes the oldest item of the name whose turn it is.
    fn take(&self) -> Option<T> {
        self.lock().pop()
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

    fn lock(&self) -> MutexGuard<'_, Turns<String, T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Inputs of a BBS: first events in their order, then requests, whose names take turns.
#[derive(Debug)]
pub(super) struct Inputs {
    pub(super) happened: mpsc::Receiver<Input>,
    pub(super) asked: Arc<Lanes<Input>>,
}

impl Source<Input> for Inputs {
    async fn take(&mut self, batch: &mut Vec<Input>, most: usize) -> usize {
        let count = tokio::select! {
            biased;
            count = self.happened.recv_many(batch, most) => count,
            asked = self.asked.next() => {
                batch.push(asked);
                1
            }
        };
        if count == 0 {
            return 0;
        }
        batch.extend(std::iter::from_fn(|| self.asked.take()).take(ASKED_IN_A_TURN));
        batch.len()
    }
}

#[cfg(test)]
mod tests {
    use bbs::Query;
    use projections::Query as Rows;
    use schemas::query::Filter;

    use super::*;

    fn asked(requester: u64) -> Input {
        let query = Query::Rows(Rows::Lrps(Filter::default()));
        Input::Queried { requester, at_least: None, query }
    }

    fn askers(batch: &[Input]) -> Vec<Option<u64>> {
        let requester = |input: &Input| {
            if let Input::Queried { requester, .. } = input { Some(*requester) } else { None }
        };
        batch.iter().map(requester).collect()
    }

    #[tokio::test]
    async fn what_happened_goes_first_and_then_names_take_turns() {
        let (sender, happened) = mpsc::channel(8);
        let lanes: Arc<Lanes<Input>> = Arc::default();
        (0..20_000).for_each(|number| lanes.put("loud", asked(number)));
        lanes.put("quiet", asked(100_000));
        sender.send(Input::Disconnected).await.unwrap();
        let mut inputs = Inputs { happened, asked: Arc::clone(&lanes) };
        let mut batch = vec![];
        assert_eq!(inputs.take(&mut batch, 1_024).await, 1 + ASKED_IN_A_TURN);
        assert_eq!(askers(&batch)[..4], [None, Some(0), Some(100_000), Some(1)]);
        batch.clear();
        lanes.put("late", asked(200_000));
        inputs.take(&mut batch, 1_024).await;
        assert!(askers(&batch)[..2].contains(&Some(200_000)), "{:?}", askers(&batch));
        drop(sender);
        assert_eq!(inputs.take(&mut vec![], 1_024).await, 0, "nothing can happen any more");
    }

    #[tokio::test]
    async fn who_waits_is_woken() {
        let lanes: Arc<Lanes<u32>> = Arc::default();
        let next = |lanes: &Arc<Lanes<u32>>| {
            let lanes = Arc::clone(lanes);
            tokio::spawn(async move { lanes.next().await })
        };
        let waiting = [next(&lanes), next(&lanes)];
        tokio::task::yield_now().await;
        lanes.put("a", 1);
        lanes.put("a", 2);
        let mut got = vec![];
        for one in waiting {
            got.push(one.await.unwrap());
        }
        got.sort_unstable();
        assert_eq!(got, [1, 2]);
    }
}
