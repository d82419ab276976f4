//! Documented limits of the library.

use super::sizes::{Pass, Sizes};

/// Returns an error that names the size that no version or device supports.
///
/// The limits are those that NVIDIA documents for bf16 attention; not every engine checks them.
pub(super) fn check(sizes: &Sizes, pass: Pass, capability: (u32, u32)) -> Result<(), String> {
    let Sizes { batch, seq, heads, kv_heads, head_dim, .. } = *sizes;
    if capability.0 < 8 {
        let (major, minor) = capability;
        return Err(format!(
            "cuDNN's attention needs compute capability 8.0; the device has {major}.{minor}"
        ));
    }
    if [batch, seq, heads, kv_heads, head_dim].contains(&0) || heads % kv_heads != 0 {
        return Err(format!("cuDNN has nothing to do for {pass}, {sizes}"));
    }
    let most = match pass {
        Pass::Backward { .. } if capability.0 != 9 => 128,
        _ => 256,
    };
    if head_dim % 8 != 0 || head_dim > most {
        return Err(format!(
            "cuDNN takes head_dim in multiples of 8 up to {most} for {pass}, not {head_dim}"
        ));
    }
    Ok(())
}
