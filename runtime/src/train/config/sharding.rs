//! ZeRO stage, activation checkpointing and dtypes.

use serde::Serialize;

use crate::backend::DType;
use crate::layout::{AxisId, AxisSet};
use crate::mesh::MeshShape;
use crate::nn::{ContextStyle, RecomputeOverride, UnknownRecompute};
use crate::tensor::ZeroStage;

use super::DeviceChoice;
use super::values::Values;

/// `--dtype`, `--reduce-dtype`: element type of a computation or a reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32-bit floating point.
    F32,
    /// bfloat16: the exponent of an f32 with 8 bits of precision.
    Bf16,
}

impl Precision {
    /// Returns the dtype of buffers in this precision.
    pub const fn dtype(self) -> DType {
        match self {
            Precision::F32 => DType::F32,
            Precision::Bf16 => DType::Bf16,
        }
    }
}

/// Returns the ZeRO stage, which above 0 needs ranks that state can be sharded over.
pub(super) fn zero(values: &mut Values, mesh: &MeshShape) -> ZeroStage {
    let given = values.count("zero").and_then(|level| ZeroStage::ALL.get(level as usize).copied());
    match given {
        Some(level)
            if level > ZeroStage::Replicated
                && mesh.degree_of(AxisSet::ZERO) == 1
                && values.fits("mesh") =>
        {
            let message = format!(
                "{} shards over fsdp, ep and cp, whose degrees are 1 in --mesh {mesh}; use {}, or --zero 0",
                level.number(),
                with_ranks_along(mesh, AxisId::Fsdp)
            );
            values.problem("zero", message);
            ZeroStage::Replicated
        }
        Some(level) => level,
        None => ZeroStage::suited_to(mesh),
    }
}

/// Suggests the same mesh with its `dp` ranks along an axis that has one rank.
fn with_ranks_along(mesh: &MeshShape, axis: AxisId) -> String {
    let degree = mesh.degree(AxisId::Dp).max(2);
    let others = AxisId::ALL
        .into_iter()
        .filter(|other| *other != AxisId::Dp && *other != axis)
        .map(|other| (other, mesh.degree(other)));
    match MeshShape::new(others.chain([(axis, degree)])) {
        Ok(mesh) => format!("--mesh {mesh}"),
        Err(_) => format!("--mesh {axis}={degree}"),
    }
}

pub(super) fn recompute(values: &mut Values) -> Option<RecomputeOverride> {
    let text = values.text("recompute")?;
    let parsed: Result<_, UnknownRecompute> = text.parse();
    parsed.map_err(|error| values.problem("recompute", error.to_string())).ok()
}

/// Returns the style of context-parallel attention, which needs ranks that share sequences.
pub(super) fn context(values: &mut Values, mesh: &MeshShape) -> Option<ContextStyle> {
    let parsed: Result<ContextStyle, String> = values.text("cp")?.parse();
    let style = parsed.map_err(|error| values.problem("cp", error)).ok()?;
    if mesh.degree(AxisId::Cp) == 1 && values.fits("mesh") {
        let message = format!(
            "{style} needs context-parallel ranks, but the degree of cp is 1 in --mesh {mesh}; use {}, or leave it out",
            with_ranks_along(mesh, AxisId::Cp)
        );
        values.problem("cp", message);
    }
    Some(style)
}

/// Returns the dtypes of the computation and of the gradient reduction.
pub(super) fn dtypes(values: &mut Values, device: DeviceChoice) -> (Precision, Precision) {
    let of = |word: String| match word.as_str() {
        "bf16" => Precision::Bf16,
        _ => Precision::F32,
    };
    let compute = match device {
        DeviceChoice::Cuda if !values.is_given("dtype") => Precision::Bf16,
        _ => of(values.choice("dtype")),
    };
    let reduce = of(values.choice("reduce-dtype"));
    if (compute, reduce) == (Precision::F32, Precision::Bf16) && values.fits("dtype") {
        let message =
            "bf16 would discard the precision of --dtype f32; use --dtype bf16, or leave it out";
        values.problem("reduce-dtype", message.into());
    }
    (compute, reduce)
}
