//! Launches of the norm kernels.

use meshwright::backend::LeafGrad;
use meshwright::backend::ops::norm::{LayerNormBackwardArgs, RmsNormBackwardArgs};
use meshwright_cuda::CallKind;
use meshwright_gpu_sim::{SimDevice, not_checked_on_gpu};

use crate::support::{Operand, device_with, values};

/// Destination of a gradient.
fn grad(to: &mut Operand, accumulate: bool) -> LeafGrad<'_> {
    LeafGrad { view: to.view_mut(), accumulate }
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
                offset: 0.0,
                inv_rms: inv,
                dy,
                dots: None,
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
