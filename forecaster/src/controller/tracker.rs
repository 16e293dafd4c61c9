//! Tracks demand: the fitted total, hot files by their own history, and every file's share of the total.
//!
//! Parameters are fitted once a day (oftener while the history is short); in between, periods are taken as they come. A
//! file's share is the better of two, weighed by how well they have said its counts: the averaged gamma share
//! ([`crate::demand::share`]), and its share at the same time of past days, which knows a nightly batch. Hot files are
//! half that, half their own forecast. Spikes are taken out of what is fitted to ([`crate::series`]), so that a burst of an
//! hour does not come again in the next day's forecast.
//!
//! Heat to plan with is on the safe side: for the next period the larger of a slow share (.05) of the total's forecast and
//! the last share of it (the last count instead, where the last total was beyond the noise of its forecast), further
//! ahead the larger of slow share and forecast. Files that a schedule wakes are planned with their forecast, and the
//! others' shares are of what is left of the total.

use std::sync::Arc;

use rayon::prelude::*;

use super::decision::Note;
use super::forecasts::{Forecasts, Z66};
use super::history::History;
use super::peaks::Peaks;
use super::reports::FileId;
use super::settings::Settings;
use crate::demand::{Demand, DemandForecast, FittedDemand, Share, Total};
use crate::error::ForecastError;
use crate::plan::Heat;
use crate::series::Series;
use crate::series::{SIDE, signed, spikes, without_spikes};
use crate::spectrum::Workspace;

/// What a period weighs in the slow share.
const SLOW: f64 = 0.05;
/// What a day ago weighs against a day later in the share at a time of day.
const DAY_MEMORY: f64 = 0.7;
/// Most times of day told apart.
const SLOTS_MAX: usize = 48;
/// What the evidence for the share at a time of day keeps of itself each period.
const EVIDENCE_MEMORY: f64 = 0.99;
/// Evidence (log likelihood ratio) that is asked for before that share gets half the weight.
const EVIDENCE_ASKED: f64 = 4.0;
/// Counts scatter more than Poisson: their log likelihoods count for this much.
const EVIDENCE_TEMPER: f64 = 0.5;
/// Weight of its share at the time of day from which a file goes by a schedule.
const SCHEDULED: f64 = 0.5;
/// Deviations of the total's forecast within which the last period's total is noise.
const SURGE_DEVIATIONS: f64 = 3.0;
/// Part of the total that is left at least for files that go by no schedule.
const REST_LEAST: f64 = 0.1;
/// Quantile of the total's forecasts that a peak is expected to reach.
const PEAK_QUANTILE: f64 = 0.8;
/// How far forecasts of files are scaled to add up to the total's.
const RECONCILED: (f64, f64) = (0.7, 1.4);
/// Periods of history below which parameters are fitted oftener than daily.
const SHORT_PERIODS: usize = 336;

/// Demand, tracked.
pub(super) struct Tracker {
    /// First period of the window fitted to.
    first: i64,
    /// Newest period taken.
    last: i64,
    fitted_at: i64,
    fitted_periods: usize,
    missing: usize,
    total_fit: FittedDemand,
    total: Total,
    expected: f64,
    files: Vec<File>,
    /// Slow averages of the total and of what is not listed.
    slow_total: f64,
    slow_unlisted: f64,
    day: usize,
    peaks: Peaks,
    /// Traffic at each time of day, fading.
    exposure: Vec<f64>,
    hot: Vec<(FileId, FittedDemand)>,
    settings: Settings,
}

/// What is known of a file.
struct File {
    share: Share,
    slow: f32,
    newest: f32,
    evidence: f32,
    /// Requests at each time of day, fading.
    slots: Box<[f32]>,
}

/// What all files have in common in a period.
#[derive(Clone, Copy)]
struct Step {
    total: f64,
    slot: usize,
    exposure: f64,
    slow_total: f64,
}

impl File {
    /// Takes a count (NaN = missing); the share apart.
    fn step(&mut self, count: f64, step: &Step) {
        if count.is_nan() || step.total.is_nan() {
            return;
        }
        let slot = &mut self.slots[step.slot];
        if step.exposure > 0.0 && step.slow_total > 0.0 && step.total > 0.0 {
            let slow = f64::from(self.slow);
            let by_slow = step.total * slow / step.slow_total + 1e-3;
            let by_day = step.total * (f64::from(*slot) + slow) / (step.exposure + step.slow_total) + 1e-3;
            let some = if count > 0.0 { count * (by_day / by_slow).ln() } else { 0.0 };
            let ratio = EVIDENCE_TEMPER * (some - (by_day - by_slow));
            self.evidence = (EVIDENCE_MEMORY * f64::from(self.evidence) + ratio).clamp(-50.0, 50.0) as f32;
        }
        *slot = (DAY_MEMORY * f64::from(*slot) + count) as f32;
        self.slow += (SLOW * (count - f64::from(self.slow))) as f32;
        self.newest = count as f32;
    }

    /// Whether a schedule wakes it.
    fn is_scheduled(&self) -> bool {
        self.day_weight() > SCHEDULED
    }

    /// Weight of the share at the time of day.
    fn day_weight(&self) -> f64 {
        1.0 / (1.0 + (EVIDENCE_ASKED - f64::from(self.evidence)).exp())
    }
}

impl Tracker {
    /// Fits to the last periods of a history; `None` where it has none.
    pub(super) fn fit<H: History>(
        history: &H,
        settings: &Settings,
        ws: &mut Workspace,
    ) -> Result<Self, ForecastError> {
        let last = history.last_period().ok_or(ForecastError::Empty)?;
        let mut totals = vec![f64::NAN; settings.history_periods];
        let earliest = last.saturating_sub(signed(settings.history_periods) - 1);
        history.totals(earliest, &mut totals);
        let leading = totals.iter().take_while(|v| v.is_nan()).count();
        let totals = totals.split_off(leading);
        let first = earliest.saturating_add(signed(leading));
        let demand = Demand { cycles: settings.cycles, ..Demand::recommended() };
        let start = first.saturating_mul(i64::from(settings.period_seconds));
        let series = Series::new(totals, settings.period_seconds, start)?;
        let total_fit = fit_without_spikes(&demand, &series, ws)?;
        let totals = series.values();
        let count = history.files();
        let total = Total::new(totals, &total_fit.fitted_means(), total_fit.cycles(), count)?;
        let day = settings.day();
        let mut tracker = Self {
            first,
            last,
            fitted_at: last,
            fitted_periods: totals.len(),
            missing: totals.len() - series.known(),
            expected: total_fit.forecast(1)?.mean()[0],
            total_fit,
            total,
            files: Vec::new(),
            slow_total: 0.0,
            slow_unlisted: 0.0,
            day,
            peaks: Peaks::default(),
            exposure: vec![0.0; day.min(SLOTS_MAX)],
            hot: Vec::new(),
            settings: settings.clone(),
        };
        let steps: Vec<Step> =
            (first..).zip(totals).map(|(p, total)| tracker.step_common(p, *total)).collect();
        tracker.fit_files(history, &steps, count)?;
        tracker.fit_hot(history, &demand, start);
        tracker.peaks.update(history, last, day, tracker.files.len());
        Ok(tracker)
    }

    /// Time of day of a period.
    fn slot(&self, period: i64) -> usize {
        let time = period.rem_euclid(signed(self.day)) as usize;
        time * self.exposure.len() / self.day
    }

    /// Takes the total of a period and says what files are to know of it.
    fn step_common(&mut self, period: i64, total: f64) -> Step {
        self.peaks.take(total, self.day);
        let slot = self.slot(period);
        let step = Step { total, slot, exposure: self.exposure[slot], slow_total: self.slow_total };
        if !total.is_nan() {
            self.exposure[slot] = DAY_MEMORY * self.exposure[slot] + total;
            self.slow_total += SLOW * (total - self.slow_total);
        }
        step
    }

    fn fit_files<H: History>(
        &mut self,
        history: &H,
        steps: &[Step],
        count: usize,
    ) -> Result<(), ForecastError> {
        let (first, total, slots) = (self.first, &self.total, self.exposure.len());
        let fit = |buffer: &mut Vec<f64>, index: usize| {
            buffer.resize(steps.len(), 0.0);
            history.file(FileId(index as u32), first, buffer);
            let share = Share::fit(buffer, total)?;
            let mut file =
                File { share, slow: 0.0, newest: 0.0, evidence: 0.0, slots: vec![0.0; slots].into() };
            buffer.iter().zip(steps).for_each(|(count, step)| file.step(*count, step));
            Ok(file)
        };
        let new = self.files.len()..count;
        let fitted: Result<Vec<File>, ForecastError> = new.into_par_iter().map_init(Vec::new, fit).collect();
        self.files.extend(fitted?);
        let listed: f64 = self.files.iter().map(|f| f64::from(f.slow)).sum();
        self.slow_unlisted = (self.slow_total - listed).max(0.0);
        Ok(())
    }

    /// Chooses the hottest files, by the mean square of their counts in the last week (so that one that is hot once a
    /// night counts), and fits their own histories.
    fn fit_hot<H: History>(&mut self, history: &H, demand: &Demand, start: i64) {
        let week = (7 * self.day).min(self.fitted_periods);
        let from = self.last.saturating_sub(signed(week) - 1);
        let square = |buffer: &mut Vec<f64>, index: usize| {
            buffer.resize(week, 0.0);
            history.file(FileId(index as u32), from, buffer);
            (index, buffer.iter().filter(|v| !v.is_nan()).map(|v| v * v).sum::<f64>())
        };
        let mut hottest: Vec<(usize, f64)> =
            (0..self.files.len()).into_par_iter().map_init(Vec::new, square).collect();
        hottest.retain(|f| f.1 > 0.0);
        let kept = self.settings.hot_files_max.min(hottest.len());
        if kept < hottest.len() {
            hottest.select_nth_unstable_by(kept, |a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            hottest.truncate(kept);
        }
        let (first, periods, seconds) = (self.first, self.fitted_periods, self.settings.period_seconds);
        let fit = |ws: &mut Workspace, (index, _): (usize, f64)| {
            let file = FileId(index as u32);
            let mut counts = vec![0.0; periods];
            history.file(file, first, &mut counts);
            let series = Series::new(counts, seconds, start).ok()?;
            Some((file, fit_without_spikes(demand, &series, ws).ok()?))
        };
        self.hot = hottest.into_par_iter().map_init(Workspace::new, fit).flatten().collect();
        self.hot.sort_by_key(|h| h.0);
    }

    /// Whether parameters are to be fitted anew before the history's newest period is forecast from.
    pub(super) fn due(&self, newest: i64) -> bool {
        let since = newest.saturating_sub(self.fitted_at);
        let short = self.fitted_periods < SHORT_PERIODS;
        let every = if short { (self.fitted_periods / 10).clamp(1, self.day) } else { self.day };
        newest < self.last || since >= signed(every)
    }

    /// Takes the periods of the history that are newer.
    pub(super) fn advance<H: History>(&mut self, history: &H) -> Result<(), ForecastError> {
        let newest = history.last_period().unwrap_or(self.last);
        while self.last < newest {
            self.last += 1;
            self.take(history)?;
        }
        self.peaks.update(history, self.last, self.day, self.files.len());
        Ok(())
    }

    fn take<H: History>(&mut self, history: &H) -> Result<(), ForecastError> {
        let period = self.last;
        let mut total = [f64::NAN];
        history.totals(period, &mut total);
        let total = total[0];
        self.missing += usize::from(total.is_nan());
        self.total.push(total, if total.is_nan() { f64::NAN } else { self.expected });
        self.total_fit.observe(total)?;
        self.forget_spikes(history)?;
        self.expected = self.total_fit.forecast(1)?.mean()[0];
        let step = self.step_common(period, total);
        let prepared = &self.total;
        let mut listed = 0.0;
        for (index, file) in self.files.iter_mut().enumerate() {
            let mut count = [0.0];
            history.file(FileId(index as u32), period, &mut count);
            file.share.observe(count[0], prepared)?;
            file.step(count[0], &step);
            listed += if count[0].is_nan() { 0.0 } else { count[0] };
        }
        self.take_new_files(history, &mut listed)?;
        if !total.is_nan() {
            self.slow_unlisted += SLOW * ((total - listed).max(0.0) - self.slow_unlisted);
        }
        self.hot.par_iter_mut().for_each(|(file, fitted)| {
            let mut count = [f64::NAN];
            history.file(*file, period, &mut count);
            // Only counts beyond any measure are refused; the file then keeps the forecast it had.
            let _ = fitted.observe(count[0]);
        });
        Ok(())
    }

    /// Fits the total again where one of the last periods has turned out to be a spike: it must not come again tomorrow.
    fn forget_spikes<H: History>(&mut self, history: &H) -> Result<(), ForecastError> {
        let cycles = self.total_fit.cycles();
        let Some(day) = cycles.day else { return Ok(()) };
        let window = usize::try_from(self.last.saturating_sub(self.first)).unwrap_or(0) + 1;
        let mut totals = vec![f64::NAN; window.min(cycles.week.unwrap_or(day) + 3 * day)];
        history.totals(self.last.saturating_sub(signed(totals.len()) - 1), &mut totals);
        if spikes(&totals, cycles).iter().all(|spike| spike.index + SIDE + 1 < totals.len()) {
            return Ok(());
        }
        let mut totals = vec![f64::NAN; window];
        history.totals(self.first, &mut totals);
        let seconds = self.settings.period_seconds;
        let series = Series::new(totals, seconds, self.first.saturating_mul(i64::from(seconds)))?;
        let demand = Demand::recommended().with_cycles(cycles);
        self.total_fit = fit_without_spikes(&demand, &series, &mut Workspace::new())?;
        Ok(())
    }

    /// Files first seen since: as if they had been there without a request.
    fn take_new_files<H: History>(&mut self, history: &H, listed: &mut f64) -> Result<(), ForecastError> {
        let slots = self.exposure.len();
        let periods = self.total.periods();
        for index in self.files.len()..history.files() {
            let mut counts = vec![0.0; periods];
            history.file(FileId(index as u32), self.first, &mut counts);
            let share = Share::fit(&counts, &self.total)?;
            let newest = counts.last().copied().filter(|c| c.is_finite()).unwrap_or(0.0);
            let mut file = File {
                share,
                slow: 0.0,
                newest: newest as f32,
                evidence: 0.0,
                slots: vec![0.0; slots].into(),
            };
            file.slow = (SLOW * newest) as f32;
            file.slots[self.slot(self.last)] = newest as f32;
            *listed += newest;
            self.files.push(file);
        }
        Ok(())
    }

    /// Forecasts the periods after the newest one taken.
    pub(super) fn forecast(&self) -> Result<Arc<Forecasts>, ForecastError> {
        let horizon = self.settings.horizon;
        let total = self.total_fit.forecast(horizon)?;
        let total_log_deviation = log_deviations(&total)?;
        let own: Vec<(FileId, DemandForecast)> = self
            .hot
            .par_iter()
            .filter_map(|(file, fitted)| Some((*file, fitted.forecast(horizon).ok()?)))
            .collect();
        let mut reported = Heat::new(self.files.len(), horizon);
        let mut variance = vec![0.0f32; self.files.len()];
        self.report(&total, &own, &mut reported, &mut variance);
        self.reconcile(&total, &mut reported);
        let planning = self.plan_heat(&total, &reported);
        let stress = self.stress(&total)?;
        let mut notes = Vec::new();
        if self.missing > 0 {
            notes.push(Note::Gaps { missing: self.missing, of: self.total.periods() });
        }
        Ok(Arc::new(Forecasts {
            period: self.last.saturating_add(1),
            total,
            total_log_deviation,
            reported,
            planning,
            stress: Some(stress),
            variance,
            last: self.files.iter().map(|file| file.newest).collect(),
            notes,
        }))
    }

    /// Means of every file in the periods ahead, and the variance in the next one.
    fn report(
        &self,
        total: &DemandForecast,
        own: &[(FileId, DemandForecast)],
        reported: &mut Heat,
        variance: &mut [f32],
    ) {
        let horizon = total.horizon();
        let slots: Vec<usize> =
            (1..=signed(horizon)).map(|h| self.slot(self.last.saturating_add(h))).collect();
        let means = total.mean();
        let each = |(file, (row, variance)): (&File, (&mut [f32], &mut f32))| {
            let averaged = file.share.share(&self.total);
            let weight = file.day_weight();
            let slow = f64::from(file.slow);
            for (h, place) in row.iter_mut().enumerate() {
                let exposure = self.exposure[slots[h]] + self.slow_total;
                let by_day = if exposure > 0.0 {
                    (f64::from(file.slots[slots[h]]) + slow) / exposure
                } else {
                    averaged
                };
                let share = weight * by_day.min(1.0) + (1.0 - weight) * averaged;
                *place = (share * means[h]) as f32;
            }
            let mean = f64::from(row[0]);
            *variance = (mean + file.share.dispersion() * mean * mean).min(1e30) as f32;
        };
        let rows = reported.rows_mut().par_chunks_exact_mut(horizon).zip(variance.par_iter_mut());
        self.files.par_iter().zip(rows).with_min_len(4096).for_each(each);
        for (file, forecast) in own {
            for h in 1..=horizon {
                let half = 0.5 * (forecast.mean()[h - 1] + reported.at(*file, h));
                reported.set(*file, h, half);
            }
            if let Ok((low, high)) = forecast.interval(0.66) {
                let deviation = (high[0] - low[0]) / (2.0 * Z66);
                variance[file.index()] = (deviation * deviation).min(1e30) as f32;
            }
        }
    }

    /// Heat in peaks that may come, forecast or not: as in the last days, and by the slow shares of files that go by no
    /// schedule.
    fn stress(&self, total: &DemandForecast) -> Result<Heat, ForecastError> {
        let high = total.quantile(PEAK_QUANTILE)?.into_iter().fold(0.0, f64::max);
        let steady: Vec<f32> =
            self.files.iter().map(|file| if file.is_scheduled() { 0.0 } else { file.slow }).collect();
        Ok(self.peaks.stress(high, self.listed(), &steady))
    }

    /// Share of the total that is of files listed.
    fn listed(&self) -> f64 {
        let share = if self.slow_total > 0.0 { self.slow_unlisted / self.slow_total } else { 0.0 };
        if share < 1e-6 { 1.0 } else { 1.0 - share.min(1.0) }
    }

    /// Scales the files' means so that they add up to the total's, within reason.
    fn reconcile(&self, total: &DemandForecast, reported: &mut Heat) {
        let unlisted = 1.0 - self.listed();
        let horizon = total.horizon();
        let sums = reported.totals();
        let mut factors = vec![1.0f32; horizon];
        for h in 0..horizon {
            let mean = total.mean()[h];
            reported.set_unlisted(h + 1, unlisted * mean);
            if sums[h] > 0.0 {
                factors[h] = ((1.0 - unlisted) * mean / sums[h]).clamp(RECONCILED.0, RECONCILED.1) as f32;
            }
        }
        for row in reported.rows_mut().chunks_exact_mut(horizon) {
            row.iter_mut().zip(&factors).for_each(|(heat, factor)| *heat *= factor);
        }
    }

    /// Heat to plan with. What a schedule wakes is planned as forecast, and does not make the other files hotter: their
    /// slow and last shares are of the rest of the total.
    fn plan_heat(&self, total: &DemandForecast, reported: &Heat) -> Heat {
        let mut planning = reported.clone();
        let horizon = total.horizon();
        let inverse = if self.slow_total > 0.0 { 1.0 / self.slow_total } else { 0.0 };
        let mut rest: Vec<f64> = total.mean().iter().map(|mean| mean * self.listed()).collect();
        let (mut slow, mut newest) = (0.0, 0.0);
        for (row, file) in planning.rows_mut().chunks_exact(horizon).zip(&self.files) {
            if file.is_scheduled() {
                rest.iter_mut().zip(row).for_each(|(rest, heat)| *rest -= f64::from(*heat));
            } else {
                slow += f64::from(file.slow) * inverse;
                newest += f64::from(file.newest);
            }
        }
        let least = total.mean().iter().map(|mean| REST_LEAST * mean);
        rest.iter_mut().zip(least).for_each(|(rest, least)| *rest = rest.max(least));
        // Within its own noise the last total says nothing that the forecast does not know; beyond, it does.
        let turn = if newest > 0.0 { rest[0] / newest } else { 1.0 };
        let noise =
            SURGE_DEVIATIONS * log_deviations(total).map_or(0.0, |d| d.first().copied().unwrap_or(0.0));
        let turn = if turn.ln().abs() <= noise { turn } else { 1.0 };
        let per_slow = if slow > 0.0 { inverse / slow } else { 0.0 };
        for (row, file) in planning.rows_mut().chunks_exact_mut(horizon).zip(&self.files) {
            if file.is_scheduled() {
                continue;
            }
            let share = f64::from(file.slow) * per_slow;
            for (h, heat) in row.iter_mut().enumerate() {
                let steady = (share * rest[h]) as f32;
                let last = turn * f64::from(file.newest);
                *heat = steady.max(if h > 0 { *heat } else { last as f32 });
            }
        }
        planning
    }
}

/// A fit that takes no spike for a cycle.
fn fit_without_spikes(
    demand: &Demand,
    series: &Series,
    ws: &mut Workspace,
) -> Result<FittedDemand, ForecastError> {
    let fitted = demand.fit(series, ws)?;
    let Some(cleaned) = without_spikes(series.values(), fitted.cycles()) else { return Ok(fitted) };
    let cleaned = Series::new(cleaned, series.period_seconds(), series.start_seconds())?;
    // The cycles were found in what there is, not in what is left.
    let demand = fitted.cycles().day.map_or(*demand, |_| demand.with_cycles(fitted.cycles()));
    demand.fit(&cleaned, ws)
}

/// Standard deviations of a total on the log scale, from its 66 % intervals.
fn log_deviations(total: &DemandForecast) -> Result<Vec<f64>, ForecastError> {
    let (low, high) = total.interval(0.66)?;
    Ok(low.iter().zip(&high).map(|(low, high)| ((high + 1.0) / (low + 1.0)).ln() / (2.0 * Z66)).collect())
}
