//! Optimizers on one rank against their formulas in double precision, step by step from the same gradients.

use meshwright::optim::{AdamWOptions, MuonOptions, SgdOptions, UpdateRule};
use meshwright_examples::lion::Lion;
use meshwright_tests::compare::Report;

use super::net::{Case, LR, MATRICES, TABLES, first};

const ADAMW: AdamWOptions = AdamWOptions { betas: (0.8, 0.9), eps: 1e-8, weight_decay: 0.3 };

/// Relative, by the norm of a parameter after each of four steps. Seen: 3e-7.
const TOLERANCE: f64 = 3e-6;

#[test]
fn adamw_matches_pytorch() {
    check("adamw", ADAMW, |path| {
        let decay = if decays(path) { ADAMW.weight_decay } else { 0.0 };
        adamw(decay)
    });
}

#[test]
fn sgd_matches_pytorch_with_decoupled_decay() {
    for (momentum, nesterov) in [(0.0, false), (0.9, false), (0.7, true)] {
        let options = SgdOptions { momentum, nesterov, weight_decay: 0.3 };
        check("sgd", options, |path| {
            let decay = if decays(path) { 0.3 } else { 0.0 };
            let mut sum = Vec::new();
            // torch.optim.SGD without dampening.
            Box::new(move |p: &mut [f64], g: &[f64]| {
                sum.resize(p.len(), 0.0);
                for ((p, g), sum) in p.iter_mut().zip(g).zip(&mut sum) {
                    *sum = momentum * *sum + g;
                    let direction = if nesterov { g + momentum * *sum } else { *sum };
                    *p = (1.0 - LR * decay) * *p - LR * direction;
                }
            })
        });
    }
}

#[test]
fn muon_matches_its_formula_and_adamw_elsewhere() {
    let options = MuonOptions { momentum: 0.9, adamw: ADAMW };
    check("muon", options, |path| {
        let matrix = MATRICES.iter().find(|(matrix, ..)| *matrix == path);
        let Some(&(_, rows, cols)) = matrix else {
            return adamw(if decays(path) { ADAMW.weight_decay } else { 0.0 });
        };
        let mut sum = vec![0.0; rows * cols];
        let scale = 0.2 * (rows.max(cols) as f64).sqrt();
        Box::new(move |p: &mut [f64], g: &[f64]| {
            for (sum, g) in sum.iter_mut().zip(g) {
                *sum = 0.9 * *sum + g;
            }
            let direction: Vec<f64> = sum.iter().zip(g).map(|(sum, g)| g + 0.9 * sum).collect();
            let direction = orthogonalized(&direction, rows, cols);
            for (p, direction) in p.iter_mut().zip(direction) {
                *p = (1.0 - LR * ADAMW.weight_decay) * *p - LR * scale * direction;
            }
        })
    });
}

#[test]
fn lion_matches_its_paper() {
    let lion = Lion { betas: (0.8, 0.9), weight_decay: 0.3 };
    check("lion", lion, |path| {
        let decay = if decays(path) { lion.weight_decay } else { 0.0 };
        let (beta1, beta2) = lion.betas;
        let mut momentum = Vec::new();
        Box::new(move |p: &mut [f64], g: &[f64]| {
            momentum.resize(p.len(), 0.0);
            for ((p, g), m) in p.iter_mut().zip(g).zip(&mut momentum) {
                let direction: f64 = beta1 * *m + (1.0 - beta1) * g;
                let sign = if direction == 0.0 { 0.0 } else { direction.signum() };
                *p = (1.0 - LR * decay) * *p - LR * sign;
                *m = beta2 * *m + (1.0 - beta2) * g;
            }
        })
    });
}

/// Updates a parameter from its gradient.
type Update = Box<dyn FnMut(&mut [f64], &[f64])>;

fn check(what: &str, rule: impl UpdateRule + 'static, update_of: impl Fn(&str) -> Update) {
    let run = first("1", &Case::new(rule));
    let mut report = Report::default();
    for (path, initial) in &run.params[0] {
        let wide = |values: &[f32]| values.iter().copied().map(f64::from).collect::<Vec<_>>();
        let mut expected = wide(initial);
        let mut update = update_of(path);
        for (step, gradients) in run.gradients.iter().enumerate() {
            update(&mut expected, &wide(&gradients[path]));
            let got = [(path.clone(), run.params[step + 1][path].clone())].into();
            let expected = expected.iter().map(|value| *value as f32).collect();
            let expected = [(path.clone(), expected)].into();
            report.tensors(
                "parameter",
                &format!("{what}, step {step}"),
                &got,
                &expected,
                TOLERANCE,
            );
            assert_ne!(run.params[step + 1][path], run.params[step][path], "{path} does not move");
        }
    }
    report.print();
}

fn decays(path: &str) -> bool {
    TABLES.contains(&path) || MATRICES.iter().any(|(matrix, ..)| *matrix == path)
}

/// torch.optim.AdamW.
fn adamw(decay: f64) -> Update {
    let (beta1, beta2) = ADAMW.betas;
    let (mut m, mut v, mut step) = (Vec::new(), Vec::new(), 0);
    Box::new(move |p: &mut [f64], g: &[f64]| {
        m.resize(p.len(), 0.0);
        v.resize(p.len(), 0.0);
        step += 1;
        let (c1, c2) = (1.0 - f64::powi(beta1, step), 1.0 - f64::powi(beta2, step));
        for (index, p) in p.iter_mut().enumerate() {
            let (g, m, v) = (g[index], &mut m[index], &mut v[index]);
            *m = beta1 * *m + (1.0 - beta1) * g;
            *v = beta2 * *v + (1.0 - beta2) * g * g;
            *p -= LR * decay * *p;
            *p -= LR / c1 * *m / (v.sqrt() / f64::sqrt(c2) + ADAMW.eps);
        }
    })
}

/// Orthogonalizes a matrix by five Newton-Schulz iterations.
fn orthogonalized(x: &[f64], rows: usize, cols: usize) -> Vec<f64> {
    let norm = x.iter().map(|x| x * x).sum::<f64>().sqrt() + 1e-7;
    let mut x: Vec<f64> = x.iter().map(|x| x / norm).collect();
    for _ in 0..5 {
        // A = X X^T for any shape: the result is the same as with X^T X.
        let gram = matmul(&x, &transposed(&x, rows, cols), rows, cols, rows);
        let square = matmul(&gram, &gram, rows, rows, rows);
        let sum: Vec<f64> =
            gram.iter().zip(&square).map(|(a, aa)| -4.7750 * a + 2.0315 * aa).collect();
        let change = matmul(&sum, &x, rows, rows, cols);
        x.iter_mut().zip(change).for_each(|(x, change)| *x = 3.4445 * *x + change);
    }
    x
}

fn transposed(x: &[f64], rows: usize, cols: usize) -> Vec<f64> {
    (0..rows * cols).map(|index| x[index % rows * cols + index / rows]).collect()
}

/// Multiplies `a` (`m x k`) by `b` (`k x n`).
fn matmul(a: &[f64], b: &[f64], m: usize, k: usize, n: usize) -> Vec<f64> {
    let element = |index: usize| (0..k).map(|l| a[index / n * k + l] * b[l * n + index % n]).sum();
    (0..m * n).map(element).collect()
}
