//! The implementation and the kernels that a pass of attention runs on, for reports.

use super::fused::Refusal;
use crate::{AttentionChoice, AttentionImplementation, GpuContext, PassDirection};
use meshwright_backend::{AttentionShape, Band, DType};

/// Notes our own kernels of a pass over operands of a dtype, and the reason why the vendor library's are not used; the
/// library notes its kernels itself.
pub(super) fn note_attention(
    gpu: &GpuContext,
    s: &AttentionShape,
    pass: PassDirection,
    dtype: DType,
    refusal: Refusal,
    kernels: &dyn Fn() -> String,
) {
    if s.batch == 0 {
        return;
    }
    let reason = refusal.unwrap_or_else(|| match gpu.driver().attention() {
        Some(_) => "cuDNN has none for these sizes",
        None => "without cuDNN",
    });
    gpu.attention.note(pass, AttentionImplementation::Own(reason));
    gpu.driver().note_attention(&|| AttentionChoice {
        name: format!("{pass} {dtype}, {}", describe_sizes(s)),
        batch: s.batch,
        samples: Some(s.batch),
        scratch: 0,
        kernels: match refusal {
            Some(reason) => format!("{}; not of the vendor library: {reason}", kernels()),
            None => kernels(),
        },
    });
}

/// Describes a shape, such as `2 x 4096 x 4096, 32/8 heads of 128, causal`.
fn describe_sizes(s: &AttentionShape) -> String {
    let &AttentionShape { batch, queries, keys, heads, kv_heads, head_dim, value_dim, .. } = s;
    let dim = if head_dim == value_dim {
        head_dim.to_string()
    } else {
        format!("{head_dim}/{value_dim}")
    };
    let band = match s.band {
        Band::ALL => "full".to_string(),
        Band::CAUSAL => "causal".to_string(),
        Band { offset, before, after } => {
            let limit = |limit: Option<usize>| limit.map_or("all".to_string(), |n| n.to_string());
            format!("{} before and {} after {offset}", limit(before), limit(after))
        }
    };
    let cap = s.soft_cap.map_or(String::new(), |cap| format!(", soft cap {cap}"));
    let dropout = s.dropout.map_or("", |_| ", dropout");
    format!(
        "{batch} x {} x {}, {heads}/{kv_heads} heads of {dim}, {band}{cap}{dropout}",
        queries.len, keys.len
    )
}
