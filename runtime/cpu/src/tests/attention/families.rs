//! Random sizes, layouts, masks and score functions.

use super::super::{assert_same_on_any_threads, on_every_backend};
use super::case::Case;
use super::{TOLERANCE, assert_results};
use meshwright_backend::{AttentionShape, Band, SequenceLayout};

/// Random numbers below a bound.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % bound
    }

    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    fn flip(&mut self) -> bool {
        self.below(2) == 0
    }
}

/// Sizes of any kind, where every query sees every key.
pub fn sizes(random: &mut Random) -> AttentionShape {
    let len = |random: &mut Random| {
        let most = random.one_of(&[2, 40, 40, 150, 150, 700]);
        1 + random.below(most)
    };
    let layout = |random: &mut Random| {
        let len = len(random);
        SequenceLayout { len, pitch: len + random.one_of(&[0, 0, 1, 7]) }
    };
    let (queries, keys) = (layout(random), layout(random));
    let (heads, group) = (1 + random.below(4), 1 + random.below(4));
    let first_head = random.below(group);
    let head_dim = random.one_of(&[2, 3, 8, 16, 18]);
    let value_dim = random.one_of(&[head_dim, head_dim, 1, 4, 16, 34]);
    AttentionShape {
        batch: 1 + random.below(2),
        queries,
        keys,
        heads,
        // Perhaps one more than these heads read.
        kv_heads: (first_head + heads - 1) / group + 1 + random.below(2),
        group,
        first_head,
        head_dim,
        value_dim,
        scale: 1.3 / (head_dim as f32).sqrt(),
        soft_cap: None,
        band: Band::ALL,
    }
}

fn band(random: &mut Random, s: &AttentionShape) -> Band {
    let end = s.keys.len as isize - s.queries.len as isize;
    let offset = match random.below(4) {
        0 => 0,
        1 => end,
        2 => random.below(100) as isize - 50,
        _ => random.below(1500) as isize - 750,
    };
    let width = |random: &mut Random| match random.below(4) {
        0 => None,
        1 => Some(0),
        2 => Some(random.below(20)),
        _ => Some(random.below(300)),
    };
    Band { offset, before: width(random), after: width(random) }
}

/// Documents, padding behind each sample, or rows that end anywhere.
fn with_ranges(random: &mut Random, case: Case) -> Case {
    let AttentionShape { batch, queries, keys, .. } = case.s;
    let kind = random.below(3);
    let mut ranges = Vec::new();
    for _ in 0..batch {
        let mut range = [0, if kind == 1 { random.below(keys.len + 1) } else { 0 }];
        for query in 0..queries.len {
            match kind {
                // Self-attention inside of documents, as far as there are keys.
                0 if query == 0 || random.below(30) == 0 => {
                    let end = query + 1 + random.below(60);
                    range = [query.min(keys.len), end.min(keys.len).max(range[1])];
                }
                0 | 1 => {}
                _ => {
                    range[0] = (range[0] + random.below(3)).min(keys.len);
                    range[1] = (range[1] + random.below(5)).min(keys.len);
                }
            }
            ranges.push(range.map(|key| key as u32));
        }
    }
    case.with_ranges(|sample, query| ranges[sample * queries.len + query])
}

fn with_bias(random: &mut Random, case: Case) -> Case {
    let most = random.one_of(&[1, 10, 200]);
    let distances = 1 + random.below(most);
    let zero = random.below(distances + 3);
    case.with_bias(distances, zero)
}

fn soft_cap(random: &mut Random) -> Option<f32> {
    Some(random.one_of(&[0.7, 2.0, 50.0]))
}

/// Runs some random cases.
fn check(family: &str, seeds: u64, make: impl Fn(&mut Random) -> Case) {
    for seed in 0..seeds {
        let case = make(&mut Random::new(seed));
        let expected = case.reference();
        on_every_backend(|cpu| {
            let what = format!("{family} {seed}, {:?}", case.s);
            assert_results(&what, &case.run(cpu), &expected, TOLERANCE);
        });
    }
}

#[test]
fn lengths_layouts_and_heads() {
    check("sizes", 60, |random| Case::new(sizes(random)));
}

#[test]
fn bands() {
    check("band", 60, |random| {
        let s = sizes(random);
        Case::new(AttentionShape { band: band(random, &s), ..s })
    });
}

#[test]
fn key_ranges() {
    check("ranges", 40, |random| {
        let case = Case::new(sizes(random));
        with_ranges(random, case)
    });
}

#[test]
fn soft_caps() {
    check("cap", 20, |random| {
        Case::new(AttentionShape { soft_cap: soft_cap(random), ..sizes(random) })
    });
}

#[test]
fn distance_biases() {
    check("bias", 30, |random| {
        let s = sizes(random);
        let case = Case::new(AttentionShape { band: band(random, &s), ..s });
        with_bias(random, case)
    });
}

#[test]
fn sinks() {
    check("sinks", 20, |random| {
        let s = sizes(random);
        Case::new(AttentionShape { band: band(random, &s), ..s }).with_sinks()
    });
}

/// Any of all the above.
pub fn anything(random: &mut Random) -> Case {
    let mut s = sizes(random);
    if random.flip() {
        s.band = band(random, &s);
    }
    if random.flip() {
        s.soft_cap = soft_cap(random);
    }
    let mut case = Case::new(s);
    if random.flip() {
        case = with_ranges(random, case);
    }
    if random.flip() {
        case = with_bias(random, case);
    }
    if random.flip() {
        case = case.with_sinks();
    }
    case.accumulate = random.flip();
    case
}

#[test]
fn everything_together() {
    check("anything", 150, anything);
}

#[test]
fn any_case_is_the_same_on_any_number_of_threads() {
    for seed in 0..25 {
        let case = anything(&mut Random::new(1000 + seed));
        assert_same_on_any_threads("attention", |cpu| case.run(cpu).concat());
    }
}
