//! The cluster of a published run.

use std::sync::Arc;

use meshwright::sim::cluster::{Catalog, Cluster, Figure, Gpu, Level};

use crate::row::Machine;
use crate::software::Software;

/// GPUs of tables, and the clusters of the catalog that have them.
const GPUS: &[(&str, &str)] = &[
    ("A100", "a100-dgx"),
    ("A100-40", "a100-40gb"),
    ("A100-80", "a100-dgx"),
    ("H100", "h100-dgx"),
    ("H100-96HBM2e", "h100-dgx"),
    ("H200", "h200"),
    ("H800", "h100-dgx"),
    ("B200", "b200"),
    ("GB200", "gb200-nvl72"),
    ("MI300X", "mi300x"),
    ("MI325X", "mi325x"),
    ("V100", "v100-dgx1"),
];

/// Bytes per second of five stacks of HBM2e.
const HBM2E: f64 = 2.0e12;

/// Returns the cluster with the links of a run, and with kernels and launches as slow as in steps of other software.
///
/// # Errors
/// A GPU that the catalog does not have.
pub fn cluster_of(
    machine: &Machine,
    catalog: &Catalog,
    software: &Software,
) -> Result<Cluster, String> {
    let known = GPUS.iter().find(|(name, _)| *name == machine.gpu);
    let Some((_, name)) = known else {
        return Err(format!("the catalog has no GPU `{}`", machine.gpu));
    };
    let found = catalog.cluster(name).map_err(|error| error.to_string())?;
    let mut cluster = Cluster::clone(&found);
    let gpu = Arc::make_mut(&mut cluster.gpu);
    if machine.gpu.ends_with("HBM2e") {
        gpu.memory_bandwidth.value = HBM2E;
    }
    slow_down(gpu, software);
    set_links(&mut cluster, machine);
    Ok(cluster)
}

fn slow_down(gpu: &mut Gpu, software: &Software) {
    let factor = 1.0 + software.slowdown;
    gpu.memory_bandwidth.value /= factor;
    gpu.peak.iter_mut().for_each(|(_, peak)| peak.value /= factor);
    let rates = gpu.attention.iter_mut().flat_map(|curve| &mut curve.rates);
    rates.for_each(|(_, rate)| *rate /= factor);
    gpu.launch[0].value = software.launch;
}

/// Sets the size of nodes, and scales the rates of their links and of the network to the rates of the run.
fn set_links(cluster: &mut Cluster, machine: &Machine) {
    let node = machine.gpus_per_node.unwrap_or(0).max(1);
    // A rack whose GPUs have links of a node is one node.
    if cluster.levels[0].size <= 8 && machine.gpus_per_node.is_some() {
        cluster.levels[0].size = node;
    }
    for (index, level) in cluster.levels.iter_mut().enumerate() {
        let bandwidth = if index == 0 { machine.node_bandwidth } else { machine.network_bandwidth };
        if let Some(bandwidth) = bandwidth {
            scale(level, bandwidth / level.bandwidth.value);
        }
    }
}

fn scale(level: &mut Level, factor: f64) {
    let scale = |figure: &mut Figure| figure.value *= factor;
    scale(&mut level.bandwidth);
    scale(&mut level.collective_bandwidth);
    scale(&mut level.message_bandwidth);
    level.all_reduce_bandwidth.iter_mut().for_each(scale);
}
