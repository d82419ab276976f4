//! The forward pass that predicts the next token of a continuation. The run samples by it, and the memory plan runs it
//! dry.

use crate::comm::Site;
use crate::layout::{AxisId, AxisSet};
use crate::nn::Sizes;
use crate::pipeline::Pipeline;
use crate::random;
use crate::tensor::{Rank, Tensor, Tokens};
use meshwright_core::__internal::with_unpadded_length;

use super::config::Config;
use super::{LanguageModel, Result};

/// Maximum length of the prompt.
pub const PROMPT: usize = 32;

/// Sampling temperature: low, so that the continuation of a model that has hardly been trained shows what it has
/// learned.
const TEMPERATURE: f64 = 0.5;

/// A model of a run, whose predictions may continue tokens.
pub struct ContinuedModel<'a, M> {
    pub rank: &'a Rank,
    pub model: &'a M,
    pub pipeline: Option<&'a Pipeline>,
    pub config: &'a Config,
    pub sizes: &'a Sizes,
}

/// The continuation of tokens by the predictions of a model.
pub struct Continuation<'a> {
    width: usize,
    draw: Box<DrawToken<'a>>,
}

/// Draws the token after some tokens, by its number in the continuation.
type DrawToken<'a> = dyn Fn(&[u32], u64) -> Result<u32> + 'a;

impl<'a> Continuation<'a> {
    /// Prepares the continuation of a run.
    pub fn new<M: LanguageModel>(continued: ContinuedModel<'a, M>) -> Continuation<'a> {
        let predictor = Predictor::new(&continued);
        let draw = move |tokens: &[u32], index| predictor.draw_next(tokens, index);
        Continuation { width: predictor.width, draw: Box::new(draw) }
    }

    /// Number of tokens that a prediction reads at most.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Draws the token after `tokens`, the `index`-th one of the continuation. Every rank calls it, and all get the
    /// same token.
    pub fn draw_next(&self, tokens: &[u32], index: u64) -> Result<u32> {
        (self.draw)(tokens, index)
    }
}

/// A model that predicts the next token.
struct Predictor<'a, M> {
    rank: &'a Rank,
    model: &'a M,
    pipeline: Option<&'a Pipeline>,
    width: usize,
    key: u64,
}

impl<M> Clone for Predictor<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Predictor<'_, M> {}

impl<'a, M: LanguageModel> Predictor<'a, M> {
    fn new(continued: &ContinuedModel<'a, M>) -> Predictor<'a, M> {
        let ContinuedModel { rank, model, pipeline, config, sizes } = *continued;
        let (seq, end) = (config.seq, PROMPT.min(config.seq) + config.sample_tokens);
        // At most as long as prompt and continuation, so that a short continuation of a model with long sequences is
        // quick. A model with parameters over its sequence dim takes that length only.
        let fixed = sizes.get::<M::Seq>();
        let width = fixed.unwrap_or_else(|| {
            // Two chunks for each rank of cp; `seq` has as many.
            let chunks = 2 * rank.degree(AxisId::Cp);
            if chunks == 2 { seq.min(end) } else { seq.min(end).next_multiple_of(chunks) }
        });
        Predictor { rank, model, pipeline, width, key: random::key(config.seed, "sample") }
    }

    fn draw_next(&self, tokens: &[u32], index: u64) -> Result<u32> {
        let Predictor { rank, model, pipeline, width, key } = *self;
        // All data-parallel ranks compute the same row.
        let rows = rank.degree_of(AxisSet::DATA);
        let window = &tokens[tokens.len().saturating_sub(width)..];
        let last = window.len() - 1;
        // Attention is causal: positions after the last token do not affect its prediction.
        let mut block = window.to_vec();
        block.resize(width, 0);
        let input = Tokens::from_whole_rows(rank, &[rows, width], 0, &block);
        let place = input.local_extents()[1].positions().position(|position| position == last);
        let draw = |logits: Tensor<(M::Batch, M::Seq, M::Vocab)>| {
            // One rank of cp has the last position.
            let place = place?;
            if rank.backend().is_dry_run() {
                return Some(0);
            }
            let vocab = logits.local_extents()[2].local;
            let logits = logits.range_to_vec(place * vocab..(place + 1) * vocab);
            Some(draw_token(&logits, random::subkey(key, index)))
        };
        let next = with_unpadded_length(rank, window.len(), || match pipeline {
            None => Ok(rank.evaluate(|| draw(model.logits(&input)))),
            Some(pipeline) => pipeline
                .evaluate(model, &input, |output| draw(model.logits_of_output(output)))
                .map(Option::flatten),
        })?;
        // Ranks without the last pipeline stage, or the last position, have no logits.
        let mut next = [next.unwrap_or_default()];
        let cp = AxisSet::of(AxisId::Cp);
        let (holder, site) = (holder_of(last, width, rank.degree(AxisId::Cp)), Site::new("sample"));
        if rank.degree(AxisId::Cp) > 1 {
            rank.process_group(cp).broadcast(&site, holder, next.as_mut_slice().into())?;
        }
        let root = pipeline.map_or(0, |pipeline| pipeline.first_rank_of_last_stage());
        let root = rank.comms().shape().index_in_group(root, AxisSet::ALL);
        rank.comms().world().broadcast(&site, root, next.as_mut_slice().into())?;
        Ok(next[0])
    }
}

/// Returns the rank of `cp` that has a position of a sequence in zig-zag order.
fn holder_of(position: usize, seq: usize, ranks: usize) -> usize {
    let chunk = position * 2 * ranks / seq;
    chunk.min(2 * ranks - 1 - chunk)
}

/// Draws a token from `softmax(logits / TEMPERATURE)`, by inverting the cumulative distribution at a number that
/// follows from `key`.
fn draw_token(logits: &[f32], key: u64) -> u32 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f64> =
        logits.iter().map(|logit| (f64::from(logit - max) / TEMPERATURE).exp()).collect();
    let total: f64 = weights.iter().sum();
    let mut left = (key >> 11) as f64 / (1u64 << 53) as f64 * total;
    for (token, weight) in weights.iter().enumerate() {
        left -= weight;
        if left < 0.0 {
            return token as u32;
        }
    }
    (logits.len() - 1) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::Extent;

    #[test]
    fn one_rank_has_each_position() {
        for (seq, ranks) in [(8, 1), (12, 2), (24, 3), (16, 4)] {
            for position in 0..seq {
                let has = |rank: usize| {
                    Extent::zig_zag(seq, rank, ranks).positions().any(|other| other == position)
                };
                assert!(has(holder_of(position, seq, ranks)));
            }
        }
    }

    #[test]
    fn tokens_are_drawn_by_probability() {
        let logits = [0.0f32, f32::NEG_INFINITY, TEMPERATURE as f32 * 3f32.ln()];
        let mut counts = [0; 3];
        for index in 0..4000 {
            counts[draw_token(&logits, random::subkey(7, index)) as usize] += 1;
        }
        assert_eq!(counts[1], 0);
        assert!((900..1100).contains(&counts[0]), "{counts:?}");
    }
}
