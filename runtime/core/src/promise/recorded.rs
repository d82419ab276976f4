//! Values that are declared the same on several ranks, compared in the first step.
//!
//! The type of a tensor declares over which axes its ranks hold different parts. Numbers from the host may contradict
//! it: a mask made from the rank's index, different rows of a file on each rank. Only a comparison detects that.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::panic::Location;

use xxhash_rust::xxh3::xxh3_64;

use crate::context::{Rank, fail};
use crate::layout::{AxisId, AxisSet};
use meshwright_backend::Element;
use meshwright_comm::{Blocks, Communicator, Site};

use super::digests::{are_alike, digests_of};

/// Limits of the values, and of the numbers, that a rank records for the comparison.
const LIMITS: [usize; 2] = [4096, 1024];

/// Number of `u32` words that describe a value in the comparison.
const WORDS: usize = 7;

/// Values made on the host of `rank`, recorded until the ranks have compared the values of the first step.
#[derive(Clone, Copy)]
pub struct DeclaredValues<'a> {
    pub(super) rank: &'a Rank,
    pub(super) record: &'a ValueRecord,
}

/// The record of the values of a rank.
#[derive(Default)]
pub(super) struct ValueRecord {
    values: RefCell<Vec<Declared>>,
    /// Number of values made at each line.
    made_at: RefCell<HashMap<u64, u32>>,
    /// Number of recorded tensors and settings, and of recorded numbers.
    counts: Cell<[usize; 2]>,
    is_compared: Cell<bool>,
}

/// A value declared the same on all ranks with equal positions along `varies`.
struct Declared {
    name: String,
    line: &'static Location<'static>,
    kind: DeclaredKind,
    words: [u32; WORDS],
    varies: AxisSet,
}

/// Kind of a declared value, which determines how to make it the same on all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeclaredKind {
    /// Elements of a tensor, tokens or a parameter.
    Elements,
    /// A number that a tensor is multiplied by, or that is added to it.
    Number,
    /// A setting of the rank or of a model.
    Setting,
}

impl Declared {
    fn describe_place(&self) -> String {
        let made = if self.kind == DeclaredKind::Elements { "made " } else { "" };
        format!("{made}at {}", self.line)
    }
}

impl DeclaredKind {
    fn suggested_fix(self) -> &'static str {
        match self {
            DeclaredKind::Elements => {
                "make it from the global index, with `from_fn`, or from data that all ranks read; or declare the dim \
                 as distributed, `Split<Dim, Axis>` or `@ data`, if they hold different parts of it"
            }
            DeclaredKind::Number => {
                "a number that depends on the rank or on its part of a tensor is not allowed here: ranks hold the same \
                 tensor along the other axes, and `.sum(Dim)`, `.mean(Dim)` and losses are the sums over ranks"
            }
            DeclaredKind::Setting => {
                "give every rank the same seed, sizes and settings, and `set_step` with the same step"
            }
        }
    }
}

impl DeclaredValues<'_> {
    /// Records the elements `block` of `name`, made at `line`.
    pub(crate) fn note_elements<T: Element>(
        &self,
        name: impl FnOnce() -> String,
        varies: AxisSet,
        line: &'static Location<'static>,
        block: &[T],
    ) {
        let hash = || xxh3_64(bytemuck::cast_slice(block));
        self.record_value(DeclaredKind::Elements, name, varies, line, block.len(), hash);
    }

    /// Records the number `name`, made at `line`.
    pub(crate) fn note_number(
        &self,
        name: impl FnOnce() -> String,
        varies: AxisSet,
        line: &'static Location<'static>,
        number: f32,
    ) {
        self.record_value(DeclaredKind::Number, name, varies, line, 1, || {
            u64::from(number.to_bits())
        });
    }

    /// Records a setting, as text.
    #[doc(hidden)]
    pub fn note_setting(
        &self,
        name: &str,
        line: &'static Location<'static>,
        setting: impl FnOnce() -> String,
    ) {
        let hash = || xxh3_64(setting().as_bytes());
        self.record_value(DeclaredKind::Setting, || name.to_owned(), AxisSet::NONE, line, 1, hash);
    }

    fn record_value(
        &self,
        kind: DeclaredKind,
        name: impl FnOnce() -> String,
        varies: AxisSet,
        line: &'static Location<'static>,
        len: usize,
        hash: impl FnOnce() -> u64,
    ) {
        if self.is_recorded(kind) {
            self.push_value(kind, name(), varies, line, [len as u64, hash()]);
        }
    }

    fn is_recorded(&self, kind: DeclaredKind) -> bool {
        let class = usize::from(kind == DeclaredKind::Number);
        self.rank.makes_checks()
            && !self.record.is_compared.get()
            && self.record.counts.get()[class] < LIMITS[class]
    }

    /// Independent of closures, so that it is compiled once.
    fn push_value(
        &self,
        kind: DeclaredKind,
        name: String,
        varies: AxisSet,
        line: &'static Location<'static>,
        [len, hash]: [u64; 2],
    ) {
        let record = self.record;
        let mut counts = record.counts.get();
        counts[usize::from(kind == DeclaredKind::Number)] += 1;
        record.counts.set(counts);
        let stages = if self.rank.is_in_stage() { AxisSet::of(AxisId::Pp) } else { AxisSet::NONE };
        let varies = varies.union(stages);
        let key = xxh3_64(line.to_string().as_bytes());
        let mut made_at = record.made_at.borrow_mut();
        let count = made_at.entry(key).or_default();
        let alike = xxh3_64(format!("{name} {len}").as_bytes()) as u32;
        let words = [
            high_bits(key),
            key as u32,
            *count,
            high_bits(hash),
            hash as u32,
            varies.number() as u32,
            alike,
        ];
        *count += 1;
        record.values.borrow_mut().push(Declared { name, line, kind, words, varies });
    }

    /// Compares the values of all ranks that were recorded so far, and ends the recording if `is_last`. Does nothing if
    /// the recording has ended. Every rank calls it. The exchange does not count as communication of the step, and is
    /// short unless values differ.
    ///
    /// # Panics
    /// If a value differs between ranks on which it was declared the same; on all ranks alike.
    #[track_caller]
    pub(super) fn compare(&self, is_last: bool) {
        let DeclaredValues { rank, record } = *self;
        if record.is_compared.get() || !rank.makes_checks() {
            return;
        }
        let step = || rank.peek_step().to_string();
        self.note_setting("the training step", Location::caller(), step);
        record.is_compared.set(is_last);
        record.counts.take();
        record.made_at.take();
        let mut own = record.values.take();
        // Replicas that train apart may make them of numbers of their own.
        for value in &mut own {
            value.varies = value.varies.union(rank.local_axes());
        }
        let comms = rank.comms();
        let world = comms.uncounted_world();
        if world.is_dry_run() {
            // The other ranks would have made the same values.
            return;
        }
        let digests = digests_of(own.iter().map(|value| (value.varies, &value.words[..])));
        if are_alike(comms.shape(), &gather_words(&world, &digests)) {
            return;
        }
        let own_words: Vec<u32> = own.iter().flat_map(|value| value.words).collect();
        let words = gather_words(&world, &own_words);
        let shape = comms.shape();
        let by_key: Vec<HashMap<[u32; 3], &[u32]>> = words
            .iter()
            .map(|words| words.chunks_exact(WORDS).map(|value| (value_key(value), value)).collect())
            .collect();
        let is_full = words.iter().any(|words| words.len() / WORDS >= LIMITS[1]);
        let own_keys = &by_key[comms.rank()];
        for value in &own {
            // The first rank seen at each position along the axes over which the value varies.
            let mut first: HashMap<usize, (usize, &[u32])> = HashMap::new();
            let own_position = shape.index_in_group(comms.rank(), value.varies);
            for (member, values) in by_key.iter().enumerate() {
                let position = shape.index_in_group(member, value.varies);
                let Some(found) = values.get(&value_key(&value.words)) else {
                    // Made elsewhere in the program, unless only some ranks have made it at all.
                    let is_alike = |other: &&&[u32]| {
                        other[5..] == value.words[5..] && !own_keys.contains_key(&value_key(other))
                    };
                    let other = values.values().find(is_alike);
                    assert!(
                        other.is_none() || position != own_position || is_full,
                        "{} {} is declared {}, but rank {member} made it at another line: {}",
                        value.name,
                        value.describe_place(),
                        describe_agreement(value.varies),
                        value.kind.suggested_fix(),
                    );
                    continue;
                };
                // Pipeline stages make different parameters at one line; their ranks compare them.
                if position != own_position && found[5..] != value.words[5..] {
                    continue;
                }
                let (known, words) = *first.entry(position).or_insert((member, found));
                assert!(
                    is_same_value(value.kind, words, found),
                    "{} {} is declared {}, but ranks {known} and {member} made it of different numbers: {}",
                    value.name,
                    value.describe_place(),
                    describe_agreement(value.varies),
                    value.kind.suggested_fix(),
                );
            }
        }
    }
}

fn value_key(words: &[u32]) -> [u32; 3] {
    [words[0], words[1], words[2]]
}

/// Returns true if two ranks have made the same value. Numbers may differ by rounding: a rank may have read them from a
/// tensor.
fn is_same_value(kind: DeclaredKind, one: &[u32], other: &[u32]) -> bool {
    let number = |words: &[u32]| f32::from_bits(words[4]);
    match kind {
        DeclaredKind::Number if one[5..] == other[5..] => {
            let (one, other) = (number(one), number(other));
            one.to_bits() == other.to_bits()
                || (one - other).abs() <= 1e-3 * one.abs().max(other.abs())
        }
        _ => one == other,
    }
}

fn high_bits(word: u64) -> u32 {
    (word >> 32) as u32
}

pub(super) fn describe_agreement(varies: AxisSet) -> String {
    if varies.is_empty() {
        "the same on all ranks".to_owned()
    } else {
        format!("the same on all ranks that agree in their position along {varies}")
    }
}

/// Gathers the words of all ranks, by world rank.
fn gather_words(world: &Communicator, own: &[u32]) -> Vec<Vec<u32>> {
    let site = Site::new("check of declared values");
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
            .all_gather(&site, own.into(), all.as_mut_slice().into(), &blocks)
            .unwrap_or_else(|error| fail(error));
    }
    let mut rest = all.as_slice();
    let mut cut = |len: usize| {
        let (words, after) = rest.split_at(len);
        rest = after;
        words.to_vec()
    };
    let mut by_rank = vec![Vec::new(); world.size()];
    for (rank, len) in world.members().iter().zip(lens) {
        by_rank[*rank] = cut(len);
    }
    by_rank
}
