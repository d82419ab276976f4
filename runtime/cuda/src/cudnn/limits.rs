//! Limits of the library that it documents, but that not every engine checks.

use super::attention_graph::AttentionPass;
use super::attention_sizes::{BandMask, CudnnAttentionSizes};

/// Positions that f32 numbers can count: the library computes one side of a window in f32.
const MAX_POSITIONS: i64 = 1 << 24;

/// Checks sizes and mask against the documented limits; the error names the one that no version supports on this
/// device.
pub(super) fn check_limits(
    sizes: &CudnnAttentionSizes,
    pass: AttentionPass,
    capability: (u32, u32),
) -> Result<(), String> {
    let CudnnAttentionSizes { batch, queries, keys, heads, kv_heads, .. } = *sizes;
    if capability.0 < 8 {
        let (major, minor) = capability;
        return Err(format!(
            "cuDNN's attention needs compute capability 8.0; the device has {major}.{minor}"
        ));
    }
    if [batch, queries, keys, heads, kv_heads].contains(&0) || heads % kv_heads != 0 {
        return Err(format!(
            "cuDNN does not support {pass} without elements, or of heads that do not divide: {sizes}"
        ));
    }
    if pass != AttentionPass::Forward && queries == 1 && keys == 1 {
        return Err(format!("cuDNN has no {pass} of one query and one key"));
    }
    check_dims(sizes, pass, capability)?;
    check_mask(sizes)
}

fn check_dims(
    sizes: &CudnnAttentionSizes,
    pass: AttentionPass,
    (major, _): (u32, u32),
) -> Result<(), String> {
    let CudnnAttentionSizes { head_dim, value_dim, .. } = *sizes;
    let most = match pass {
        AttentionPass::Backward { .. } if major != 9 => 128,
        _ => 256,
    };
    let fits = |dim: i64| dim > 0 && dim % 8 == 0 && dim <= most;
    // The widths of multi-head latent attention. GPUs of data centers have kernels for them from Hopper on.
    let is_latent = (head_dim, value_dim) == (192, 128) && (major == 9 || major == 10);
    for (what, dim) in [("head_dim", head_dim), ("value_dim", value_dim)] {
        if !fits(dim) && !is_latent {
            return Err(format!(
                "cuDNN takes {what} in multiples of 8 up to {most} for {pass}, not {dim}"
            ));
        }
    }
    Ok(())
}

/// Checks that neither side of the mask masks all keys of a query, whose softmax would be undefined.
fn check_mask(sizes: &CudnnAttentionSizes) -> Result<(), String> {
    let CudnnAttentionSizes { queries, keys, mask, .. } = *sizes;
    let BandMask { left, right } = mask;
    if mask != BandMask::ALL && queries.max(keys) >= MAX_POSITIONS {
        return Err(format!("cuDNN masks less than {MAX_POSITIONS} positions, not {sizes}"));
    }
    if right.is_some_and(|right| right < 0) || left.is_some_and(|left| left <= 0) {
        return Err(format!(
            "cuDNN's masks must include the key with the index of the query, not {sizes}"
        ));
    }
    if left.is_some() && queries > keys {
        return Err(format!(
            "cuDNN's windows require at most as many queries as keys, not {sizes}"
        ));
    }
    Ok(())
}
