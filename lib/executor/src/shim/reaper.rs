//! The children of the shim, its own and those that it inherits: it is the subreaper of all that its programs start,
//! so whoever detaches himself becomes its child.

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

/// Takes note of every child that ends. The only one here that waits for children.
#[derive(Debug)]
pub(super) struct Reaper {
    /// Who waits for which child.
    waiting: RefCell<BTreeMap<i32, oneshot::Sender<WaitStatus>>>,
    reaped: Notify,
}

impl Reaper {
    /// Begins to listen, before there is a child.
    pub(super) fn start() -> io::Result<Rc<Self>> {
        let signals = signal(SignalKind::child())?;
        let reaper = Rc::new(Self { waiting: RefCell::default(), reaped: Notify::new() });
        tokio::task::spawn_local(Rc::clone(&reaper).listen(signals));
        Ok(reaper)
    }

    /// The end of a child that was started just now, without waiting in between.
    pub(super) fn expect(&self, pid: i32) -> oneshot::Receiver<WaitStatus> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.borrow_mut().insert(pid, sender);
        receiver
    }

    /// Waits until there is no child left, so nothing that any of them started either; false if that takes longer.
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

    /// Takes note of all that ended; true if no child is left.
    fn reap(&self) -> bool {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if let Some(waiting) = self.waiting.borrow_mut().remove(&pid.as_raw_pid()) {
                        // Whoever waited may have given up: then nobody needs to know.
                        waiting.send(status).ok();
                    }
                }
                Ok(None) => return false,
                Err(Errno::INTR) => {}
                Err(Errno::CHILD) => return true,
                Err(error) => {
                    super::complain(&format!("cannot wait for children: {error}"));
                    return false;
                }
            }
        }
    }
}
