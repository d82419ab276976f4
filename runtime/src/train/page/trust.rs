//! The origin of the numbers of a cluster.

use crate::backend::Bytes;
use crate::train::explain::flops_text;
use crate::train::simulate::{Percent, Seconds, SimulatedRun};
use meshwright_sim::cluster::{Cluster, Figure, Origin};

use super::document::{paragraph, table};

/// Returns the uncertainty of the times, and a table of the numbers of the cluster with their sources.
pub fn trust_section(run: &SimulatedRun, cluster: &Cluster) -> String {
    let text = format!(
        "The memory and the order of all operations are those of a dry run of the program. Times rest on the \
         numbers below: they are \u{b1} {:.0} %, from the trust in the rates of matmuls, and in the network if the run \
         leaves a node. No number is fitted to the time of a step. Failures, restarts and reading data are left out.",
        100.0 * run.uncertainty
    );
    let gpu = &cluster.gpu;
    let row = |name: String, value: String, Origin { source, trust }: &Origin| {
        [name, value, trust.name().to_owned(), source.to_string()]
    };
    let figure = |name: &str, figure: &Figure, text: &dyn Fn(f64) -> String| {
        row(name.to_owned(), text(figure.value), &figure.origin)
    };
    let bytes = |bytes: f64| Bytes(bytes).to_string();
    let rate = |bytes: f64| format!("{}/s", Bytes(bytes));
    let percent = |part: f64| Percent(part).to_string();
    let micro = |seconds: f64| {
        if seconds < 1e-3 {
            format!("{:.1} \u{b5}s", 1e6 * seconds)
        } else {
            Seconds(seconds).to_string()
        }
    };
    let mut rows = vec![figure("memory of a GPU", &gpu.memory, &bytes)];
    for (dtype, peak) in gpu.peak.iter().filter(|(dtype, _)| dtype.name() == run.dtype) {
        let name = format!("peak in {dtype}");
        rows.push(figure(&name, peak, &|flops| format!("{} FLOP/s", flops_text(flops))));
    }
    rows.extend([
        figure("large matmuls, of the peak", &gpu.matmul.efficiency, &percent),
        figure("memory bandwidth", &gpu.memory_bandwidth, &rate),
        figure("other kernels, of the bandwidth", &gpu.passes.others, &percent),
        figure("launch of a kernel", &gpu.launch[0], &micro),
    ]);
    for curve in &gpu.attention {
        let rates = || curve.rates.iter().map(|(_, rate)| *rate);
        let (pass, most) =
            (if curve.is_backward { "backward" } else { "forward" }, rates().fold(0.0, f64::max));
        let name = format!("attention {pass}, heads of {}", curve.head_dim);
        rows.push(row(name, format!("up to {} FLOP/s", flops_text(most)), &curve.origin));
    }
    for level in &cluster.levels {
        let name = |what: &str| format!("{} of a {}, {} GPUs", what, level.name, level.size);
        rows.push(figure(&name("collectives"), &level.collective_bandwidth, &rate));
        rows.push(figure(&name("latency"), &level.latency, &micro));
    }
    let about =
        paragraph(&format!("{}: {}.", cluster.name, cluster.description.trim_end_matches('.')));
    paragraph(&text) + &about + &table(["number", "value", "trust", "source"], 4, rows)
}
