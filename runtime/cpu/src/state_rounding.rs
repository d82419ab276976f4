//! Stochastic rounding of optimizer state, as [`StateRounding`] defines it.

use std::ops::Range;

use super::float::Float;
use super::philox::philox4x32;
use meshwright_backend::StateRounding;

/// Counters that are computed together.
const LANES: usize = 16;

/// Elements whose words are computed together.
const GROUP: usize = 4 * LANES;

/// The random words of consecutive elements, some of them at a time.
pub(super) struct RandomWords {
    rounding: StateRounding,
    /// The states that take their bits from the words: `2 * pair` and `2 * pair + 1`.
    pair: u32,
    next: usize,
    words: [u32; GROUP],
    taken: Range<usize>,
}

impl RandomWords {
    #[inline(always)]
    pub fn new(rounding: StateRounding, pair: u32) -> RandomWords {
        RandomWords { rounding, pair, next: 0, words: [0; GROUP], taken: 0..0 }
    }

    /// Draws the words of the next elements, and returns the range of these; `None` after the last.
    #[inline(always)]
    pub fn advance(&mut self) -> Option<Range<usize>> {
        let start = self.next;
        if start == self.rounding.len {
            return None;
        }
        let index = self.rounding.global_index(start);
        let skipped = (index % 4) as usize;
        let len = self.rounding.contiguous_from(start).min(GROUP - skipped);
        draw_words(self.rounding.key, self.pair, index / 4, &mut self.words);
        self.taken = skipped..skipped + len;
        self.next = start + len;
        Some(start..self.next)
    }

    /// Returns the words of the elements that [`advance`](Self::advance) has returned.
    #[inline(always)]
    pub fn words(&self) -> &[u32] {
        &self.words[self.taken.clone()]
    }
}

/// Rounds new values of state number `state` of the elements `range` of an update into `out`.
#[inline(always)]
pub(super) fn store_state<S: Float>(
    rounding: &[StateRounding],
    range: Range<usize>,
    state: usize,
    values: &[f32],
    out: &mut [S],
) {
    let mut end = 0;
    for part in rounding {
        let start = end;
        end += part.len;
        let (from, to) = (range.start.max(start), range.end.min(end));
        if from >= to {
            continue;
        }
        let mut random = RandomWords::new(part.part(from - start..to - start), (state / 2) as u32);
        while let Some(elements) = random.advance() {
            let at = from - range.start + elements.start..from - range.start + elements.end;
            let (values, out) = (&values[at.clone()], &mut out[at]);
            let words = &random.words()[..out.len()];
            for i in 0..out.len() {
                out[i] = round_to(values[i], bits_of(words[i], state));
            }
        }
    }
}

/// Returns the bits of a word for state number `state`.
#[inline(always)]
pub(super) fn bits_of(word: u32, state: usize) -> u32 {
    if state.is_multiple_of(2) { word & 0xffff } else { word >> 16 }
}

/// Rounds to bf16 by 16 random bits; NaN stays NaN.
#[inline(always)]
pub(super) fn round_to<S: Float>(x: f32, random: u32) -> S {
    let cut = f32::from_bits(x.to_bits().wrapping_add(random) & 0xffff_0000);
    S::narrow_from_f32(if x.is_nan() { x } else { cut })
}

/// Draws the words of the elements of [`LANES`] counters from `counter` on, in their order.
#[inline(always)]
fn draw_words(key: u64, pair: u32, counter: u64, words: &mut [u32; GROUP]) {
    let mut counters = [[0; LANES], [0; LANES], [pair; LANES], [0; LANES]];
    let [low, high, _, _] = &mut counters;
    for (lane, (low, high)) in low.iter_mut().zip(high).enumerate() {
        let counter = counter.wrapping_add(lane as u64);
        *low = counter as u32;
        *high = (counter >> 32) as u32;
    }
    let draws = philox4x32([key as u32, (key >> 32) as u32], counters);
    for (lane, words) in words.chunks_exact_mut(4).enumerate() {
        for (word, draw) in words.iter_mut().zip(&draws) {
            *word = draw[lane];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    /// Over all random bits, a number becomes its upper neighbor as often as its distance from the lower one says, so
    /// that the average is the number itself.
    #[test]
    fn rounding_is_unbiased() {
        for bits in [0x3f80_0001, 0x3f80_8000, 0xbf80_4321, 0x0000_0001, 0x8001_ffff, 0x7f7e_f00d] {
            let x = f32::from_bits(bits);
            let rounded = (0..1 << 16).map(|random| round_to::<bf16>(x, random).to_bits());
            let lower = (bits >> 16) as u16;
            let mut upper = 0;
            for rounded in rounded {
                assert!(rounded == lower || rounded == lower + 1, "{bits:x}: {rounded:x}");
                upper += u32::from(rounded - lower);
            }
            assert_eq!(upper, bits & 0xffff, "{bits:x}");
        }
    }

    #[test]
    fn numbers_without_lower_bits_stay() {
        for bits in [0x0000u16, 0x8000, 0x3f80, 0xc2f7, 0x0001, 0x7f80, 0xff80] {
            let x = f32::from_bits(u32::from(bits) << 16);
            for random in [0, 1, 0x8000, 0xffff] {
                assert_eq!(round_to::<bf16>(x, random).to_bits(), bits);
            }
        }
        for bits in [0x7fff_ffffu32, 0xffff_ffff, 0x7f80_0001] {
            assert!(round_to::<bf16>(f32::from_bits(bits), 0xffff).is_nan(), "{bits:x}");
        }
    }

    /// The words are those of single draws, wherever elements begin.
    #[test]
    fn words_follow_from_the_global_index() {
        for (start, row, stride) in [(0, 1, 1), (3, 1, 1), (2, 5, 12), (0, 70, 71), (69, 70, 200)] {
            let rounding = StateRounding { len: 300, key: 9, first: 6, start, row, stride };
            for pair in [0, 1] {
                let mut random = RandomWords::new(rounding, pair);
                let mut count = 0;
                while let Some(range) = random.advance() {
                    assert_eq!(range.start, count);
                    count = range.end;
                    for (element, word) in range.zip(random.words()) {
                        let index = rounding.global_index(element);
                        let counter = [(index / 4) as u32, (index >> 34) as u32, pair, 0];
                        let draw = philox4x32([9, 0], counter.map(|word| [word]));
                        assert_eq!(*word, draw[(index % 4) as usize][0], "{rounding:?}");
                    }
                }
                assert_eq!(count, 300);
            }
        }
    }
}
