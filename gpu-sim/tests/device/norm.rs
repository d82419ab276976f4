//! RMSNorm and LayerNorm on a simulated device.

use meshwright::backend::ops::norm::{
    LayerNormArgs, LayerNormBackwardArgs, RmsNormArgs, RmsNormBackwardArgs,
};
use meshwright::backend::{DType, LeafGrad, ResidualSum};
use meshwright_cuda::CallKind;
use meshwright_gpu_sim::{SimDevice, not_checked_on_gpu};

use crate::support::{
    FLOATS, Operand, Side, assert_close, assert_same, device, device_with, epsilon, host, on_both,
    values,
};

const EPS: f32 = 1e-3;

/// Rows and columns: less than a warp, a warp, a block, three vectors per lane and less, and more than registers hold.
/// Rows are few, but enough for two blocks, or for groups that sum several rows.
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

/// Destination of a gradient.
fn grad(to: &mut Operand, accumulate: bool) -> LeafGrad<'_> {
    LeafGrad { view: to.view_mut(), accumulate }
}

/// Returns `y`, statistics, `dx` and parameter gradients. With `add`, gradients accumulate to 1 and to the residual's
/// gradient.
fn run(
    side: &Side,
    dtype: DType,
    rows: usize,
    cols: usize,
    centered: bool,
    add: bool,
) -> Vec<Vec<f32>> {
    let [x, dy] = [1, 2].map(|seed| side.floats(dtype, &values(rows * cols, seed)));
    let [weight, bias] = [3, 4].map(|seed| side.floats(dtype, &values(cols, seed)));
    let mut y = side.blank(dtype, rows * cols);
    let mut dx = if add {
        side.floats(dtype, &values(rows * cols, 5))
    } else {
        side.blank(dtype, rows * cols)
    };
    let [mut mean, mut inv] = [(); 2].map(|()| side.blank(DType::F32, rows));
    let [mut dweight, mut dbias] =
        [(); 2].map(|()| side.put(&vec![if add { 1.0f32 } else { f32::NAN }; cols]));
    let (backend, [x, dy]) = (side.backend(), [x.view(), dy.view()]);
    if centered {
        let (weight, bias) = (weight.view(), bias.view());
        backend.layer_norm(LayerNormArgs {
            x,
            residual: None,
            weight,
            bias,
            eps: EPS,
            y: y.view_mut(),
            mean: mean.view_mut(),
            inv_std: inv.view_mut(),
        });
        backend.layer_norm_backward(LayerNormBackwardArgs {
            x,
            weight,
            mean: mean.view(),
            inv_std: inv.view(),
            dy,
            dx: grad(&mut dx, add),
            dweight: Some(grad(&mut dweight, add)),
            dbias: Some(grad(&mut dbias, add)),
        });
        [y, inv, dx, dweight, mean, dbias].map(|operand| operand.numbers()).to_vec()
    } else {
        let weight = weight.view();
        backend.rms_norm(RmsNormArgs {
            x,
            residual: None,
            weight,
            eps: EPS,
            y: y.view_mut(),
            inv_rms: inv.view_mut(),
        });
        let (grad_x, grad_weight) = (grad(&mut dx, add), Some(grad(&mut dweight, add)));
        backend.rms_norm_backward(RmsNormBackwardArgs {
            x,
            weight,
            inv_rms: inv.view(),
            dy,
            dx: grad_x,
            dweight: grad_weight,
        });
        [y, inv, dx, dweight].map(|operand| operand.numbers()).to_vec()
    }
}

#[test]
fn norms_and_gradients_match_the_cpu() {
    for (centered, add) in [(false, false), (false, true), (true, false), (true, true)] {
        // Each large size with one of the norms only, as accumulation does not depend on the norm.
        let sizes = SIZES.into_iter().filter(|[_, cols]| *cols < 4096 || add != centered);
        for [rows, cols] in sizes {
            for dtype in FLOATS {
                let compare = |got: &Vec<Vec<f32>>, expected: &Vec<Vec<f32>>| {
                    let names = ["y", "inv", "dx", "dweight", "mean", "dbias"];
                    for ((got, expected), name) in got.iter().zip(expected).zip(names) {
                        let what = format!(
                            "{name}, centered {centered}, added {add}, {rows} x {cols}, {dtype}"
                        );
                        let rounding = match name {
                            "y" | "dx" => epsilon(dtype),
                            _ => f32::EPSILON,
                        };
                        // A gradient can be far greater than 1 if the values of a row are nearly equal.
                        assert_close(&what, got, expected, 8.0 * rounding, 1e-5);
                    }
                };
                on_both(|side| run(side, dtype, rows, cols, centered, add), compare);
            }
        }
    }
}

#[test]
fn accumulated_gradients_are_bitwise_sums() {
    for centered in [false, true] {
        for [rows, cols] in SIZES {
            let side = device(6, 0);
            let [apart, sum] =
                [false, true].map(|add| run(&side, DType::F32, rows, cols, centered, add));
            let names = ["dx", "dweight", "dbias"];
            for (name, index) in names.into_iter().zip([2, 3, 5]).filter(|(_, i)| *i < sum.len()) {
                let held = if name == "dx" { values(rows * cols, 5) } else { vec![1.0; cols] };
                let expected: Vec<f32> =
                    held.iter().zip(&apart[index]).map(|(held, own)| held + own).collect();
                let what = format!("{name}, centered {centered}, {rows} x {cols}");
                assert_same(&what, &sum[index], &expected);
            }
        }
    }
}

/// The residual's gradient and parameter gradients need no kernels of their own: one launch for rows, and one for the
/// sums over them.
#[test]
fn norm_backward_takes_two_launches() {
    if not_checked_on_gpu() {
        return;
    }
    // Where two vectors per lane leave lanes idle, the kernel has three.
    let launches = [
        (5, 64, "", "add_few_partials"),
        (300, 64, "", "add_partials"),
        (300, 768, "triple_", "add_partials"),
    ];
    for ((rows, cols, form, sum), centered) in
        launches.into_iter().flat_map(|of| [(of, false), (of, true)])
    {
        let simulated = SimDevice::new(7);
        let side = device_with(std::sync::Arc::new(simulated.driver()), 0);
        let [x, dy, mut dx] = [1, 2, 3].map(|seed| side.put(&values(rows * cols, seed)));
        let [weight, mut dweight, mut dbias] = [4, 5, 6].map(|seed| side.put(&values(cols, seed)));
        let [mean, inv] = [7, 8].map(|seed| side.put(&values(rows, seed)));
        simulated.clear_log();
        let [x, dy, weight, mean, inv] = [&x, &dy, &weight, &mean, &inv].map(Operand::view);
        let (dx, dweight) = (grad(&mut dx, true), Some(grad(&mut dweight, true)));
        let backend = side.backend();
        if centered {
            let dbias = Some(grad(&mut dbias, false));
            backend.layer_norm_backward(LayerNormBackwardArgs {
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
            backend.rms_norm_backward(RmsNormBackwardArgs {
                x,
                weight,
                inv_rms: inv,
                dy,
                dx,
                dweight,
            })
        }
        let mut kernels = Vec::new();
        for entry in simulated.log() {
            assert!(![CallKind::Copy, CallKind::Zero].contains(&entry.kind), "{entry:?}");
            kernels.extend(entry.launch().map(|(kernel, _)| kernel.to_string()));
        }
        let norm = if centered { "layer" } else { "rms" };
        assert_eq!(kernels, [format!("{norm}_norm_backward_{form}f32").as_str(), sum]);
    }
}

#[test]
fn unneeded_parameter_gradients_are_skipped() {
    let (rows, cols) = (5, 64);
    let run = |side: &Side| {
        let [x, dy] = [1, 2].map(|seed| side.put(&values(rows * cols, seed)));
        let weight = side.put(&values(cols, 3));
        let [mean, inv] = [4, 5].map(|seed| side.put(&values(rows, seed)));
        let [mut rms_dx, mut dx] = [(); 2].map(|()| side.blank(DType::F32, rows * cols));
        let mut dbias = side.put(&vec![1.0f32; cols]);
        let (rms_grad, grad_x) = (grad(&mut rms_dx, false), grad(&mut dx, false));
        let backend = side.backend();
        let [x, dy] = [x.view(), dy.view()];
        backend.rms_norm_backward(RmsNormBackwardArgs {
            x,
            weight: weight.view(),
            inv_rms: inv.view(),
            dy,
            dx: rms_grad,
            dweight: None,
        });
        backend.layer_norm_backward(LayerNormBackwardArgs {
            x,
            weight: weight.view(),
            mean: mean.view(),
            inv_std: inv.view(),
            dy,
            dx: grad_x,
            dweight: None,
            dbias: Some(grad(&mut dbias, true)),
        });
        [rms_dx, dx, dbias].map(|operand| operand.numbers())
    };
    on_both(run, |got, expected| {
        for (got, expected) in got.iter().zip(expected) {
            assert_close("gradients", got, expected, 1e-6, 1e-6);
        }
    });
}

#[test]
fn residual_is_added_in_the_same_pass() {
    for [rows, cols] in [[3, 7], [20, 200], [5, 1024], [2, 8256]] {
        for dtype in FLOATS {
            let operands = |side: &Side| {
                let [x, added] = [1, 2].map(|seed| side.floats(dtype, &values(rows * cols, seed)));
                let [weight, bias] = [3, 4].map(|seed| side.floats(dtype, &values(cols, seed)));
                let [sum, y] = [(); 2].map(|()| side.blank(dtype, rows * cols));
                let [mean, inv] = [(); 2].map(|()| side.blank(DType::F32, rows));
                (x, added, weight, bias, sum, y, mean, inv)
            };
            for centered in [false, true] {
                let apart = {
                    let side = host();
                    let (mut x, added, weight, bias, _, mut y, mut mean, mut inv) = operands(&side);
                    side.backend().add_assign(x.view_mut(), added.view());
                    let (weight, bias) = (weight.view(), bias.view());
                    let (y_view, inv_view) = (y.view_mut(), inv.view_mut());
                    if centered {
                        let mean = mean.view_mut();
                        side.backend().layer_norm(LayerNormArgs {
                            x: x.view(),
                            residual: None,
                            weight,
                            bias,
                            eps: EPS,
                            y: y_view,
                            mean,
                            inv_std: inv_view,
                        });
                    } else {
                        side.backend().rms_norm(RmsNormArgs {
                            x: x.view(),
                            residual: None,
                            weight,
                            eps: EPS,
                            y: y_view,
                            inv_rms: inv_view,
                        });
                    }
                    [x, y, inv].map(|operand| operand.numbers())
                };
                for side in [device(5, 0), device(5, 1), host()] {
                    let (x, added, weight, bias, mut sum, mut y, mut mean, mut inv) =
                        operands(&side);
                    let [x, added] = [x.view(), added.view()];
                    let (weight, bias) = (weight.view(), bias.view());
                    let (sum_view, y_view, inv_view) =
                        (sum.view_mut(), y.view_mut(), inv.view_mut());
                    if centered {
                        let mean = mean.view_mut();
                        side.backend().layer_norm(LayerNormArgs {
                            x,
                            residual: Some(ResidualSum { term: added, sum: sum_view }),
                            weight,
                            bias,
                            eps: EPS,
                            y: y_view,
                            mean,
                            inv_std: inv_view,
                        });
                    } else {
                        side.backend().rms_norm(RmsNormArgs {
                            x,
                            residual: Some(ResidualSum { term: added, sum: sum_view }),
                            weight,
                            eps: EPS,
                            y: y_view,
                            inv_rms: inv_view,
                        });
                    }
                    let what =
                        |name| format!("{name}, centered {centered}, {rows} x {cols}, {dtype}");
                    assert_same(&what("sum"), &sum.numbers(), &apart[0]);
                    let rounding = 4.0 * epsilon(dtype);
                    assert_close(&what("y"), &y.numbers(), &apart[1], rounding, 1e-6);
                    assert_close(&what("inv"), &inv.numbers(), &apart[2], 1e-6, 0.0);
                }
            }
        }
    }
}
