//! What one task of a shard tells another one, without lock or atomic number: both run on the shard's thread.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// A flag that one task waits for and others raise. Raised while nobody waits, it is kept for who waits next; raised
/// twice before that, it counts once.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    raised: Cell<bool>,
    /// The task that waits.
    waiter: RefCell<Option<Waker>>,
}

impl Signal {
    pub(crate) fn raise(&self) {
        if !self.raised.replace(true)
            && let Some(waiter) = self.waiter.take()
        {
            waiter.wake();
        }
    }

    /// Waits until it is raised, and lowers it. For one task at a time: of two, the first would wait on.
    pub(crate) async fn raised(&self) {
        poll_fn(|context| {
            if self.raised.take() {
                return Poll::Ready(());
            }
            let mut waiter = self.waiter.borrow_mut();
            if waiter.as_ref().is_none_or(|waiter| !waiter.will_wake(context.waker())) {
                *waiter = Some(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;
    use std::time::Duration;
    use tokio::runtime::LocalRuntime;
    use tokio::time::timeout;

    #[test]
    fn it_is_kept_for_who_waits_next_and_counts_once() {
        LocalRuntime::new().unwrap().block_on(async {
            let signal = Signal::default();
            signal.raise();
            signal.raise();
            signal.raised().await;
            assert!(timeout(Duration::from_millis(20), signal.raised()).await.is_err());
        });
    }

    #[test]
    fn it_wakes_a_task_every_time_also_when_one_that_waited_before_is_gone() {
        LocalRuntime::new().unwrap().block_on(async {
            let (there, back) = (Rc::new(Signal::default()), Rc::new(Signal::default()));
            let (ours, theirs) = (Rc::clone(&there), Rc::clone(&back));
            let gone = Rc::clone(&there);
            let waited = tokio::task::spawn_local(async move { gone.raised().await });
            tokio::task::yield_now().await;
            waited.abort();
            assert!(waited.await.is_err());
            tokio::task::spawn_local(async move {
                loop {
                    ours.raised().await;
                    theirs.raise();
                }
            });
            for _ in 0..1000 {
                there.raise();
                timeout(Duration::from_secs(20), back.raised()).await.unwrap();
            }
        });
    }
}
