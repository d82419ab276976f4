//! Low-rank adapters of linear layers.

use crate::layout::{DimInfo, Dims, Entry};
use crate::tensor::{
    Binary, Contraction, Init, Param, ParamRef, Reads, Unary, Value, contract, leave_region,
};
use meshwright_comm::Site;

use super::{Builder, LoraOptions};

/// The matrices A and B of a linear layer, and the factor of their product.
pub(super) struct Adapter {
    a: ParamRef,
    b: ParamRef,
    scale: f32,
}

impl Adapter {
    /// Declares the adapter of the linear layer in this field, if it is to have one: matrices shaped `A`, with `reads`
    /// dims of the input, and `B`.
    pub(super) fn declare<A: Dims, B: Dims>(
        builder: &mut Builder<'_>,
        reads: usize,
    ) -> Option<Adapter> {
        let LoraOptions { rank, alpha, .. } = builder.adapter_options()?;
        let elements =
            |dims: &[DimInfo]| -> usize { dims.iter().map(|dim| builder.size_of(dim)).product() };
        let (inputs, outputs) = (elements(&A::DIMS[..reads]), elements(&B::DIMS[1..]));
        if *rank > inputs.max(outputs) {
            builder.problem(format_args!(
                "an adapter of rank {rank} is wider than the layer, which reads \
                 {inputs} elements and writes {outputs}: choose a rank of at most {}",
                inputs.min(outputs)
            ));
        }
        if !(alpha.is_finite() && *alpha != 0.0) {
            builder.problem(format_args!(
                "the alpha of its adapter is {alpha}, and must be a finite number other than 0"
            ));
        }
        let bound = 1.0 / (inputs as f32).sqrt();
        let a: Param<A> = builder.adapter_field("lora_a").param("weight", Init::Uniform(bound));
        let b: Param<B> = builder.adapter_field("lora_b").param("weight", Init::Zeros);
        let scale = alpha / *rank as f32;
        Some(Adapter { a: a.handle().clone(), b: b.handle().clone(), scale })
    }

    /// Computes what the layer of `weight` computes by `how`, with the adapter.
    #[track_caller]
    pub(super) fn contract(
        &self,
        x: &Value,
        weight: &ParamRef,
        how: Contraction,
        site: &Site,
    ) -> Value {
        // One of A and B is split as the weight. Over its axis the gradient of the other one is partial, too.
        let axes =
            |param: &ParamRef| how.gradient_axes.union(weight.varies()).difference(param.varies());
        let inside = Contraction { leaves: None, ..how };
        let down =
            contract(x, &self.a, Contraction { gradient_axes: axes(&self.a), ..inside }, site);
        let of_b = Contraction {
            reads: Reads::First(1),
            entry: Entry::Stay,
            gradient_axes: axes(&self.b),
            leaves: None,
        };
        let up = contract(&down, &self.b, of_b, site);
        let base = contract(x, weight, inside, site);
        let scaled = up.to_pointwise().unary(Unary::Scale(self.scale));
        let sum = base.to_pointwise().binary(scaled, Binary::Add);
        let sum = Value::deferred(base.rank(), base.extents().to_vec(), sum);
        // Both are partial sums in a row-parallel layer, and are reduced together.
        match how.leaves {
            Some((axis, scatter)) => leave_region(sum, axis, scatter, site),
            None => sum,
        }
    }
}
