//! Waking at a moment to within microseconds: tokio's own timers round to a millisecond, which is longer than a
//! whole call takes on a fast device. The kernel's timer descriptors do not round.

use std::io;
use std::os::fd::OwnedFd;

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

const NS_PER_S: u64 = 1_000_000_000;

/// Now, in nanoseconds of the machine's monotonic clock.
pub(super) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, nanoseconds) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds.unwrap_or(0).saturating_mul(NS_PER_S).saturating_add(nanoseconds.unwrap_or(0))
}

/// One timer of the kernel.
#[derive(Debug)]
pub(super) struct Alarm {
    timer: AsyncFd<OwnedFd>,
    set_ns: Option<u64>,
}

impl Alarm {
    #[expect(
        deprecated,
        reason = "unsound only for types that may give back another descriptor; an OwnedFd keeps its own until it is dropped"
    )]
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = AsyncFd::new(timerfd_create(TimerfdClockId::Monotonic, flags)?)?;
        Ok(Self { timer, set_ns: None })
    }

    /// Waits until the moment, or for ever where there is none. To be dropped and called again with another moment
    /// costs a system call only where the moment is another.
    pub(super) async fn wait(&mut self, at_ns: Option<u64>) -> io::Result<()> {
        let Some(at_ns) = at_ns else { return std::future::pending().await };
        if self.set_ns != Some(at_ns) {
            let at = Timespec {
                tv_sec: i64::try_from(at_ns / NS_PER_S).unwrap_or(i64::MAX),
                // All zero would switch the timer off.
                tv_nsec: i64::try_from(at_ns % NS_PER_S).unwrap_or(0).max(1),
            };
            let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
            timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)?;
            self.set_ns = Some(at_ns);
        }
        loop {
            let mut ready = self.timer.readable().await?;
            let mut expirations = [0; 8];
            match ready.try_io(|timer| Ok(rustix::io::read(timer, &mut expirations)?)) {
                Ok(read) => {
                    read?;
                    self.set_ns = None;
                    return Ok(());
                }
                Err(_would_block) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn wakes_within_a_fraction_of_a_millisecond() {
        let mut alarm = Alarm::new().unwrap();
        let mut late_ns = Vec::new();
        for _ in 0..200 {
            let at_ns = now_ns() + 300_000;
            alarm.wait(Some(at_ns)).await.unwrap();
            let woke_ns = now_ns();
            assert!(woke_ns >= at_ns, "woke {} ns early", at_ns - woke_ns);
            late_ns.push(woke_ns - at_ns);
        }
        late_ns.sort_unstable();
        // The median, because on a busy machine some wake-ups are late whatever the timer does.
        assert!(late_ns[100] < 500_000, "median {} ns late", late_ns[100]);
    }

    #[tokio::test]
    async fn a_later_and_an_earlier_moment_replace_the_one_before() {
        let mut alarm = Alarm::new().unwrap();
        let begin_ns = now_ns();
        tokio::select! {
            biased;
            () = tokio::task::yield_now() => {}
            _ = alarm.wait(Some(begin_ns + 5_000_000_000)) => unreachable!("five seconds are not over"),
        }
        alarm.wait(Some(begin_ns + 2_000_000)).await.unwrap();
        let woke_ns = now_ns() - begin_ns;
        assert!((2_000_000..1_000_000_000).contains(&woke_ns), "woke after {woke_ns} ns");
    }
}
