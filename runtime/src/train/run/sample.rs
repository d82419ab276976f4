//! Sampling of a continuation from the trained model.

use crate::pipeline::Pipeline;
use crate::tensor::Rank;

use crate::train::continuation::{ContinuedModel, PROMPT};
use crate::train::plan::Plan;
use crate::train::{Result, Task};

/// Continues the first tokens of the data. Returns the prompt followed by `--sample-tokens` tokens, and the length of
/// the prompt; nothing, if the task predicts no tokens. Every rank calls it, and all get the same result.
pub fn sample_continuation<T: Task>(
    rank: &Rank,
    model: &T::Model,
    pipeline: Option<&Pipeline>,
    plan: &Plan,
) -> Result<(Vec<u32>, usize)> {
    let config = &plan.config;
    let continued = ContinuedModel { rank, model, pipeline, config, sizes: &plan.sizes };
    let Some(continuation) = T::continuation(continued) else { return Ok((Vec::new(), 0)) };
    let mut tokens = plan.dataset.first_tokens(PROMPT.min(config.seq))?;
    let prompt_len = tokens.len();
    for index in 0..config.sample_tokens {
        tokens.push(continuation.draw_next(&tokens, index as u64)?);
    }
    Ok((tokens, prompt_len))
}
