use super::{assert_close, assert_same_on_any_threads, on_every_backend, values, wide};
use meshwright_backend::ops::norm::{
    LayerNormArgs, LayerNormBackwardArgs, RmsNormArgs, RmsNormBackwardArgs,
};
use meshwright_backend::{Backend, LeafGrad};

const EPS: f32 = 1e-3;

/// `[y, statistics.., dx, dweight, ..]` by the formula, gradients of parameters added to 1.
struct Expected {
    y: Vec<f64>,
    dx: Vec<f64>,
    dweight: Vec<f64>,
    dbias: Vec<f64>,
}

/// RMSNorm is LayerNorm whose mean is taken to be zero, without a bias.
fn reference(rows: usize, cols: usize, centered: bool) -> Expected {
    let [x, dy] = [1, 2].map(|seed| wide(&values(rows * cols, seed)));
    let [weight, bias] = [3, 4].map(|seed| wide(&values(cols, seed)));
    let mut e =
        Expected { y: vec![], dx: vec![], dweight: vec![1.0; cols], dbias: vec![1.0; cols] };
    let n = cols as f64;
    for (x, dy) in x.chunks_exact(cols).zip(dy.chunks_exact(cols)) {
        let mean = if centered { x.iter().sum::<f64>() / n } else { 0.0 };
        let var = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        let inv = 1.0 / (var + f64::from(EPS)).sqrt();
        let normal: Vec<f64> = x.iter().map(|x| (x - mean) * inv).collect();
        let g: Vec<f64> = dy.iter().zip(&weight).map(|(dy, w)| dy * w).collect();
        let g_mean = if centered { g.iter().sum::<f64>() / n } else { 0.0 };
        let dot = g.iter().zip(&normal).map(|(g, x)| g * x).sum::<f64>() / n;
        for i in 0..cols {
            e.y.push(normal[i] * weight[i] + if centered { bias[i] } else { 0.0 });
            e.dx.push(inv * (g[i] - g_mean - normal[i] * dot));
            e.dweight[i] += dy[i] * normal[i];
            e.dbias[i] += dy[i];
        }
    }
    e
}

/// `[y, dx, dweight, dbias]`. Gradients are added to 1 and the gradient of the residual, or are without these.
fn run(cpu: &dyn Backend, rows: usize, cols: usize, centered: bool, add: bool) -> [Vec<f32>; 4] {
    let [x, dy] = [1, 2].map(|seed| values(rows * cols, seed));
    let [weight, bias] = [3, 4].map(|seed| values(cols, seed));
    let mut y = vec![f32::NAN; rows * cols];
    let mut dx = if add { residual(rows * cols) } else { vec![f32::NAN; rows * cols] };
    let [mut mean, mut inv] = [(); 2].map(|()| vec![f32::NAN; rows]);
    let [mut dweight, mut dbias] = [(); 2].map(|()| vec![if add { 1.0 } else { f32::NAN }; cols]);
    let [grad_x, grad_weight, grad_bias] = [&mut dx, &mut dweight, &mut dbias]
        .map(|to| LeafGrad { view: (&mut to[..]).into(), accumulate: add });
    let [x, dy, weight, bias] = [&x, &dy, &weight, &bias].map(|x| x[..].into());
    if centered {
        let statistics = ((&mut mean[..]).into(), (&mut inv[..]).into());
        cpu.layer_norm(LayerNormArgs {
            x,
            residual: None,
            weight,
            bias,
            eps: EPS,
            y: (&mut y[..]).into(),
            mean: statistics.0,
            inv_std: statistics.1,
        });
        cpu.layer_norm_backward(LayerNormBackwardArgs {
            x,
            weight,
            mean: (&mean[..]).into(),
            inv_std: (&inv[..]).into(),
            dy,
            dx: grad_x,
            dweight: Some(grad_weight),
            dbias: Some(grad_bias),
        });
    } else {
        cpu.rms_norm(RmsNormArgs {
            x,
            residual: None,
            weight,
            eps: EPS,
            y: (&mut y[..]).into(),
            inv_rms: (&mut inv[..]).into(),
        });
        cpu.rms_norm_backward(RmsNormBackwardArgs {
            x,
            weight,
            inv_rms: (&inv[..]).into(),
            dy,
            dx: grad_x,
            dweight: Some(grad_weight),
        });
    }
    [y, dx, dweight, dbias]
}

/// The gradient that a norm's input has by another way.
fn residual(len: usize) -> Vec<f32> {
    values(len, 5)
}

#[test]
fn norms_and_their_gradients_follow_the_formula() {
    for centered in [false, true] {
        for (rows, cols) in [(1, 1), (3, 7), (130, 64), (257, 200), (300, 515)] {
            let expected = reference(rows, cols, centered);
            on_every_backend(|cpu| {
                let what = |name| format!("{name}, centered {centered}, {rows} x {cols}");
                let [y, dx, mut dweight, mut dbias] = run(cpu, rows, cols, centered, false);
                dweight.iter_mut().chain(&mut dbias).for_each(|sum| *sum += 1.0);
                assert_close(&what("y"), &y, &expected.y, 2e-6);
                assert_close(&what("dx"), &dx, &expected.dx, 1e-5);
                assert_close(&what("dweight"), &dweight, &expected.dweight, 2e-6);
                if centered {
                    assert_close(&what("dbias"), &dbias, &expected.dbias, 2e-6);
                }
            });
        }
    }
}

#[test]
fn accumulated_gradients_are_exact_sums() {
    for centered in [false, true] {
        for (rows, cols) in [(0, 5), (1, 1), (3, 7), (130, 64), (300, 515)] {
            on_every_backend(|cpu| {
                let [_, dx, dweight, dbias] = run(cpu, rows, cols, centered, false);
                let [_, sum, added_weight, added_bias] = run(cpu, rows, cols, centered, true);
                let added = residual(rows * cols);
                let what = format!("centered {centered}, {rows} x {cols}");
                let two: Vec<f32> = added.iter().zip(&dx).map(|(a, b)| a + b).collect();
                assert_eq!(sum, two, "dx, {what}");
                let onto_one = |sums: &[f32]| sums.iter().map(|sum| 1.0 + sum).collect::<Vec<_>>();
                assert_eq!(added_weight, onto_one(&dweight), "dweight, {what}");
                if centered {
                    assert_eq!(added_bias, onto_one(&dbias), "dbias, {what}");
                }
            });
        }
    }
}

#[test]
fn parameter_gradients_do_not_depend_on_threads() {
    for centered in [false, true] {
        assert_same_on_any_threads("norm", |cpu| run(cpu, 700, 130, centered, true).concat());
    }
}
