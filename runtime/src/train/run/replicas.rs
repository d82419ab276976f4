//! `--check-replicas`: ranks that hold the same part of a parameter compare it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use crate::comm::{CommError, Communicator, Site};
use crate::layout::AxisSet;
use crate::mesh::MeshShape;
use crate::tensor::ParamRef;
use crate::train::console::print_line;
use crate::train::{Error, Result, Task};

use super::rank_loop::RankLoop;

/// The ranks that hold parts of a parameter: the axes along which the parts differ, and the positions along `pp` of its
/// owners. Ranks at one position along the axes hold the same part.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Holders {
    axes: usize,
    owners: Vec<usize>,
}

/// Hash of this rank's part of a parameter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct HeldPart {
    unit: String,
    param: String,
    hash: u64,
}

impl<T: Task> RankLoop<'_, T> {
    /// Compares the parameters after `steps` steps, if it is time. Every rank calls it.
    ///
    /// # Errors
    /// [`Error::ReplicasDiffer`] on all ranks, and failures of the communication.
    pub(super) fn check_replicas(&mut self, steps: u64) -> Result<()> {
        let Some(every) = self.plan.config.check_replicas else { return Ok(()) };
        if !steps.is_multiple_of(every) {
            return Ok(());
        }
        let synchronized = self.state.optimizer.synchronized_after(steps)?;
        let found = self.state.with_shared_params(synchronized, |state| {
            let comms = state.rank.comms();
            find_difference(&comms.uncounted_world(), comms.shape(), &state.built.params())
        });
        let Some(difference) = found? else { return Ok(()) };
        let rank = &self.state.rank;
        let is_first = rank.index() == 0;
        // An earlier state, which may be what the run goes on from.
        if let (Err(error), true) = (self.finish_background_save(usize::MAX), is_first) {
            print_line(&format!("warning: {error}"));
        }
        let advice = match (&self.plan.config.save, self.saved) {
            (Some(save), Some(saved)) => format!(
                "the state after step {saved} is in {}, and may differ, too",
                save.dir.display()
            ),
            _ => "nothing is saved".to_owned(),
        };
        Err(Error::ReplicasDiffer(format!(
            "--check-replicas: after step {steps}, {difference}; training stopped, {advice}. Memory or a link of one \
             of these ranks may be defective, or the program changes a parameter on some ranks only"
        )))
    }
}

/// Names the first parameter whose copies differ between ranks, in the same text on all ranks. Every rank calls it.
fn find_difference(
    world: &Communicator,
    shape: &MeshShape,
    params: &[ParamRef],
) -> Result<Option<String>, CommError> {
    let mut parts: BTreeMap<Holders, Vec<HeldPart>> = BTreeMap::new();
    for param in params.iter().filter(|param| param.is_owned()) {
        let owners = param.unit().owners().map(|owners| owners.ranks().to_vec());
        let holders =
            Holders { axes: param.owner_axes().number(), owners: owners.unwrap_or_default() };
        let mut hasher = Xxh3::new();
        hasher.update(bytemuck::cast_slice(&param.owned_values().view().to_vec::<f32>()));
        let (unit, path) = (param.unit().name().to_owned(), param.path().to_owned());
        let part = HeldPart { unit, param: path, hash: hasher.digest() };
        parts.entry(holders).or_default().push(part);
    }
    // Stages may list the parameters that they share in other orders.
    parts.values_mut().for_each(|parts| parts.sort_by(|a, b| a.param.cmp(&b.param)));
    let site = Site::new("--check-replicas");
    // One number for all parts of the same holders first: usually, nothing differs.
    let digests: Vec<(&Holders, Vec<HeldPart>)> =
        parts.iter().map(|(holders, parts)| (holders, vec![digest_of(parts)])).collect();
    let gathered = gather(world, &site, &digests)?;
    if find_in(shape, &gathered).is_none() {
        return Ok(None);
    }
    let gathered = gather(world, &site, &parts.iter().collect::<Vec<_>>())?;
    Ok(find_in(shape, &gathered))
}

/// Returns a part that stands for several.
fn digest_of(parts: &[HeldPart]) -> HeldPart {
    let mut hasher = Xxh3::new();
    for part in parts {
        hasher.update(part.param.as_bytes());
        hasher.update(&part.hash.to_le_bytes());
    }
    HeldPart { unit: String::new(), param: String::new(), hash: hasher.digest() }
}

/// The parts of one rank, by their holders.
type RankParts = Vec<(Holders, Vec<HeldPart>)>;

/// The ranks that hold each hash of a part of a parameter.
type RanksByHash<'a> = BTreeMap<(&'a str, u64), Vec<usize>>;

/// Gathers the parts of all ranks, in the order of ranks.
fn gather<P: Serialize>(
    world: &Communicator,
    site: &Site,
    own: &P,
) -> Result<Vec<RankParts>, CommError> {
    let text = serde_json::to_string(own).expect("names and numbers are JSON");
    let texts = world.all_gather_texts(site, &text)?;
    // Members are in the order of the axes of the mesh, and ranks in that of --mesh-order.
    let mut by_rank: Vec<(usize, &String)> = world.members().iter().copied().zip(&texts).collect();
    by_rank.sort_unstable();
    let parts_of = |text: &String| serde_json::from_str(text).expect("ranks send valid JSON");
    Ok(by_rank.into_iter().map(|(_, text)| parts_of(text)).collect())
}

/// Describes the first part that ranks hold with different hashes.
fn find_in(shape: &MeshShape, ranks: &[RankParts]) -> Option<String> {
    // By holders, number of the parameter, and position along the axes of the holders.
    let mut found: BTreeMap<(&Holders, usize, usize), RanksByHash<'_>> = BTreeMap::new();
    for (rank, parts) in ranks.iter().enumerate() {
        for (holders, parts) in parts {
            let position = shape.index_in_group(rank, AxisSet::from_number(holders.axes));
            for (index, part) in parts.iter().enumerate() {
                let hashes = found.entry((holders, index, position)).or_default();
                hashes.entry((&part.param, part.hash)).or_default().push(rank);
            }
        }
    }
    let ((holders, index, _), hashes) = found.into_iter().find(|(_, hashes)| hashes.len() > 1)?;
    let unit_of = |parts: &RankParts| {
        let (_, parts) = parts.iter().find(|(of, _)| of == holders)?;
        Some(parts.get(index)?.unit.clone())
    };
    let unit = ranks.iter().find_map(unit_of).unwrap_or_default();
    let param = hashes.keys().next().map_or("", |(param, _)| *param);
    let mut groups: Vec<Vec<usize>> = hashes.into_values().collect();
    // The larger group is more likely to hold the right values.
    groups.sort_by_key(|ranks| (std::cmp::Reverse(ranks.len()), ranks[0]));
    let groups: Vec<String> = groups.iter().map(|ranks| name_ranks(ranks)).collect();
    Some(format!(
        "`{param}` of the unit `{unit}` differs between ranks that hold the same part of it: {}",
        groups.join(" against ")
    ))
}

fn name_ranks(ranks: &[usize]) -> String {
    let numbers: Vec<String> = ranks.iter().map(usize::to_string).collect();
    match numbers.as_slice() {
        [one] => format!("rank {one}"),
        [others @ .., last] => format!("ranks {} and {last}", others.join(", ")),
        [] => unreachable!("a hash is of a rank"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::AxisId;

    fn part(param: &str, hash: u64) -> HeldPart {
        HeldPart { unit: "blocks.0".to_owned(), param: param.to_owned(), hash }
    }

    /// Ranks along `tp` hold different parts of one parameter and copies of another, which ranks along `dp` hold too.
    #[test]
    fn parts_are_compared_where_they_are_copies() {
        let shape: MeshShape = "dp=2,tp=2".parse().unwrap();
        let tp = AxisSet::of(AxisId::Tp).number();
        let of = |axes| Holders { axes, owners: Vec::new() };
        let rank = |split: u64, copied: u64| -> RankParts {
            let copies = vec![part("a", 7), part("norm", copied)];
            vec![(of(0), copies), (of(tp), vec![part("split", split)])]
        };
        let alike = [rank(1, 5), rank(2, 5), rank(1, 5), rank(2, 5)];
        assert_eq!(find_in(&shape, &alike), None);
        let mut other = alike.clone();
        other[2] = rank(1, 6);
        let text = find_in(&shape, &other).unwrap();
        assert_eq!(
            text,
            "`norm` of the unit `blocks.0` differs between ranks that hold the same part of it: ranks 0, 1 and 3 \
             against rank 2"
        );
        let mut other = alike;
        other[3] = rank(9, 5);
        let text = find_in(&shape, &other).unwrap();
        assert!(text.starts_with("`split` of the unit `blocks.0`"), "{text}");
        assert!(text.ends_with("rank 1 against rank 3"), "{text}");
    }
}
