//! The limit of logits that the head materializes on a GPU.
//!
//! More logits mean fewer, larger GEMMs. The summation order of the weight's gradient depends on the limit, so it
//! follows from values that are equal on all ranks and in every run with the same settings on the same machine: the
//! device's total memory or `--memory-limit`, and the plan. Free memory is not such a value, as other processes use it.

use crate::layout::AxisId;
use crate::train::Outline;
use crate::train::config::Config;

/// Divisor of the memory that logits may take if it is left over.
const MEMORY_DIVISOR: f64 = 16.0;
/// Tokens whose GEMMs occupy all multiprocessors of a large GPU. Their logits may exceed that fraction.
const BUSY_TOKENS: f64 = 8192.0;
/// Divisor of the unplanned memory that logits may take at most: the plan is a lower bound, so the rest may be needed.
const UNPLANNED_DIVISOR: f64 = 4.0;

/// Size of the logits of one rank.
#[derive(Debug, Clone, Copy)]
pub struct LogitBytes {
    /// Largest vocabulary shard of any rank.
    pub vocab: f64,
    /// Bytes of a logit.
    pub element: f64,
}

impl LogitBytes {
    /// Returns the size of the logits of a run.
    pub fn of_model(config: &Config, outline: &Outline) -> LogitBytes {
        LogitBytes {
            vocab: outline.vocab.div_ceil(config.mesh.degree(AxisId::Tp)) as f64,
            element: config.dtype.dtype().bytes() as f64,
        }
    }
}

/// Returns the limit for a rank that may use `memory` bytes, and needs `rest` of them for everything but logits.
pub fn logits_limit(logits: LogitBytes, memory: f64, rest: f64) -> usize {
    let token_bytes = logits.vocab * logits.element;
    let wanted = (memory / MEMORY_DIVISOR).max(BUSY_TOKENS * token_bytes);
    let bytes = wanted.min((memory - rest).max(0.0) / UNPLANNED_DIVISOR);
    (bytes / logits.element) as usize
}

/// Returns the bytes that one rank may use: its part of the `available` ones of the machine, up to `--memory-limit`.
pub fn memory_of_rank(config: &Config, available: Option<f64>) -> Option<f64> {
    let part = available.map(|bytes| bytes / config.mesh.world_size() as f64);
    let limit = config.memory_limit.map(|bytes| bytes as f64);
    [part, limit].into_iter().flatten().reduce(f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: f64 = 1e9;
    /// GPT-2's vocabulary in bf16.
    const GPT2: LogitBytes = LogitBytes { vocab: 50_304.0, element: 2.0 };

    fn config(line: &str) -> Config {
        Config::parse(format!("t {line}").split(' ')).unwrap()
    }

    #[track_caller]
    fn assert_limit(memory: f64, rest: f64, bytes: f64) {
        assert_eq!(logits_limit(GPT2, memory, rest), (bytes / 2.0) as usize);
    }

    #[test]
    fn logits_take_a_fraction_of_free_memory() {
        // A fraction of a large device, and 8192 tokens of a smaller one.
        assert_limit(141.0 * GB, 30.0 * GB, 141.0 * GB / 16.0);
        assert_limit(12.0 * GB, 3.0 * GB, 8192.0 * 50_304.0 * 2.0);
        // A quarter of the free memory if that is less; nothing if the rest does not fit.
        assert_limit(12.0 * GB, 11.0 * GB, GB / 4.0);
        assert_limit(12.0 * GB, 13.0 * GB, 0.0);
    }

    #[test]
    fn ranks_divide_memory_up_to_the_limit() {
        let of = |line: &str| memory_of_rank(&config(line), Some(32.0 * GB));
        assert_eq!(of("--mesh dp=2"), Some(16.0 * GB));
        assert_eq!(of("--mesh dp=2 --memory-limit 3GB"), Some(3.0 * GB));
        assert_eq!(of("--mesh dp=2 --memory-limit 30GB"), Some(16.0 * GB));
        assert_eq!(memory_of_rank(&config("--mesh 1"), None), None);
    }
}
