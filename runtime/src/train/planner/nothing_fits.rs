//! The answer if nothing fits: the smallest plan, the bytes that are missing, and changes that do fit.

use std::fmt::Write;

use crate::backend::{Bytes, Category};
use crate::train::config::RunSettings;
use crate::train::console::counted;
use crate::train::{Error, Task};
use meshwright_sim::cluster::{Catalog, SizedCluster};

use super::candidate::Candidate;
use super::effort::Effort;
use super::planned_run::PlannedRun;
use super::search::search;
use super::simulated_candidate::simulate_candidate;
use super::space::USABLE_MEMORY;

/// Changes that are shown.
const SHOWN: usize = 3;
/// Most doublings of the GPUs, and halvings of the sequence or the batch, that are tried.
const DOUBLINGS: u32 = 12;

/// Explains that no plan fits in the memory of the GPUs of `on`.
pub fn explain_misfit<T: Task>(
    settings: &RunSettings,
    on: &SizedCluster,
    smallest: &Candidate,
) -> Error {
    let mut text = format!(
        "--plan: nothing fits on {} of `{}`: {:.0} % of their memory of {} each may be planned",
        counted(on.gpus, "GPU"),
        on.cluster.name,
        100.0 * USABLE_MEMORY,
        Bytes(on.cluster.gpu.memory.value)
    );
    match simulate_candidate::<T>(settings, on, smallest) {
        Ok(plan) => text += &missing(&plan),
        Err(error) => {
            let _ = write!(text, "\nthe smallest plan, {smallest}, cannot be run: {error}");
        }
    }
    let ways = ways::<T>(settings, on);
    if ways.is_empty() {
        text += "\nneither more GPUs, nor shorter sequences, nor a smaller batch make it fit; use a smaller model";
    } else {
        text += "\nthese fit, by a dry run of each:";
    }
    for (change, PlannedRun { candidate, run }) in ways {
        let bytes = Bytes(run.memory_bytes as f64);
        let _ = write!(text, "\n  {change}: {bytes} with {candidate}");
    }
    Error::Input(text)
}

fn missing(PlannedRun { candidate, run }: &PlannedRun) -> String {
    let usable = USABLE_MEMORY * run.gpu_memory_bytes as f64;
    let mut text = format!(
        "\nthe smallest plan, {candidate}, needs {}, {} too much:",
        Bytes(run.memory_bytes as f64),
        Bytes(run.memory_bytes as f64 - usable)
    );
    for category in Category::ALL {
        if let Some(bytes) = run.memory_by_category.get(category.name()) {
            let _ = write!(text, "\n  {:<14}{:>10}", category.name(), Bytes(*bytes as f64));
        }
    }
    text
}

/// Returns changes of the settings with a plan that fits.
fn ways<T: Task>(settings: &RunSettings, on: &SizedCluster) -> Vec<(String, PlannedRun)> {
    let fitting = |settings: &RunSettings, on: &SizedCluster| {
        let found = search::<T>(settings, on, Effort::TO_FIT).ok()?;
        found.plans.into_iter().next()
    };
    let freed = || {
        let (freed, names) = settings.free_for_plan();
        let plan = fitting(&freed, on).filter(|_| !names.is_empty())?;
        Some((format!("without {}", names.join(" and ")), plan))
    };
    let catalog = Catalog::new();
    // The fewest GPUs of a cluster.
    let gpus_of = |name: &str| {
        (0..=DOUBLINGS).find_map(|power| {
            let request = format!("{name}x{}", on.gpus.checked_mul(1 << power)?);
            let other = SizedCluster::parse(&request, &catalog).ok()?;
            Some((format!("--plan {request}"), fitting(settings, &other)?))
        })
    };
    let more_gpus = || gpus_of(&on.cluster.name);
    let larger_gpus = &|name: &str| {
        let memory = catalog.cluster(name).ok()?.gpu.memory.value;
        (memory > on.cluster.gpu.memory.value).then(|| gpus_of(name))?
    };
    let [h200, b200, mi325x] = ["h200", "b200", "mi325x"].map(|name| move || larger_gpus(name));
    let shorter = || {
        (1..=DOUBLINGS).find_map(|power| {
            let seq = settings.seq >> power;
            let mut settings = settings.clone();
            settings.seq = Some(seq).filter(|seq| *seq > 0)?;
            Some((format!("--seq {seq}"), fitting(&settings, on)?))
        })
    };
    let smaller_batch = || {
        (1..=DOUBLINGS).find_map(|power| {
            let batch = settings.batch >> power;
            let mut settings = settings.clone();
            settings.batch = Some(batch).filter(|batch| *batch > 0)?;
            Some((format!("--batch {batch}"), fitting(&settings, on)?))
        })
    };
    let all: [&dyn Fn() -> Option<(String, PlannedRun)>; 7] =
        [&freed, &more_gpus, &shorter, &smaller_batch, &h200, &b200, &mi325x];
    all.into_iter().filter_map(|way| way()).take(SHOWN).collect()
}
