//! Shuffling without a table.

/// Rounds of the Feistel network; four make a good pseudo-random permutation of a power of two (Luby and Rackoff
/// 1988), two more cost nothing that is measurable and help where a half has few bits.
const ROUNDS: usize = 6;

/// A pseudo-random order of `0..len`, chosen by a key. Any element of it can be computed alone.
///
/// A Feistel network permutes the smallest square power of two that holds `len`; a value outside is sent through
/// again until it falls inside (cycle walking; Black and Rogaway 2002, "Ciphers with arbitrary finite domains").
/// That is a bijection of `0..len`, and takes less than four passes on average.
#[derive(Debug, Clone, Copy)]
pub struct Permutation {
    len: u64,
    half_bits: u32,
    keys: [u64; ROUNDS],
}

impl Permutation {
    /// The order of `0..len` for `key`.
    pub fn new(len: u64, key: u64) -> Permutation {
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        let mut state = key;
        let keys = std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix_bits(state)
        });
        Permutation { len, half_bits: bits.div_ceil(2).max(1), keys }
    }

    /// The element at `index`.
    ///
    /// # Panics
    /// When `index` is not below the length: a fault of the calling code.
    pub fn permuted(&self, index: u64) -> u64 {
        assert!(index < self.len, "index {index} of a permutation of {}", self.len);
        let mut value = self.pass(index);
        while value >= self.len {
            value = self.pass(value);
        }
        value
    }

    fn pass(&self, value: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for key in self.keys {
            (left, right) = (right, left ^ (mix_bits(right ^ key) & mask));
        }
        left << self.half_bits | right
    }
}

/// A bijection of 64 bits that spreads every bit over all others: the finalizer of SplitMix64 (Steele, Lea and Flood
/// 2014, "Fast splittable pseudorandom number generators").
pub(super) fn mix_bits(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_key_gives_a_permutation() {
        for len in 1..=200 {
            for key in [0, 1, 42, u64::MAX] {
                let permutation = Permutation::new(len, key);
                let mut seen: Vec<_> = (0..len).map(|i| permutation.permuted(i)).collect();
                seen.sort_unstable();
                assert!(seen.into_iter().eq(0..len), "len {len}, key {key}");
            }
        }
    }

    #[test]
    fn large_lengths_stay_inside() {
        for len in [1 << 32, (1 << 40) + 1, u64::MAX] {
            let permutation = Permutation::new(len, 3);
            assert!(
                [0, 1, len / 2, len - 1].iter().all(|i| permutation.permuted(*i) < len),
                "{len}"
            );
        }
    }

    #[test]
    fn positions_are_spread_evenly() {
        // Where element 0 of 16 lands, over many keys: each place has an expected count of 256.
        let mut counts = [0; 16];
        for key in 0..4096 {
            counts[Permutation::new(16, key).permuted(0) as usize] += 1;
        }
        let chi2: f64 = counts.iter().map(|n| f64::from(n - 256).powi(2) / 256.0).sum();
        // The 99.9 % quantile of chi-squared with 15 degrees of freedom.
        assert!(chi2 < 37.7, "{chi2} {counts:?}");
    }
}
