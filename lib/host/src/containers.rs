//! Container backends of a rep: real processes, or scripted containers in memory for benchmarks.

use std::sync::Arc;

use executor::process::{self, PrepareError};
use rep::{Input, Unprepared};
use schemas::container::{Container, Recipe};
use schemas::isolation::Isolation;
use schemas::names::InstanceGuid;
use scripted::{Behaviour, Scripted};
use tokio::sync::mpsc;

use super::drive::run_or_spawn;

/// Container backend of a rep.
#[derive(Clone, Debug)]
pub enum Containers {
    Process(Arc<process::Executor>),
    /// Scripted containers in memory.
    Scripted(mpsc::UnboundedSender<Order>),
}

/// Order to the scripted backend.
#[derive(Debug)]
pub enum Order {
    Run(Box<Recipe>),
    Stop(InstanceGuid),
    Delete(InstanceGuid),
    Crash(InstanceGuid, String),
    List,
}

impl Containers {
    /// Starts the scripted backend, which sends changes of containers to the rep.
    pub(crate) fn scripted(inputs: mpsc::Sender<Input>) -> Self {
        let (orders, receiver) = mpsc::unbounded_channel();
        tokio::spawn(run_scripted(receiver, inputs));
        Self::Scripted(orders)
    }

    /// Opens the process backend, which sends changes of containers to the rep.
    ///
    /// # Errors
    /// The data folder cannot be opened.
    pub(crate) async fn process(
        settings: process::Settings,
        inputs: mpsc::Sender<Input>,
    ) -> Result<Self, process::OpenError> {
        let (executor, mut changes) = process::Executor::open(settings).await?;
        tokio::spawn(async move {
            while let Some(container) = changes.recv().await {
                if inputs.send(Input::Container(container)).await.is_err() {
                    return;
                }
            }
        });
        Ok(Self::Process(Arc::new(executor)))
    }

    /// Returns the isolation that new containers get at present.
    pub(crate) fn isolation(&self) -> Isolation {
        match self {
            Self::Process(executor) => executor.isolation(),
            Self::Scripted(_) => Isolation::NONE,
        }
    }

    /// Returns the number of folders of deleted containers that could not be removed so far.
    pub(crate) fn unremoved(&self) -> u64 {
        match self {
            Self::Process(executor) => executor.unremoved_folders(),
            Self::Scripted(_) => 0,
        }
    }

    /// Prepares containers. The outcomes are sent to the rep as inputs.
    pub(crate) fn prepare(&self, recipes: Vec<Recipe>, inputs: &mpsc::Sender<Input>) {
        match self {
            Self::Process(executor) => {
                for recipe in recipes {
                    let (guid, inputs) = (recipe.instance_guid, inputs.clone());
                    let prepared = executor.prepare(recipe);
                    tokio::spawn(async move {
                        let outcome = prepared.await.map_err(|error| preparation_error(&error));
                        drop(inputs.send(Input::Prepared(vec![(guid, outcome)])).await);
                    });
                }
            }
            Self::Scripted(_) => {
                let ready = recipes.into_iter().map(|recipe| (recipe.instance_guid, Ok(()))).collect();
                let inputs = inputs.clone();
                run_or_spawn(async move { drop(inputs.send(Input::Prepared(ready)).await) });
            }
        }
    }

    /// Releases the resources of a prepared container that will not be run.
    pub(crate) fn discard(&self, guid: InstanceGuid) {
        match self {
            Self::Process(executor) => executor.discard(guid),
            Self::Scripted(_) => {}
        }
    }

    /// Releases the resources of all prepared containers.
    pub(crate) fn discard_all(&self) {
        match self {
            Self::Process(executor) => executor.discard_all(),
            Self::Scripted(_) => {}
        }
    }

    pub(crate) fn run(&self, recipe: Box<Recipe>) {
        match self {
            Self::Process(executor) => executor.run(*recipe),
            Self::Scripted(orders) => send_order(orders, Order::Run(recipe)),
        }
    }

    pub(crate) fn stop(&self, guid: InstanceGuid) {
        match self {
            Self::Process(executor) => executor.stop(guid),
            Self::Scripted(orders) => send_order(orders, Order::Stop(guid)),
        }
    }

    pub(crate) fn delete(&self, guid: InstanceGuid) {
        match self {
            Self::Process(executor) => executor.delete(guid),
            Self::Scripted(orders) => send_order(orders, Order::Delete(guid)),
        }
    }

    /// Makes a scripted container crash. Real containers are not affected.
    pub fn crash(&self, guid: InstanceGuid, reason: &str) {
        match self {
            Self::Process(_) => {}
            Self::Scripted(orders) => send_order(orders, Order::Crash(guid, reason.to_owned())),
        }
    }

    /// Lists all containers. The list is sent to the rep as an input.
    pub(crate) fn list(&self, inputs: &mpsc::Sender<Input>) {
        match self {
            Self::Process(executor) => {
                let (executor, inputs) = (Arc::clone(executor), inputs.clone());
                tokio::spawn(async move { drop(inputs.send(Input::Containers(executor.list())).await) });
            }
            Self::Scripted(orders) => send_order(orders, Order::List),
        }
    }

    /// Tests whether this cell can run containers at all.
    pub(crate) async fn self_test(&self) -> Result<(), process::SelfTestError> {
        match self {
            Self::Process(executor) => executor.self_test().await,
            Self::Scripted(_) => Ok(()),
        }
    }

    /// Deletes all containers, because the cell ceases to exist when this program exits.
    pub(crate) async fn end_all(&self) {
        match self {
            Self::Process(executor) => executor.delete_all().await,
            Self::Scripted(_) => {}
        }
    }
}

/// Converts a preparation error to the error type of the rep.
fn preparation_error(error: &PrepareError) -> Unprepared {
    let is_fault = match error {
        PrepareError::Failed(_) => true,
        PrepareError::NoPort(_) | PrepareError::Discarded => false,
    };
    Unprepared { reason: format!("failed to create container: {error}"), is_fault }
}

fn send_order(orders: &mpsc::UnboundedSender<Order>, order: Order) {
    // The send fails only if the receiver has ended together with its rep. In that case the order is
    // irrelevant.
    drop(orders.send(order));
}

/// Simulates scripted containers: receives orders, and sends changes at the times in the scripts.
async fn run_scripted(mut orders: mpsc::UnboundedReceiver<Order>, inputs: mpsc::Sender<Input>) {
    let mut scripted = Scripted::new("127.0.0.1", Behaviour::from_recipe);
    loop {
        let due = scripted.next_due();
        tokio::select! {
            biased;
            order = orders.recv() => {
                let Some(order) = order else { return };
                if let Some(list) = apply_order(&mut scripted, order)
                    && inputs.send(Input::Containers(list)).await.is_err()
                {
                    return;
                }
            }
            () = async {
                match due {
                    Some(due) => tokio::time::sleep(due.since(clock::now())).await,
                    None => std::future::pending().await,
                }
            } => {}
        }
        for container in scripted.advance(clock::now()) {
            if inputs.send(Input::Container(container)).await.is_err() {
                return;
            }
        }
        scripted.take_events();
    }
}

fn apply_order(scripted: &mut Scripted, order: Order) -> Option<Vec<Container>> {
    let now = clock::now();
    match order {
        Order::Run(recipe) => scripted.run(now, &recipe),
        Order::Stop(guid) => scripted.stop(now, guid),
        Order::Delete(guid) => scripted.delete(now, guid),
        Order::Crash(guid, reason) => scripted.crash(now, guid, &reason),
        Order::List => return Some(scripted.list()),
    }
    None
}
