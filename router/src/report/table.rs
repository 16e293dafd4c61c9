//! The report as a table for the terminal.

use super::format::{ms, thousands};
use super::model::Report;

/// Longest store name in a heading, characters; longer ones are cut.
const NAME_CHARS_MAX: usize = 12;

/// One row an hour; the stores side by side, first their requests, then their mean response times in
/// milliseconds; below, all hours together and the stores' shares. Lines end in `\n`.
pub fn table(report: &Report) -> String {
    let names: Vec<String> = report.stores.iter().map(|store| short(&store.total.name)).collect();
    let heading = |first: &str| {
        let mut cells = vec![first.to_owned(), "all".to_owned()];
        cells.extend(names.iter().cloned());
        cells.extend(names.iter().cloned());
        cells
    };
    let mut rows = vec![heading("hour")];
    for period in &report.periods {
        let mut row = vec![period.hour.to_string(), thousands(period.requests)];
        row.extend(period.stores.iter().map(|store| thousands(store.requests)));
        row.extend(period.stores.iter().map(|store| ms(store.mean_response_ms)));
        rows.push(row);
    }
    let mut all = vec!["all".to_owned(), thousands(report.requests)];
    all.extend(report.stores.iter().map(|store| thousands(store.total.requests)));
    all.extend(report.stores.iter().map(|store| ms(store.total.mean_response_ms)));
    rows.push(all);
    let mut shares = vec!["share".to_owned(), String::new()];
    shares.extend(report.stores.iter().map(|store| format!("{:.1} %", store.total.share * 100.0)));
    rows.push(shares);
    draw(&rows, names.len())
}

fn draw(rows: &[Vec<String>], stores: usize) -> String {
    let columns = 2 + 2 * stores;
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    // A bar stands before the requests by store and before the response times.
    let before = |column: usize| match column {
        0 => "",
        _ if column == 2 || column == 2 + stores => " | ",
        _ => "  ",
    };
    let line = |row: &[String]| {
        let mut line = String::new();
        for (column, width) in widths.iter().enumerate() {
            let cell = row.get(column).map_or("", String::as_str);
            line.push_str(before(column));
            line.extend(std::iter::repeat_n(' ', width - cell.chars().count().min(*width)));
            line.push_str(cell);
        }
        line.truncate(line.trim_end().len());
        line
    };
    let span = |from: usize, to: usize| {
        (from..to).map(|column| widths[column] + if column > from { 2 } else { 0 }).sum::<usize>()
    };
    let (left, middle) = (span(0, 2), span(2, 2 + stores));
    let rule =
        format!("{}-+-{}-+-{}", "-".repeat(left), "-".repeat(middle), "-".repeat(span(2 + stores, columns)));
    let mut text = format!("{:left$} | {:middle$} | mean response, ms\n", "", "requests");
    for (index, row) in rows.iter().enumerate() {
        if index == 1 || index + 2 == rows.len() {
            text.push_str(&rule);
            text.push('\n');
        }
        text.push_str(&line(row));
        text.push('\n');
    }
    text
}

fn short(name: &str) -> String {
    if name.chars().count() <= NAME_CHARS_MAX {
        return name.to_owned();
    }
    name.chars().take(NAME_CHARS_MAX - 1).chain(['…']).collect()
}
