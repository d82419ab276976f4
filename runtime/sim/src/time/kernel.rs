//! Seconds of kernels, by the curves of a GPU.

use meshwright_backend::{Kernel, KernelOp};

use crate::cluster::{AttentionCurve, ClusterError, Gpu};

/// Returns the seconds of a kernel on its stream.
///
/// # Errors
/// If the GPU has no peak for the dtype of a matmul or of attention.
pub fn kernel_seconds(gpu: &Gpu, kernel: &Kernel) -> Result<f64, ClusterError> {
    let op = kernel.op;
    if is_transfer(op) || matches!(op, KernelOp::Upload | KernelOp::Download) {
        let seconds = kernel.bytes() as f64 / gpu.host_bandwidth.value;
        return Ok(seconds + gpu.passes.start.value);
    }
    let fraction = gpu.passes.of.get(&op).unwrap_or(&gpu.passes.others).value;
    let moved = kernel.bytes() as f64 / (gpu.memory_bandwidth.value * fraction);
    if !op.is_matmul() && !op.is_attention() {
        return Ok(moved + gpu.passes.start.value);
    }
    let rate = if op.is_matmul() { matmul_rate(gpu, kernel) } else { attention_rate(gpu, kernel) }?;
    let computed = if kernel.flops > 0 { kernel.flops as f64 / rate } else { 0.0 };
    Ok(computed.max(moved) + gpu.matmul.start.value)
}

/// Returns the part of [`kernel_seconds`] that does not depend on the work of a kernel.
pub fn start_seconds(gpu: &Gpu, kernel: &Kernel) -> f64 {
    let is_compute = kernel.op.is_matmul() || kernel.op.is_attention();
    if is_compute { gpu.matmul.start.value } else { gpu.passes.start.value }
}

/// Returns true for copies on the stream of transfers.
pub fn is_transfer(op: KernelOp) -> bool {
    matches!(op, KernelOp::CopyIn | KernelOp::CopyOut)
}

/// Returns the FLOP/s of a matmul: see [`MatmulCurve`](crate::cluster::MatmulCurve).
fn matmul_rate(gpu: &Gpu, kernel: &Kernel) -> Result<f64, ClusterError> {
    let [m, n, k] = [0, 1, 2].map(|dim| kernel.dims[dim] as usize);
    let curve = &gpu.matmul;
    let tiles = m.div_ceil(gpu.tile[0]) * n.div_ceil(gpu.tile[1]);
    let waves = tiles as f64 / gpu.units as f64;
    let used = if tiles > 0 { waves / waves.ceil() } else { 1.0 };
    let contraction = k as f64 / (k as f64 + curve.half_k.value);
    let efficiency = curve.efficiency.value * used.powf(curve.wave_exponent.value) * contraction;
    Ok(gpu.peak_of(kernel.dtype)?.value * efficiency)
}

/// Returns the FLOP/s of attention.
fn attention_rate(gpu: &Gpu, kernel: &Kernel) -> Result<f64, ClusterError> {
    let [keys, head_dim] = [1, 3].map(|dim| kernel.dims[dim] as usize);
    let is_backward = kernel.op == KernelOp::AttentionBackward;
    let curves = gpu.attention.iter().filter(|curve| {
        curve.is_backward == is_backward && !curve.rates.is_empty() && curve.dtype == kernel.dtype
    });
    // The smallest curve that holds the head, else the largest one.
    let order = |curve: &&AttentionCurve| {
        let is_smaller = curve.head_dim < head_dim;
        (is_smaller, if is_smaller { usize::MAX - curve.head_dim } else { curve.head_dim })
    };
    if let Some(curve) = curves.min_by_key(order) {
        return Ok(interpolated(&curve.rates, keys as f64));
    }
    let fraction = gpu.attention_fraction[usize::from(is_backward)].value;
    Ok(gpu.peak_of(kernel.dtype)?.value * gpu.matmul.efficiency.value * fraction)
}

/// Interpolates rates, in ascending order of lengths, in the logarithm of the length. Outside, the rate is that of the
/// nearest length.
fn interpolated(rates: &[(usize, f64)], length: f64) -> f64 {
    let after = rates.partition_point(|(known, _)| (*known as f64) < length);
    let Some((above, rate_above)) = rates.get(after) else { return rates[after - 1].1 };
    let Some((below, rate_below)) = after.checked_sub(1).map(|idx| rates[idx]) else {
        return *rate_above;
    };
    let weight = (length / below as f64).ln() / (*above as f64 / below as f64).ln();
    rate_below + weight * (rate_above - rate_below)
}
