//! The fields that can be pipeline stages: models, stacks, recomputed models, and layers of this crate, in whose files
//! [`stage_layers`] is invoked.

use std::ops::Range;

use crate::layout::{Internal, Whole};
use crate::tensor::SegmentData;

use super::super::{Module, Recomputed, Stack, StackInput};
use super::stage::{LayerCount, PipelineStage, StageInput};

/// Applies a model to the output of the stage before it.
#[doc(hidden)]
pub fn run_module<M: Module, X: StageInput<M::In>>(model: &M, input: X) -> M::Out {
    model.forward(&input.stage_input(Internal::new()))
}

impl<M: Module, N: Whole, X: StageInput<M::In>> PipelineStage<X> for Stack<M, N>
where
    M::In: StackInput<M>,
{
    type Output = M::In;

    fn layer_count(&self) -> Option<LayerCount> {
        Some(LayerCount { dim: N::DECLARED_NAME, count: self.layers().len() })
    }

    #[track_caller]
    fn run(&self, layers: Range<usize>, input: X) -> M::In {
        self.forward_layers(layers, input.stage_input(Internal::new()))
    }

    #[track_caller]
    fn resume(&self, layers: Range<usize>, input: M::In) -> M::In {
        self.forward_layers(layers, input)
    }
}

impl<M: Module + 'static, X: StageInput<M::In>> PipelineStage<X> for Recomputed<M>
where
    M::In: SegmentData,
    M::Out: SegmentData,
{
    type Output = M::Out;

    fn run(&self, _: Range<usize>, input: X) -> M::Out {
        self.forward(&input.stage_input(Internal::new()))
    }
}

/// Makes layers of this crate pipeline stages: `stage_layers! { RmsNorm<H>; }`, or with constants `stage_layers! { [F,
/// const TAPS: usize] CausalConv<F, TAPS>; }`.
macro_rules! stage_layers {
    ($([$($generics:tt)*] $layer:ty;)+) => {$(
        impl<X, $($generics)*> $crate::nn::PipelineStage<X> for $layer
        where
            Self: $crate::nn::Layer<X>,
        {
            type Output = <Self as $crate::nn::Layer<X>>::Out;

            #[track_caller]
            fn run(&self, _: std::ops::Range<usize>, input: X) -> Self::Output {
                $crate::nn::Layer::forward(self, &input)
            }
        }
    )+};
    ($($layer:ident $(<$($param:ident),+>)?;)+) => {
        $crate::nn::chain::stage_layers! { $([$($($param),+)?] $layer $(<$($param),+>)?;)+ }
    };
}

pub(in crate::nn) use stage_layers;
