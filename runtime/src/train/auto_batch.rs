//! `--batch auto` and `--micro-batches auto`: the most sequences, and the fewest micro-batches, that fit in memory by
//! the plan.

use crate::backend::Bytes;
use crate::layout::AxisSet;
use crate::train::config::{AutoSizes, Config, DeviceChoice};
use crate::train::console::{counted, print_line};
use crate::train::machine::Machine;
use crate::train::plan::{OpenedModel, PLANNED_MEMORY, Plan};
use crate::train::{Error, Result, Task};

/// Most sequences of a micro-batch on each data rank.
const MAX_ROWS: usize = 1 << 16;

/// Chooses the sizes of a step that are open, and prints them, in the process of rank 0. All processes choose the same:
/// the plan depends on the settings, and on memory that is the same on all.
///
/// # Errors
/// A memory that is not known, and a model that does not fit with the smallest sizes.
pub fn choose_sizes<T: Task>(
    mut config: Config,
    auto: AutoSizes,
    machine: &dyn Machine,
) -> Result<Config> {
    let flag = match auto {
        AutoSizes { batch: true, .. } => "--batch auto",
        AutoSizes { micro_batches: true, .. } => "--micro-batches auto",
        AutoSizes { .. } => return Ok(config),
    };
    // The memory of a host that is available changes from run to run.
    let is_of_device = config.device == DeviceChoice::Cuda || config.simulate.is_some();
    let available = machine.memory().filter(|_| is_of_device);
    if config.memory_limit.is_none() && available.is_none() {
        return Err(Error::Input(format!(
            "{flag}: the memory to fill is not known; add --memory-limit BYTES, the memory of each rank, such as 2GB"
        )));
    }
    let opened = OpenedModel::<T>::open(&config)?;
    let fits = |config: &Config| Plan::check_sizes::<T>(config, &opened, available);
    let failed = |error: Error| {
        let fix = "allow more memory (--memory-limit), or divide the model over more ranks (--mesh fsdp=N)";
        Error::Input(format!("{flag}: no size fits: {error}; {fix}"))
    };
    let ranks = config.mesh.degree_of(AxisSet::DATA);
    let chosen = if auto.batch {
        let unit = ranks * config.micro_batches;
        let with_rows = |rows: usize| Config { batch: rows * unit, ..config.clone() };
        let rows = most(MAX_ROWS, |rows| fits(&with_rows(rows))).map_err(failed)?;
        config.batch = rows * unit;
        let most = if rows == MAX_ROWS {
            "the most that are tried, which fit"
        } else {
            "the most that fit"
        };
        format!("{flag}: {}, {most}", counted(config.batch, "sequence"))
    } else {
        let rows = config.batch / ranks;
        let counts = (1..=rows).filter(|count| rows.is_multiple_of(*count));
        let with_count = |micro_batches: usize| Config { micro_batches, ..config.clone() };
        // A batch that the ranks do not divide is refused with its reason.
        let mut last = fits(&with_count(1)).err();
        let mut found = last.is_none().then_some(1);
        for count in counts.skip(1).take_while(|_| ranks * rows == config.batch) {
            if found.is_some() {
                break;
            }
            match fits(&with_count(count)) {
                Ok(()) => found = Some(count),
                Err(error) => last = Some(error),
            }
        }
        let Some(count) = found else {
            return Err(last.map_or_else(|| Error::Input(flag.to_owned()), failed));
        };
        config.micro_batches = count;
        let of_each = counted(rows / count, "sequence");
        format!("{flag}: {count}, the fewest that fit, of {of_each} on each data rank")
    };
    if !config.quiet && machine.own_rank().is_none_or(|rank| rank == 0) {
        let percent = 100.0 * PLANNED_MEMORY;
        let of_memory = match (config.memory_limit, available) {
            (Some(limit), None) => format!("--memory-limit {}", Bytes(limit as f64)),
            (None, Some(all)) => format!("the {} of all ranks", Bytes(all)),
            (limit, _) => format!(
                "--memory-limit {} and of the memory of the devices",
                Bytes(limit.unwrap_or_default() as f64)
            ),
        };
        print_line(&format!("{chosen} in {percent} % of {of_memory}"));
    }
    Ok(config)
}

/// Returns the largest number up to `limit` that fits. A number that does not fit is larger than one that does.
///
/// # Errors
/// The reason why 1 does not fit.
fn most(limit: usize, fits: impl Fn(usize) -> Result<()>) -> Result<usize> {
    fits(1)?;
    let mut low = 1;
    while low < limit && fits((2 * low).min(limit)).is_ok() {
        low = (2 * low).min(limit);
    }
    let mut high = (2 * low).min(limit + 1);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle).is_ok() {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_number_that_fits_is_found() {
        for limit in [1, 2, 7, 64] {
            for largest in 1..=limit {
                let fits = |number: usize| {
                    assert!((1..=limit).contains(&number));
                    let too_large = || Error::Input("too large".into());
                    (number <= largest).then_some(()).ok_or_else(too_large)
                };
                assert_eq!(most(limit, fits).unwrap(), largest, "of {limit}");
            }
        }
        assert!(most(8, |_| Err(Error::Input("never".into()))).is_err());
    }
}
