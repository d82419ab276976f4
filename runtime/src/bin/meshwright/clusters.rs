//! The subcommand `clusters`: lists the clusters that can be simulated, and prints their descriptions.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use meshwright_sim::cluster::{Catalog, Cluster, ClusterError, Level, Trust};

use super::failure::Failure;

pub fn command() -> Command {
    let show =
        Command::new("show")
            .about("Print a description as TOML, to be edited and used as FILE.tomlxN")
            .arg(Arg::new("name").value_name("NAME").required(true).help(
                "A cluster, such as h100 or llama3, a GPU, such as h100-sxm, or a TOML file",
            ));
    Command::new("clusters")
        .about("List the clusters that can be simulated, and print their descriptions")
        .arg(
            Arg::new("clusters")
                .long("clusters")
                .value_name("PATH")
                .action(ArgAction::Append)
                .global(true)
                .value_parser(value_parser!(PathBuf))
                .help("A TOML file, or a folder of them, with further clusters and GPUs; they replace those of their \
                       names"),
        )
        .subcommand(show)
}

/// Runs the subcommand. Returns the text to print, and true.
pub fn run_command(matches: &ArgMatches) -> Result<(String, bool), Failure> {
    let failure = |error: ClusterError| Failure::new(error.to_string(), &error);
    let mut catalog = Catalog::new();
    for path in matches.get_many::<PathBuf>("clusters").into_iter().flatten() {
        catalog.add_path(path).map_err(failure)?;
    }
    let text = match matches.subcommand() {
        Some((_, matches)) => {
            let name: &String = matches.get_one("name").expect("the argument is required");
            show(&catalog, name).map_err(failure)?
        }
        None => list(&catalog),
    };
    Ok((text, true))
}

/// Returns a cluster or GPU as TOML.
fn show(catalog: &Catalog, name: &str) -> Result<String, ClusterError> {
    let toml = match (catalog.cluster(name), catalog.gpu(name)) {
        (Ok(cluster), _) => cluster.to_toml(),
        (Err(ClusterError::Unknown { .. }), Ok(gpu)) => gpu.to_toml(),
        (
            Err(ClusterError::Unknown { name, hint, .. }),
            Err(ClusterError::Unknown { hint: gpus, .. }),
        ) => {
            let hint = format!("of clusters, {hint}; of GPUs, {gpus}");
            return Err(ClusterError::Unknown { kind: "cluster or GPU", name, hint });
        }
        (Err(error), _) => return Err(error),
    };
    let trusts = Trust::ALL.map(|trust| format!("\"{trust}\"")).join(", ");
    Ok(format!(
        "# Numbers of a table come from its source, or from that of the table around it.\n\
         # trust is one of {trusts}.\n\
         # Keys end in their units: 10^9 bytes (gb), microseconds (us), 10^12 FLOP/s (tflop_s).\n\
         {toml}"
    ))
}

/// Returns a table of all clusters.
fn list(catalog: &Catalog) -> String {
    let titles =
        ["name", "GPU", "peak, TFLOP/s", "memory", "node", "network, GB/s", "kernels", "about"];
    let mut rows = vec![titles.map(str::to_owned)];
    rows.extend(catalog.clusters().map(|cluster| row(cluster)));
    let mut widths = [0; 8];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let lines = rows.iter().map(|row| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    });
    lines.collect()
}

/// Name, GPU, peak, memory, node, network, trust and description of a cluster.
fn row(cluster: &Cluster) -> [String; 8] {
    let gpu = &cluster.gpu;
    let (dtype, peak) = &gpu.peak[0];
    let giga = |value: f64| {
        let text = format!("{:.2}", value / 1e9);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    let bandwidths = |levels: &[Level]| {
        let rates: Vec<_> = levels.iter().map(|level| giga(level.bandwidth.value)).collect();
        rates.join(", ")
    };
    let trust = gpu.trust();
    [
        cluster.name.clone(),
        gpu.name.clone(),
        format!("{} {}", giga(peak.value / 1e3), dtype.name()),
        format!("{} GB at {} GB/s", giga(gpu.memory.value), giga(gpu.memory_bandwidth.value)),
        format!("{} at {} GB/s", cluster.node(), bandwidths(&cluster.levels[..1])),
        bandwidths(&cluster.levels[1..]),
        format!("{trust}, +-{:.0} %", 100.0 * trust.uncertainty()),
        cluster.description.clone(),
    ]
}
