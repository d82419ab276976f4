//! Random sizes, layouts, masks and score functions.

use meshwright_backend::{AttentionShape, Band, DType, SequenceLayout};

use super::case::Case;

/// Random numbers below a bound: SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 20) as usize % bound
    }

    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    fn flip(&mut self) -> bool {
        self.below(2) == 0
    }

    fn layout(&mut self, lengths: &[usize]) -> SequenceLayout {
        let most = self.one_of(lengths);
        let len = 1 + self.below(most);
        SequenceLayout { len, pitch: len + self.one_of(&[0, 0, 1, 7]) }
    }

    /// Returns sizes of any kind, where every query sees every key, with lengths up to one of `lengths`.
    fn sizes(&mut self, lengths: &[usize], dims: &[[usize; 2]]) -> AttentionShape {
        let (queries, keys) = (self.layout(lengths), self.layout(lengths));
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
            band: Band::ALL,
            dropout: None,
        }
    }

    fn band(&mut self, s: &AttentionShape) -> Band {
        let offset = match self.below(4) {
            0 => 0,
            1 => s.keys.len as isize - s.queries.len as isize,
            2 => self.below(100) as isize - 50,
            _ => self.below(1500) as isize - 750,
        };
        let mut width = || match self.below(4) {
            0 => None,
            1 => Some(0),
            2 => Some(self.below(20)),
            _ => Some(self.below(300)),
        };
        Band { offset, before: width(), after: width() }
    }

    /// Adds documents, padding behind each sample, or rows that end anywhere.
    fn with_ranges(&mut self, case: Case) -> Case {
        let AttentionShape { batch, queries, keys, .. } = case.s;
        let kind = self.below(3);
        let mut ranges = Vec::new();
        for _ in 0..batch {
            let mut range = [0, if kind == 1 { self.below(keys.len + 1) } else { 0 }];
            for query in 0..queries.len {
                match kind {
                    // Self-attention inside of documents, as far as there are keys.
                    0 if query == 0 || self.below(30) == 0 => {
                        let end = query + 1 + self.below(60);
                        range = [query.min(keys.len), end.min(keys.len).max(range[1])];
                    }
                    0 | 1 => {}
                    _ => {
                        range[0] = (range[0] + self.below(3)).min(keys.len);
                        range[1] = (range[1] + self.below(5)).min(keys.len);
                    }
                }
                ranges.push(range.map(|key| key as u32));
            }
        }
        case.with_ranges(|sample, query| ranges[sample * queries.len + query])
    }

    /// Returns a case with any of bands, soft caps, key ranges, biases and sinks.
    pub fn case(&mut self, dtype: DType, lengths: &[usize], dims: &[[usize; 2]]) -> Case {
        let mut s = self.sizes(lengths, dims);
        if self.flip() {
            s.band = self.band(&s);
        }
        if self.flip() {
            s.soft_cap = Some(self.one_of(&[0.7, 2.0, 50.0]));
        }
        let mut case = Case::new(s, dtype);
        if self.flip() {
            case = self.with_ranges(case);
        }
        if self.flip() {
            let most = self.one_of(&[1, 10, 200]);
            let distances = 1 + self.below(most);
            case = case.with_bias(distances, self.below(distances + 3));
        }
        if self.flip() {
            case = case.with_sinks();
        }
        // A sum in bf16 is rounded to the scale of what is added to.
        case.accumulate = self.flip();
        case.wide = case.accumulate;
        case
    }
}

/// Head dims of keys and of values.
pub const DIMS: [[usize; 2]; 8] =
    [[2, 2], [3, 5], [8, 8], [16, 16], [18, 18], [18, 34], [16, 4], [8, 1]];
