//! Simple methods to stand beside: naive, seasonal naive, Naive2, and exponential smoothing.

use crate::demand::normal_quantile;
use crate::linear::mean;

/// A method that everyone knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// The last value.
    Naive,
    /// The same period of the last season.
    SeasonalNaive,
    /// The last value, seasonally adjusted where the season is significant: the M4 competition's yardstick.
    Naive2,
    /// Additive exponential smoothing with a damped trend and a season (Holt-Winters), constants by least squares.
    ExponentialSmoothing,
}

impl Peer {
    /// All of them.
    pub const ALL: [Peer; 4] = [Peer::Naive, Peer::SeasonalNaive, Peer::Naive2, Peer::ExponentialSmoothing];

    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Peer::Naive => "naive",
            Peer::SeasonalNaive => "seasonal_naive",
            Peer::Naive2 => "naive2",
            Peer::ExponentialSmoothing => "exponential_smoothing",
        }
    }

    /// Forecasts with deviations 1..=`horizon` periods after `history` (no gaps); zeros for an empty history.
    pub fn forecast(self, history: &[f64], season: usize, horizon: usize) -> PeerForecast {
        let Some(&last) = history.last() else {
            return PeerForecast { point: vec![0.0; horizon], deviation: vec![0.0; horizon] };
        };
        let seasonal = season > 1 && history.len() >= 2 * season;
        match self {
            Peer::Naive => PeerForecast {
                point: vec![last; horizon],
                deviation: root_growth(lag_deviation(history, 1), 1, horizon),
            },
            Peer::SeasonalNaive if seasonal => PeerForecast {
                point: (0..horizon).map(|h| history[history.len() - season + h % season]).collect(),
                deviation: root_growth(lag_deviation(history, season), season, horizon),
            },
            Peer::SeasonalNaive => Peer::Naive.forecast(history, season, horizon),
            Peer::Naive2 => naive2(history, season, horizon),
            Peer::ExponentialSmoothing if seasonal => HoltWinters::fit(history, season).forecast(horizon),
            Peer::ExponentialSmoothing => HoltWinters::fit(history, 1).forecast(horizon),
        }
    }
}

/// One-step forecasts of `x[from..]` by `peer`, what it fits (indices, constants) fitted anew every `refit` periods.
pub(super) fn one_step(peer: Peer, x: &[f64], from: usize, season: usize, refit: usize) -> PeerForecast {
    let mut all = PeerForecast { point: Vec::new(), deviation: Vec::new() };
    let mut at = from;
    while at < x.len() {
        let end = (at + refit.max(1)).min(x.len());
        let history = &x[..at];
        let seasonal = season > 1 && at >= 2 * season;
        match peer {
            Peer::ExponentialSmoothing if at > 0 => {
                let fitted = HoltWinters::fit(history, if seasonal { season } else { 1 });
                let mut points = Vec::new();
                let m = fitted.seasonal.len();
                HoltWinters::run(&x[..end], m, fitted.constants, Some((at, &mut points)));
                all.deviation.resize(all.deviation.len() + points.len(), fitted.variance.sqrt());
                all.point.append(&mut points);
            }
            Peer::Naive2 if at > 0 => {
                let indices =
                    if is_seasonal(history, season) { seasonal_indices(history, season) } else { None };
                let indices = indices.unwrap_or_else(|| vec![1.0]);
                let index = |t: usize| indices[t % indices.len()];
                let adjusted: Vec<f64> = history.iter().enumerate().map(|(t, v)| v / index(t)).collect();
                let deviation = lag_deviation(&adjusted, 1);
                for t in at..end {
                    all.point.push(x[t - 1] / index(t - 1) * index(t));
                    all.deviation.push(deviation * index(t));
                }
            }
            _ => {
                for t in at..end {
                    let lag = if peer == Peer::SeasonalNaive && seasonal { season } else { 1 };
                    all.point.push(t.checked_sub(lag).map_or(0.0, |before| x[before]));
                    all.deviation.push(lag_deviation(history, lag));
                }
            }
        }
        at = end;
    }
    all
}

/// A peer's forecast with normal errors.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerForecast {
    /// Points, the first period ahead first.
    pub point: Vec<f64>,
    /// Standard deviations of their errors.
    pub deviation: Vec<f64>,
}

impl PeerForecast {
    /// The quantile `level` (within (0, 1)) of each period.
    pub fn quantile(&self, level: f64) -> Vec<f64> {
        let z = normal_quantile(level);
        self.point.iter().zip(&self.deviation).map(|(f, sd)| f + z * sd).collect()
    }
}

/// Root mean square of the differences at a lag.
fn lag_deviation(x: &[f64], lag: usize) -> f64 {
    let squares: Vec<f64> = x.iter().skip(lag).zip(x).map(|(a, b)| (a - b).powi(2)).collect();
    mean(&squares).sqrt()
}

/// A deviation that grows with the root of the number of lags passed.
fn root_growth(deviation: f64, lag: usize, horizon: usize) -> Vec<f64> {
    (0..horizon).map(|h| deviation * ((h / lag + 1) as f64).sqrt()).collect()
}

fn naive2(history: &[f64], season: usize, horizon: usize) -> PeerForecast {
    let indices = if is_seasonal(history, season) { seasonal_indices(history, season) } else { None };
    let Some(indices) = indices else { return Peer::Naive.forecast(history, season, horizon) };
    let adjusted: Vec<f64> = history.iter().enumerate().map(|(t, v)| v / indices[t % season]).collect();
    let naive = Peer::Naive.forecast(&adjusted, 1, horizon);
    let index = |h: usize| indices[(history.len() + h) % season];
    PeerForecast {
        point: naive.point.iter().enumerate().map(|(h, f)| f * index(h)).collect(),
        deviation: naive.deviation.iter().enumerate().map(|(h, sd)| sd * index(h)).collect(),
    }
}

/// Whether the autocorrelation at lag `season` is beyond its 90 % limits (three seasons and more of history).
fn is_seasonal(x: &[f64], season: usize) -> bool {
    if season < 2 || x.len() < 3 * season {
        return false;
    }
    let m = mean(x);
    let covariance = |k: usize| x[k..].iter().zip(x).map(|(a, b)| (a - m) * (b - m)).sum::<f64>();
    let variance = covariance(0);
    if variance <= 0.0 {
        return false;
    }
    let squares: f64 = (1..season).map(|k| (covariance(k) / variance).powi(2)).sum();
    let limit = 1.645 * ((1.0 + 2.0 * squares) / x.len() as f64).sqrt();
    (covariance(season) / variance).abs() > limit
}

/// Multiplicative indices by position in the season, mean 1, from ratios to a centred moving average; `None` where
/// one of them cannot divide.
fn seasonal_indices(x: &[f64], season: usize) -> Option<Vec<f64>> {
    let half = season / 2;
    let (mut sums, mut counts) = (vec![0.0; season], vec![0.0; season]);
    for t in half..x.len().saturating_sub(half) {
        let window = &x[t - half..=t + half];
        let mut sum: f64 = window.iter().sum();
        if season.is_multiple_of(2) {
            sum -= 0.5 * (window[0] + window[window.len() - 1]);
        }
        let trend = sum / season as f64;
        if trend != 0.0 {
            sums[t % season] += x[t] / trend;
            counts[t % season] += 1.0;
        }
    }
    let figures: Vec<f64> = sums.iter().zip(&counts).map(|(s, n)| s / n).collect();
    let level = mean(&figures);
    let indices: Vec<f64> = figures.iter().map(|f| f / level).collect();
    indices.iter().all(|i| i.is_finite() && *i > 0.0).then_some(indices)
}

/// Additive error, damped trend, additive season.
struct HoltWinters {
    constants: [f64; 4],
    level: f64,
    trend: f64,
    seasonal: Vec<f64>,
    variance: f64,
}

/// Constants tried first; the search goes on from the best.
const STARTS: [[f64; 4]; 4] =
    [[0.3, 0.01, 0.1, 0.9], [0.8, 0.01, 0.1, 0.9], [0.1, 0.01, 0.3, 0.9], [0.9, 0.1, 0.01, 0.95]];
/// Ranges of level, trend, season and damping constants.
const RANGES: [(f64, f64); 4] = [(0.001, 0.999), (0.0001, 0.5), (0.0001, 0.7), (0.8, 0.98)];

impl HoltWinters {
    fn fit(x: &[f64], season: usize) -> Self {
        let error = |constants: [f64; 4]| Self::run(x, season, constants, None).variance;
        let start = |a: &[f64; 4], b: &[f64; 4]| error(*a).total_cmp(&error(*b));
        let mut best = STARTS.iter().copied().min_by(start).unwrap_or(STARTS[0]);
        let mut least = error(best);
        let mut reach = 0.5;
        while reach > 0.02 {
            let mut improved = false;
            for (i, (low, high)) in RANGES.iter().enumerate() {
                for way in [-1.0, 1.0] {
                    let mut tried = best;
                    tried[i] = (tried[i] + way * reach * 0.3 * (high - low)).clamp(*low, *high);
                    let e = error(tried);
                    if e < least {
                        (best, least, improved) = (tried, e, true);
                    }
                }
            }
            if !improved {
                reach *= 0.5;
            }
        }
        Self::run(x, season, best, None)
    }

    /// Runs the recursions over `x`; the one-step forecasts from a position on are put where asked.
    fn run(x: &[f64], season: usize, constants: [f64; 4], mut steps: Option<(usize, &mut Vec<f64>)>) -> Self {
        let [alpha, beta, gamma, phi] = constants;
        let first = &x[..season.min(x.len())];
        let mut level = mean(first);
        let mut seasonal: Vec<f64> =
            if season > 1 { first.iter().map(|v| v - level).collect() } else { vec![0.0] };
        let mut trend = 0.0;
        let (mut squares, mut n) = (0.0, 0.0);
        for (t, v) in x.iter().enumerate().skip(season.min(x.len())) {
            let at = t % seasonal.len();
            let forecast = level + phi * trend + seasonal[at];
            if let Some((from, points)) = &mut steps
                && t >= *from
            {
                points.push(forecast);
            }
            let e = v - forecast;
            level += phi * trend + alpha * e;
            trend = phi * trend + alpha * beta * e;
            if season > 1 {
                seasonal[at] += gamma * (1.0 - alpha) * e;
            }
            squares += e * e;
            n += 1.0;
        }
        let next = x.len() % seasonal.len();
        seasonal.rotate_left(next);
        Self { constants, level, trend, seasonal, variance: if n > 0.0 { squares / n } else { 0.0 } }
    }

    fn forecast(&self, horizon: usize) -> PeerForecast {
        let [alpha, beta, gamma, phi] = self.constants;
        let m = self.seasonal.len();
        let (mut damped, mut trend_sum, mut growth, mut sum) = (1.0, 0.0, 0.0, 1.0);
        let (mut point, mut deviation) = (Vec::with_capacity(horizon), Vec::with_capacity(horizon));
        for h in 0..horizon {
            damped *= phi;
            trend_sum += damped;
            point.push(self.level + trend_sum * self.trend + self.seasonal[h % m]);
            deviation.push((self.variance * sum).sqrt());
            growth += damped;
            let season = if m > 1 && (h + 1) % m == 0 { gamma * (1.0 - alpha) } else { 0.0 };
            let c = alpha * (1.0 + beta * growth) + season;
            sum += c * c;
        }
        PeerForecast { point, deviation }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seasonal(n: usize) -> Vec<f64> {
        (0..n).map(|t| 10.0 + [0.0, 4.0, 1.0, -5.0][t % 4]).collect()
    }

    #[test]
    fn a_repeating_season_is_repeated_by_all_that_know_seasons() {
        let x = seasonal(42);
        let next = &seasonal(50)[42..];
        for peer in [Peer::SeasonalNaive, Peer::Naive2, Peer::ExponentialSmoothing] {
            let f = peer.forecast(&x, 4, 8);
            let off = f.point.iter().zip(next).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(off < 1e-6, "{}: {off}", peer.name());
            assert_eq!(f.quantile(0.5), f.point);
        }
        assert_eq!(Peer::Naive.forecast(&x, 4, 2).point, [x[41]; 2]);
    }

    #[test]
    fn nothing_is_asked_of_a_history_that_is_not_there() {
        for peer in Peer::ALL {
            assert_eq!(peer.forecast(&[], 24, 3).point, [0.0; 3]);
            assert_eq!(peer.forecast(&[7.0], 24, 3).point, [7.0; 3]);
            assert!(peer.forecast(&[0.0; 100], 24, 3).point.iter().all(|v| *v == 0.0));
        }
    }
}
