//! Least squares in logarithms, with bounds.

/// The largest step of a search in the logarithm of a constant, and the smallest one.
const STEPS: [f64; 2] = [1.0, 1e-5];

/// Searches the positive constants with the smallest `loss` within bounds, by the pattern search of Hooke and Jeeves
/// (*"Direct search" solution of numerical and statistical problems*, 1961) in their logarithms.
pub fn minimize(start: &[f64], bounds: &[[f64; 2]], loss: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let clamped = |logs: &[f64]| -> Vec<f64> {
        logs.iter().zip(bounds).map(|(log, [low, high])| log.exp().clamp(*low, *high)).collect()
    };
    let evaluate = |logs: &[f64]| loss(&clamped(logs));
    let within = |log: f64, [low, high]: [f64; 2]| log.clamp(low.ln(), high.ln());
    let mut base: Vec<f64> =
        start.iter().zip(bounds).map(|(value, bounds)| within(value.ln(), *bounds)).collect();
    let mut least = evaluate(&base);
    let mut step = STEPS[0];
    while step > STEPS[1] {
        let (explored, found) = explore(&base, least, step, bounds, &evaluate);
        if found >= least {
            step /= 2.0;
            continue;
        }
        // The same move often leads further.
        let ahead: Vec<f64> = explored
            .iter()
            .zip(&base)
            .zip(bounds)
            .map(|((new, old), bounds)| within(2.0 * new - old, *bounds))
            .collect();
        let (further, ahead_loss) = explore(&ahead, evaluate(&ahead), step, bounds, &evaluate);
        (base, least) = if ahead_loss < found { (further, ahead_loss) } else { (explored, found) };
    }
    clamped(&base)
}

/// Moves each constant by a step if that lowers the loss.
fn explore(
    from: &[f64],
    loss: f64,
    step: f64,
    bounds: &[[f64; 2]],
    evaluate: &impl Fn(&[f64]) -> f64,
) -> (Vec<f64>, f64) {
    let (mut at, mut least) = (from.to_vec(), loss);
    for idx in 0..at.len() {
        for direction in [step, -step] {
            let before = at[idx];
            at[idx] = (before + direction).clamp(bounds[idx][0].ln(), bounds[idx][1].ln());
            let tried = evaluate(&at);
            if tried < least {
                least = tried;
                break;
            }
            at[idx] = before;
        }
    }
    (at, least)
}

/// Returns the mean of logarithms by weight; 0 without weight.
pub fn mean_log(values: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (sum, weights) = values.fold((0.0, 0.0), |(sum, weights), (value, weight)| {
        (sum + weight * value.ln(), weights + weight)
    });
    if weights > 0.0 { sum / weights } else { 0.0 }
}
