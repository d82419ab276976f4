//! Values that are declared the same on several ranks, compared in the first step.
//!
//! The type of a tensor says over which axes its ranks hold different parts. Numbers that come from the host may contradict
//! it: a mask that was made from the rank's index, other rows of a file on each rank. Only a comparison can tell.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::panic::Location;

use xxhash_rust::xxh3::xxh3_64;

use crate::backend::Element;
use crate::comm::{Blocks, Site};
use crate::layout::AxisSet;

use super::Rank;
use super::rank::fail;

/// Most values that a rank remembers for the comparison.
const MOST: usize = 4096;

/// `u32` words of a value in the comparison.
const WORDS: usize = 6;

/// Values that were made on the host of a rank until ranks have compared them, which they do once.
#[derive(Default)]
pub(crate) struct DeclaredValues {
    values: RefCell<Vec<Declared>>,
    /// How many were made at a line.
    made_at: RefCell<HashMap<u64, u32>>,
    is_compared: Cell<bool>,
}

/// A value that is to be the same on all ranks that agree in their positions along `varies`.
struct Declared {
    name: String,
    line: &'static Location<'static>,
    words: [u32; WORDS],
    varies: AxisSet,
}

impl DeclaredValues {
    /// Remembers the numbers `block`, which `name` is made of at `line`.
    pub(super) fn note<T: Element>(
        &self,
        name: impl FnOnce() -> String,
        varies: AxisSet,
        line: &'static Location<'static>,
        block: &[T],
    ) {
        if self.is_compared.get() || self.values.borrow().len() == MOST {
            return;
        }
        let key = xxh3_64(line.to_string().as_bytes());
        let mut made_at = self.made_at.borrow_mut();
        let count = made_at.entry(key).or_default();
        let hash = xxh3_64(bytemuck::cast_slice(block));
        let words =
            [high(key), key as u32, *count, high(hash), hash as u32, varies.number() as u32];
        *count += 1;
        self.values.borrow_mut().push(Declared { name: name(), line, words, varies });
    }

    /// Compares the values of all ranks, the first time that it is called. Every rank calls it.
    ///
    /// # Panics
    /// When a value differs between ranks on which it was declared the same; on all ranks alike.
    #[track_caller]
    pub(crate) fn compare(&self, rank: &Rank) {
        if self.is_compared.replace(true) {
            return;
        }
        self.made_at.take();
        let own = self.values.take();
        let words = gather(rank, &own);
        let shape = rank.comms().shape();
        let by_key: Vec<HashMap<[u32; 3], &[u32]>> = words
            .iter()
            .map(|words| {
                let values = words.chunks_exact(WORDS);
                values.map(|value| ([value[0], value[1], value[2]], value)).collect()
            })
            .collect();
        for value in &own {
            let key = [value.words[0], value.words[1], value.words[2]];
            // The first rank seen at each position along the axes over which the value varies.
            let mut first: HashMap<usize, (usize, &[u32])> = HashMap::new();
            for (member, values) in by_key.iter().enumerate() {
                let Some(found) = values.get(&key) else { continue };
                let position = shape.index_in_group(member, value.varies);
                let (known, words) = *first.entry(position).or_insert((member, found));
                assert!(
                    words == *found,
                    "{} made at {} is declared {}, but ranks {known} and {member} made it of different numbers: make it \
                     from the global index, with `from_fn`, or from data that all of them read; or declare the dim that \
                     they hold different parts of, `Split<Dim, Axis>` or `@ data`",
                    value.name,
                    value.line,
                    same_on(value.varies),
                );
            }
        }
    }
}

fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

fn same_on(varies: AxisSet) -> String {
    match varies.is_empty() {
        true => "the same on all ranks".to_owned(),
        false => format!("the same on all ranks that agree in their position along {varies}"),
    }
}

/// The words of the values of all ranks, rank by rank.
fn gather(rank: &Rank, own: &[Declared]) -> Vec<Vec<u32>> {
    let world = rank.comms().world();
    let site = Site::new("check of declared values");
    let own: Vec<u32> = own.iter().flat_map(|value| value.words).collect();
    let mut lens = vec![0u32; world.size()];
    world
        .all_gather(
            &site,
            [own.len() as u32].as_slice().into(),
            lens.as_mut_slice().into(),
            &Blocks::even(1, 1, world.size()),
        )
        .unwrap_or_else(|error| fail(error));
    let lens: Vec<usize> = lens.into_iter().map(|len| len as usize).collect();
    let mut all = vec![0u32; lens.iter().sum()];
    if !all.is_empty() {
        let blocks = Blocks::new(1, lens.clone());
        world
            .all_gather(&site, own.as_slice().into(), all.as_mut_slice().into(), &blocks)
            .unwrap_or_else(|error| fail(error));
    }
    let mut rest = all.as_slice();
    let mut cut = |len| {
        let (words, after) = rest.split_at(len);
        rest = after;
        words.to_vec()
    };
    lens.into_iter().map(&mut cut).collect()
}
