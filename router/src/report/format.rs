//! Numbers as people read them.

pub(super) use fstress_replay::page::format::{percent, thousands, three_digits};

/// Milliseconds, or a dash where nothing was measured.
pub(super) fn ms(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), three_digits)
}

/// Bytes in binary units: `512 B`, `1.50 KiB`, `3.20 GiB`.
pub(super) fn bytes(value: u64) -> String {
    let mut scaled = value as f64;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if scaled < 1024.0 {
            return if unit == "B" {
                format!("{value} B")
            } else {
                format!("{} {unit}", three_digits(scaled))
            };
        }
        scaled /= 1024.0;
    }
    format!("{} PiB", three_digits(scaled))
}

/// A length of time: `850 ms`, `5 s`, `24 min`, `24 h`, `28 days`; decimals where they matter.
pub(super) fn duration(milliseconds: u64) -> String {
    let units = [(86_400_000, "days"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms")];
    let (length, unit) = (units.into_iter())
        .find(|(length, unit)| milliseconds >= if *unit == "days" { 2 * length } else { *length })
        .unwrap_or((1, "ms"));
    let value = (milliseconds as f64 / length as f64 * 10.0).round() / 10.0;
    format!("{value} {unit}")
}

/// A time of day, UTC: `2026-11-30 02:05 UTC` (proleptic Gregorian calendar, days counted from 1970).
pub(super) fn utc(unix_ms: u64) -> String {
    let minutes = unix_ms / 60_000;
    let (days, minute) = (minutes / 1_440, minutes % 1_440);
    let (mut year, mut left) = (1970, days);
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    // Whole 400-year cycles first, so that the loop is short whatever the clock says.
    year += left / 146_097 * 400;
    left %= 146_097;
    while left >= 365 + u64::from(leap(year)) {
        left -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02} {:02}:{:02} UTC", left + 1, minute / 60, minute % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_their_unit_and_what_is_missing_a_dash() {
        assert_eq!((ms(None), ms(Some(f64::NAN))), ("–".into(), "–".into()));
        assert_eq!([512, 1_536, 3 << 30].map(bytes), ["512 B", "1.50 KiB", "3.00 GiB"]);
    }

    #[test]
    fn times_are_in_the_unit_that_fits() {
        let shown = [0, 850, 5_000, 90_000, 3_600_000, 86_400_000, 28 * 86_400_000].map(duration);
        assert_eq!(shown, ["0 ms", "850 ms", "5 s", "1.5 min", "1 h", "24 h", "28 days"]);
    }

    #[test]
    fn dates_follow_the_calendar() {
        assert_eq!(utc(0), "1970-01-01 00:00 UTC");
        assert_eq!(utc(951_782_400_000), "2000-02-29 00:00 UTC");
        assert_eq!(utc(1_709_251_199_000), "2024-02-29 23:59 UTC");
        assert_eq!(utc(1_709_251_200_000), "2024-03-01 00:00 UTC");
        assert_eq!(utc(4_107_542_400_000), "2100-03-01 00:00 UTC");
    }
}
