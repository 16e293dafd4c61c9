//! One member of the recommended forecaster: a seasonal autoregression and the spectrum of its residual.

use crate::arima::{Profile, RegressionOptions, SeasonalAr, SeasonalSpec};
use crate::error::ForecastError;
use crate::linear::{dot, mean};
use crate::series::Cycles;
use crate::spectral::{ShrunkOptions, SpectralModel, deviations, innovations};
use crate::spectrum::Workspace;

/// Weight of the latest week in the smoothed weekly profile.
const WEEK_WEIGHT: f64 = 0.5;
/// Weight of the latest day in the smoothed daily profile.
const DAY_WEIGHT: f64 = 0.4;

/// What a member regresses on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Regressors {
    /// Lags around now and around a day ago, a weekly profile at five shifts (and a daily one at three, where the
    /// series is differenced).
    FullWeek,
    /// The same lags, the weekly profile as it stands (and the daily one).
    ShortWeek,
    /// The same lags and the daily profile.
    Day,
    /// Lags 1, 2, 3.
    Recent,
}

/// The specification of a member on a series with a cycle of `day` periods.
pub(super) fn specification(
    difference: usize,
    regressors: Regressors,
    day: usize,
    cycles: Cycles,
) -> SeasonalSpec {
    let profile = |cycle, weight, shifts: std::ops::RangeInclusive<isize>| {
        shifts.map(move |shift| Profile { cycle, weight, shift })
    };
    let week = cycles.week.unwrap_or(7 * day);
    let around_a_day = vec![1, 2, 3, day - 1, day, day + 1];
    let (lags, mut profiles): (Vec<usize>, Vec<Profile>) = match regressors {
        Regressors::FullWeek => (around_a_day, profile(week, WEEK_WEIGHT, -2..=2).collect()),
        Regressors::ShortWeek => (around_a_day, profile(week, WEEK_WEIGHT, 0..=0).collect()),
        Regressors::Day => (around_a_day, Vec::new()),
        Regressors::Recent => (vec![1, 2, 3], Vec::new()),
    };
    let daily = match regressors {
        Regressors::FullWeek | Regressors::ShortWeek => difference > 0,
        Regressors::Day => true,
        Regressors::Recent => false,
    };
    if daily {
        profiles.extend(profile(day, DAY_WEIGHT, -1..=1));
    }
    SeasonalSpec::new(difference, lags, profiles, cycles)
}

/// A fitted member.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// Mean of the transformed series when it was fitted (subtracted where there is no difference).
    pub mean: f64,
    /// The autoregression.
    pub ar: SeasonalAr,
    /// The spectrum of its residual.
    pub spectrum: SpectralModel,
    /// The (differenced or centred) series.
    r: Vec<f64>,
    /// The autoregression's residuals, from its burn-in on.
    u: Vec<f64>,
    /// Innovations, one for each of `u`.
    e: Vec<f64>,
}

impl Member {
    /// Fits `spec` to the transformed series `w`.
    pub(super) fn fit(
        w: &[f64],
        spec: SeasonalSpec,
        half_life: f64,
        ws: &mut Workspace,
    ) -> Result<Self, ForecastError> {
        let mean = mean(w);
        let r = spec.stationary(w, mean);
        let (ar, u) = SeasonalAr::fit(&r, spec, RegressionOptions::recommended(half_life))?;
        let (spectrum, e) = SpectralModel::fit_shrunk(&u, &ShrunkOptions::RECOMMENDED, ws)?;
        Ok(Self { mean, ar, spectrum, r, u, e })
    }

    /// Standard deviation of a one-step error on the transformed scale.
    pub fn innovation_deviation(&self) -> f64 {
        self.spectrum.innovation_variance.sqrt()
    }

    /// Innovations so far, oldest first.
    pub(super) fn innovations(&self) -> &[f64] {
        &self.e
    }

    /// Takes the next transformed value, `w` being all of them with it as the last; parameters stay.
    pub(super) fn observe(&mut self, w: &[f64]) {
        let Some((newest, before)) = w.split_last() else { return };
        let lag = self.ar.spec.difference;
        let level = if lag == 0 { self.mean } else { before[before.len() - lag] };
        let r = newest - level;
        let expected = self.ar.run(&self.r, &[0.0]);
        self.r.push(r);
        self.u.push(r - expected[0]);
        let newest_first: Vec<f64> = self.u.iter().rev().copied().collect();
        self.e.push(dot(&self.spectrum.ar, &newest_first));
    }

    /// Centres and deviations on the transformed scale, 1..=`horizon` periods after the last of `w`.
    pub(super) fn forecast(&self, w: &[f64], horizon: usize) -> (Vec<f64>, Vec<f64>) {
        let u = self.spectrum.forecast(&self.e, horizon);
        let mut f = self.ar.run(&self.r, &u);
        let mut psi = self.ar.run(&[], &self.spectrum.ma_weights(horizon));
        let lag = self.ar.spec.difference;
        for t in 0..horizon {
            f[t] += match (lag, t.checked_sub(lag)) {
                (0, _) => self.mean,
                (_, Some(before)) => f[before],
                (_, None) => w[w.len() + t - lag],
            };
            if lag > 0 && t >= lag {
                psi[t] += psi[t - lag];
            }
        }
        (f, deviations(&psi, self.spectrum.innovation_variance))
    }

    /// One-step predictions of `w[from..]`, each from everything before it, parameters kept.
    pub(super) fn one_step(&self, w: &[f64], from: usize, ws: &mut Workspace) -> Vec<f64> {
        let r = self.ar.spec.stationary(w, self.mean);
        let e = innovations(&self.spectrum.ar, &self.ar.residuals(&r), ws);
        let wanted = w.len() - from;
        w[from..].iter().zip(&e[e.len().saturating_sub(wanted)..]).map(|(w, e)| w - e).collect()
    }
}
