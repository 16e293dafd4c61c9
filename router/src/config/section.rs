//! One table of the file: takes fields one by one, notes what is wrong, and afterwards what was not asked for.
//!
//! Reading by hand instead of through derived deserialisers is what allows all faults to be shown at once, each
//! with the values that are allowed.
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fault::{Collector, Problem};

/// A value and where it stands in the text; for defaults, where it would have stood.
#[derive(Debug, Clone)]
pub(super) struct Placed<T> {
    pub(super) value: T,
    pub(super) at: Range<usize>,
}

/// One table.
pub(super) struct Section<'d> {
    path: String,
    table: Option<&'d DeTable<'d>>,
    at: Range<usize>,
    asked: Vec<&'static str>,
}

impl<'d> Section<'d> {
    /// The whole file. What is missing from it is shown at its first line.
    pub(super) fn root(table: &'d DeTable<'d>) -> Self {
        Self { path: String::new(), table: Some(table), at: 0..0, asked: Vec::new() }
    }

    /// The path of a field of this table.
    pub(super) fn field(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Where the table begins.
    pub(super) fn at(&self) -> Range<usize> {
        self.at.clone()
    }

    /// Whether the field is in the file.
    pub(super) fn has(&self, name: &str) -> bool {
        self.table.is_some_and(|table| table.get(name).is_some())
    }

    fn take(&mut self, name: &'static str) -> Option<&'d Spanned<DeValue<'d>>> {
        self.asked.push(name);
        self.table.and_then(|table| table.get(name))
    }

    /// The table `[name]`; an empty one if it is not there.
    pub(super) fn section(&mut self, faults: &mut Collector<'_>, name: &'static str) -> Section<'d> {
        let path = self.field(name);
        let empty = Section { path: path.clone(), table: None, at: self.at(), asked: Vec::new() };
        let Some(value) = self.take(name) else { return empty };
        match value.get_ref() {
            DeValue::Table(table) => {
                Section { path, table: Some(table), at: value.span(), asked: Vec::new() }
            }
            other => {
                wrong_type(faults, value.span(), path, other, &format!("a table, written [{name}]"));
                empty
            }
        }
    }

    /// The tables `[[name]]`, in the order of the file, each known by its field `label`, else by its number from 1.
    pub(super) fn sections(
        &mut self,
        faults: &mut Collector<'_>,
        name: &'static str,
        label: &str,
    ) -> Vec<Section<'d>> {
        let path = self.field(name);
        let Some(value) = self.take(name) else { return Vec::new() };
        let allowed = format!("tables, each written [[{name}]]");
        let DeValue::Array(array) = value.get_ref() else {
            wrong_type(faults, value.span(), path, value.get_ref(), &allowed);
            return Vec::new();
        };
        let mut sections = Vec::new();
        for (index, item) in array.iter().enumerate() {
            match item.get_ref() {
                DeValue::Table(table) => {
                    let own = table.get(label).and_then(|label| label.get_ref().as_str());
                    let own = own.map_or_else(|| format!("#{}", index + 1), ToOwned::to_owned);
                    let path = format!("{path}[{own}]");
                    sections.push(Section { path, table: Some(table), at: item.span(), asked: Vec::new() });
                }
                other => wrong_type(faults, item.span(), path.clone(), other, &allowed),
            }
        }
        sections
    }

    /// A text that `parse` understands; `parse` returns what it found wrong.
    pub(super) fn parsed<T>(
        &mut self,
        faults: &mut Collector<'_>,
        name: &'static str,
        allowed: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<Placed<T>> {
        let field = self.field(name);
        let value = self.take(name)?;
        parsed_item(faults, value, field, allowed, parse)
    }

    /// Like [`Self::parsed`], for a field that must be there.
    pub(super) fn required<T>(
        &mut self,
        faults: &mut Collector<'_>,
        name: &'static str,
        allowed: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<Placed<T>> {
        if !self.has(name) {
            self.missing(faults, name, allowed);
        }
        self.parsed(faults, name, allowed, parse)
    }

    /// Notes that a field without a default is not there.
    pub(super) fn missing(&self, faults: &mut Collector<'_>, name: &str, allowed: &str) {
        faults.add(self.at(), self.field(name), Problem::Missing { allowed: allowed.to_owned() });
    }

    /// One text or a list of texts, each of which `parse` understands. `None` if the field is not there.
    pub(super) fn list<T>(
        &mut self,
        faults: &mut Collector<'_>,
        name: &'static str,
        allowed: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<Placed<Vec<Placed<T>>>> {
        let field = self.field(name);
        let value = self.take(name)?;
        let items: Vec<&Spanned<DeValue<'_>>> = match value.get_ref() {
            DeValue::Array(array) if array.is_empty() => {
                not_allowed(faults, value.span(), field, "an empty list".to_owned(), allowed);
                return Some(Placed { value: Vec::new(), at: value.span() });
            }
            DeValue::Array(array) => array.iter().collect(),
            _ => vec![value],
        };
        let read = |item| parsed_item(faults, item, field.clone(), allowed, &parse);
        let list = items.into_iter().filter_map(read).collect();
        Some(Placed { value: list, at: value.span() })
    }

    /// A switch.
    pub(super) fn boolean(
        &mut self,
        faults: &mut Collector<'_>,
        name: &'static str,
        default: bool,
    ) -> Placed<bool> {
        let field = self.field(name);
        let fallback = Placed { value: default, at: self.at() };
        let Some(value) = self.take(name) else { return fallback };
        match value.get_ref() {
            DeValue::Boolean(on) => Placed { value: *on, at: value.span() },
            other => {
                wrong_type(faults, value.span(), field, other, "true or false");
                fallback
            }
        }
    }

    /// A whole number within a range.
    pub(super) fn integer(
        &mut self,
        faults: &mut Collector<'_>,
        name: &'static str,
        default: u64,
        range: RangeInclusive<u64>,
    ) -> Placed<u64> {
        let field = self.field(name);
        let fallback = Placed { value: default, at: self.at() };
        let Some(value) = self.take(name) else { return fallback };
        let allowed = format!("a whole number from {} to {}", range.start(), range.end());
        match value.get_ref() {
            DeValue::Integer(found) => {
                match u64::from_str_radix(found.as_str(), found.radix()).ok().filter(|n| range.contains(n)) {
                    Some(number) => Placed { value: number, at: value.span() },
                    None => {
                        not_allowed(faults, value.span(), field, found.to_string(), &allowed);
                        fallback
                    }
                }
            }
            other => {
                wrong_type(faults, value.span(), field, other, &allowed);
                fallback
            }
        }
    }

    /// A whole number of things that are counted in memory, within a range.
    pub(super) fn amount(
        &mut self,
        faults: &mut Collector<'_>,
        name: &'static str,
        default: usize,
        range: RangeInclusive<usize>,
    ) -> Placed<usize> {
        let wide = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let placed = self.integer(faults, name, wide(default), wide(*range.start())..=wide(*range.end()));
        // The range lies within usize, so the conversion cannot fail.
        Placed { value: usize::try_from(placed.value).unwrap_or(default), at: placed.at }
    }

    /// A number, whole or not, that `accept`s.
    pub(super) fn number(
        &mut self,
        faults: &mut Collector<'_>,
        name: &'static str,
        default: f64,
        allowed: &str,
        accept: impl FnOnce(f64) -> bool,
    ) -> Placed<f64> {
        let field = self.field(name);
        let fallback = Placed { value: default, at: self.at() };
        let Some(value) = self.take(name) else { return fallback };
        let (found, shown) = match value.get_ref() {
            DeValue::Float(float) => (float.as_str().parse::<f64>().ok(), float.to_string()),
            DeValue::Integer(whole) if whole.radix() == 10 => {
                (whole.as_str().parse::<f64>().ok(), whole.to_string())
            }
            other => {
                wrong_type(faults, value.span(), field, other, allowed);
                return fallback;
            }
        };
        match found.filter(|number| number.is_finite()) {
            Some(number) if accept(number) => Placed { value: number, at: value.span() },
            _ => {
                not_allowed(faults, value.span(), field, shown, allowed);
                fallback
            }
        }
    }

    /// A length of time in seconds, whole or not, within a range.
    pub(super) fn seconds(
        &mut self,
        faults: &mut Collector<'_>,
        name: &'static str,
        default: Duration,
        range: RangeInclusive<f64>,
    ) -> Placed<Duration> {
        let allowed = format!("a number of seconds from {} to {}", range.start(), range.end());
        let placed = self.number(faults, name, default.as_secs_f64(), &allowed, |n| range.contains(&n));
        // The range keeps the number finite and positive, so the conversion cannot fail.
        let value = Duration::try_from_secs_f64(placed.value).unwrap_or(default);
        Placed { value, at: placed.at }
    }

    /// Notes every field of the table that was never asked for.
    pub(super) fn finish(self, faults: &mut Collector<'_>) {
        let Some(table) = self.table else { return };
        for key in table.keys() {
            let name = key.get_ref().as_ref();
            if !self.asked.contains(&name) {
                let meant = closest(name, &self.asked);
                let problem = Problem::Unknown { meant, known: self.asked.clone() };
                faults.add(key.span(), self.field(name), problem);
            }
        }
    }
}

fn parsed_item<T>(
    faults: &mut Collector<'_>,
    value: &Spanned<DeValue<'_>>,
    field: String,
    allowed: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Option<Placed<T>> {
    let DeValue::String(text) = value.get_ref() else {
        wrong_type(faults, value.span(), field, value.get_ref(), allowed);
        return None;
    };
    let parsed = parse(text);
    if parsed.is_none() {
        not_allowed(faults, value.span(), field, format!("{text:?}"), allowed);
    }
    parsed.map(|parsed| Placed { value: parsed, at: value.span() })
}

fn wrong_type(
    faults: &mut Collector<'_>,
    at: Range<usize>,
    field: String,
    found: &DeValue<'_>,
    allowed: &str,
) {
    let found = match found {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    };
    faults.add(at, field, Problem::WrongType { found, allowed: allowed.to_owned() });
}

fn not_allowed(faults: &mut Collector<'_>, at: Range<usize>, field: String, found: String, allowed: &str) {
    faults.add(at, field, Problem::NotAllowed { found, allowed: allowed.to_owned() });
}

/// The known name nearest to a wrong one, if near enough to have been meant.
fn closest(name: &str, known: &[&'static str]) -> Option<&'static str> {
    // A name of a few letters is near to everything, and a very long one costs a square of its length.
    let allowed_edits = match name.len() {
        0..=2 => return None,
        3..=5 => 2,
        6..=64 => 3,
        _ => return None,
    };
    let part =
        known.iter().find(|known| known.len() > 3 && (known.starts_with(name) || name.starts_with(**known)));
    let near = known.iter().map(|known| (strsim::osa_distance(name, known), known));
    let near = near.filter(|(edits, _)| *edits <= allowed_edits).min_by_key(|(edits, _)| *edits);
    near.map(|(_, known)| *known).or(part.copied())
}
