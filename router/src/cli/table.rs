//! Tables of text with aligned columns.

/// Which side of a column its texts keep to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// Names.
    Left,
    /// Numbers.
    Right,
}

/// Rows under a header, each column as wide as its widest text, two spaces between columns. Empty without rows.
pub(super) fn aligned(header: &[(&str, Side)], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let titles: Vec<String> = header.iter().map(|(title, _)| (*title).to_owned()).collect();
    let lines: Vec<&Vec<String>> = std::iter::once(&titles).chain(rows).collect();
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|text| text.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(header).zip(&widths).map(|((cell, (_, side)), &width)| match side {
            Side::Left => format!("{cell:<width$}"),
            Side::Right => format!("{cell:>width$}"),
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}
