//! The little linear algebra that regressions need: dot products, and symmetric positive definite systems.

use ndarray::{Array1, Array2};

/// Sum of products over the shorter of both; eight running sums, so that the compiler can use vector units.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let n = a.len().min(b.len());
    let (a, b) = (&a[..n], &b[..n]);
    let mut sums = [0.0f64; 8];
    let (chunks_a, chunks_b) = (a.chunks_exact(8), b.chunks_exact(8));
    let tail: f64 = chunks_a.remainder().iter().zip(chunks_b.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in chunks_a.zip(chunks_b) {
        for k in 0..8 {
            sums[k] += x[k] * y[k];
        }
    }
    sums.iter().sum::<f64>() + tail
}

/// Mean; 0 for no values.
pub(crate) fn mean(x: &[f64]) -> f64 {
    if x.is_empty() { 0.0 } else { x.iter().sum::<f64>() / x.len() as f64 }
}

/// Variance with divisor n; 0 for no values.
pub(crate) fn variance(x: &[f64]) -> f64 {
    let m = mean(x);
    if x.is_empty() { 0.0 } else { x.iter().map(|v| (v - m) * (v - m)).sum::<f64>() / x.len() as f64 }
}

/// Median (mean of the middle two for an even number); 0 for no values. Reorders `x`.
pub(crate) fn median(x: &mut [f64]) -> f64 {
    let n = x.len();
    if n == 0 {
        return 0.0;
    }
    let (below, upper, _) = x.select_nth_unstable_by(n / 2, f64::total_cmp);
    let upper = *upper;
    if n % 2 == 1 {
        return upper;
    }
    let lower = below.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    0.5 * (lower + upper)
}

/// Quantile `p` of `x` with linear interpolation between order statistics (positions 0 to n-1); 0 for no values.
/// Reorders `x`.
pub(crate) fn quantile(x: &mut [f64], p: f64) -> f64 {
    let n = x.len();
    if n == 0 {
        return 0.0;
    }
    let position = p.clamp(0.0, 1.0) * (n - 1) as f64;
    let below = position.floor() as usize;
    let (_, lower, above) = x.select_nth_unstable_by(below, f64::total_cmp);
    let lower = *lower;
    let upper = above.iter().copied().fold(f64::INFINITY, f64::min);
    if above.is_empty() { lower } else { lower + (position - below as f64) * (upper - lower) }
}

/// The lower Cholesky factor of the symmetric matrix `a`, or the first column that the ones before it explain.
pub(crate) fn cholesky(a: &Array2<f64>) -> Result<Array2<f64>, usize> {
    let p = a.nrows();
    let mut l = Array2::<f64>::zeros((p, p));
    for i in 0..p {
        for j in 0..=i {
            let mut v = a[[i, j]];
            for k in 0..j {
                v -= l[[i, k]] * l[[j, k]];
            }
            if i == j {
                // What is left of a diagonal entry is rounding when it is this far below the entry itself.
                if v.is_nan() || v <= 1e-14 * a[[i, i]] {
                    return Err(i);
                }
                l[[i, i]] = v.sqrt();
            } else {
                l[[i, j]] = v / l[[j, j]];
            }
        }
    }
    Ok(l)
}

/// Solves `L L' x = b`.
pub(crate) fn cholesky_solve(l: &Array2<f64>, b: &Array1<f64>) -> Array1<f64> {
    let p = b.len();
    let mut x = b.clone();
    for i in 0..p {
        for k in 0..i {
            x[i] -= l[[i, k]] * x[k];
        }
        x[i] /= l[[i, i]];
    }
    for i in (0..p).rev() {
        for k in i + 1..p {
            x[i] -= l[[k, i]] * x[k];
        }
        x[i] /= l[[i, i]];
    }
    x
}

/// The inverse of `L L'`.
pub(crate) fn cholesky_inverse(l: &Array2<f64>) -> Array2<f64> {
    let p = l.nrows();
    let mut inverse = Array2::zeros((p, p));
    for j in 0..p {
        let mut unit = Array1::zeros(p);
        unit[j] = 1.0;
        inverse.column_mut(j).assign(&cholesky_solve(l, &unit));
    }
    inverse
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn solves_and_inverts() {
        let a = array![[4.0, 2.0, 0.5], [2.0, 3.0, 1.0], [0.5, 1.0, 2.0]];
        let l = cholesky(&a).unwrap();
        let x = cholesky_solve(&l, &array![1.0, 2.0, 3.0]);
        assert!((a.dot(&x) - array![1.0, 2.0, 3.0]).iter().all(|e| e.abs() < 1e-12));
        let unit = a.dot(&cholesky_inverse(&l));
        assert!((unit - Array2::<f64>::eye(3)).iter().all(|e| e.abs() < 1e-12));
        assert_eq!(cholesky(&array![[1.0, 1.0], [1.0, 1.0]]), Err(1));
    }

    #[test]
    fn order_statistics_interpolate() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(quantile(&mut [4.0, 1.0, 2.0, 3.0], 0.5), 2.5);
        assert_eq!(quantile(&mut [4.0, 1.0, 2.0, 3.0], 1.0), 4.0);
        assert_eq!(quantile(&mut [], 0.5), 0.0);
        assert_eq!(dot(&[1.0; 11], &[2.0; 11]), 22.0);
    }
}
