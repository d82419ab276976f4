//! Keys of counter-based random numbers: a draw depends on the seed, the path of the field and the index in the global
//! tensor, never on the rank. The generator is Philox (`runtime/cpu/src/philox.rs`).

/// Returns the key of a stream of random numbers, from the seed and the path of the field that draws.
///
/// FNV-1a over the path, then the finalizer of SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number
/// Generators", 2014).
pub fn key(seed: u64, path: &str) -> u64 {
    let hash = path.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    mix(seed ^ mix(hash))
}

/// Derives a key from `key` for one of many draws, such as a training step.
pub fn subkey(key: u64, index: u64) -> u64 {
    mix(key ^ mix(index.wrapping_add(1)))
}

fn mix(value: u64) -> u64 {
    let z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_by_seed_path_and_index() {
        let keys =
            [key(0, "a"), key(1, "a"), key(0, "b"), subkey(key(0, "a"), 0), subkey(key(0, "a"), 1)];
        for (i, a) in keys.iter().enumerate() {
            assert!(keys[i + 1..].iter().all(|b| a != b));
        }
    }
}
