//! Sampling of a continuation from the trained model.

use crate::pipeline::Pipeline;
use crate::tensor::Rank;

use crate::train::continuation::{Continuation, PROMPT};
use crate::train::plan::Plan;
use crate::train::{LanguageModel, Result};

/// Continues the first tokens of the data. Returns the prompt followed by `--sample-tokens` tokens, and the length of
/// the prompt. Every rank calls it, and all get the same result.
pub fn sample_continuation<M: LanguageModel>(
    rank: &Rank,
    model: &M,
    pipeline: Option<&Pipeline>,
    plan: &Plan,
) -> Result<(Vec<u32>, usize)> {
    let config = &plan.config;
    let mut tokens = plan.dataset.first_tokens(PROMPT.min(config.seq))?;
    let prompt_len = tokens.len();
    let continuation = Continuation::new(rank, (model, pipeline), config, &plan.sizes);
    for index in 0..config.sample_tokens {
        tokens.push(continuation.draw_next(&tokens, index as u64)?);
    }
    Ok((tokens, prompt_len))
}
