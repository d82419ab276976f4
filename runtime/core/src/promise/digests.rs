//! Hashes, and digests of declared values. Ranks compare digests first: a few words, however many values there are.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use xxhash_rust::xxh3::xxh3_64;

use crate::layout::AxisSet;
use meshwright_mesh::MeshShape;

/// Number of `u32` words of one digest: the axes over which its values vary, and their hash.
const WORDS: usize = 3;

/// Returns the digests of the values of a rank, given the axes over which each varies and its words: one for each set
/// of axes.
pub(super) fn digests_of<'a>(values: impl Iterator<Item = (AxisSet, &'a [u32])>) -> Vec<u32> {
    let mut by_axes: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
    for (varies, words) in values {
        by_axes.entry(varies.number()).or_default().extend(words);
    }
    let digest = |(axes, words): (usize, Vec<u32>)| {
        let hash = xxh3_64(bytemuck::cast_slice(&words));
        [axes as u32, (hash >> 32) as u32, hash as u32]
    };
    by_axes.into_iter().flat_map(digest).collect()
}

/// Returns true if all ranks that agree in their position along the axes of a digest have the same one, given the
/// digests of each rank: then they have made the same values, in the same order.
pub(super) fn are_alike(shape: &MeshShape, by_rank: &[Vec<u32>]) -> bool {
    // The hash and the number of ranks by axes and position.
    let mut found: HashMap<(usize, usize), ([u32; 2], usize)> = HashMap::new();
    for (rank, digests) in by_rank.iter().enumerate() {
        for digest in digests.chunks_exact(WORDS) {
            let (axes, hash) = (digest[0] as usize, [digest[1], digest[2]]);
            let position = shape.index_in_group(rank, AxisSet::from_number(axes));
            let (first, count) = found.entry((axes, position)).or_insert((hash, 0));
            if *first != hash {
                return false;
            }
            *count += 1;
        }
    }
    let is_complete = |((axes, _), (_, count)): (&(usize, usize), &([u32; 2], usize))| {
        count * shape.degree_of(AxisSet::from_number(*axes)) == shape.world_size()
    };
    found.iter().all(is_complete)
}

/// Returns a hash that is the same on all ranks.
pub(super) fn hash_of(words: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    words.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use super::*;
    use crate::context::Rank;
    use crate::layout::AxisId;
    use meshwright_comm::{CommError, launch};
    use meshwright_cpu::CpuBackend;

    /// The mesh of a 405B: each rank has 2,000 values that are the same everywhere, as many of its part of the batch,
    /// and the values of its pipeline stage.
    #[test]
    fn sixteen_thousand_ranks_are_compared_by_a_few_words() {
        let shape: MeshShape = "pp=16,fsdp=128,tp=8".parse().unwrap();
        let digests = |rank: usize, last: u32| {
            let axes = [AxisSet::NONE, AxisSet::of(AxisId::Fsdp), AxisSet::of(AxisId::Pp)];
            let position = |axes| shape.index_in_group(rank, axes) as u32;
            let value = |index: u32| axes.map(|axes| (axes, [index, position(axes)]));
            let mut values: Vec<(AxisSet, [u32; 2])> = (0..2000).flat_map(value).collect();
            values.last_mut().unwrap().1[0] = last;
            digests_of(values.iter().map(|(axes, words)| (*axes, &words[..])))
        };
        // Ranks differ in their positions along two axes only.
        let of_rank: HashMap<[usize; 2], Vec<u32>> = (0..shape.world_size())
            .map(|rank| positions(&shape, rank))
            .collect::<std::collections::HashSet<_>>()
            .into_iter()
            .map(|[fsdp, pp]| ([fsdp, pp], digests(rank_at(&shape, [fsdp, pp]), 7)))
            .collect();
        let mut by_rank: Vec<Vec<u32>> =
            (0..shape.world_size()).map(|rank| of_rank[&positions(&shape, rank)].clone()).collect();
        assert_eq!(by_rank[0].len(), 3 * WORDS);
        assert!(are_alike(&shape, &by_rank));
        // One value of one rank differs, or is missing with all others of its kind.
        by_rank[9000] = digests(9000, 8);
        assert!(!are_alike(&shape, &by_rank));
        by_rank[9000] = digests(9000, 7);
        assert!(are_alike(&shape, &by_rank));
        by_rank[9000].truncate(2 * WORDS);
        assert!(!are_alike(&shape, &by_rank));
    }

    /// Values that are the same, and those that are different parts by their type, are not sent.
    #[test]
    fn ranks_send_a_few_words() {
        let sent = |odd_rank: usize| {
            let shape: MeshShape = "dp=2,tp=2".parse().unwrap();
            let bytes = launch(&shape, |comms| -> Result<u64, CommError> {
                let rank = Rank::new(comms, Box::new(CpuBackend::new(1).unwrap()), 0);
                let tp = AxisSet::of(AxisId::Tp);
                for number in 0..1000u32 {
                    let name = || "a number".to_owned();
                    let values = rank.declared_values();
                    values.note_number(name, AxisSet::NONE, Location::caller(), number as f32);
                    let part = [number, rank.position(tp) as u32];
                    values.note_elements(name, tp, Location::caller(), &part);
                }
                if rank.index() == odd_rank {
                    let name = || "of one rank".to_owned();
                    let line = Location::caller();
                    rank.declared_values().note_number(name, AxisSet::NONE, line, 1.0);
                }
                rank.compare_declared_values();
                Ok(rank.comms().uncounted_world().stats().bytes)
            });
            bytes.unwrap().into_iter().max().unwrap()
        };
        // Four digests: of what is the same everywhere and along `tp`.
        assert!(sent(usize::MAX) < 1000, "{}", sent(usize::MAX));
        // Not the same list on every rank, so all values are compared.
        assert!(sent(2) > 50_000, "{}", sent(2));
    }

    fn positions(shape: &MeshShape, rank: usize) -> [usize; 2] {
        [AxisId::Fsdp, AxisId::Pp].map(|axis| shape.index_in_group(rank, AxisSet::of(axis)))
    }

    fn rank_at(shape: &MeshShape, [fsdp, pp]: [usize; 2]) -> usize {
        let coordinates = shape.coordinates(0).with(AxisId::Fsdp, fsdp).with(AxisId::Pp, pp);
        shape.rank_of(&coordinates)
    }
}
