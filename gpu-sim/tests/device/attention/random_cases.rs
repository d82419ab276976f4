//! Random sizes, layouts, masks and score functions, against the formula.

use meshwright::backend::{AttentionShape, Band, DType, SequenceLayout};

use super::assert_follows_the_formula;
use super::case::Case;
use crate::support::device;

/// Random numbers below a bound: SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 20) as usize % bound
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    fn layout(&mut self, most: usize) -> SequenceLayout {
        let len = 1 + self.below(most);
        SequenceLayout { len, pitch: len + self.one_of(&[0, 0, 1, 7]) }
    }

    /// Sizes with this band, which `dims` are head dims of.
    fn shape(&mut self, most: usize, dims: &[[usize; 2]]) -> AttentionShape {
        let (queries, keys) = (self.layout(most), self.layout(most));
        let (heads, group) = (1 + self.below(4), 1 + self.below(4));
        let first_head = self.below(group);
        let [head_dim, value_dim] = self.one_of(dims);
        AttentionShape {
            batch: 1 + self.below(2),
            queries,
            keys,
            heads,
            // Perhaps one more than these heads read.
            kv_heads: (first_head + heads - 1) / group + 1 + self.below(2),
            group,
            first_head,
            head_dim,
            value_dim,
            scale: 1.3 / (head_dim as f32).sqrt(),
            soft_cap: None,
            band: self.band(queries.len, keys.len),
        }
    }

    fn band(&mut self, queries: usize, keys: usize) -> Band {
        let offset = match self.below(3) {
            0 => 0,
            1 => keys as isize - queries as isize,
            _ => self.below(60) as isize - 30,
        };
        let mut width = || match self.below(4) {
            0 => None,
            1 => Some(0),
            2 => Some(self.below(20)),
            _ => Some(self.below(100)),
        };
        Band { offset, before: width(), after: width() }
    }

    /// Lengths of documents up to the last query, or to an earlier one.
    fn documents(&mut self, queries: usize) -> Vec<usize> {
        let mut lengths = Vec::new();
        let mut rest = queries - self.below(queries.min(4));
        while rest > 0 {
            let len = (1 + self.below(40)).min(rest);
            lengths.push(len);
            rest -= len;
        }
        lengths
    }
}

/// A case with each combination of documents and a changed score in turn.
fn case(seed: usize, dtype: DType, most: usize, dims: &[[usize; 2]]) -> Case {
    let random = &mut Random(seed as u64);
    let mut s = random.shape(most, dims);
    let (has_documents, changes_scores) = (seed % 2 == 1, seed / 2 % 2 == 1);
    if changes_scores {
        s.soft_cap = Some(random.one_of(&[0.7, 2.0, 50.0]));
    }
    let mut case = Case::new(s, dtype);
    if has_documents {
        case = case.with_documents(&random.documents(s.queries.len));
    }
    if changes_scores {
        let distances = 2 + random.below(100);
        case = case.with_bias(distances, random.below(distances)).with_sinks();
    }
    // As parts of a ring have.
    let accumulate = seed / 4 % 2 == 1;
    Case { wide: accumulate, accumulate, ..case }
}

#[test]
fn other_kernels_follow_the_formula() {
    let dims = [[2, 2], [3, 5], [8, 8], [16, 16], [18, 34], [16, 4]];
    for seed in 0..48 {
        let case = case(seed, DType::F32, 70, &dims);
        assert_follows_the_formula(&case, &case.run(&device(seed as u64, seed % 4)));
    }
}

#[test]
fn tensor_cores_follow_the_formula() {
    for seed in 0..24 {
        let case = case(seed, DType::Bf16, 150, &[[64, 64]]);
        assert_follows_the_formula(&case, &case.run(&device(seed as u64, seed % 2 * 8)));
    }
}
