//! The random generator Philox 4x32-10 (Salmon, Moraes, Dror and Shaw 2011, "Parallel Random Numbers: As Easy as 1, 2,
//! 3").
//!
//! A draw is a function of a key and a counter, so any element can be drawn alone. `philox.cuh` has the same function
//! for GPUs.

const ROUNDS: u32 = 10;
const MULTIPLIERS: [u64; 2] = [0xd251_1f53, 0xcd9e_8d57];
/// Increments of the key from round to round.
const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];

/// Computes 128 random bits for each of `LANES` counters.
///
/// The first word of a key or counter has its least significant bits. `counters[word][lane]` is a word of one counter,
/// and `draws[word][lane]` of its draw. Lanes are independent, so that the compiler vectorizes over them.
#[inline(always)]
pub fn philox4x32<const LANES: usize>(
    key: [u32; 2],
    counters: [[u32; LANES]; 4],
) -> [[u32; LANES]; 4] {
    const LOW: u64 = 0xffff_ffff;
    // Lanes of 64 bits whose lower halves are the words: a widening product of vectors reads only these.
    let mut words = [[0u64; LANES]; 4];
    for (word, counter) in words.iter_mut().zip(&counters) {
        for (x, counter) in word.iter_mut().zip(counter) {
            *x = u64::from(*counter);
        }
    }
    let [x_0, x_1, x_2, x_3] = &mut words;
    for round in 0..ROUNDS {
        let key_0 = u64::from(key[0].wrapping_add(WEYL[0].wrapping_mul(round)));
        let key_1 = u64::from(key[1].wrapping_add(WEYL[1].wrapping_mul(round)));
        for lane in 0..LANES {
            let product_0 = MULTIPLIERS[0] * (x_0[lane] & LOW);
            let product_1 = MULTIPLIERS[1] * (x_2[lane] & LOW);
            x_0[lane] = (product_1 >> 32) ^ x_1[lane] ^ key_0;
            x_1[lane] = product_1;
            x_2[lane] = (product_0 >> 32) ^ x_3[lane] ^ key_1;
            x_3[lane] = product_0;
        }
    }
    let mut draws = [[0u32; LANES]; 4];
    for (draw, word) in draws.iter_mut().zip(&words) {
        for (draw, x) in draw.iter_mut().zip(word) {
            *draw = *x as u32;
        }
    }
    draws
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known-answer tests of Random123 (`kat_vectors`, `philox4x32 10`): counter, key and draw.
    const KNOWN_ANSWERS: [([u32; 4], [u32; 2], [u32; 4]); 3] = [
        ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
        ([!0; 4], [!0; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
        (
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        ),
    ];

    #[test]
    fn philox_has_the_published_answers() {
        for (counter, key, expected) in KNOWN_ANSWERS {
            assert_eq!(philox4x32(key, counter.map(|word| [word])), expected.map(|word| [word]));
            // Other lanes have no influence.
            let lanes = philox4x32(key, counter.map(|word| [7, word, !word]));
            assert_eq!(lanes.map(|word| word[1]), expected);
        }
    }
}
