//! Checkpoints of a run: every rank writes its own file, the first one completes the folder.

use crate::checkpoint::{RankFile, TrainState, Writer};
use crate::comm::{Blocks, CommError, Communicator, Site};
use crate::data::DataPosition;
use crate::tensor::Rank;

use crate::train::plan::Plan;
use crate::train::trained::{self, Trained};
use crate::train::{Error, Result};

/// Saves the state after `steps` steps, and removes all but the newest `keep` checkpoints. Every rank calls it.
pub fn save_checkpoint(
    rank: &Rank,
    trained: &Trained<'_>,
    plan: &Plan,
    steps: u64,
    keep: Option<usize>,
) -> Result<()> {
    let Some(save) = &plan.config.save else { return Ok(()) };
    let refused = || Error::of_flag("--save");
    let (world, site) = (rank.comms().world(), Site::new("--save"));
    let is_first = rank.index() == 0;

    if is_first {
        Writer::begin(&save.dir, steps).map_err(refused())?;
    }
    world.barrier(&site)?;
    let writer = Writer::join(&save.dir, steps);
    let file =
        trained::with_entries(rank, trained, |entries| writer.write_rank(rank.index(), entries))
            .map_err(refused())?;
    let mut files = of_all_ranks(&*world, &site, &file)?;
    if is_first {
        files.sort_by(|a, b| a.name.cmp(&b.name));
        writer.commit(files, state(plan, steps), keep).map_err(refused())?;
    }
    Ok(world.barrier(&site)?)
}

/// What every rank says of its file. Ranks may be processes, so it goes as text through the communicator.
fn of_all_ranks(
    world: &dyn Communicator,
    site: &Site,
    own: &RankFile,
) -> std::result::Result<Vec<RankFile>, CommError> {
    let text = serde_json::to_vec(own).expect("names and numbers are JSON");
    let mut lens = vec![0u32; world.size()];
    let own_len = [text.len() as u32];
    let one_each = Blocks::even(1, 1, world.size());
    world.all_gather(site, own_len[..].into(), lens.as_mut_slice().into(), &one_each)?;
    let words = |bytes: u32| bytes.div_ceil(4) as usize;
    let mut own_words = vec![0u32; words(own_len[0])];
    bytemuck::cast_slice_mut(&mut own_words)[..text.len()].copy_from_slice(&text);
    let blocks = Blocks::new(1, lens.iter().map(|len| words(*len)).collect::<Vec<_>>());
    let mut all = vec![0u32; blocks.total()];
    world.all_gather(site, own_words.as_slice().into(), all.as_mut_slice().into(), &blocks)?;
    let mut rest = all.as_slice();
    let files = lens.iter().map(|len| {
        let (own, others) = rest.split_at(words(*len));
        rest = others;
        let text = &bytemuck::cast_slice::<u32, u8>(own)[..*len as usize];
        serde_json::from_slice(text).expect("a rank has written it")
    });
    Ok(files.collect())
}

/// The state of the run besides its tensors.
fn state(plan: &Plan, steps: u64) -> TrainState {
    let config = &plan.config;
    TrainState {
        step: steps,
        seed: config.seed,
        mesh: config.mesh.to_string(),
        data: DataPosition::after(steps, &plan.dataset),
        config: serde_json::to_value(config).unwrap_or_default(),
    }
}
