//! RMSNorm and LayerNorm over rows.

use meshwright_backend::ops::norm::{
    GainAndGradient, LayerNormArgs, LayerNormBackwardArgs, RmsNormArgs, RmsNormBackwardArgs,
    RmsNormSumsArgs, RowSums,
};
use meshwright_backend::{DType, LeafGrad, ResidualSum};

use crate::{FLOATS, Operand, Target, assert_same, values};

const EPS: f32 = 1e-3;
/// Added to the weights of RMSNorm.
const OFFSET: f32 = 0.75;

/// Rows and columns: less than a warp of a GPU, a warp, a block, three vectors per lane and less, and more than
/// registers hold. Rows are few, but enough for two blocks, or for groups that sum several rows.
const SIZES: [[usize; 2]; 11] = [
    [0, 8],
    [1, 1],
    [3, 7],
    [34, 64],
    [10, 200],
    [6, 768],
    [5, 515],
    [9, 1280],
    [14, 1536],
    [2, 4104],
    [1, 8256],
];

/// Rows for several threads of a CPU.
const LARGE: [[usize; 2]; 5] = [[0, 5], [130, 64], [257, 200], [300, 515], [700, 130]];

/// Operands and results of a norm and of its backward.
struct Norm {
    /// True for LayerNorm; RMSNorm has neither means nor a bias.
    centered: bool,
    x: Operand,
    dy: Operand,
    weight: Operand,
    bias: Operand,
    y: Operand,
    mean: Operand,
    inv: Operand,
    dx: Operand,
    dweight: Operand,
    dbias: Operand,
}

fn grad(to: &mut Operand, accumulate: bool) -> LeafGrad<'_> {
    LeafGrad { view: to.view_mut(), accumulate }
}

impl Norm {
    /// Creates operands, with gradients to be written or to be accumulated.
    fn new(
        target: &Target,
        dtype: DType,
        [rows, cols]: [usize; 2],
        centered: bool,
        accumulate: bool,
    ) -> Norm {
        let gradient = |dtype, len, seed| {
            if accumulate {
                target.floats(dtype, &values(len, seed))
            } else {
                target.blank(dtype, len)
            }
        };
        Norm {
            centered,
            x: target.floats(dtype, &values(rows * cols, 1)),
            dy: target.floats(dtype, &values(rows * cols, 2)),
            weight: target.floats(dtype, &values(cols, 3)),
            bias: target.floats(dtype, &values(cols, 4)),
            y: target.blank(dtype, rows * cols),
            mean: target.blank(DType::F32, rows),
            inv: target.blank(DType::F32, rows),
            dx: gradient(dtype, rows * cols, 5),
            dweight: gradient(DType::F32, cols, 6),
            dbias: gradient(DType::F32, cols, 7),
        }
    }

    fn forward(&mut self, target: &Target, residual: Option<ResidualSum<'_>>) {
        let (x, weight, eps, y) = (self.x.view(), self.weight.view(), EPS, self.y.view_mut());
        if self.centered {
            let (bias, mean, inv_std) =
                (self.bias.view(), self.mean.view_mut(), self.inv.view_mut());
            target.backend().layer_norm(LayerNormArgs {
                x,
                residual,
                weight,
                bias,
                eps,
                y,
                mean,
                inv_std,
            });
        } else {
            let (offset, inv_rms) = (OFFSET, self.inv.view_mut());
            let args = RmsNormArgs { x, residual, weight, offset, eps, squares: None, y, inv_rms };
            target.backend().rms_norm(args);
        }
    }

    fn backward(&mut self, target: &Target, accumulate: bool, with_dweight: bool) {
        let (x, weight, dy) = (self.x.view(), self.weight.view(), self.dy.view());
        let dx = grad(&mut self.dx, accumulate);
        let dweight = with_dweight.then(|| grad(&mut self.dweight, accumulate));
        if self.centered {
            let dbias = Some(grad(&mut self.dbias, accumulate));
            let (mean, inv_std) = (self.mean.view(), self.inv.view());
            let args = LayerNormBackwardArgs { x, weight, mean, inv_std, dy, dx, dweight, dbias };
            target.backend().layer_norm_backward(args);
        } else {
            let inv_rms = self.inv.view();
            target.backend().rms_norm_backward(RmsNormBackwardArgs {
                x,
                weight,
                offset: OFFSET,
                inv_rms,
                dy,
                dots: None,
                dx,
                dweight,
            });
        }
    }

    /// Returns the gradients; RMSNorm has none of a bias.
    fn gradients(&self) -> [(&'static str, &Operand); 3] {
        let dbias = if self.centered { &self.dbias } else { &self.dweight };
        [("dx", &self.dx), ("dweight", &self.dweight), ("dbias", dbias)]
    }
}

/// Results by the formula.
struct Expected {
    y: Vec<f64>,
    mean: Vec<f64>,
    inv: Vec<f64>,
    dx: Vec<f64>,
    dweight: Vec<f64>,
    dbias: Vec<f64>,
}

/// Computes a norm, with gradients of parameters onto the ones of the operands. RMSNorm is LayerNorm with a mean and a
/// bias of zero, and an offset of the weight.
fn reference(norm: &Norm, cols: usize, accumulate: bool) -> Expected {
    let [x, dy, weight, bias] = [&norm.x, &norm.dy, &norm.weight, &norm.bias].map(Operand::wide);
    let offset = if norm.centered { 0.0 } else { f64::from(OFFSET) };
    let weight: Vec<f64> = weight.iter().map(|weight| offset + weight).collect();
    let [mut dweight, mut dbias] = if accumulate {
        [&norm.dweight, &norm.dbias].map(Operand::wide)
    } else {
        [(); 2].map(|()| vec![0.0; cols])
    };
    let [mut y, mut means, mut invs, mut dx] = [(); 4].map(|()| Vec::new());
    let n = cols as f64;
    for (x, dy) in x.chunks_exact(cols).zip(dy.chunks_exact(cols)) {
        let mean = if norm.centered { x.iter().sum::<f64>() / n } else { 0.0 };
        let var = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        let inv = 1.0 / (var + f64::from(EPS)).sqrt();
        let normal: Vec<f64> = x.iter().map(|x| (x - mean) * inv).collect();
        let g: Vec<f64> = dy.iter().zip(&weight).map(|(dy, w)| dy * w).collect();
        let g_mean = if norm.centered { g.iter().sum::<f64>() / n } else { 0.0 };
        let dot = g.iter().zip(&normal).map(|(g, x)| g * x).sum::<f64>() / n;
        means.push(mean);
        invs.push(inv);
        for i in 0..cols {
            y.push(normal[i] * weight[i] + if norm.centered { bias[i] } else { 0.0 });
            dx.push(inv * (g[i] - g_mean - normal[i] * dot));
            dweight[i] += dy[i] * normal[i];
            dbias[i] += dy[i];
        }
    }
    Expected { y, mean: means, inv: invs, dx, dweight, dbias }
}

/// Norms, their statistics and their gradients, written and accumulated, follow the formula.
pub fn formula(target: &Target) {
    for (centered, accumulate) in [(false, false), (false, true), (true, false), (true, true)] {
        for sizes @ [rows, cols] in target.cases(&SIZES, &LARGE) {
            for dtype in FLOATS {
                let mut norm = Norm::new(target, dtype, sizes, centered, accumulate);
                let mut expected = reference(&norm, cols, accumulate);
                if accumulate {
                    expected
                        .dx
                        .iter_mut()
                        .zip(norm.dx.wide())
                        .for_each(|(dx, before)| *dx += before);
                }
                norm.forward(target, None);
                norm.backward(target, accumulate, true);
                let what = |name| {
                    format!("{name}, centered {centered}, accumulate {accumulate}, {rows} x {cols}")
                };
                target.check(&what("y"), &norm.y, &expected.y, 2e-6);
                target.check(&what("inv"), &norm.inv, &expected.inv, 1e-6);
                target.check(&what("dx"), &norm.dx, &expected.dx, 1e-5);
                target.check(&what("dweight"), &norm.dweight, &expected.dweight, 2e-6);
                if centered {
                    target.check(&what("mean"), &norm.mean, &expected.mean, 1e-6);
                    target.check(&what("dbias"), &norm.dbias, &expected.dbias, 2e-6);
                }
            }
        }
    }
}

/// Accumulated gradients are the sums, to the bit, of what they held and what they would be else.
pub fn exact_accumulation(target: &Target) {
    for centered in [false, true] {
        for sizes @ [rows, cols] in target.cases(&SIZES, &LARGE) {
            let [alone, sum] = [false, true].map(|accumulate| {
                let mut norm = Norm::new(target, DType::F32, sizes, centered, accumulate);
                norm.forward(target, None);
                norm.backward(target, accumulate, true);
                norm
            });
            let before = Norm::new(target, DType::F32, sizes, centered, true);
            for (((name, alone), (_, sum)), (_, before)) in
                alone.gradients().into_iter().zip(sum.gradients()).zip(before.gradients())
            {
                let what = format!("{name}, centered {centered}, {rows} x {cols}");
                let alone = alone.numbers();
                let expected: Vec<f32> =
                    before.numbers().iter().zip(&alone).map(|(a, b)| a + b).collect();
                assert_same(&what, &sum.numbers(), &expected);
            }
        }
    }
}

/// Without a gradient of the weight, the other gradients are the same.
pub fn unneeded_gradients(target: &Target) {
    for centered in [false, true] {
        let sizes @ [_, cols] = [5, 64];
        let mut norm = Norm::new(target, DType::F32, sizes, centered, false);
        let expected = reference(&norm, cols, false);
        norm.forward(target, None);
        norm.backward(target, false, false);
        target.check("dx", &norm.dx, &expected.dx, 1e-5);
        target.check_exactly("dweight", &norm.dweight, &vec![f32::NAN; cols]);
        if centered {
            target.check("dbias", &norm.dbias, &expected.dbias, 2e-6);
        }
    }
}

/// A residual is added and rounded first.
pub fn residual(target: &Target) {
    for sizes @ [rows, cols] in [[3, 7], [20, 200], [5, 1024], [2, 8256]] {
        for dtype in FLOATS {
            for centered in [false, true] {
                let mut norm = Norm::new(target, dtype, sizes, centered, false);
                let term = target.floats(dtype, &values(rows * cols, 8));
                let mut sum = target.blank(dtype, rows * cols);
                let expected_sum: Vec<f32> =
                    norm.x.numbers().iter().zip(term.numbers()).map(|(x, term)| x + term).collect();
                norm.forward(target, Some(ResidualSum { term: term.view(), sum: sum.view_mut() }));
                let what = |name| format!("{name}, centered {centered}, {rows} x {cols}");
                target.check_exactly(&what("sum"), &sum, &expected_sum);
                norm.x = sum;
                let expected = reference(&norm, cols, false);
                target.check(&what("y"), &norm.y, &expected.y, 2e-6);
                target.check(&what("inv"), &norm.inv, &expected.inv, 1e-6);
            }
        }
    }
}

/// Rows whose other columns other ranks have: an RMSNorm of given sums over both parts is a part of the norm of whole
/// rows.
pub fn parts_of_rows(target: &Target) {
    for sizes @ [rows, cols] in [[3, 7], [20, 200], [9, 1280], [5, 768], [2, 8256]] {
        for dtype in FLOATS {
            let mut part = Norm::new(target, dtype, sizes, false, true);
            // The other columns have these sums, and the whole rows twice and a half as many.
            let (others, total) = (values(rows, 9), 5 * cols / 2);
            let others: Vec<f32> = others.iter().map(|sum| 3.0 + sum).collect();
            let wide = |of: &[f32]| of.iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
            let [x, dy, weight] = [&part.x, &part.dy, &part.weight].map(Operand::wide);
            let gain: Vec<f64> = weight.iter().map(|weight| weight + f64::from(OFFSET)).collect();
            let [before, dweight_before] = [&part.dx, &part.dweight].map(Operand::wide);

            let mut found = [(); 2].map(|()| target.blank(DType::F32, rows));
            let factors =
                GainAndGradient { weight: part.weight.view(), offset: OFFSET, dy: part.dy.view() };
            for (factors, sums) in [None, Some(factors)].into_iter().zip(&mut found) {
                let sums = sums.view_mut();
                target.backend().rms_norm_sums(RmsNormSumsArgs {
                    cols,
                    x: part.x.view(),
                    factors,
                    sums,
                });
            }
            let row_sum = |of: &dyn Fn(usize) -> f64, row: usize| -> f64 {
                (row * cols..(row + 1) * cols).map(of).sum()
            };
            let squares: Vec<f64> = (0..rows).map(|row| row_sum(&|i| x[i] * x[i], row)).collect();
            let products = |i: usize| x[i] * dy[i] * gain[i % cols];
            let dots: Vec<f64> = (0..rows).map(|row| row_sum(&products, row)).collect();
            let what = |name| format!("{name} of parts, {rows} x {cols}");
            target.check(&what("squares"), &found[0], &squares, 1e-6);
            target.check(&what("dots"), &found[1], &dots, 1e-5);

            let add = |sums: &[f32]| -> Vec<f32> {
                sums.iter().zip(&others).map(|(own, other)| own + other).collect()
            };
            let [squares, dots] = found.map(|found| add(&found.numbers()));
            let [given, given_dots] = [&squares, &dots].map(|sums| target.floats(DType::F32, sums));
            target.backend().rms_norm(RmsNormArgs {
                x: part.x.view(),
                residual: None,
                weight: part.weight.view(),
                offset: OFFSET,
                eps: EPS,
                squares: Some(RowSums { sums: given.view(), cols: total }),
                y: part.y.view_mut(),
                inv_rms: part.inv.view_mut(),
            });
            target.backend().rms_norm_backward(RmsNormBackwardArgs {
                x: part.x.view(),
                weight: part.weight.view(),
                offset: OFFSET,
                inv_rms: part.inv.view(),
                dy: part.dy.view(),
                dots: Some(RowSums { sums: given_dots.view(), cols: total }),
                dx: grad(&mut part.dx, true),
                dweight: Some(grad(&mut part.dweight, true)),
            });
            let n = total as f64;
            let inverse = |square: &f64| 1.0 / (square / n + f64::from(EPS)).sqrt();
            let inv: Vec<f64> = wide(&squares).iter().map(inverse).collect();
            let dots = wide(&dots);
            let mut dweight = dweight_before;
            let [mut y, mut dx] = [(); 2].map(|()| Vec::new());
            for i in 0..rows * cols {
                let (row, col) = (i / cols, i % cols);
                y.push(x[i] * inv[row] * gain[col]);
                let slope = inv[row].powi(3) * dots[row] / n;
                dx.push(before[i] + inv[row] * dy[i] * gain[col] - slope * x[i]);
                dweight[col] += dy[i] * x[i] * inv[row];
            }
            target.check(&what("y"), &part.y, &y, 2e-6);
            target.check(&what("inv"), &part.inv, &inv, 1e-6);
            target.check(&what("dx"), &part.dx, &dx, 1e-5);
            target.check(&what("dweight"), &part.dweight, &dweight, 2e-6);
        }
    }
}
