//! The table `cluster`, and its keys.

use std::sync::Arc;

use super::super::{Cluster, Gpu, Level, MAX_GPUS};
use super::quantity::{GIGA, MICRO};
use super::table_format::{TableFormat, name};

/// The table `cluster`, but for the key `gpu`, which names `gpu`.
pub fn cluster<T: TableFormat>(
    table: &mut T,
    gpu: Arc<Gpu>,
    given: Option<&Cluster>,
) -> Result<Cluster, T::Error> {
    let name = name(table, given.map(|cluster| cluster.name.as_str()))?;
    let description =
        table.text("description", given.map(|cluster| cluster.description.as_str()))?;
    let open =
        given.filter(|cluster| cluster.gpus.is_none()).and_then(|cluster| cluster.levels.last());
    let mut names: Vec<String> = Vec::new();
    // GPUs of the level inside; `None` if it has no size.
    let mut inner = Some(1);
    let levels =
        table.tables("level", given.map(|cluster| &cluster.levels[..]), |table, given| {
            let given_size = given.filter(|level| Some(*level) != open).map(|level| level.size);
            let size = table.optional_count("size", given_size)?;
            let level =
                level(table, given, size.or_else(|| inner.map(open_size)).unwrap_or(MAX_GPUS))?;
            check_level(table, &level, size, inner, &names)?;
            names.push(level.name.clone());
            inner = size;
            Ok(level)
        })?;
    table.check("level", !levels.is_empty(), || {
        "is missing: add a table [[cluster.level]] for nodes".into()
    })?;
    let most = 8;
    table.check("level", levels.len() <= most, || {
        format!("has {} levels; at most {most} are allowed", levels.len())
    })?;
    Ok(Cluster { name, description, gpu, levels, gpus: inner })
}

/// The size of a level of any number of groups.
fn open_size(inner: usize) -> usize {
    MAX_GPUS / inner * inner
}

fn check_level<T: TableFormat>(
    table: &T,
    level: &Level,
    size: Option<usize>,
    inner: Option<usize>,
    names: &[String],
) -> Result<(), T::Error> {
    let name = &level.name;
    table.check("name", !names.contains(name), || {
        format!("is `{name}`, as of another level: rename one")
    })?;
    let Some(inner) = inner else {
        return table.check("name", false, || {
            "comes after a level without a size: only the last level may have any number of GPUs".into()
        });
    };
    if let Some(size) = size {
        table.check("size", size % inner == 0, || {
            format!("is {size}, which groups of {inner} do not divide: use a multiple of {inner}")
        })?;
        table.check("size", size > inner, || {
            format!("is {size}: a level has more GPUs than the one inside, which has {inner}")
        })?;
    }
    let peak = level.bandwidth.value;
    for (key, figure) in [
        ("collective_gb_s", &level.collective_bandwidth),
        ("message_gb_s", &level.message_bandwidth),
    ] {
        table.check(key, figure.value <= peak, || {
            let [value, peak] = [figure.value, peak].map(|value| GIGA.in_file(value));
            format!("is {value}, above the `bandwidth_gb_s` of {peak}")
        })?;
    }
    Ok(())
}

fn level<T: TableFormat>(
    table: &mut T,
    given: Option<&Level>,
    size: usize,
) -> Result<Level, T::Error> {
    Ok(Level {
        name: table.text("name", given.map(|level| level.name.as_str()))?,
        size,
        bandwidth: table.figure("bandwidth_gb_s", GIGA, given.map(|level| &level.bandwidth))?,
        collective_bandwidth: table.figure(
            "collective_gb_s",
            GIGA,
            given.map(|level| &level.collective_bandwidth),
        )?,
        all_reduce_bandwidth: table.optional_figure(
            "all_reduce_gb_s",
            GIGA,
            given.and_then(|level| level.all_reduce_bandwidth.as_ref()),
        )?,
        message_bandwidth: table.figure(
            "message_gb_s",
            GIGA,
            given.map(|level| &level.message_bandwidth),
        )?,
        latency: table.figure("latency_us", MICRO, given.map(|level| &level.latency))?,
        latency_per_doubling: table.figure(
            "latency_per_doubling_us",
            MICRO,
            given.map(|level| &level.latency_per_doubling),
        )?,
    })
}
