//! Numbers as people read them.

/// An integer in groups of three digits: `1,234,567`.
#[must_use]
pub fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.char_indices() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// A number with about three significant digits: `0.042`, `1.23`, `45.6`, `789`, `12,345`.
#[must_use]
pub fn three_digits(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if !size.is_finite() => "–".to_owned(),
        _ if size >= 99.95 => thousands(value.round() as u64),
        _ if size >= 9.995 => format!("{value:.1}"),
        _ if size >= 0.9995 => format!("{value:.2}"),
        _ if size == 0.0 => "0".to_owned(),
        _ => format!("{value:.3}"),
    }
}

/// A fraction as per cent with one decimal: `26.3 %`. The space does not break.
#[must_use]
pub fn percent(fraction: f64) -> String {
    format!("{:.1}\u{a0}%", fraction * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_rounded() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
        let rounded = [0.0, 0.0421, 1.234, 9.996, 45.62, 99.96, 789.2, 12_345.4].map(three_digits);
        assert_eq!(rounded, ["0", "0.042", "1.23", "10.0", "45.6", "100", "789", "12,345"]);
        assert_eq!(three_digits(f64::NAN), "–");
        assert_eq!(percent(0.2634), "26.3\u{a0}%");
    }
}
