//! Checks of the mesh, the batch and the sequence length.

use std::collections::BTreeSet;

use crate::backend::Bytes;
use crate::layout::{AxisGroup, AxisId, AxisSet, Whole};
use crate::optim::fragment_of;
use crate::tensor::ParamRef;
use crate::train::config::{Config, DeviceChoice};
use crate::train::console::counted;
use crate::train::task::PositionsOf;
use crate::train::{Error, Outline, Result, Task};

use super::description::describe_mesh;

/// Most threads of all ranks together. Ranks on the CPU are threads of one process.
const MAX_THREADS: usize = 1024;

/// Checks `--seq`: a table of positions bounds it, and parameters over the sequence dim fix it to `fixed` tokens.
pub fn check_length(config: &Config, outline: &Outline, fixed: Option<usize>) -> Result<()> {
    let seq = config.seq;
    let advice = match (fixed, outline.longest) {
        (Some(fixed), _) if fixed != seq => {
            format!("the model's sequences have {fixed} tokens; use --seq {fixed}")
        }
        (_, Some(longest)) if longest < seq => {
            format!("the model has {longest} positions; use at most --seq {longest}")
        }
        _ => return Ok(()),
    };
    Err(Error::Input(format!("--seq: {seq} does not fit: {advice}")))
}

/// Checks that one process can hold the ranks.
pub fn check_threads(config: &Config) -> Result<()> {
    let mesh = &config.mesh;
    let world = mesh.world_size();
    let threads = match config.device {
        DeviceChoice::Cpu => config.threads_per_rank(world),
        DeviceChoice::Cuda => 1,
    };
    if world.saturating_mul(threads) > MAX_THREADS {
        return Err(Error::Input(format!(
            "{} are too many: ranks are threads of this process, which starts at most {MAX_THREADS} threads in \
             all; use a smaller --mesh or fewer --threads",
            with_threads(config)
        )));
    }
    Ok(())
}

/// Checks that the `available` memory of the host holds the batch of each rank, which is read as a whole, however many
/// its micro-batches are. `row_bytes` are those of a row of a task.
pub fn check_batch_memory(
    config: &Config,
    row_bytes: Option<usize>,
    available: Option<f64>,
) -> Result<()> {
    let (Some(available), DeviceChoice::Cpu) = (available, config.device) else { return Ok(()) };
    // Tokens, targets and, if rows hold documents, their beginnings.
    let of_token = if config.documents.is_some() { 12.0 } else { 8.0 };
    let row = row_bytes.map_or(config.seq as f64 * of_token, |bytes| bytes as f64);
    let copies = config.mesh.world_size() / config.mesh.degree_of(AxisSet::DATA);
    let needed = copies as f64 * config.batch as f64 * row;
    if needed <= available {
        return Ok(());
    }
    Err(Error::Input(format!(
        "not enough memory: the tokens of a step take {}, and {} are available; use a smaller --batch or --seq",
        Bytes(needed),
        Bytes(available)
    )))
}

/// Checks that `--mesh auto` is of no more ranks than this process can hold, before their meshes are enumerated.
pub fn check_auto_ranks(ranks: usize, device: DeviceChoice) -> Result<()> {
    if device == DeviceChoice::Cpu && ranks > MAX_THREADS {
        return Err(Error::Input(format!(
            "--mesh: auto={ranks}: {ranks} ranks are too many: ranks are threads of this process, which starts at most \
             {MAX_THREADS} threads in all; use fewer ranks"
        )));
    }
    Ok(())
}

/// Checks that a sequence can be distributed over the ranks of `cp`: that the model declares it so, and that it has an
/// early and a late chunk for each of them.
pub fn check_context<T: Task>(config: &Config) -> Result<()> {
    let ranks = config.mesh.degree(AxisId::Cp);
    if ranks == 1 {
        return Ok(());
    }
    if !<<PositionsOf<T> as Whole>::Home as AxisGroup>::AXES.contains(AxisId::Cp) {
        let seq = <PositionsOf<T> as Whole>::DECLARED_NAME;
        return Err(Error::Input(format!(
            "--mesh: cp={ranks} needs a model whose sequence is distributed over cp, but each rank has all of `{seq}`: \
             declare it `{seq} @ cp`, and put `#[sharded(cp = \"ring\")]` on its attention; or leave cp out"
        )));
    }
    let (seq, chunks) = (config.seq, 2 * ranks);
    if !seq.is_multiple_of(chunks) {
        return Err(Error::Input(format!(
            "--seq: {seq} does not divide into 2 x cp = {chunks} chunks (zig-zag order of cp={ranks}); use a multiple \
             of {chunks}"
        )));
    }
    Ok(())
}

/// Checks that each fragment of replicas that train apart has parameters.
pub fn check_fragments(config: &Config, params: &[ParamRef]) -> Result<()> {
    let fragments = config.local_sgd.map_or(1, |local| local.fragments as usize);
    let used: BTreeSet<usize> =
        params.iter().map(|param| fragment_of(param.path(), fragments)).collect();
    let Some(empty) = (0..fragments).find(|fragment| !used.contains(fragment)) else {
        return Ok(());
    };
    Err(Error::Input(format!(
        "--fragments: {fragments} are more than the layers of the model, and some would be empty; use at most {empty}"
    )))
}

/// Checks that the ranks of `ep` have different experts of the model with these parameters.
pub fn check_experts(config: &Config, params: &[ParamRef]) -> Result<()> {
    let ranks = config.mesh.degree(AxisId::Ep);
    let is_over_ep =
        |param: &ParamRef| param.dims().iter().any(|dim| dim.axes().contains(AxisId::Ep));
    if ranks == 1 || params.iter().any(is_over_ep) {
        return Ok(());
    }
    Err(Error::Input(format!(
        "--mesh: ep={ranks} needs a model with experts that are split over ep, by `#[sharded(ep = \"experts\")]` on \
         their layers; this one has none: use dp={ranks} or fsdp={ranks}, or leave ep out"
    )))
}

/// Checks that a layer of the model reads the documents of `--documents`.
pub fn check_documents_are_used(used: bool) -> Result<()> {
    if used {
        return Ok(());
    }
    Err(Error::Input(
        "--documents: the model does not use documents, so attention and positions would cross document borders: \
         `Attention` and `LearnedPositions` over the sequence of the tokens keep them apart, and other layers can by \
         `tokens.documents()`; leave --documents out, or call `ignoring_documents()` on an attention that may cross \
         the borders"
            .to_owned(),
    ))
}

/// Checks that the batch divides evenly into the micro-batches of all data ranks.
pub fn check_batch(config: &Config) -> Result<()> {
    let mesh = &config.mesh;
    let parts = mesh.degree_of(AxisSet::DATA).saturating_mul(config.micro_batches);
    if config.batch.is_multiple_of(parts) {
        return Ok(());
    }
    let axes = AxisSet::DATA.iter().filter(|axis| mesh.degree(*axis) > 1);
    let axes: Vec<String> = axes.map(|axis| format!("{axis}={}", mesh.degree(axis))).collect();
    let of_mesh = (!axes.is_empty()).then(|| format!("{} of --mesh", axes.join(" x ")));
    let of_step =
        (config.micro_batches > 1).then(|| format!("--micro-batches {}", config.micro_batches));
    let factors: Vec<String> = of_mesh.into_iter().chain(of_step).collect();
    // The batch of a resumed run is that of the checkpoint.
    let advice = match config.batch / mesh.degree_of(AxisSet::DATA) {
        _ if config.resume.is_none() => format!("use a multiple of {parts}"),
        rows if rows * mesh.degree_of(AxisSet::DATA) == config.batch => {
            let fitting =
                (1..=config.micro_batches).rev().find(|count| rows.is_multiple_of(*count));
            format!("use --micro-batches {}, or another --mesh", fitting.unwrap_or(1))
        }
        _ => "use another --mesh".to_owned(),
    };
    Err(Error::Input(format!(
        "--batch {} does not divide into {parts} equal parts ({}); {advice}",
        config.batch,
        factors.join(", times ")
    )))
}

/// Describes ranks and threads: `4 ranks (dp=2,tp=2) with 1 thread each`, `1 rank with 2 threads`.
fn with_threads(config: &Config) -> String {
    let world = config.mesh.world_size();
    let threads = counted(config.threads_per_rank(world), "thread");
    let each = if world == 1 { "" } else { " each" };
    format!("{} with {threads}{each}", describe_mesh(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_threads_read_well() {
        let place = |line: &str| with_threads(&Config::parse(line.split(' ')).unwrap());
        assert_eq!(place("t --mesh 1 --threads 2"), "1 rank with 2 threads");
        assert_eq!(place("t --mesh tp=2 --threads 1"), "2 ranks (tp=2) with 1 thread each");
    }
}
