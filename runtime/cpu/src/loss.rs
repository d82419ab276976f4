//! Cross-entropy, in pieces for a vocabulary that is split over ranks.

use super::CpuBackend;
use super::float::{Float, by_float};
use super::math::{exp, lane_max, lane_sum, larger};
use super::simd::dispatch;
use super::softmax::row_count;
use super::workers::{Rows, Workers};
use meshwright_backend::ops::loss::{
    CrossEntropyArgs, CrossEntropyGradArgs, CrossEntropyLossArgs, ExpSumArgs, MaxExpSumArgs,
};
use meshwright_backend::{LossOps, View, ViewMut};

impl LossOps for CpuBackend {
    fn row_max(&self, cols: usize, x: View, mut max: ViewMut) {
        by_float!(x.dtype() => T; row_max::<T>(&self.workers, cols, x.typed(), max.typed()));
    }

    fn exp_sum(&self, args: ExpSumArgs) {
        by_float!(args.logits.dtype() => T; exp_sum::<T>(&self.workers, args));
    }

    fn max_exp_sum(&self, args: MaxExpSumArgs) {
        let MaxExpSumArgs { cols, logits, targets, first_col, mut max, sum_exp, target_logit } =
            args;
        self.row_max(cols, logits, max.reborrow());
        let max = max.as_view();
        self.exp_sum(ExpSumArgs { cols, logits, max, targets, first_col, sum_exp, target_logit });
    }

    fn cross_entropy_loss(&self, args: CrossEntropyLossArgs) {
        let CrossEntropyLossArgs { max, sum_exp, target_logit, targets, mut sum } = args;
        let statistics = [max, sum_exp, target_logit].map(|statistic| statistic.typed());
        sum.typed()[0] = cross_entropy_loss(statistics, targets.typed());
    }

    fn cross_entropy_grad(&self, args: CrossEntropyGradArgs) {
        by_float!(args.logits.dtype() => T; cross_entropy_grad::<T>(&self.workers, args));
    }

    fn cross_entropy(&self, args: CrossEntropyArgs) {
        by_float!(args.logits.dtype() => T; cross_entropy::<T>(&self.workers, args));
    }
}

fn row_max<T: Float>(workers: &Workers, cols: usize, x: &[T], max: &mut [f32]) {
    assert_eq!(row_count(x.len(), cols), max.len(), "row_max: one result per row");
    workers.rows(max.len(), cols, Rows(max, 1), |range, max| {
        max_rows(cols, &x[range.start * cols..range.end * cols], max.0);
    });
}

dispatch! {
    fn max_rows<const FMA: bool, T: Float>(cols: usize, x: &[T], max: &mut [f32]) {
        for (x, max) in x.chunks_exact(cols).zip(max) {
            *max = lane_max(x, larger);
        }
    }
}

fn exp_sum<T: Float>(workers: &Workers, args: ExpSumArgs) {
    let ExpSumArgs { cols, logits, max, targets, first_col, mut sum_exp, mut target_logit } = args;
    let (logits, max, targets) = (logits.typed::<T>(), max.typed::<f32>(), targets.typed::<u32>());
    let (sum_exp, target_logit) = (sum_exp.typed(), target_logit.typed());
    let rows = row_count(logits.len(), cols);
    let lens = [max.len(), targets.len(), sum_exp.len(), target_logit.len()];
    assert_eq!(lens, [rows; 4], "exp_sum: {rows} rows");
    let outputs = (Rows(sum_exp, 1), Rows(target_logit, 1));
    workers.rows(rows, cols, outputs, |range, (sum_exp, target_logit)| {
        for (i, row) in range.enumerate() {
            let logits = &logits[row * cols..][..cols];
            sum_exp.0[i] = exp_sum_row(logits, max[row]);
            target_logit.0[i] = local_target(targets[row], first_col, cols)
                .map_or(0.0, |t| logits[t].widen_to_f32());
        }
    });
}

fn cross_entropy_loss(statistics: [&[f32]; 3], targets: &[u32]) -> f32 {
    let [max, sum_exp, target_logit] = statistics;
    assert_eq!(statistics.map(<[f32]>::len), [targets.len(); 3], "cross_entropy_loss: rows");
    let loss = |(row, target): (usize, &u32)| {
        let counts = *target != u32::MAX;
        let row_loss =
            || f64::from(max[row]) + f64::from(sum_exp[row]).ln() - f64::from(target_logit[row]);
        if counts { row_loss() } else { 0.0 }
    };
    targets.iter().enumerate().map(loss).sum::<f64>() as f32
}

/// Returns the column of a target among `cols` columns from `first_col` on.
fn local_target(target: u32, first_col: usize, cols: usize) -> Option<usize> {
    (target as usize).checked_sub(first_col).filter(|col| *col < cols)
}

dispatch! {
    fn exp_sum_row<const FMA: bool, T: Float>(logits: &[T], max: f32) -> f32 {
        lane_sum([logits], |[logit]| exp::<FMA>(logit - max))
    }
}

fn cross_entropy_grad<T: Float>(workers: &Workers, args: CrossEntropyGradArgs) {
    let CrossEntropyGradArgs { cols, mut logits, max, sum_exp, targets, first_col, row_scale } =
        args;
    let (logits, targets) = (logits.typed::<T>(), targets.typed::<u32>());
    let [max, sum_exp, row_scale] = [max, sum_exp, row_scale].map(|x| x.typed::<f32>());
    let rows = row_count(logits.len(), cols);
    let lens = [max.len(), sum_exp.len(), targets.len(), row_scale.len()];
    assert_eq!(lens, [rows; 4], "cross_entropy_grad: {rows} rows");
    workers.rows(rows, cols, Rows(logits, cols), |range, logits| {
        for (row, logits) in range.zip(logits.0.chunks_exact_mut(cols)) {
            let target = local_target(targets[row], first_col, cols);
            replace_by_gradient(logits, max[row], sum_exp[row], target, row_scale[row]);
        }
    });
}

/// Computes the maximum, sum and gradient of each row before it begins the next one, while the row is in cache.
fn cross_entropy<T: Float>(workers: &Workers, args: CrossEntropyArgs) {
    let CrossEntropyArgs { cols, mut logits, targets, first_col, row_scale, .. } = args;
    let (mut max, mut sum_exp, mut target_logit) = (args.max, args.sum_exp, args.target_logit);
    let (logits, targets) = (logits.typed::<T>(), targets.typed::<u32>());
    let row_scale: &[f32] = row_scale.typed();
    let (max, sum_exp, target_logit) = (max.typed(), sum_exp.typed(), target_logit.typed());
    let rows = row_count(logits.len(), cols);
    let lens = [max.len(), sum_exp.len(), target_logit.len(), targets.len(), row_scale.len()];
    assert_eq!(lens, [rows; 5], "cross_entropy: {rows} rows");
    let statistics = (Rows(max, 1), Rows(sum_exp, 1), Rows(target_logit, 1));
    let outputs = (Rows(logits, cols), statistics);
    workers.rows(rows, cols, outputs, |range, (logits, (max, sum_exp, target_logit))| {
        for (i, (row, logits)) in range.zip(logits.0.chunks_exact_mut(cols)).enumerate() {
            let target = local_target(targets[row], first_col, cols);
            max_rows(cols, logits, &mut max.0[i..=i]);
            sum_exp.0[i] = exp_sum_row(logits, max.0[i]);
            target_logit.0[i] = target.map_or(0.0, |t| logits[t].widen_to_f32());
            replace_by_gradient(logits, max.0[i], sum_exp.0[i], target, row_scale[row]);
        }
    });
}

fn replace_by_gradient<T: Float>(
    logits: &mut [T],
    max: f32,
    sum_exp: f32,
    target: Option<usize>,
    scale: f32,
) {
    if scale == 0.0 {
        logits.fill(T::ZERO);
    } else {
        probabilities(logits, max, scale / sum_exp, target, scale);
    }
}

dispatch! {
    /// Computes `exp(logit - max) * factor`, minus `shift` at the target, rounded once.
    fn probabilities<const FMA: bool, T: Float>(
        logits: &mut [T], max: f32, factor: f32, target: Option<usize>, shift: f32,
    ) {
        let at_target = target.map(|target| (target, logits[target]));
        for logit in &mut *logits {
            *logit = T::narrow_from_f32(exp::<FMA>(logit.widen_to_f32() - max) * factor);
        }
        if let Some((target, logit)) = at_target {
            logits[target] = T::narrow_from_f32(exp::<FMA>(logit.widen_to_f32() - max) * factor - shift);
        }
    }
}
