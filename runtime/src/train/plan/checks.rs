//! Checks of the mesh, the batch and the sequence length.

use crate::layout::{AxisId, AxisSet};
use crate::train::config::{Config, Device};
use crate::train::console::counted;
use crate::train::{Error, Outline, Result};

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

/// Checks that this version supports the axes, that one process can hold the ranks, and that the batch divides.
pub fn check_mesh(config: &Config) -> Result<()> {
    let mesh = &config.mesh;
    let later: Vec<String> = [AxisId::Ep, AxisId::Cp]
        .into_iter()
        .filter(|axis| mesh.degree(*axis) > 1)
        .map(|axis| format!("{axis}={}", mesh.degree(axis)))
        .collect();
    if !later.is_empty() {
        return Err(Error::Input(format!(
            "--mesh: {} comes with a later version; leave it out, or use dp, fsdp, tp and pp",
            later.join(",")
        )));
    }
    let world = mesh.world_size();
    let threads = match config.device {
        Device::Cpu => config.threads_per_rank(world),
        Device::Cuda => 1,
    };
    if world.saturating_mul(threads) > MAX_THREADS {
        return Err(Error::Input(format!(
            "{} are too many: ranks are threads of this process, which starts at most {MAX_THREADS} threads in \
             all; use a smaller --mesh or fewer --threads",
            with_threads(config)
        )));
    }
    check_batch(config)
}

/// Checks that the batch divides evenly into the micro-batches of all data ranks.
fn check_batch(config: &Config) -> Result<()> {
    let mesh = &config.mesh;
    let parts = mesh.degree_of(AxisSet::DATA).saturating_mul(config.micro_batches);
    if config.batch.is_multiple_of(parts) {
        return Ok(());
    }
    let mut factors: Vec<String> = AxisSet::DATA
        .iter()
        .filter(|axis| mesh.degree(*axis) > 1)
        .map(|axis| format!("{axis}={} of --mesh", mesh.degree(axis)))
        .collect();
    if config.micro_batches > 1 {
        factors.push(format!("--micro-batches {}", config.micro_batches));
    }
    Err(Error::Input(format!(
        "--batch {} does not divide into {parts} equal parts ({}); use a multiple of {parts}",
        config.batch,
        factors.join(" x ")
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
