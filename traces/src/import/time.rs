//! Times as logs write them, to seconds since 1970 UTC.

/// Days from 1970-01-01 to a date of the proleptic Gregorian calendar.
pub(super) fn days(year: i64, month: u32, day: u32) -> i64 {
    // Years begin in March, so that the leap day is the last one; an era of 400 years has 146,097 days.
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * (i64::from(month) + if month > 2 { -3 } else { 9 }) + 2) / 5 + i64::from(day) - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Days of a month.
fn days_in(year: i64, month: u32) -> u32 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// A number of exactly these digits.
pub(super) fn digits(bytes: &[u8]) -> Option<u32> {
    bytes.iter().try_fold(0_u32, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit < 10 { value.checked_mul(10)?.checked_add(u32::from(digit)) } else { None }
    })
}

/// A moment whose zone may be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Seconds since 1970 as the clock on the wall shows them.
    pub local_s: i64,
    /// How far that clock is ahead of UTC, in seconds, if it was said.
    pub offset_s: Option<i32>,
}

impl Moment {
    /// Seconds since 1970 UTC, taking it for UTC where no zone was said.
    #[must_use]
    pub fn unix_s(self) -> i64 {
        self.local_s - i64::from(self.offset_s.unwrap_or(0))
    }
}

/// Hour, minute and second.
pub(super) type Clock = (u32, u32, u32);

/// A date that exists, and a time of its day; a leap second counts as the second before it.
fn local(date: (u32, u32, u32), time: Clock) -> Option<i64> {
    let (year, month, day) = (i64::from(date.0), date.1, date.2);
    let (hour, minute, second) = time;
    let exists = (1..=12).contains(&month) && day >= 1 && day <= days_in(year, month);
    if !exists || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    Some(days(year, month, day) * 86_400 + i64::from(hour * 3_600 + minute * 60 + second.min(59)))
}

/// `-0700`, `-07:00` or `Z`.
fn offset(bytes: &[u8]) -> Option<i32> {
    let (sign, rest) = match bytes.split_first()? {
        (b'Z' | b'z', []) => return Some(0),
        (b'+', rest) => (1, rest),
        (b'-', rest) => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = match rest.len() {
        4 => (&rest[..2], &rest[2..]),
        5 if rest[2] == b':' => (&rest[..2], &rest[3..]),
        _ => return None,
    };
    let (hours, minutes) = (digits(hours)?, digits(minutes)?);
    let seconds = (hours <= 23 && minutes <= 59).then_some(hours * 3_600 + minutes * 60)?;
    Some(sign * seconds.cast_signed())
}

/// `10/Oct/2000:13:55:36 -0700`, as the Common Log Format has it.
pub(super) fn common(bytes: &[u8]) -> Option<Moment> {
    let (stamp, zone) = bytes.split_at_checked(20)?;
    let marks = [(2, b'/'), (6, b'/'), (11, b':'), (14, b':'), (17, b':')];
    if marks.iter().any(|(at, mark)| stamp[*at] != *mark) {
        return None;
    }
    let month = match stamp[3..6].to_ascii_lowercase().as_slice() {
        b"jan" => 1,
        b"feb" => 2,
        b"mar" => 3,
        b"apr" => 4,
        b"may" => 5,
        b"jun" => 6,
        b"jul" => 7,
        b"aug" => 8,
        b"sep" => 9,
        b"oct" => 10,
        b"nov" => 11,
        b"dec" => 12,
        _ => return None,
    };
    let date = (digits(&stamp[7..11])?, month, digits(&stamp[..2])?);
    let time = (digits(&stamp[12..14])?, digits(&stamp[15..17])?, digits(&stamp[18..20])?);
    let offset_s = match zone {
        [] => None,
        [b' ', zone @ ..] => Some(offset(zone)?),
        _ => return None,
    };
    Some(Moment { local_s: local(date, time)?, offset_s })
}

/// A date and time as ISO 8601 and RFC 3339 write them: `2000-10-10T13:55:36.25-07:00`, with a space instead of `T`, without
/// seconds, fraction or zone, or a date alone.
#[must_use]
pub fn iso(bytes: &[u8]) -> Option<Moment> {
    let (date, rest) = bytes.split_at_checked(10)?;
    if date[4] != b'-' || date[7] != b'-' {
        return None;
    }
    let date = (digits(&date[..4])?, digits(&date[5..7])?, digits(&date[8..])?);
    let Some((mark, rest)) = rest.split_first() else {
        return Some(Moment { local_s: local(date, (0, 0, 0))?, offset_s: None });
    };
    if !matches!(mark, b'T' | b't' | b' ' | b'_') {
        return None;
    }
    let (time, zone) = clock(rest)?;
    let zone = zone.strip_prefix(b" ").unwrap_or(zone);
    let offset_s = if zone.is_empty() { None } else { Some(offset(zone)?) };
    Some(Moment { local_s: local(date, time)?, offset_s })
}

/// `13:55:36.25`, without fraction or seconds, and what follows it.
pub(super) fn clock(bytes: &[u8]) -> Option<(Clock, &[u8])> {
    let (minutes, rest) = bytes.split_at_checked(5)?;
    if minutes[2] != b':' {
        return None;
    }
    let (hour, minute) = (digits(&minutes[..2])?, digits(&minutes[3..])?);
    let Some(rest) = rest.strip_prefix(b":") else { return Some(((hour, minute, 0), rest)) };
    let (second, rest) = rest.split_at_checked(2)?;
    let rest = match rest.strip_prefix(b".").or_else(|| rest.strip_prefix(b",")) {
        Some(fraction) => {
            let end = fraction.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(fraction.len());
            &fraction[end..]
        }
        None => rest,
    };
    Some(((hour, minute, digits(second)?), rest))
}

/// Seconds since 1970 as a number with or without a fraction, as in `1700000000.123`; or milliseconds, microseconds and
/// nanoseconds, which are told by their size: seconds stay below 10^11, so until the year 5138.
pub(super) fn epoch(bytes: &[u8]) -> Option<i64> {
    let whole = match bytes.iter().position(|byte| *byte == b'.') {
        Some(dot) if dot > 0 && digits_only(&bytes[dot + 1..]) => &bytes[..dot],
        Some(_) => return exponent(bytes),
        None => bytes,
    };
    if whole.is_empty() || whole.len() > 19 || !digits_only(whole) {
        return exponent(bytes);
    }
    let mut value = whole.iter().fold(0_u64, |value, byte| value.wrapping_mul(10) + u64::from(byte - b'0'));
    while value >= 100_000_000_000 {
        value /= 1_000;
    }
    i64::try_from(value).ok()
}

/// `1.7e9`, which some JSON writers produce.
fn exponent(bytes: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() < 40 && text.contains(['e', 'E']))?;
    let value: f64 = text.parse().ok()?;
    (0.0..1e11).contains(&value).then_some(value as i64)
}

fn digits_only(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_of_logs_become_utc() {
        let unix = |text: &str| common(text.as_bytes()).map(Moment::unix_s);
        assert_eq!(unix("10/Oct/2000:13:55:36 -0700"), Some(971_211_336));
        assert_eq!(unix("29/Feb/2024:23:59:60 +0530"), Some(1_709_231_399));
        for wrong in [
            "",
            "-",
            "29/Feb/2023:00:00:00 +0000",
            "10/Okt/2000:13:55:36 -0700",
            "10/Oct/2000:24:00:00 +0000",
            "10/Oct/2000:13:55:36+0000",
            "10/Oct/2000:13:55:36 +2500",
        ] {
            assert_eq!(unix(wrong), None, "{wrong}");
        }
        let unix = |text: &str| iso(text.as_bytes()).map(Moment::unix_s);
        assert_eq!(unix("1994-10-24T00:00-07:00"), Some(782_982_000));
        assert_eq!(unix("2000-10-10 20:55:36.123Z"), Some(971_211_336));
        assert_eq!(unix("2000-10-10"), Some(971_136_000));
        assert_eq!(iso(b"2000-10-10T20:55:36").map(|m| m.offset_s), Some(None));
        for wrong in ["2000-13-01", "2000-10-10T", "2000-10-10T1:2:3", "2000-10-10T20:55:36x", "20001010"] {
            assert_eq!(unix(wrong), None, "{wrong}");
        }
        for number in ["971211336", "971211336.9", "971211336900", "971211336900000", "9.71211336e8"] {
            assert_eq!(epoch(number.as_bytes()), Some(971_211_336), "{number}");
        }
        for wrong in ["", "-1", ".5", "1.x", "1e99", "nan"] {
            assert_eq!(epoch(wrong.as_bytes()), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_time_or_none(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = (common(&bytes), iso(&bytes), epoch(&bytes), clock(&bytes));
        }

        #[test]
        fn days_go_up_by_one(day in -800_000i64..2_000_000) {
            // Walks the calendar: the day after the last of a month is the first of the next.
            let (mut year, mut month) = (1970 + day.div_euclid(366), 1);
            let mut at = days(year, month, 1);
            for _ in 0..30 {
                let length = days_in(year, month);
                (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
                let next = days(year, month, 1);
                prop_assert_eq!(next - at, i64::from(length));
                at = next;
            }
        }
    }
}
