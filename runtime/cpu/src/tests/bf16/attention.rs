use half::bf16;

use super::super::attention::case::{Case, GAP, Gradients, narrow};
use super::super::attention::families::{Random, anything};
use super::{CpuBackend, Kernel, Results, assert_rounds};
use crate::float::Float;
use meshwright_backend::{AttentionShape, Backend, Band};

/// Attention whose results are of the dtype of its operands.
struct Rounded(CaseWithOutput);

/// Attention whose results are f32.
struct Wide(CaseWithOutput);

/// A case, and the output from which backward starts for every type: that of f32, rounded. The gradients of the scores
/// of a row sum to the product of the error of the output and its gradient, so they hardly agree for other outputs.
#[derive(Clone)]
struct CaseWithOutput {
    case: Case,
    output: Vec<f32>,
    /// The order of the gradient of the bias.
    dbias_order: f32,
}

impl CaseWithOutput {
    fn new(case: Case) -> CaseWithOutput {
        let one = CpuBackend::new(1).expect("one thread starts nothing");
        let (output, _) = case.forward::<f32, f32>(&one);
        let dbias_order = case.reference().dbias_order as f32;
        CaseWithOutput { output: rounded(&output), case, dbias_order }
    }

    /// The gradient of the bias and its order, to which errors are relative.
    fn with_order(&self, mut dbias: Vec<f32>) -> (&'static str, Vec<f32>) {
        dbias.push(self.dbias_order);
        ("dbias", dbias)
    }
}

impl Kernel for Rounded {
    fn run<T: Float>(&self, cpu: &dyn Backend) -> Results<T> {
        let CaseWithOutput { case, output, .. } = &self.0;
        let (out, lse) = case.forward::<T, T>(cpu);
        let mut gradients = case.initial::<T>();
        case.backward::<T, T, T>(cpu, (&narrow::<T>(output), &lse), &mut gradients);
        let Gradients { dq, dk, dv, dbias, dsinks } = gradients;
        Results {
            rounded: [("out", out), ("dq", dq), ("dk", dk), ("dv", dv)].map(inside).into(),
            wide: vec![inside(("lse", finite(lse))), self.0.with_order(dbias), ("dsinks", dsinks)],
        }
    }
}

impl Kernel for Wide {
    fn run<T: Float>(&self, cpu: &dyn Backend) -> Results<T> {
        let CaseWithOutput { case, output, .. } = &self.0;
        let (out, lse) = case.forward::<T, f32>(cpu);
        let mut gradients = case.initial::<f32>();
        case.backward::<T, f32, f32>(cpu, (output, &lse), &mut gradients);
        let Gradients { dq, dk, dv, dbias, dsinks } = gradients;
        let wide = [("out", out), ("lse", finite(lse)), ("dq", dq), ("dk", dk), ("dv", dv)];
        let shared = [self.0.with_order(dbias), ("dsinks", dsinks)];
        let wide = wide.into_iter().map(inside).chain(shared).collect();
        Results { rounded: Vec::new(), wide }
    }
}

/// A result without the elements between samples.
fn inside<T: Float>((name, mut x): (&'static str, Vec<T>)) -> (&'static str, Vec<T>) {
    x.retain(|x| x.round() != bf16::from_f32(GAP));
    (name, x)
}

/// Values that bf16 can hold.
fn rounded<T: Float>(x: &[T]) -> Vec<f32> {
    x.iter().map(|x| x.round().to_f32()).collect()
}

/// Log-sum-exps, zero in rows without keys.
fn finite(lse: Vec<f32>) -> Vec<f32> {
    lse.into_iter().map(|x| if x == f32::NEG_INFINITY { 0.0 } else { x }).collect()
}

#[test]
fn attention() {
    for causal in [true, false] {
        for (batch, seq, heads, kv_heads, head_dim) in [
            (2, 7, 2, 1, 8),
            (1, 1, 1, 1, 2),
            (1, 64, 2, 2, 64),
            (2, 65, 4, 2, 18),
            (1, 515, 2, 1, 16),
            (1, 640, 1, 1, 128),
        ] {
            let scale = 1.3 / (head_dim as f32).sqrt();
            let band = if causal { Band::CAUSAL } else { Band::ALL };
            let sizes = [heads, kv_heads, head_dim];
            let s = AttentionShape { scale, ..AttentionShape::new(batch, seq, sizes, band) };
            let case = CaseWithOutput::new(Case::new(s).rounded());
            // Weights and gradients of scores are rounded too, before they go into a product.
            assert_rounds(&format!("{s:?}"), &Rounded(case), 4e-3);
        }
    }
}

/// Every layout, mask and score function, with bf16 dot products and without.
#[test]
fn attention_of_any_case() {
    for seed in 0..60 {
        let case = anything(&mut Random::new(3000 + seed)).rounded();
        let mut case = CaseWithOutput::new(case);
        // A sum of gradients is rounded to the scale of the earlier value, which the share of the largest element does
        // not count: so only results in f32 are added to.
        let what = format!("{seed}, {:?}", case.case.s);
        assert_rounds(&what, &Wide(case.clone()), 8e-3);
        case.case.accumulate = false;
        assert_rounds(&what, &Rounded(case), 8e-3);
    }
}
