//! The report in words, and as a page.

use super::{Moment, StressOperationReport, StressReport};
use crate::page::chart::{Along, Shaded};
use crate::page::format::percent;
use crate::page::load::{LoadPage, Point, rounded};
use crate::report::{lag_note, times_text};
use std::fmt::Write as _;

impl StressReport {
    /// The report as text.
    #[must_use]
    pub fn text(&self) -> String {
        // Writing to a string cannot fail.
        let mut out = format!("{}\n{}\n\n", self.title(), self.subtitle());
        out.push_str(&self.run.faults_text());
        out.push_str(
            "operation       called      good errors unsupp resent  share wanted    mean     dev     p50     p95     p99   p99.9  p99.99  ms\n",
        );
        for op in &self.operations {
            let _ = writeln!(
                out,
                "{:<12} {:>9} {:>9} {:>6} {:>6} {:>6} {:>5.1}% {:>5.1}% {}",
                op.operation.name(),
                op.called,
                op.good,
                op.errors + op.unanswered,
                op.unsupported,
                op.retransmissions,
                op.share * 100.0,
                op.share_wanted * 100.0,
                times_text(&op.response)
            );
        }
        let _ = writeln!(
            out,
            "{:<12} {:>9} {:>9} {:>6} {:>6} {:>6} {:>5.1}%        {}\n",
            "all",
            self.called,
            self.good,
            self.errors + self.unanswered,
            self.unsupported,
            self.retransmissions,
            100.0,
            times_text(&self.response)
        );
        if self.workloads.len() > 1 {
            for load in &self.workloads {
                let _ = writeln!(
                    out,
                    "{:<12} {:>9} called, {:.1} got a second, mean {} ms, p99 {} ms",
                    load.name,
                    load.called,
                    load.got_per_s,
                    rounded(load.response.mean_ms),
                    rounded(load.response.p99_ms)
                );
            }
            out.push('\n');
        }
        for line in self.notes() {
            let _ = writeln!(out, "{line}");
        }
        out
    }

    fn title(&self) -> String {
        let names: Vec<&str> = self.workloads.iter().map(|load| load.name.as_str()).collect();
        format!("{} against {}", names.join(", "), self.run.target)
    }

    fn subtitle(&self) -> String {
        let loop_text = match self.closed_outstanding {
            Some(outstanding) => format!("closed loop, {outstanding} calls on their way"),
            None => "open loop".into(),
        };
        format!(
            "{loop_text}, {} connections over {}, {} threads; {} s after {} s of warm-up; data {}",
            self.run.connections,
            self.run.transport.name(),
            self.run.lanes,
            self.phases_s[1],
            self.phases_s[0],
            if self.run.verified { "checked" } else { "not checked" },
        )
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![
            format!(
                "wanted {:.1} calls/s, called {:.1}, got {:.1}; mean response {} ms; read {:.2} MB/s, written {:.2} MB/s",
                self.wanted_per_s,
                self.called_per_s,
                self.got_per_s,
                rounded(self.response.mean_ms),
                self.read_bytes_per_s / 1e6,
                self.written_bytes_per_s / 1e6
            ),
            lag_note(&self.lag),
        ];
        for load in &self.workloads {
            notes.push(format!(
                "{}: {} files, {:.1} MB, {} written before the run",
                load.name,
                load.files,
                load.file_bytes as f64 / 1e6,
                load.files_written
            ));
        }
        notes.extend(self.absent.iter().map(|what| format!("absent: {what}")));
        notes.extend(self.error_kinds.iter().map(|(kind, count)| format!("error: {count} x {kind}")));
        if self.unanswered > 0 {
            notes.push(format!("{} calls had no answer at the end", self.unanswered));
        }
        if self.not_sent > 0 {
            notes.push(format!(
                "saturated: {} calls were not sent, because too many were on their way",
                self.not_sent
            ));
        }
        if self.substituted > 0 {
            notes.push(format!(
                "{} calls became others because there was nothing they could be done to (such as REMOVE before any CREATE)",
                self.substituted
            ));
        }
        if self.names_left > 0 {
            notes.push(format!("{} names made by this run could not be removed", self.names_left));
        }
        notes
    }

    /// The report as one page of HTML that needs nothing else.
    #[must_use]
    pub fn page(&self) -> String {
        let mut facts = self.notes();
        facts.insert(
            0,
            format!(
                "largest READ {} bytes, largest WRITE {} bytes",
                self.data_bytes_max[0], self.data_bytes_max[1]
            ),
        );
        let point = |moment: &Moment| Point {
            response_ms: (moment.mean_ms.zip(moment.p50_ms).zip(moment.p99_ms))
                .map(|((mean, median), p99)| [mean, median, p99]),
            rates: [moment.wanted_per_s, moment.called_per_s, moment.got_per_s],
        };
        let middle = |moment: &Moment| moment.at_s + self.moment_s / 2.0;
        let measured = (self.phases_s[0], self.phases_s[0] + self.phases_s[1]);
        LoadPage {
            title: self.title(),
            about: self.subtitle(),
            invalid: self.run.invalid_reasons.clone(),
            rates: [self.wanted_per_s, self.called_per_s, self.got_per_s],
            response: self.response,
            lag: self.lag,
            along: Along::Points(self.timeline.iter().map(middle).collect()),
            along_axis: "seconds since the start".into(),
            shaded: Some(Shaded { range: measured, name: "measured" }),
            points: self.timeline.iter().map(point).collect(),
            header: [
                "operation",
                "called",
                "good",
                "errors",
                "unsupported",
                "resent",
                "share",
                "share wanted",
                "mean",
                "deviation",
                "p50",
                "p95",
                "p99",
                "p99.9",
                "p99.99",
            ]
            .map(String::from)
            .to_vec(),
            rows: self.operations.iter().map(row).collect(),
            facts,
        }
        .html()
    }
}

fn row(op: &StressOperationReport) -> Vec<String> {
    let mut row = vec![op.operation.name().to_owned()];
    row.extend(
        [op.called, op.good, op.errors + op.unanswered, op.unsupported, op.retransmissions]
            .map(|n| n.to_string()),
    );
    row.extend([percent(op.share), percent(op.share_wanted)]);
    row.extend(op.response.figures().map(rounded));
    row
}
