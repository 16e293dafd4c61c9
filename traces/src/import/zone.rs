//! Times without a zone, to UTC: by a fixed offset, or by a zone of the IANA database with its changes of the clock.
//!
//! Where the clock is set forward, times that it skips do not exist; one that is in a log all the same is taken by the offset
//! before the change. Where it is set back, times come twice. They are taken for the first ones until the times of the log go
//! back by more than half of what the clock is set back by, and for the second ones from there on: so a log that is in order
//! keeps its hours apart, and lines that are late by some minutes do no harm.

use super::time::Moment;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};

/// Length of a stretch of time whose offset is remembered, in seconds. Clocks are set at multiples of it.
const STRETCH_S: i64 = 900;

/// The zone of times that have none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Zone {
    /// Always so many seconds ahead of UTC.
    Offset(i32),
    /// A zone whose clocks are set forward and back.
    Named(TimeZone),
}

impl Default for Zone {
    fn default() -> Self {
        Self::Offset(0)
    }
}

impl Zone {
    /// The zone with a name of the IANA database, as `Europe/Berlin`: that of the system, or else the one built in. `None` if
    /// neither has it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        TimeZone::get(name).ok().map(Self::Named)
    }
}

/// The clock of one log.
#[derive(Debug, Clone, Default)]
pub(super) struct Clock {
    zone: Zone,
    /// A stretch of local time and its offset.
    known: Option<(i64, i32)>,
    /// The last times that come twice.
    twice: Option<Twice>,
}

/// Times that come twice.
#[derive(Debug, Clone, Copy)]
struct Twice {
    /// Offsets the first and the second time. They tell one change of the clock from the next.
    offsets: (i32, i32),
    /// The latest one met.
    latest_s: i64,
    /// Whether the clock has been set back already.
    is_second: bool,
}

impl Clock {
    pub(super) fn new(zone: &Zone) -> Self {
        Self { zone: zone.clone(), ..Self::default() }
    }

    /// Seconds since 1970 UTC of a moment.
    pub(super) fn unix_s(&mut self, moment: Moment) -> i64 {
        let offset_s = moment.offset_s.unwrap_or_else(|| self.offset_s(moment.local_s));
        moment.local_s - i64::from(offset_s)
    }

    fn offset_s(&mut self, local_s: i64) -> i32 {
        let zone = match &self.zone {
            Zone::Offset(offset_s) => return *offset_s,
            Zone::Named(zone) => zone,
        };
        let stretch = local_s.div_euclid(STRETCH_S);
        if let Some((_, offset_s)) = self.known.filter(|(known, _)| *known == stretch) {
            return offset_s;
        }
        let offset = |local_s: i64| civil(local_s).map(|time| zone.to_ambiguous_timestamp(time).offset());
        match (offset(local_s), offset(stretch * STRETCH_S), offset((stretch + 1) * STRETCH_S - 1)) {
            // Years that no calendar has.
            (None, ..) => 0,
            (
                Some(AmbiguousOffset::Unambiguous { offset }),
                Some(AmbiguousOffset::Unambiguous { offset: begin }),
                Some(AmbiguousOffset::Unambiguous { offset: end }),
            ) if begin == end => {
                self.known = Some((stretch, offset.seconds()));
                offset.seconds()
            }
            (Some(AmbiguousOffset::Unambiguous { offset }), ..) => offset.seconds(),
            (Some(AmbiguousOffset::Gap { before, .. }), ..) => before.seconds(),
            (Some(AmbiguousOffset::Fold { before, after }), ..) => {
                self.one_of_two(local_s, (before.seconds(), after.seconds()))
            }
        }
    }

    fn one_of_two(&mut self, local_s: i64, offsets: (i32, i32)) -> i32 {
        let back_s = i64::from(offsets.0 - offsets.1);
        // Times of one change are at most as far apart as the clock is set back by.
        let same = |twice: &Twice| twice.offsets == offsets && (twice.latest_s - local_s).abs() <= back_s;
        let mut twice =
            self.twice.filter(same).unwrap_or(Twice { offsets, latest_s: local_s, is_second: false });
        twice.is_second |= twice.latest_s - local_s > back_s / 2;
        twice.latest_s = twice.latest_s.max(local_s);
        self.twice = Some(twice);
        if twice.is_second { offsets.1 } else { offsets.0 }
    }
}

fn civil(local_s: i64) -> Option<DateTime> {
    let utc = jiff::tz::Offset::UTC;
    Some(utc.to_datetime(jiff::Timestamp::from_second(local_s).ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::time;
    use super::*;

    /// UTC of local times as a log has them, one after the other.
    fn utc(zone: &str, locals: &[&str]) -> Vec<String> {
        let mut clock = Clock::new(&Zone::named(zone).unwrap());
        let one = |local: &&str| {
            let unix_s = clock.unix_s(time::iso(local.as_bytes()).unwrap());
            jiff::Timestamp::from_second(unix_s).unwrap().to_string()
        };
        locals.iter().map(one).collect()
    }

    #[test]
    fn where_the_clock_is_set_forward_no_hour_is_doubled() {
        let locals = ["2024-03-31T01:59:59", "2024-03-31T02:30", "2024-03-31T03:00", "2024-07-01T12:00"];
        let wanted =
            ["2024-03-31T00:59:59Z", "2024-03-31T01:30:00Z", "2024-03-31T01:00:00Z", "2024-07-01T10:00:00Z"];
        assert_eq!(utc("Europe/Berlin", &locals), wanted);
        assert_eq!(utc("America/Edmonton", &["1995-04-02T01:59:59"]), ["1995-04-02T08:59:59Z"]);
        assert_eq!(utc("America/Edmonton", &["1995-04-02T03:00:00"]), ["1995-04-02T09:00:00Z"]);
    }

    #[test]
    fn where_the_clock_is_set_back_both_hours_are_there() {
        let locals = [
            "2024-10-27T01:59",
            "2024-10-27T02:00",
            "2024-10-27T02:50",
            "2024-10-27T02:45",
            "2024-10-27T02:59",
            "2024-10-27T02:05",
            "2024-10-27T02:58",
            "2024-10-27T03:00",
            "2024-12-24T12:00",
        ];
        let wanted = [
            "2024-10-26T23:59:00Z",
            "2024-10-27T00:00:00Z",
            "2024-10-27T00:50:00Z",
            "2024-10-27T00:45:00Z",
            "2024-10-27T00:59:00Z",
            "2024-10-27T01:05:00Z",
            "2024-10-27T01:58:00Z",
            "2024-10-27T02:00:00Z",
            "2024-12-24T11:00:00Z",
        ];
        assert_eq!(utc("Europe/Berlin", &locals), wanted);
        let half = ["2024-04-07T01:55", "2024-04-07T01:35", "2024-04-07T02:00"];
        assert_eq!(
            utc("Australia/Lord_Howe", &half),
            ["2024-04-06T14:55:00Z", "2024-04-06T15:05:00Z", "2024-04-06T15:30:00Z"],
            "by half an hour"
        );
    }

    #[test]
    fn every_change_has_its_own_first_and_second_time() {
        let locals = [
            "2023-10-29T02:50",
            "2023-10-29T02:10",
            "2024-10-27T02:10",
            "2024-10-27T02:50",
            "2024-10-27T02:10",
        ];
        let wanted = [
            "2023-10-29T00:50:00Z",
            "2023-10-29T01:10:00Z",
            "2024-10-27T00:10:00Z",
            "2024-10-27T00:50:00Z",
            "2024-10-27T01:10:00Z",
        ];
        assert_eq!(utc("Europe/Berlin", &locals), wanted);
    }

    #[test]
    fn an_offset_in_the_line_is_right_in_any_zone() {
        let mut clock = Clock::new(&Zone::named("Europe/Berlin").unwrap());
        let moment = time::iso(b"2024-10-27T02:30:00-07:00").unwrap();
        assert_eq!(clock.unix_s(moment), moment.unix_s());
        assert!(Zone::named("Europe/Nowhere").is_none() && Zone::named("").is_none());
        let far = Moment { local_s: i64::MAX / 2, offset_s: None };
        assert_eq!(clock.unix_s(far), far.local_s);
    }

    #[test]
    fn all_hours_of_a_year_of_a_log_in_order_are_the_hours_of_the_year() {
        for zone in ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "UTC"] {
            let known = TimeZone::get(zone).unwrap();
            let mut clock = Clock::new(&Zone::Named(known.clone()));
            for minutes in 0..366 * 24 * 12 {
                let unix_s = 1_704_067_200 + minutes * 300;
                let offset = known.to_offset(jiff::Timestamp::from_second(unix_s).unwrap());
                let local_s = unix_s + i64::from(offset.seconds());
                assert_eq!(clock.unix_s(Moment { local_s, offset_s: None }), unix_s, "{zone}");
            }
        }
    }
}
