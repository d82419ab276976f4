//! The choice of a mesh on the machine of a run.

use crate::train::auto_mesh::{ChosenMesh, choose_mesh, memory_for_choice, note_on_memory};
use crate::train::config::{Config, DeviceChoice, RunSettings};
use crate::train::console::print_line;
use crate::train::machine::{Machine, open_machine, suggested_ranks};
use crate::train::plan::{OpenedModel, Plan, check_auto_ranks};
use crate::train::planner::choose_planned;
use crate::train::report::cluster_of;
use crate::train::{Result, Task};

/// Chooses the mesh of `--mesh auto=N`, or of as many ranks as the machine suggests, prints it, and opens the machine.
///
/// # Errors
/// The reasons against each mesh if none fits, and of the machine and the model.
pub fn choose_on_machine<T: Task>(
    settings: &RunSettings,
    ranks: Option<usize>,
    is_resumed: bool,
) -> Result<(Config, Box<dyn Machine>)> {
    let simulated = settings.simulate.as_ref().filter(|on| !on.cluster.gpu.is_shared());
    if let Some(on) = simulated.filter(|_| !is_resumed)
        && let Some(ChosenMesh { config, reason }) = choose_planned::<T>(settings, on, |_| Ok(()))
    {
        let machine = open_machine(&config)?;
        print_choice(&config, machine.as_ref(), &reason);
        return Ok((config, machine));
    }
    let (device, is_dry_run) = (settings.device, settings.is_dry_run());
    let ranks = ranks.map_or_else(|| suggested_ranks(device), Ok)?;
    if !is_dry_run {
        check_auto_ranks(ranks, device)?;
    }
    // Neither the devices, which depend on the number of ranks, nor the model depends on the mesh.
    let (mut opened, mut failed) = (None, None);
    let mut choose = |counts_memory: bool| {
        choose_mesh(settings, ranks, |config| {
            let (_, model, memory) = match &mut opened {
                Some(opened) => opened,
                None if failed.is_some() => return Ok(()),
                None => {
                    let machine = match open_machine(config) {
                        Ok(machine) => machine,
                        // No other mesh would be better.
                        Err(error) => {
                            failed = Some(error);
                            return Ok(());
                        }
                    };
                    let memory = memory_for_choice(config, machine.as_ref());
                    opened.insert((machine, OpenedModel::<T>::open(config)?, memory))
                }
            };
            Plan::check_fit::<T>(config, model, memory.filter(|_| counts_memory))
        })
    };
    let (chosen, fits_here) = match choose(true) {
        // A run that is only listed may be one of another machine.
        Err(_) if is_dry_run => (choose(false), false),
        chosen => (chosen, true),
    };
    if let Some(error) = failed {
        return Err(error);
    }
    let is_planned = device == DeviceChoice::Cuda && !is_dry_run && !is_resumed;
    let planned = match opened.as_ref().filter(|_| is_planned) {
        Some((machine, model, memory)) => {
            let check = |config: &Config| Plan::check_fit::<T>(config, model, *memory);
            let run = (ranks, settings.dtype().dtype(), device);
            cluster_of(settings.cluster.as_ref(), run, machine.as_ref())?
                .and_then(|on| choose_planned::<T>(settings, &on, check))
        }
        None => None,
    };
    let chosen = planned.map_or(chosen, Ok)?;
    let ChosenMesh { config, mut reason } = chosen;
    let (machine, memory) = match opened {
        Some((machine, _, memory)) => (machine, memory),
        None => (open_machine(&config)?, None),
    };
    reason += &note_on_memory(&config, memory, fits_here);
    print_choice(&config, machine.as_ref(), &reason);
    Ok((config, machine))
}

/// Prints a choice, in the process of rank 0.
fn print_choice(config: &Config, machine: &dyn Machine, reason: &str) {
    if !config.quiet && machine.own_rank().is_none_or(|rank| rank == 0) {
        print_line(reason);
    }
}
