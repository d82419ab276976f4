//! How many logits a GPU's head may hold at the same time.
//!
//! More of them are fewer, larger GEMMs. The order in which the weight's gradient is summed depends on the number, so it
//! is derived from what is equal on all ranks and in every run with the same settings on the same machine: the device's
//! memory or `--memory-limit`, and the plan. Free memory is neither, as other processes take of it.

use crate::train::config::{Config, Device};

/// Part of the memory that logits may take where it is left over.
const MEMORY_SHARE: f64 = 16.0;
/// Tokens whose GEMMs keep every multiprocessor of a large GPU busy: their logits may take more than that part.
const BUSY_TOKENS: f64 = 8192.0;
/// Part of what is left over that logits may take at most: the plan counts what a run needs at the least, and the rest may
/// be needed after all.
const LEFT_SHARE: f64 = 4.0;

/// What the logits of one rank take.
#[derive(Debug, Clone, Copy)]
pub struct LogitBytes {
    /// Columns of the vocabulary on the rank that has most.
    pub vocab: f64,
    /// Bytes of a logit.
    pub element: f64,
}

/// The limit for a rank that may take `memory` bytes, of which it needs `rest` for everything but logits. `None` on a
/// CPU, whose chunks follow from its caches, and where the memory is not known.
pub fn logits_limit(
    config: &Config,
    logits: LogitBytes,
    memory: Option<f64>,
    rest: f64,
) -> Option<usize> {
    if config.device == Device::Cpu {
        return None;
    }
    let of_token = logits.vocab * logits.element;
    let memory = memory?;
    let wanted = (memory / MEMORY_SHARE).max(BUSY_TOKENS * of_token);
    let bytes = wanted.min((memory - rest).max(0.0) / LEFT_SHARE);
    Some((bytes / logits.element) as usize)
}

/// The bytes that one rank may take: its part of the `available` ones of the machine, but no more than the limit.
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
        let cuda = config("--mesh 1 --device cuda");
        let limit = logits_limit(&cuda, GPT2, Some(memory), rest);
        assert_eq!(limit, Some((bytes / 2.0) as usize));
    }

    #[test]
    fn logits_take_a_part_of_what_is_left() {
        // A part of a large device, and 8192 tokens of a smaller one.
        assert_limit(141.0 * GB, 30.0 * GB, 141.0 * GB / 16.0);
        assert_limit(12.0 * GB, 3.0 * GB, 8192.0 * 50_304.0 * 2.0);
        // A quarter of what is left, where that is less; nothing where the rest does not fit.
        assert_limit(12.0 * GB, 11.0 * GB, GB / 4.0);
        assert_limit(12.0 * GB, 13.0 * GB, 0.0);
    }

    #[test]
    fn ranks_share_memory_and_have_limits() {
        let of = |line: &str| memory_of_rank(&config(line), Some(32.0 * GB));
        assert_eq!(of("--mesh dp=2"), Some(16.0 * GB));
        assert_eq!(of("--mesh dp=2 --memory-limit 3GB"), Some(3.0 * GB));
        assert_eq!(of("--mesh dp=2 --memory-limit 30GB"), Some(16.0 * GB));
        assert_eq!(memory_of_rank(&config("--mesh 1"), None), None);
    }

    #[test]
    fn cpus_have_no_limit() {
        assert_eq!(logits_limit(&config("--mesh 1"), GPT2, Some(GB), 0.0), None);
    }
}
