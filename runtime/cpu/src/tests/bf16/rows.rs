//! Kernels over rows: norms, softmax, the pieces of cross-entropy, rotary embedding, embedding tables.

use super::{Kernel, Results, assert_rounds, input, unwritten, values, view, view_mut};
use crate::float::Float;
use meshwright_backend::ops::loss::{CrossEntropyGradArgs, ExpSumArgs};
use meshwright_backend::ops::norm::{
    LayerNormArgs, LayerNormBackwardArgs, RmsNormArgs, RmsNormBackwardArgs,
};
use meshwright_backend::ops::rope::RopeArgs;
use meshwright_backend::{Backend, LeafGrad, RopeLayout, RopeShape};

const SIZES: [(usize, usize); 5] = [(1, 1), (3, 7), (130, 64), (257, 200), (300, 515)];

struct Norm {
    rows: usize,
    cols: usize,
    centered: bool,
}

impl Kernel for Norm {
    fn run<T: Float>(&self, cpu: &dyn Backend) -> Results<T> {
        let &Norm { rows, cols, centered } = self;
        let [x, dy] = [1, 2].map(|seed| input::<T>(rows * cols, seed, 1.0));
        let [weight, bias] = [3, 4].map(|seed| input::<T>(cols, seed, 1.0));
        let mut y = unwritten::<T>(rows * cols);
        // Gradients that are there already must not be rounded on the way.
        let mut dx = input::<T>(rows * cols, 7, 1.0);
        let [mut mean, mut inv] = [(); 2].map(|()| unwritten::<f32>(rows));
        let [mut dweight, mut dbias] = [5, 6].map(|seed| values(cols, seed));
        if centered {
            let statistics = (view_mut(&mut mean), view_mut(&mut inv));
            let (x, dy, weight) = (view(&x), view(&dy), view(&weight));
            let (y, dx) = (view_mut(&mut y), grad(&mut dx));
            cpu.layer_norm(LayerNormArgs {
                x,
                residual: None,
                weight,
                bias: view(&bias),
                eps: 1e-3,
                y,
                mean: statistics.0,
                inv_std: statistics.1,
            });
            let (dweight, dbias) = (Some(grad(&mut dweight)), Some(grad(&mut dbias)));
            let (mean, inv) = (view(&mean), view(&inv));
            cpu.layer_norm_backward(LayerNormBackwardArgs {
                x,
                weight,
                mean,
                inv_std: inv,
                dy,
                dx,
                dweight,
                dbias,
            });
        } else {
            let (x, dy, weight) = (view(&x), view(&dy), view(&weight));
            cpu.rms_norm(RmsNormArgs {
                x,
                residual: None,
                weight,
                eps: 1e-3,
                y: view_mut(&mut y),
                inv_rms: view_mut(&mut inv),
            });
            let (dx, dweight) = (grad(&mut dx), Some(grad(&mut dweight)));
            cpu.rms_norm_backward(RmsNormBackwardArgs {
                x,
                weight,
                inv_rms: view(&inv),
                dy,
                dx,
                dweight,
            });
            mean.clear();
        }
        Results {
            rounded: vec![("y", y), ("dx", dx)],
            wide: vec![("mean", mean), ("inv", inv), ("dweight", dweight), ("dbias", dbias)],
        }
    }
}

/// Returns the target of a gradient that is accumulated.
fn grad<T: Float>(to: &mut [T]) -> LeafGrad<'_> {
    LeafGrad { view: view_mut(to), accumulate: true }
}

#[test]
fn norms() {
    for (rows, cols) in SIZES {
        for centered in [false, true] {
            let what = format!("norm, {rows} x {cols}, centered {centered}");
            assert_rounds(&what, &Norm { rows, cols, centered }, 1e-6);
        }
    }
}

struct Softmax(usize, usize);

impl Kernel for Softmax {
    fn run<T: Float>(&self, cpu: &dyn Backend) -> Results<T> {
        let &Softmax(rows, cols) = self;
        let (x, dy) = (input::<T>(rows * cols, 1, 8.0), input::<T>(rows * cols, 2, 1.0));
        // The gradient starts from the same result for every type.
        let given = input::<T>(rows * cols, 3, 1.0);
        let [mut y, mut dx] = [(); 2].map(|()| unwritten::<T>(rows * cols));
        cpu.softmax(cols, view(&x), view_mut(&mut y));
        cpu.softmax_backward(cols, view(&given), view(&dy), view_mut(&mut dx));
        Results { rounded: vec![("y", y), ("dx", dx)], wide: vec![] }
    }
}

#[test]
fn softmax() {
    for (rows, cols) in SIZES {
        assert_rounds(&format!("softmax, {rows} x {cols}"), &Softmax(rows, cols), 1e-6);
    }
}

struct CrossEntropy(usize, usize);

impl Kernel for CrossEntropy {
    fn run<T: Float>(&self, cpu: &dyn Backend) -> Results<T> {
        const FIRST: usize = 10;
        let &CrossEntropy(rows, cols) = self;
        let mut logits = input::<T>(rows * cols, 1, 8.0);
        let targets: Vec<u32> = (0..rows as u32).map(|i| i * 31 % (cols as u32 + 20)).collect();
        let targets = (&targets[..]).into();
        let mut scale = values(rows, 2);
        scale[rows / 2] = 0.0;
        let [mut max, mut sum, mut target] = [(); 3].map(|()| unwritten::<f32>(rows));
        cpu.row_max(cols, view(&logits), view_mut(&mut max));
        let (sum_out, target_out) = (view_mut(&mut sum), view_mut(&mut target));
        cpu.exp_sum(ExpSumArgs {
            cols,
            logits: view(&logits),
            max: view(&max),
            targets,
            first_col: FIRST,
            sum_exp: sum_out,
            target_logit: target_out,
        });
        let (in_place, max_in, sum_in) = (view_mut(&mut logits), view(&max), view(&sum));
        cpu.cross_entropy_grad(CrossEntropyGradArgs {
            cols,
            logits: in_place,
            max: max_in,
            sum_exp: sum_in,
            targets,
            first_col: FIRST,
            row_scale: view(&scale),
        });
        Results {
            rounded: vec![("gradient", logits)],
            wide: vec![("max", max), ("sum_exp", sum), ("target", target)],
        }
    }
}

#[test]
fn cross_entropy() {
    for (rows, cols) in SIZES {
        let what = format!("cross-entropy, {rows} x {cols}");
        assert_rounds(&what, &CrossEntropy(rows, cols), 1e-6);
    }
}

struct Rope(RopeShape, bool);

impl Kernel for Rope {
    fn run<T: Float>(&self, cpu: &dyn Backend) -> Results<T> {
        let Rope(s, inverse) = self;
        let x = input::<T>(s.batch * s.seq * s.heads * s.head_dim, 1, 2.0);
        let mut y = unwritten::<T>(x.len());
        let angles = (0..s.seq * s.rotary_dim / 2).map(|i| i as f32 * 0.37);
        let (cos, sin): (Vec<f32>, Vec<f32>) = angles.map(|a| (a.cos(), a.sin())).unzip();
        cpu.rope(
            s,
            RopeArgs {
                x: view(&x),
                cos: view(&cos),
                sin: view(&sin),
                inverse: *inverse,
                y: view_mut(&mut y),
            },
        );
        Results { rounded: vec![("y", y)], wide: vec![] }
    }
}

#[test]
fn rope() {
    let part = RopeShape { rotary_dim: 24, ..RopeShape::whole_heads(2, 9, 3, 40) };
    for s in [
        RopeShape::whole_heads(2, 5, 3, 14),
        RopeShape::whole_heads(1, 70, 4, 64),
        part,
        RopeShape { layout: RopeLayout::Interleaved, ..part },
    ] {
        for inverse in [false, true] {
            assert_rounds(&format!("rope, {s:?}, inverse {inverse}"), &Rope(s, inverse), 1e-6);
        }
    }
}

struct Embedding(usize, usize);

impl Kernel for Embedding {
    fn run<T: Float>(&self, cpu: &dyn Backend) -> Results<T> {
        let &Embedding(count, cols) = self;
        const ROWS: usize = 50;
        // Rows 10..60 are here; a third of the tokens are elsewhere.
        let tokens: Vec<u32> = (0..count as u32).map(|i| i * i % 75).collect();
        let tokens = (&tokens[..]).into();
        let (table, dout) = (input::<T>(ROWS * cols, 1, 1.0), input::<T>(count * cols, 2, 1.0));
        let (mut out, mut dtable) = (unwritten::<T>(count * cols), values(ROWS * cols, 3));
        cpu.embedding(tokens, view(&table), 10, view_mut(&mut out));
        cpu.embedding_backward(tokens, None, 10, view(&dout), view_mut(&mut dtable));
        Results { rounded: vec![("out", out)], wide: vec![("dtable", dtable)] }
    }
}

#[test]
fn embedding() {
    for (count, cols) in [(1, 1), (6, 5), (700, 129)] {
        assert_rounds(&format!("embedding, {count} x {cols}"), &Embedding(count, cols), 0.0);
    }
}
