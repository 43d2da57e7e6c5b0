//! State that the keepers of one executor share: the register of containers, the ports, and the changes to
//! announce. A keeper is the task that manages one container.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use artifacts::Store;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, OnceCell, Semaphore, mpsc, watch};

use schemas::container::{Container, ContainerState, PortMapping, RunResult};
use schemas::names::InstanceGuid;

use super::Settings;
use super::ended::EndedLogs;
use super::isolating::ContainerIsolation;
use super::ports::Ports;
use super::prepare::Preparations;
use crate::cgroup::Cgroups;
use crate::folder::Folder;
use crate::trash::Trash;

/// Maximum number of concurrent creations of containers. A creation consists of a dozen short system calls,
/// so a higher number would only cause contention.
const MAX_CONCURRENT_CREATIONS: usize = 4;

/// Requested state of a container. Later variants override earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Order {
    Run,
    Stop,
    Delete,
}

/// State shared by the keepers of one executor.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) creation_permits: Semaphore,
    /// Folders that are being removed.
    pub(super) trash: Arc<Trash>,
    /// Retained logs of deleted containers.
    pub(super) ended: EndedLogs,
    /// Control groups, if available.
    pub(super) cgroups: Option<Cgroups>,
    /// Isolation of new containers.
    pub(super) isolating: ContainerIsolation,
    /// Artifact store for downloads and uploads. Opened at the first use.
    pub(super) store: OnceCell<Store>,
    /// Prepared containers.
    pub(super) preparations: Preparations,
    ports: Mutex<Ports>,
    register: Mutex<Register>,
    /// Notified of changes to announce.
    changed: Notify,
    /// Notifies the tasks that wait for a container to complete or to be deleted.
    lifecycle_changed: Notify,
}

#[derive(Debug, Default)]
struct Register {
    containers: BTreeMap<InstanceGuid, Entry>,
    /// Containers with a state that was not announced yet.
    unannounced: BTreeSet<InstanceGuid>,
}

#[derive(Debug)]
struct Entry {
    container: Container,
    /// `true` if the container is internal to the executor and is not listed.
    hidden: bool,
    order: watch::Sender<Order>,
}

/// Runs a blocking job on a thread that is reserved for blocking jobs.
pub(super) async fn run_blocking<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(job).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down and will drop this task, too.
            Err(_) => std::future::pending().await,
        },
    }
}

impl Shared {
    pub(super) fn new(
        settings: Settings,
        ports: Ports,
        trash: Arc<Trash>,
        ended: EndedLogs,
        cgroups: Option<Cgroups>,
        isolating: ContainerIsolation,
    ) -> Self {
        Self {
            settings,
            creation_permits: Semaphore::new(MAX_CONCURRENT_CREATIONS),
            trash,
            ended,
            cgroups,
            isolating,
            store: OnceCell::new(),
            preparations: Preparations::default(),
            ports: Mutex::new(ports),
            register: Mutex::default(),
            changed: Notify::new(),
            lifecycle_changed: Notify::new(),
        }
    }

    /// Returns the folder of a container.
    pub(super) fn folder(&self, guid: InstanceGuid) -> Folder {
        Folder::new(self.settings.data.join("containers").join(guid.to_string()))
    }

    /// Registers a new container, and the host ports that the container already has. `None` if a container
    /// with this guid is already registered.
    pub(super) fn register(
        &self,
        container: Container,
        ports: &[PortMapping],
        hidden: bool,
    ) -> Option<watch::Receiver<Order>> {
        let guid = container.instance_guid;
        let mut register = self.register.lock();
        if register.containers.contains_key(&guid) {
            return None;
        }
        self.ports().adopt(ports);
        let (order, orders) = watch::channel(Order::Run);
        register.containers.insert(guid, Entry { container, hidden, order });
        if !hidden {
            register.unannounced.insert(guid);
        }
        drop(register);
        self.changed.notify_one();
        Some(orders)
    }

    /// Sends an order to a container's keeper. Does nothing if the keeper already has this order or an order
    /// that overrides it.
    pub(super) fn order(&self, guid: InstanceGuid, order: Order) {
        if let Some(entry) = self.register.lock().containers.get(&guid) {
            entry.order.send_if_modified(|current| {
                let greater = order > *current;
                *current = order.max(*current);
                greater
            });
        }
    }

    /// Announces the state of a container. A state is ignored if it precedes the last announced state in the
    /// life cycle.
    pub(super) fn announce(&self, guid: InstanceGuid, state: ContainerState) {
        let mut register = self.register.lock();
        let Some(entry) = register.containers.get_mut(&guid) else { return };
        if state_rank(&state) <= state_rank(&entry.container.state) {
            return;
        }
        entry.container.state = state;
        if !entry.hidden {
            register.unannounced.insert(guid);
        }
        drop(register);
        self.changed.notify_one();
        self.lifecycle_changed.notify_waiters();
    }

    /// Removes a container from the register and releases its ports.
    pub(super) fn unregister(&self, guid: InstanceGuid, ports: &[PortMapping]) {
        self.ports().release(ports);
        let mut register = self.register.lock();
        register.containers.remove(&guid);
        register.unannounced.remove(&guid);
        drop(register);
        self.lifecycle_changed.notify_waiters();
    }

    pub(super) fn get(&self, guid: InstanceGuid) -> Option<Container> {
        self.register.lock().containers.get(&guid).map(|entry| entry.container.clone())
    }

    /// Returns all containers that are not hidden.
    pub(super) fn list(&self) -> Vec<Container> {
        let register = self.register.lock();
        let shown = register.containers.values().filter(|entry| !entry.hidden);
        shown.map(|entry| entry.container.clone()).collect()
    }

    /// Returns the guids of all containers.
    pub(super) fn guids(&self) -> Vec<InstanceGuid> {
        self.register.lock().containers.keys().copied().collect()
    }

    /// Waits until a container is completed. The container must not be deleted during the wait.
    pub(super) async fn wait_until_completed(&self, guid: InstanceGuid) -> RunResult {
        loop {
            let moved = self.lifecycle_changed.notified();
            match self.get(guid).map(|container| container.state) {
                Some(ContainerState::Completed(result)) => return result,
                Some(
                    ContainerState::Reserved
                    | ContainerState::Initializing
                    | ContainerState::Created
                    | ContainerState::Running(_),
                ) => moved.await,
                None => return RunResult::Stopped,
            }
        }
    }

    /// Waits until a container is removed from the register. `None` waits for all containers.
    pub(super) async fn wait_until_gone(&self, guid: Option<InstanceGuid>) {
        loop {
            let moved = self.lifecycle_changed.notified();
            let there = match guid {
                Some(guid) => self.register.lock().containers.contains_key(&guid),
                None => !self.register.lock().containers.is_empty(),
            };
            if !there {
                return;
            }
            moved.await;
        }
    }

    /// Sends each state that was not announced yet. Returns when the receiver is dropped.
    pub(super) async fn forward_changes(&self, to: mpsc::Sender<Container>) {
        loop {
            while let Some(container) = self.pop_unannounced() {
                if to.send(container).await.is_err() {
                    return;
                }
            }
            self.changed.notified().await;
        }
    }

    fn pop_unannounced(&self) -> Option<Container> {
        let mut register = self.register.lock();
        let guid = register.unannounced.pop_first()?;
        register.containers.get(&guid).map(|entry| entry.container.clone())
    }

    pub(super) fn ports(&self) -> MutexGuard<'_, Ports> {
        self.ports.lock()
    }
}

/// Returns the position of a state in the life cycle of a container.
const fn state_rank(state: &ContainerState) -> u8 {
    match state {
        ContainerState::Reserved => 0,
        ContainerState::Initializing => 1,
        ContainerState::Created => 2,
        ContainerState::Running(_) => 3,
        ContainerState::Completed(_) => 4,
    }
}
