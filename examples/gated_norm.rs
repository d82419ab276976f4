//! A function with a backward of its own: RMSNorm with a gate, on CPUs and, by a CUDA source, on GPUs.

use std::sync::Arc;

use meshwright::backend::{Backend, Buffer, CudaKernel, DType, KernelArg, LaunchGrid};
use meshwright::layout::Shape;
use meshwright::prelude::*;
use meshwright::tensor::function::{AppliesTo, Backward, Forward, Function, apply};

/// `x / rms(x) * weight * silu(gate)` over the last dim.
pub struct GatedNorm {
    path: Arc<str>,
    eps: f32,
}

impl GatedNorm {
    /// Creates the function of the field at `path`.
    pub fn new(path: &str, eps: f32) -> GatedNorm {
        GatedNorm { path: path.into(), eps }
    }
}

/// Shapes of `x` and the gate.
///
/// Along the batch and the sequence all rows are treated alike, so these dims may be split or declared over an axis.
/// Along `H` the function computes a mean, so each rank holds all of it.
pub type Rows<B, S, H> = ((B, S, H), (B, S, H));

impl<B: Dim, S: Dim, H: Local> Function<Rows<B, S, H>, ((H,),)> for GatedNorm {
    type Output = Tensor<(B, S, H)>;
    /// The inverse root mean square of each row.
    type Saved = Buffer;

    fn path(&self) -> &str {
        &self.path
    }

    fn forward_pass(&self, call: Forward<'_, Rows<B, S, H>, ((H,),)>) -> Self::Saved {
        let Forward { inputs: [x, gate], params: [weight], mut output, context } = call;
        let cols = weight.view().len();
        let rows = output.len() / cols;
        let mut inv_rms = context.alloc_f32(rows);
        if context.device().is_some() {
            let args = [
                x.view().into(),
                gate.view().into(),
                weight.view().into(),
                output.view_mut().into(),
                inv_rms.view_mut().into(),
                self.eps.into(),
                rows.into(),
                cols.into(),
            ];
            // SAFETY: the kernel accesses `rows` rows of `cols` elements, and each thread writes rows of its own.
            unsafe { FORWARD.launch(context.backend(), x.view().dtype(), rows, &args) };
            return inv_rms;
        }
        let (x, gate, weight) = (x.to_f32(), gate.to_f32(), weight.to_f32());
        let scales: Vec<f32> = x.chunks(cols).map(|row| inverse_rms(row, self.eps)).collect();
        let element = |i: usize| x[i] * scales[i / cols] * weight[i % cols] * silu(gate[i]).0;
        output.write_f32(&(0..x.len()).map(element).collect::<Vec<_>>());
        inv_rms.view_mut().write(&scales);
        inv_rms
    }

    fn backward_pass(&self, call: Backward<'_, Rows<B, S, H>, ((H,),), Self::Saved>) {
        let Backward { inputs: [x, gate], params: [weight], output_gradient: dy, .. } = call;
        let (inv_rms, context) = (call.saved, call.context);
        let ([dx, dgate], [dweight]) = (call.input_gradients, call.param_gradients);
        let (cols, rows) = (weight.view().len(), inv_rms.len());
        let (mut dx, mut dgate, mut dweight) = (dx.target(), dgate.target(), dweight.target());
        if context.device().is_some() {
            let backend = context.backend();
            let [x, gate, weight, dy] = [x, gate, weight, dy].map(|operand| operand.view());
            for (target, kernel) in [(&mut dx, &INPUT_GRADIENT), (&mut dgate, &GATE_GRADIENT)] {
                let Some(target) = target else { continue };
                let args = [
                    x.into(),
                    gate.into(),
                    weight.into(),
                    inv_rms.into(),
                    dy.into(),
                    target.view_mut().into(),
                    rows.into(),
                    cols.into(),
                ];
                // SAFETY: as above.
                unsafe { kernel.launch(backend, x.dtype(), rows, &args) };
            }
            if let Some(dweight) = &mut dweight {
                let sums = dweight.view_mut().into();
                let args = [
                    x.into(),
                    gate.into(),
                    inv_rms.into(),
                    dy.into(),
                    sums,
                    rows.into(),
                    cols.into(),
                ];
                // SAFETY: as above, but each thread writes columns of its own.
                unsafe { WEIGHT_GRADIENT.launch(backend, x.dtype(), cols, &args) };
            }
            return;
        }
        let [x, gate, weight, dy] = [x, gate, weight, dy].map(|operand| operand.to_f32());
        let scales = inv_rms.to_vec::<f32>();
        let normed = |i: usize| x[i] * scales[i / cols];
        let through = |i: usize| dy[i] * weight[i % cols] * silu(gate[i]).0;
        if let Some(dx) = &mut dx {
            let means: Vec<f32> = (0..rows)
                .map(|row| {
                    let row = row * cols..(row + 1) * cols;
                    row.map(|i| through(i) * normed(i)).sum::<f32>() / cols as f32
                })
                .collect();
            let element = |i: usize| scales[i / cols] * (through(i) - normed(i) * means[i / cols]);
            dx.write_f32(&(0..x.len()).map(element).collect::<Vec<_>>());
        }
        if let Some(dgate) = &mut dgate {
            let element = |i: usize| dy[i] * normed(i) * weight[i % cols] * silu(gate[i]).1;
            dgate.write_f32(&(0..x.len()).map(element).collect::<Vec<_>>());
        }
        if let Some(dweight) = &mut dweight {
            let column = |col: usize| {
                let rows = (0..rows).map(|row| row * cols + col);
                rows.map(|i| dy[i] * normed(i) * silu(gate[i]).0).sum()
            };
            dweight.write_f32(&(0..cols).map(column).collect::<Vec<_>>());
        }
    }
}

fn inverse_rms(row: &[f32], eps: f32) -> f32 {
    (row.iter().map(|x| x * x).sum::<f32>() / row.len() as f32 + eps).sqrt().recip()
}

/// Returns SiLU and its derivative.
fn silu(x: f32) -> (f32, f32) {
    let sigmoid = 1.0 / (1.0 + (-x).exp());
    (x * sigmoid, sigmoid * (1.0 + x * (1.0 - sigmoid)))
}

/// A kernel for each float dtype.
struct Kernels {
    f32: CudaKernel,
    bf16: CudaKernel,
}

static FORWARD: Kernels = Kernels::new("gated_norm_f32", "gated_norm_bf16");
static INPUT_GRADIENT: Kernels = Kernels::new("gated_norm_dx_f32", "gated_norm_dx_bf16");
static GATE_GRADIENT: Kernels = Kernels::new("gated_norm_dgate_f32", "gated_norm_dgate_bf16");
static WEIGHT_GRADIENT: Kernels = Kernels::new("gated_norm_dweight_f32", "gated_norm_dweight_bf16");

impl Kernels {
    const fn new(f32: &'static str, bf16: &'static str) -> Kernels {
        let source = include_str!("gated_norm.cu");
        Kernels { f32: CudaKernel::new(f32, source), bf16: CudaKernel::new(bf16, source) }
    }

    /// Launches the kernel for `dtype`, with a thread for each of `items`.
    ///
    /// # Safety
    /// As [`CudaKernel::launch`].
    unsafe fn launch(
        &self,
        backend: &dyn Backend,
        dtype: DType,
        items: usize,
        args: &[KernelArg<'_>],
    ) {
        let kernel = if dtype == DType::Bf16 { &self.bf16 } else { &self.f32 };
        // SAFETY: as the caller promises.
        unsafe { kernel.launch(backend, LaunchGrid::over(items), args) };
    }
}

/// The layer: the weight, and the function applied to it.
pub struct GatedRmsNorm<H> {
    weight: Param<(H,)>,
    path: Arc<str>,
    eps: f32,
}

impl<H> Build for GatedRmsNorm<H>
where
    (H,): Shape,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        let (path, eps) = (builder.site().field().into(), builder.sizes().norm_eps);
        GatedRmsNorm { weight: builder.param("weight", Init::Ones), path, eps }
    }
}

impl<H: Local> GatedRmsNorm<H> {
    /// Computes `x / rms(x) * weight * silu(gate)`.
    pub fn forward<B: Dim, S: Dim>(
        &self,
        x: &Tensor<(B, S, H)>,
        gate: &Tensor<(B, S, H)>,
    ) -> Tensor<(B, S, H)>
    where
        GatedNorm: AppliesTo<Rows<B, S, H>, ((H,),)>,
    {
        let function = GatedNorm { path: Arc::clone(&self.path), eps: self.eps };
        apply(function, (x, gate), (&self.weight,))
    }
}
