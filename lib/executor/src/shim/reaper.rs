//! Child processes of the shim, including adopted ones. The shim is the subreaper of its descendants, so a
//! process that detaches itself becomes a child of the shim.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{WaitOptions, WaitStatus};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

/// Reaps every child that ends. No other code of the shim waits for children.
#[derive(Debug)]
pub(super) struct Reaper {
    /// Senders for the exit status of each child, by pid.
    receivers: RefCell<BTreeMap<i32, oneshot::Sender<WaitStatus>>>,
    reaped: Notify,
}

impl Reaper {
    /// Starts listening for ended children. Must be called before the first child is started.
    pub(super) fn start() -> io::Result<Rc<Self>> {
        let signals = signal(SignalKind::child())?;
        let reaper = Rc::new(Self { receivers: RefCell::default(), reaped: Notify::new() });
        tokio::task::spawn_local(Rc::clone(&reaper).listen(signals));
        Ok(reaper)
    }

    /// Returns a receiver for the exit status of a child. The caller must call this function immediately
    /// after starting the child, without yielding between the two calls.
    pub(super) fn register(&self, pid: i32) -> oneshot::Receiver<WaitStatus> {
        let (sender, receiver) = oneshot::channel();
        self.receivers.borrow_mut().insert(pid, sender);
        receiver
    }

    /// Waits until no child remains. In that case, no descendant remains either. Returns `false` if the wait
    /// exceeds `limit`.
    pub(super) async fn childless_within(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            let reaped = self.reaped.notified();
            if self.reap() {
                return true;
            }
            if timeout_at(deadline, reaped).await.is_err() {
                return false;
            }
        }
    }

    async fn listen(self: Rc<Self>, mut signals: Signal) {
        while signals.recv().await.is_some() {
            self.reap();
            self.reaped.notify_waiters();
        }
    }

    /// Reaps all ended children. Returns `true` if no child remains.
    fn reap(&self) -> bool {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if let Some(waiting) = self.receivers.borrow_mut().remove(&pid.as_raw_pid()) {
                        // The receiver may have been dropped.
                        waiting.send(status).ok();
                    }
                }
                Ok(None) => return false,
                Err(Errno::INTR) => {}
                Err(Errno::CHILD) => return true,
                Err(error) => {
                    super::log_error(&format!("cannot wait for children: {error}"));
                    return false;
                }
            }
        }
    }
}
