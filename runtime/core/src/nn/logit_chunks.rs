//! Chunking of tokens in the fused head, which bounds the memory of the logits.

use std::ops::Range;

use crate::tensor::Rank;

/// Logits of a chunk on a CPU, which stay in its caches.
const CPU_LOGITS: usize = 1 << 22;

/// Logits of a chunk on a device without a [limit](crate::tensor::Settings::logits_limit).
const DEVICE_LOGITS: usize = 1 << 27;

/// Minimum tokens of a chunk, whatever the vocabulary: with fewer, a GEMM is bound by reading the weight.
const FEWEST_TOKENS: usize = 64;

/// Granularity of a chunk on a device, in tokens: a multiple of the rows of a GEMM tile.
const TILE_TOKENS: usize = 256;

/// A partition of tokens into chunks; a fused head computes the logits and their gradient one chunk at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogitChunks {
    tokens: usize,
    /// Every chunk except the last is a multiple of this many tokens.
    unit: usize,
    count: usize,
}

impl LogitChunks {
    /// Chooses the chunks for a rank that holds at most `vocab` columns. All ranks that share the vocabulary use the
    /// same chunks, as they exchange statistics once per chunk.
    pub fn for_tokens(rank: &Rank, tokens: usize, vocab: usize) -> LogitChunks {
        match rank.allocator().device() {
            Some(_) => LogitChunks::on_device(tokens, vocab, rank.logits_limit()),
            None => LogitChunks::on_cpu(tokens, vocab),
        }
    }

    /// Chooses chunks of as many tokens as [`CPU_LOGITS`] allows; the last chunk holds the remainder.
    pub fn on_cpu(tokens: usize, vocab: usize) -> LogitChunks {
        let unit = most_tokens(CPU_LOGITS, vocab);
        LogitChunks { tokens, unit, count: tokens.div_ceil(unit) }
    }

    /// Chooses as few chunks as `limit` logits allow. Their lengths differ by less than [`TILE_TOKENS`], so that no
    /// chunk is too short for a fast GEMM.
    pub fn on_device(tokens: usize, vocab: usize, limit: Option<usize>) -> LogitChunks {
        let most = most_tokens(limit.unwrap_or(DEVICE_LOGITS), vocab);
        let unit = if most < TILE_TOKENS { 1 } else { TILE_TOKENS };
        LogitChunks { tokens, unit, count: tokens.div_ceil(most - most % unit) }
    }

    /// The number of chunks; zero without tokens.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Number of tokens of the longest chunk.
    pub fn longest(&self) -> usize {
        self.ranges().map(|range| range.len()).max().unwrap_or(0)
    }

    /// The range of tokens of each chunk.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let LogitChunks { tokens, unit, count } = *self;
        let units = tokens.div_ceil(unit);
        let start = move |index: usize| (index * units / count * unit).min(tokens);
        (0..count).map(move |index| start(index)..start(index + 1))
    }
}

/// Returns how many tokens fit into `limit` logits, but at least [`FEWEST_TOKENS`].
fn most_tokens(limit: usize, vocab: usize) -> usize {
    (limit / vocab.max(1)).max(FEWEST_TOKENS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(chunks: LogitChunks) -> Vec<usize> {
        let ends = chunks.ranges().map(|range| range.end);
        let starts = chunks.ranges().map(|range| range.start);
        assert_eq!(
            starts.chain([chunks.tokens]).collect::<Vec<_>>(),
            [0].into_iter().chain(ends).collect::<Vec<_>>()
        );
        chunks.ranges().map(|range| range.len()).collect()
    }

    fn on_device(tokens: usize, vocab: usize, limit: usize) -> Vec<usize> {
        lengths(LogitChunks::on_device(tokens, vocab, Some(limit)))
    }

    #[test]
    fn device_chunks_are_equal() {
        // GPT-2 and a Llama of 1.2B parameters on a large device: all tokens in one chunk.
        assert_eq!(on_device(32 * 1024, 50_304, 1 << 32), [32 * 1024]);
        assert_eq!(on_device(4 * 4096, 32_000, 1 << 30), [4 * 4096]);
        // Filled chunks would have 2668 tokens, and the last of 13 only 752.
        let chunks = lengths(LogitChunks::on_device(32 * 1024, 50_304, None));
        assert_eq!(chunks.len(), 13);
        assert!(chunks.iter().all(|len| [2304, 2560].contains(len)), "{chunks:?}");
        assert_eq!(on_device(10_000, 1000, 6_000_000), [5120, 4880]);
        assert_eq!(on_device(10_000, 1000, 4_999_999), [3328, 3328, 3344]);
    }

    #[test]
    fn few_tokens_are_not_rounded() {
        assert_eq!(on_device(200, 61, 1), [50; 4]);
        assert_eq!(on_device(129, 61, 1), [43; 3]);
        assert_eq!(on_device(44, 61, 1 << 20), [44]);
        assert_eq!(on_device(0, 61, 1 << 20), [0; 0]);
        assert_eq!(on_device(1000, 1 << 20, 300 << 20), [256, 256, 256, 232]);
    }

    #[test]
    fn cpu_chunks_are_filled() {
        assert_eq!(lengths(LogitChunks::on_cpu(2048, 8192)), [512; 4]);
        assert_eq!(lengths(LogitChunks::on_cpu(200, 50_304)), [83, 83, 34]);
        assert_eq!(lengths(LogitChunks::on_cpu(200, 1 << 20)), [64, 64, 64, 8]);
        assert_eq!(lengths(LogitChunks::on_cpu(0, 10)), [0; 0]);
    }
}
