//! `--batch auto` and `--micro-batches auto`: the most sequences, and the fewest micro-batches, that fit in memory by
//! the plan.

use crate::backend::Bytes;
use crate::layout::AxisSet;
use crate::train::config::{AutoSizes, Config, DeviceChoice, check_parts};
use crate::train::console::{counted, print_line};
use crate::train::machine::Machine;
use crate::train::plan::{OpenedModel, PLANNED_MEMORY, Plan, check_batch};
use crate::train::{Error, Result, Task};

/// Most sequences of a micro-batch on each data rank.
const MAX_ROWS: usize = 1 << 16;

/// Chooses the sizes of a step that are open, and prints them, in the process of rank 0. All processes choose the same:
/// the plan depends on the settings, and on memory that is the same on all.
///
/// # Errors
/// A memory that is not known, a model that does not fit with the smallest sizes, and a batch that does not divide.
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
    let no_size_fits = |smallest: Config| {
        let error = fits(&smallest).err();
        // Without a limit, only what more memory does not help fails.
        let unlimited = Config { memory_limit: None, ..smallest };
        let plan = match Plan::memory_of::<T>(&unlimited, &opened, None) {
            Ok(plan) => plan,
            Err(error) => return error,
        };
        let why = match (config.memory_limit, error) {
            (Some(limit), _) if available.is_none() => {
                let enough = rounded_up(plan.total() as f64 / PLANNED_MEMORY);
                format!(
                    " in {} % of --memory-limit {}: use --memory-limit {enough}",
                    100.0 * PLANNED_MEMORY,
                    Bytes(limit as f64)
                )
            }
            (_, Some(error)) => format!(": {error}; allow more memory (--memory-limit)"),
            (_, None) => String::new(),
        };
        Error::Input(format!(
            "{flag}: no size fits{why}, or divide the model over more ranks (--mesh fsdp=N)"
        ))
    };
    let ranks = config.mesh.degree_of(AxisSet::DATA);
    let chosen = if auto.batch {
        let unit = ranks * config.micro_batches;
        let with_rows = |rows: usize| Config { batch: rows * unit, ..config.clone() };
        let rows = most(MAX_ROWS, |rows| fits(&with_rows(rows)).is_ok());
        let Some(rows) = rows else { return Err(no_size_fits(with_rows(1))) };
        config.batch = rows * unit;
        let most = if rows == MAX_ROWS {
            "the most that are tried, which fit"
        } else {
            "the most that fit"
        };
        format!("{flag}: {}, {most}", counted(config.batch, "sequence"))
    } else {
        let rows = config.batch / ranks;
        let mut counts = (1..=rows).filter(|count| rows.is_multiple_of(*count));
        let with_count = |micro_batches: usize| Config { micro_batches, ..config.clone() };
        check_batch(&config)?;
        let found = counts.find(|count| fits(&with_count(*count)).is_ok());
        let Some(count) = found else { return Err(no_size_fits(with_count(rows))) };
        config.micro_batches = count;
        let of_each = counted(rows / count, "sequence");
        format!("{flag}: {count}, the fewest that fit, of {of_each} on each data rank")
    };
    if config.noise_scale
        && let Err(message) = check_parts(&config.mesh, config.micro_batches)
    {
        return Err(Error::Input(format!("--noise-scale: {message}")));
    }
    if prints(&config, machine) {
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

/// Returns the settings of the run of `plan` with a chosen batch that is no larger than its data, and prints the batch;
/// `None` if it is no larger.
pub fn limit_batch(plan: &Plan) -> Option<Config> {
    let Plan { config, machine, dataset, .. } = plan;
    let unit = config.mesh.degree_of(AxisSet::DATA) * config.micro_batches;
    let rows = usize::try_from(dataset.rows_of_epoch()).unwrap_or(usize::MAX);
    let batch = (rows / unit).max(1) * unit;
    if config.has_synthetic_data() || batch >= config.batch {
        return None;
    }
    if prints(config, &**machine) {
        let batch = counted(batch, "sequence");
        print_line(&format!("--batch auto: {batch}, as the data have only {rows}"));
    }
    Some(Config { batch, ..config.clone() })
}

fn prints(config: &Config, machine: &dyn Machine) -> bool {
    !config.quiet && machine.own_rank().is_none_or(|rank| rank == 0)
}

/// Returns a number of bytes with three digits, as a flag takes it, that is not below this one.
fn rounded_up(bytes: f64) -> String {
    let unit = 10f64.powf(bytes.log10().floor() - 2.0).max(1.0);
    Bytes((bytes / unit).ceil() * unit).to_string().replace(' ', "")
}

/// Returns the largest number up to `limit` that fits; `None` if 1 does not. A number that does not fit is larger than
/// one that does.
fn most(limit: usize, fits: impl Fn(usize) -> bool) -> Option<usize> {
    if !fits(1) {
        return None;
    }
    let mut low = 1;
    while low < limit && fits((2 * low).min(limit)) {
        low = (2 * low).min(limit);
    }
    let mut high = (2 * low).min(limit + 1);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some(low)
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
                    number <= largest
                };
                assert_eq!(most(limit, fits), Some(largest), "of {limit}");
            }
        }
        assert_eq!(most(8, |_| false), None);
    }

    #[test]
    fn limits_are_rounded_up() {
        for (bytes, text) in
            [(7.0, "7B"), (999.5, "1.00kB"), (988_001.0, "989kB"), (1.16e6, "1.16MB")]
        {
            assert_eq!(rounded_up(bytes), text);
        }
    }
}
