//! A report of a made-up day: its figures, its JSON, its table, and that its page is whole and harmless.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::heat::{
    Class, ClassCounts, FileCounts, FilePeriod, Handle, PeriodRecord, PeriodSpan, StoreCounts, StorePeriod,
};

const STORES: [(&str, u64); 4] = [("amber", 10), ("birch", 12), ("cedar", 15), ("delta", 20)];

/// A day whose load rises to the afternoon; each store answers as a queue of its capacity would.
fn day(hours: u64) -> Vec<PeriodRecord> {
    let load =
        |hour: u64| 400 + [0, 0, 20, 90, 240, 420, 560, 640, 620, 480, 300, 120][(hour % 24 / 2) as usize];
    (0..hours).map(|hour| period(hour, load(hour))).collect()
}

fn period(hour: u64, load: u64) -> PeriodRecord {
    let stores = STORES.iter().zip(0u64..).map(|((name, capacity), number)| {
        let requests = load * [97, 104, 92, 107][number as usize] / 100 + (hour * 37 + number * 61) % 60;
        let busy = (requests as f64 / (*capacity as f64 * 110.0)).min(0.95);
        let mean_us = 40_000.0 / *capacity as f64 / (1.0 - busy);
        let mut counts = StoreCounts::default();
        for call in 0..requests {
            counts.requests.count(if call % 3 == 0 { Class::Metadata } else { Class::Read });
            // Quantiles of an exponential distribution, evenly taken.
            let q = (call as f64 + 0.5) / requests as f64;
            counts.count_answer(Class::Read, (-(1.0 - q).ln() * mean_us) as u64);
            counts.bytes_read += 9_000;
        }
        StorePeriod { name: (*name).to_owned(), counts }
    });
    let stores: Vec<_> = stores.collect();
    let files = (0..60u64).map(|file| {
        let reads = load / (file + 2);
        FilePeriod {
            handle: Handle::new(&(file + 1).to_be_bytes()).unwrap(),
            store: (file % 4) as u16,
            path: (file % 9 != 8).then(|| Arc::from(format!("/export/campus/{}/page-{file}.html", file % 7))),
            counts: FileCounts {
                calls: ClassCounts { reads, writes: file % 2, metadata: reads / 3 },
                bytes_read: reads * 9_000,
                bytes_written: 0,
            },
        }
    });
    let span = PeriodSpan { start_unix_ms: 1_790_000_000_000 + hour * 5_000, length_ms: 5_000 };
    PeriodRecord { span, stores, files: files.collect(), other: FileCounts::default() }
}

fn facts() -> Facts {
    Facts {
        title: "A day on four unlike stores".into(),
        subtitle: "The default rule: every file on the store that its handle's hash names.".into(),
        created_unix_ms: 1_790_000_130_000,
        first_hour: 622,
        facts: vec![
            Fact { name: "Workload".into(), value: "campus, hours 622 to 645, an hour in 5 s".into() },
            Fact { name: "Stores".into(), value: "amber, birch, cedar, delta: capacities 1 : 1.2 : 1.5 : 2".into() },
        ],
        mount: vec![
            "mount -t nfs -o vers=3,proto=tcp,port=20490,mountport=20490,mountproto=tcp,nolock 127.0.0.1:/export /mnt".into(),
        ],
    }
}

#[test]
fn figures_are_those_of_the_periods() {
    let records = day(24);
    let report = Report::new(facts(), &records);
    assert_eq!(
        report.periods.iter().map(|period| period.hour).collect::<Vec<_>>(),
        (622..646).collect::<Vec<_>>()
    );
    assert_eq!(report.requests, records.iter().map(PeriodRecord::requests).sum::<u64>());
    assert!((report.stores.iter().map(|store| store.total.share).sum::<f64>() - 1.0).abs() < 1e-12);
    let findings = report.findings.as_ref().unwrap();
    assert_eq!((findings.slowest_store.as_str(), findings.fastest_store.as_str()), ("amber", "delta"));
    let peak = report.periods.iter().find(|period| period.hour == findings.peak_hour).unwrap();
    assert_eq!(peak.requests, report.periods.iter().map(|period| period.requests).max().unwrap());
    assert_eq!(peak.stores[0].mean_response_ms, Some(findings.slowest_peak_ms));
    let record = &records[(findings.peak_hour - 622) as usize];
    assert_eq!(
        peak.stores[0].mean_response_ms,
        record.stores[0].counts.response.mean_us().map(|us| us / 1e3)
    );
    assert!(findings.slowest_quiet_ms < findings.slowest_peak_ms);
    let hottest = &report.hot_files[0];
    assert_eq!(hottest.path, "/export/campus/0/page-0.html");
    assert_eq!(hottest.reads, records.iter().map(|record| record.files[0].counts.calls.reads).sum::<u64>());
    assert_eq!(report.hot_files.len(), HOT_FILES_MAX);
    assert!(report.hot_files.iter().any(|file| file.path == "handle 0000000000000009"));
}

#[test]
fn json_has_the_fields_that_tools_read() {
    let json: serde_json::Value =
        serde_json::from_str(&Report::new(facts(), &day(3)).to_json().unwrap()).unwrap();
    let store = &json["periods"][1]["stores"][2];
    assert_eq!(json["periods"][1]["hour"], 623);
    assert_eq!(store["name"], "cedar");
    assert!(store["requests"].as_u64().is_some_and(|requests| requests > 300));
    for field in ["mean_response_ms", "variance_ms2", "p95_ms"] {
        assert!(store[field].as_f64().is_some_and(|value| value > 0.0), "{field}");
    }
    assert!(json["stores"][0]["share"].as_f64().is_some_and(|share| share > 0.2 && share < 0.3));
    assert!(json["hot_files"][0]["path"].is_string());
    assert!(json["findings"]["busiest_share"].is_f64());
}

#[test]
fn an_empty_report_and_a_silent_store_have_no_invented_figures() {
    let empty = Report::new(facts(), &[]);
    assert_eq!(empty.findings, None);
    assert!(page(&empty).contains("nothing to show"));
    assert!(table(&empty).contains("hour"));
    let mut records = day(2);
    records[0].stores[1].counts = StoreCounts::default();
    records[1].stores.remove(3);
    let report = Report::new(facts(), &records);
    let json: serde_json::Value = serde_json::from_str(&report.to_json().unwrap()).unwrap();
    assert!(json["periods"][0]["stores"][1]["mean_response_ms"].is_null());
    assert_eq!(json["periods"][1]["stores"][3]["requests"], 0);
    assert!(!page(&report).contains("NaN"));
}

#[test]
fn the_table_is_aligned_with_a_row_an_hour() {
    let text = table(&Report::new(facts(), &day(24)));
    let rows: Vec<&str> = text.lines().collect();
    assert_eq!(rows.len(), 2 + 1 + 24 + 1 + 2);
    let bars = |row: &str| {
        row.char_indices().filter(|(_, c)| matches!(c, '|' | '+')).map(|(at, _)| at).collect::<Vec<_>>()
    };
    for row in &rows {
        assert_eq!(bars(row), bars(rows[1]), "{row}");
    }
    assert!(rows[1].contains("amber") && rows[3].trim_start().starts_with("622"), "{text}");
    assert!(rows[28].trim_start().starts_with("all") && rows[29].contains('%'), "{text}");
    println!("{text}");
}

#[test]
fn the_page_is_whole_and_fetches_nothing() {
    let html = page(&Report::new(facts(), &day(24)));
    for part in [
        "<svg",
        "Mean response time by store and hour",
        "Hottest files",
        "prefers-color-scheme: dark",
        "peak hour",
    ] {
        assert!(html.contains(part), "{part}");
    }
    for part in ["http://", "https://", "src=", "<script", "<link", "@import", "url("] {
        assert!(!html.contains(part), "{part}");
    }
    assert!(html.contains("<title>hour 622 · amber: "), "marks have tooltips");
    assert!(!html.contains("(logarithmic)"));
    let mut spread = day(2);
    (0..9_000).for_each(|_| spread[1].stores[0].counts.count_answer(Class::Read, 900_000));
    assert!(page(&Report::new(facts(), &spread)).contains("mean response time, ms (logarithmic)"));
    // For looking at: where the variable names a folder, the page and the JSON are left there.
    if let Some(folder) = std::env::var_os("CLOCKWORK_TEST_REPORT_FOLDER") {
        let folder = std::path::Path::new(&folder);
        std::fs::write(folder.join("report.html"), &html).unwrap();
        std::fs::write(folder.join("week.html"), page(&Report::new(facts(), &day(168)))).unwrap();
    }
}

#[test]
fn names_from_the_network_cannot_become_markup() {
    let mut records = day(2);
    records[0].files[0].path = Some(Arc::from("/export/<script>alert(1)</script>&\"'"));
    records[1].files[0].path = records[0].files[0].path.clone();
    records[0].stores[0].name = "<b>\"".into();
    let html = page(&Report::new(facts(), &records));
    assert!(!html.contains("<script") && !html.contains("<b>\""));
    assert!(html.contains("&lt;script&gt;"));
}

/// Three passes of the same day: without control, and with all stores as good as the best.
fn comparison() -> (Report, Comparison) {
    let base = day(24);
    let better = |factor: u64| -> Vec<PeriodRecord> {
        let mut records = base.clone();
        for record in &mut records {
            for store in &mut record.stores {
                let mut counts = StoreCounts { requests: store.counts.requests, ..StoreCounts::default() };
                (0..50).for_each(|_| counts.count_answer(Class::Read, factor * 100));
                store.counts = counts;
            }
        }
        records
    };
    let mut worse = better(30);
    // Slower than the objective and than without control.
    (0..50).for_each(|_| worse[3].stores[0].counts.count_answer(Class::Read, 900_000));
    let objective = Objective { ms: objective_ms(&base).unwrap(), confidence: 0.66 };
    let [base, fixed, adjusted] =
        [base.clone(), better(20), worse].map(|records| Report::new(facts(), &records));
    let forecast = |hour: u64, forecast_ms: f64, actual_ms: f64, saturated: bool| ForecastPeriod {
        hour,
        store: "amber".into(),
        forecast_ms,
        low66_ms: 0.9 * forecast_ms,
        high66_ms: 1.1 * forecast_ms,
        actual_ms: Some(actual_ms),
        forecast_requests: 90.0,
        requests: 100,
        saturated,
    };
    let forecasts = vec![
        forecast(622, 10.0, 10.5, false),
        forecast(623, 10.0, 8.0, false),
        forecast(624, 10.0, 12.5, false),
        forecast(625, 10.0, 900.0, true),
    ];
    let moved = |hour, by| MoveReport {
        hour,
        file: "/export/<b>".into(),
        from: "amber".into(),
        to: "delta".into(),
        by,
        reason: "too much".into(),
    };
    let moves = vec![moved(622, "plan"), moved(622, "guard"), moved(624, "plan"), moved(625, "return")];
    let comparison =
        Comparison::new(objective, [&base, &fixed, &adjusted], ForecastReport::new(forecasts), moves);
    (base, comparison)
}

#[test]
fn passes_are_counted_by_the_objective_that_the_base_pass_misses_in_eleven_hours() {
    let (report, comparison) = comparison();
    assert_eq!((comparison.base.missed, comparison.base.met, comparison.base.harmed), (11, 13, 0));
    assert_eq!((comparison.fixed.met, comparison.fixed.harmed), (24, 0));
    assert_eq!((comparison.adjusted.met, comparison.adjusted.harmed), (23, 1));
    assert!(comparison.adjusted.periods[3].harmed && comparison.adjusted.worst_over_base > 1.0);
    assert_eq!(comparison.moved(), (2, 3));
    let json: serde_json::Value =
        serde_json::from_str(&Measurement { report, comparison }.to_json().unwrap()).unwrap();
    for pass in ["base", "static", "adjusted"] {
        let periods = json[pass]["periods"].as_array().unwrap();
        assert_eq!(periods.len(), 24);
        assert!(periods.iter().all(|period| period["max_mean_response_ms"].is_f64()));
        assert_eq!(periods[0]["stores"][0]["name"], "amber");
    }
    assert_eq!(json["periods"][7]["stores"], json["base"]["periods"][7]["stores"]);
    assert_eq!(json["adjusted"]["met"], 23);
    assert!(json["objective"]["ms"].is_f64() && json["moves"][0]["reason"].is_string());
}

#[test]
fn forecasts_are_judged_where_the_store_was_not_saturated() {
    let (_, comparison) = comparison();
    let forecast = &comparison.forecast;
    assert_eq!(forecast.compared, 3);
    let errors = [0.5 / 10.5, 2.0 / 8.0, 2.5 / 12.5];
    assert!((forecast.mape.unwrap() - errors.iter().sum::<f64>() / 3.0).abs() < 1e-12);
    assert!((forecast.median_error.unwrap() - 0.2).abs() < 1e-12);
    assert!((forecast.coverage66.unwrap() - 1.0 / 3.0).abs() < 1e-12);
    assert!((forecast.requests_mape.unwrap() - 0.1).abs() < 1e-12);
    assert_eq!(ForecastReport::new(Vec::new()), ForecastReport::default());
}

#[test]
fn the_comparison_has_its_charts_and_its_table() {
    let (report, comparison) = comparison();
    let html = comparison_page(&report, &comparison);
    for part in [
        "figure 2",
        "figure 3",
        "figure 4",
        "figure 5",
        "class=\"band\"",
        "class=\"level\"",
        "Beside the paper",
    ] {
        assert!(html.contains(part), "{part}");
    }
    for part in ["http://", "https://", "src=", "<script", "<b>\"", "/export/<b>", "NaN"] {
        assert!(!html.contains(part), "{part}");
    }
    let text = comparison_table(&report, &comparison);
    assert_eq!(text.lines().filter(|line| line.contains('!')).count(), 2, "one hour and the legend: {text}");
    assert!(text.contains("Clockwork: met 23 of 24, harmed 1"), "{text}");
    if let Some(folder) = std::env::var_os("CLOCKWORK_TEST_REPORT_FOLDER") {
        std::fs::write(std::path::Path::new(&folder).join("comparison.html"), &html).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn any_periods_make_a_finite_report(
        periods in prop::collection::vec(
            prop::collection::vec(("[a-c]{1,2}", prop::collection::vec(any::<u64>(), 0..5), any::<u64>()), 0..4),
            0..5,
        ),
        first_hour in any::<u32>(),
    ) {
        let records: Vec<_> = periods.into_iter().map(|stores| {
            let stores = stores.into_iter().map(|(name, times, reads)| {
                let mut counts = StoreCounts { bytes_read: reads, ..StoreCounts::default() };
                counts.requests.reads = reads >> 8;
                times.iter().for_each(|us| counts.count_answer(Class::Read, *us));
                StorePeriod { name, counts }
            });
            let span = PeriodSpan { start_unix_ms: reads_span(first_hour), length_ms: 1 };
            PeriodRecord { span, stores: stores.collect(), files: vec![], other: FileCounts::default() }
        }).collect();
        let report = Report::new(Facts { first_hour: u64::from(first_hour), ..facts() }, &records);
        prop_assert!(report.to_json().is_ok());
        let html = page(&report);
        prop_assert!(!html.contains("NaN") && !html.contains("inf"));
        prop_assert!(!table(&report).is_empty());
    }
}

fn reads_span(first_hour: u32) -> u64 {
    u64::from(first_hour) * 3_600_000
}
