//! Cross-entropy and its parts.

use meshwright_backend::DType;
use meshwright_backend::ops::loss::{
    CrossEntropyArgs, CrossEntropyGradArgs, CrossEntropyLossArgs, ExpSumArgs, MaxExpSumArgs,
};

use crate::{FLOATS, Operand, Target, scaled, values};

/// Rows and columns: for warps of a GPU, and for blocks of several sizes.
const SIZES: [[usize; 2]; 8] =
    [[0, 5], [1, 1], [9, 7], [3, 64], [10, 1003], [3, 1025], [7, 2], [2, 9001]];

/// Rows for several threads of a CPU.
const LARGE: [[usize; 2]; 4] = [[130, 64], [257, 200], [300, 515], [40, 1003]];

/// First column of the shard of the vocabulary.
const FIRST: usize = 10;

struct Case {
    cols: usize,
    logits: Vec<f32>,
    /// Targets before, inside and after the columns.
    targets: Vec<u32>,
    /// Factors of the gradients of rows, one of them 0.
    scale: Vec<f32>,
}

impl Case {
    fn new([rows, cols]: [usize; 2]) -> Case {
        let logits = scaled(rows * cols, 1, 20.0);
        let targets = (0..rows as u32).map(|i| i * 31 % (cols as u32 + 20)).collect();
        let mut scale = values(rows, 5);
        if rows > 1 {
            scale[rows / 2] = 0.0;
        }
        Case { cols, logits, targets, scale }
    }

    /// Makes some rows special: increasing logits, so that the maximum changes constantly; padding; only padding; NaN;
    /// infinity; only infinities.
    fn with_special_rows(mut self) -> Case {
        let cols = self.cols;
        for (row, logits) in self.logits.chunks_exact_mut(cols).enumerate() {
            match row {
                1 => logits.iter_mut().enumerate().for_each(|(i, x)| *x = i as f32 / 9.0),
                2 => logits[..cols / 2].fill(f32::NEG_INFINITY),
                3 => logits.fill(f32::NEG_INFINITY),
                4 => logits[cols / 3] = f32::NAN,
                5 => logits[cols / 3] = f32::INFINITY,
                6 => logits.fill(f32::INFINITY),
                _ => {}
            }
        }
        self
    }
}

/// Statistics of rows, and the logits or their gradients.
struct Parts {
    max: Operand,
    sum_exp: Operand,
    target_logit: Operand,
    logits: Operand,
}

impl Parts {
    fn new(target: &Target, dtype: DType, case: &Case) -> Parts {
        let [max, sum_exp, target_logit] =
            [(); 3].map(|()| target.blank(DType::F32, case.targets.len()));
        Parts { max, sum_exp, target_logit, logits: target.floats(dtype, &case.logits) }
    }

    /// Computes statistics one after the other.
    fn compute_max_and_sums(&mut self, target: &Target, case: &Case) {
        let cols = case.cols;
        target.backend().row_max(cols, self.logits.view(), self.max.view_mut());
        target.backend().exp_sum(ExpSumArgs {
            cols,
            logits: self.logits.view(),
            max: self.max.view(),
            targets: target.put(&case.targets).view(),
            first_col: FIRST,
            sum_exp: self.sum_exp.view_mut(),
            target_logit: self.target_logit.view_mut(),
        });
    }

    /// Computes statistics in one pass.
    fn compute_together(&mut self, target: &Target, case: &Case) {
        target.backend().max_exp_sum(MaxExpSumArgs {
            cols: case.cols,
            logits: self.logits.view(),
            targets: target.put(&case.targets).view(),
            first_col: FIRST,
            max: self.max.view_mut(),
            sum_exp: self.sum_exp.view_mut(),
            target_logit: self.target_logit.view_mut(),
        });
    }

    fn compute_gradient(&mut self, target: &Target, case: &Case) {
        target.backend().cross_entropy_grad(CrossEntropyGradArgs {
            cols: case.cols,
            logits: self.logits.view_mut(),
            max: self.max.view(),
            sum_exp: self.sum_exp.view(),
            targets: target.put(&case.targets).view(),
            first_col: FIRST,
            row_scale: target.put(&case.scale).view(),
        });
    }

    /// Computes statistics and gradients in one call.
    fn compute_all(&mut self, target: &Target, case: &Case) {
        target.backend().cross_entropy(CrossEntropyArgs {
            cols: case.cols,
            logits: self.logits.view_mut(),
            targets: target.put(&case.targets).view(),
            first_col: FIRST,
            row_scale: target.put(&case.scale).view(),
            max: self.max.view_mut(),
            sum_exp: self.sum_exp.view_mut(),
            target_logit: self.target_logit.view_mut(),
        });
    }

    /// Returns the column of a row's target.
    fn target_col(case: &Case, row: usize) -> Option<usize> {
        (case.targets[row] as usize).checked_sub(FIRST).filter(|col| *col < case.cols)
    }

    /// Checks the statistics of these logits.
    #[track_caller]
    fn check_statistics(&self, target: &Target, what: &str, case: &Case, x: &[f32]) {
        let rows = x.chunks_exact(case.cols);
        let larger = |a: f32, b: f32| if a.is_nan() || b.is_nan() { f32::NAN } else { a.max(b) };
        let max = rows.clone().map(|x| x.iter().copied().fold(f32::NEG_INFINITY, larger));
        target.check_exactly(&format!("max, {what}"), &self.max, &max.collect::<Vec<_>>());
        let targets = rows.clone().enumerate();
        let targets = targets.map(|(row, x)| Self::target_col(case, row).map_or(0.0, |col| x[col]));
        let targets: Vec<f32> = targets.collect();
        target.check_exactly(&format!("target, {what}"), &self.target_logit, &targets);
        let sums = rows.zip(self.max.wide());
        let sums = sums.map(|(x, max)| x.iter().map(|x| (f64::from(*x) - max).exp()).sum::<f64>());
        // Each within the tolerance of itself.
        for (got, expected) in self.sum_exp.wide().into_iter().zip(sums) {
            let same = got.is_nan() && expected.is_nan();
            assert!(same || (got / expected - 1.0).abs() < 1e-6, "{what}: {got}, not {expected}");
        }
    }

    /// Checks the gradients of these logits.
    #[track_caller]
    fn check_gradient(&self, target: &Target, what: &str, case: &Case, x: &[f32]) {
        let mut expected = Vec::new();
        let statistics = self.max.wide().into_iter().zip(self.sum_exp.wide());
        for (row, (x, (max, sum))) in x.chunks_exact(case.cols).zip(statistics).enumerate() {
            let scale = f64::from(case.scale[row]);
            for (col, x) in x.iter().enumerate() {
                let hit = f64::from(u8::from(Self::target_col(case, row) == Some(col)));
                let gradient = ((f64::from(*x) - max).exp() / sum - hit) * scale;
                expected.push(if scale == 0.0 { 0.0 } else { gradient });
            }
        }
        target.check(&format!("gradient, {what}"), &self.logits, &expected, 1e-6);
    }
}

/// Calls `test` with usual and special rows of every size and dtype.
fn for_every_case(target: &Target, large: &[[usize; 2]], test: impl Fn(&str, DType, &Case)) {
    for sizes in target.cases(&SIZES, large) {
        for (name, case) in
            [("usual", Case::new(sizes)), ("special", Case::new(sizes).with_special_rows())]
        {
            FLOATS.into_iter().for_each(|dtype| test(&format!("{name} {sizes:?}"), dtype, &case));
        }
    }
}

/// Statistics, in two passes and in one, and gradients follow the formula.
pub fn formula(target: &Target) {
    for_every_case(target, &LARGE, |what, dtype, case| {
        let x = target.floats(dtype, &case.logits).numbers();
        let mut parts = Parts::new(target, dtype, case);
        parts.compute_max_and_sums(target, case);
        parts.check_statistics(target, what, case, &x);
        parts.compute_gradient(target, case);
        parts.check_gradient(target, what, case, &x);
        let mut together = Parts::new(target, dtype, case);
        together.compute_together(target, case);
        together.check_statistics(target, what, case, &x);
    });
}

/// A single call gives the bits of its parts: also for rows that are too long for shared memory of a GPU.
pub fn single_call(target: &Target) {
    let check = |what: &str, dtype: DType, case: &Case| {
        let [mut all, mut parts] = [(); 2].map(|()| Parts::new(target, dtype, case));
        all.compute_all(target, case);
        parts.compute_together(target, case);
        parts.compute_gradient(target, case);
        target.check_exactly(&format!("max, {what}"), &all.max, &parts.max.numbers());
        target.check_exactly(&format!("sum, {what}"), &all.sum_exp, &parts.sum_exp.numbers());
        let target_logits = parts.target_logit.numbers();
        target.check_exactly(&format!("target, {what}"), &all.target_logit, &target_logits);
        target.check_exactly(&format!("gradient, {what}"), &all.logits, &parts.logits.numbers());
    };
    for_every_case(target, &LARGE, check);
    let long = Case::new([3, 61_003]).with_special_rows();
    FLOATS.into_iter().for_each(|dtype| check("3 x 61003", dtype, &long));
}

/// NaN and infinities at any place reach all results of their rows, but no row whose factor is 0.
pub fn special_values(target: &Target) {
    for cols in [131, 1500] {
        for special in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for position in [0, 3, 63, 64, 130] {
                let mut case = Case::new([4, cols]);
                case.logits[position] = special;
                // A row of only such values, and an ignored row.
                case.logits[2 * cols..4 * cols].fill(special);
                case.scale = vec![0.5, -1.0, 1.0, 0.0];
                let mut parts = Parts::new(target, DType::F32, &case);
                parts.compute_max_and_sums(target, &case);
                parts.compute_gradient(target, &case);
                let what = format!("{special} at {position} of {cols}");
                parts.check_statistics(target, &what, &case, &case.logits);
                parts.check_gradient(target, &what, &case, &case.logits);
            }
        }
    }
}

/// The loss is the sum over rows with a target.
pub fn sum(target: &Target) {
    for rows in [0, 1, 7, 300, 5000] {
        let [max, sum_exp, logit] = [1, 2, 3].map(|seed| target.put(&values(rows, seed)));
        let sum_exp = target.put(&sum_exp.numbers().iter().map(|x| x + 2.0).collect::<Vec<_>>());
        let ignored = |row: u32| if row % 5 == 3 { u32::MAX } else { row };
        let targets: Vec<u32> = (0..rows as u32).map(ignored).collect();
        let mut sum = target.blank(DType::F32, 1);
        target.backend().cross_entropy_loss(CrossEntropyLossArgs {
            max: max.view(),
            sum_exp: sum_exp.view(),
            target_logit: logit.view(),
            targets: target.put(&targets).view(),
            sum: sum.view_mut(),
        });
        let [max, sum_exp, logit] = [max, sum_exp, logit].map(|operand| operand.wide());
        let has_target = |row: &usize| targets[*row] != u32::MAX;
        let loss = |row: usize| max[row] + sum_exp[row].ln() - logit[row];
        let expected: f64 = (0..rows).filter(has_target).map(loss).sum();
        target.check(&format!("{rows} rows"), &sum, &[expected], 1e-6);
    }
}
