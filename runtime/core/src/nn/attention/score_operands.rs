//! The optional operands of scores: from constants and parameters to kernels, and from kernels to the gradients of the
//! parameters.

use std::ops::Range;
use std::sync::Arc;

use crate::tensor::{OperationParam, ParamUse, Rank, TapeGradients};
use meshwright_backend::{Buffer, DistanceBias, View, ViewMut};

use super::score_bias::{BucketOfDistance, Distances, ScoreBias, distance_bias, widened};

/// Optional operands of scores, in f32.
#[derive(Clone, Copy, Default)]
pub(super) struct ScoreOperands<'a> {
    /// The biases of each head by distance.
    pub bias: Option<DistanceBias<'a>>,
    /// The sink of each head.
    pub sinks: Option<View<'a>>,
}

/// Gradients of the [`ScoreOperands`] that are parameters, in f32.
#[derive(Default)]
pub(super) struct ScoreGradients<'a> {
    /// `[heads, distances]`.
    pub bias: Option<ViewMut<'a>>,
    /// `[heads]`.
    pub sinks: Option<ViewMut<'a>>,
}

impl<'a> ScoreOperands<'a> {
    /// Returns the operands of some heads.
    pub fn of_heads(&self, heads: Range<usize>) -> ScoreOperands<'a> {
        let bias = self.bias.map(|bias| {
            let distances = heads.start * bias.distances..heads.end * bias.distances;
            DistanceBias { values: bias.values.slice(distances), ..bias }
        });
        ScoreOperands { bias, sinks: self.sinks.map(|sinks| sinks.slice(heads)) }
    }
}

impl<'a> ScoreGradients<'a> {
    /// Returns the gradients of some heads of `operands`.
    pub fn of_heads(self, operands: &ScoreOperands<'_>, heads: Range<usize>) -> ScoreGradients<'a> {
        let distances = operands.bias.map_or(0, |bias| bias.distances);
        let of_bias = heads.start * distances..heads.end * distances;
        ScoreGradients {
            bias: self.bias.map(|bias| bias.into_slice(of_bias)),
            sinks: self.sinks.map(|sinks| sinks.into_slice(heads)),
        }
    }
}

/// The sources of the optional operands of scores.
pub(super) struct ScoreSources {
    bias: Option<BiasSource>,
    has_sinks: bool,
}

enum BiasSource {
    /// f32 `[heads, distances]`.
    Constant(Arc<Buffer>, Distances),
    /// The first parameter.
    Table(Arc<BucketOfDistance>),
}

/// The parameters of an attention: the table of its bias, if that is learned, then its sinks, if it has any.
pub(super) enum ScoreParams<'a> {
    None([OperationParam<'a>; 0]),
    One([OperationParam<'a>; 1]),
    Two([OperationParam<'a>; 2]),
}

/// Buffers of [`ScoreOperands`].
pub(super) struct ScoreValues {
    bias: Option<(Arc<Buffer>, Distances)>,
    sinks: Option<Buffer>,
}

/// Buffers of [`ScoreGradients`].
pub(super) struct ScoreGradientBuffers {
    bias: Option<Buffer>,
    sinks: Option<Buffer>,
}

impl ScoreSources {
    /// Separates the parameters among a bias and sinks from the rest.
    pub fn new<'a>(
        bias: Option<ScoreBias<'a>>,
        sinks: Option<OperationParam<'a>>,
    ) -> (ScoreSources, ScoreParams<'a>) {
        let (bias, table) = match bias {
            None => (None, None),
            Some(ScoreBias::Constant(values, distances)) => {
                (Some(BiasSource::Constant(values, distances)), None)
            }
            Some(ScoreBias::Learned(table, buckets)) => {
                (Some(BiasSource::Table(buckets)), Some(table))
            }
        };
        let sources = ScoreSources { bias, has_sinks: sinks.is_some() };
        let params = match (table, sinks) {
            (None, None) => ScoreParams::None([]),
            (Some(param), None) | (None, Some(param)) => ScoreParams::One([param]),
            (Some(table), Some(sinks)) => ScoreParams::Two([table, sinks]),
        };
        (sources, params)
    }

    /// Computes the operands from the values of the parameters.
    pub fn values(&self, rank: &Rank, params: &[View<'_>]) -> ScoreValues {
        let bias = self.bias.as_ref().map(|bias| match bias {
            BiasSource::Constant(values, distances) => (Arc::clone(values), *distances),
            BiasSource::Table(buckets) => {
                let values = buckets.expand(rank, &widened(rank, params[0]));
                (Arc::new(values), buckets.distances)
            }
        });
        let sinks = params.last().filter(|_| self.has_sinks).map(|sinks| widened(rank, *sinks));
        ScoreValues { bias, sinks }
    }

    /// Computes the operands again in backward.
    pub fn values_in_backward(&self, rank: &Rank, params: &[ParamUse]) -> ScoreValues {
        let values: Vec<_> = params.iter().map(|param| param.param().values()).collect();
        let views: Vec<_> = values.iter().map(|values| values.view()).collect();
        self.values(rank, &views)
    }

    /// Allocates zeros for the gradients of the operands that are parameters.
    pub fn gradients_of(&self, rank: &Rank, values: &ScoreValues) -> ScoreGradientBuffers {
        let is_learned = matches!(self.bias, Some(BiasSource::Table(_)));
        let bias = values.bias.as_ref().filter(|_| is_learned);
        ScoreGradientBuffers {
            bias: bias.map(|(values, _)| rank.alloc_zeros(values.len())),
            sinks: values.sinks.as_ref().map(|sinks| rank.alloc_zeros(sinks.len())),
        }
    }

    /// Contributes the gradients of the operands to the gradients of the parameters.
    pub fn finish_gradients(
        &self,
        of_values: ScoreGradientBuffers,
        params: &[ParamUse],
        gradients: &TapeGradients<'_>,
    ) {
        let ScoreGradientBuffers { bias, sinks } = of_values;
        if let (Some(BiasSource::Table(buckets)), Some(dbias)) = (&self.bias, bias) {
            params[0].finish_use(gradients, |dtable, accumulate| {
                buckets.add_table_gradient(gradients.rank, &dbias, dtable, accumulate);
            });
        }
        if let (Some(param), Some(dsinks)) = (params.last(), sinks) {
            param.finish_with(gradients, &dsinks);
        }
    }
}

impl ScoreValues {
    /// Returns the operands as kernels take them.
    pub fn operands(&self) -> ScoreOperands<'_> {
        let bias = self.bias.as_ref().map(|(values, distances)| distance_bias(values, *distances));
        ScoreOperands { bias, sinks: self.sinks.as_ref().map(Buffer::view) }
    }
}

impl ScoreGradientBuffers {
    /// Returns the gradients as kernels take them.
    pub fn views(&mut self) -> ScoreGradients<'_> {
        let [bias, sinks] =
            [&mut self.bias, &mut self.sinks].map(|x| x.as_mut().map(Buffer::view_mut));
        ScoreGradients { bias, sinks }
    }
}
