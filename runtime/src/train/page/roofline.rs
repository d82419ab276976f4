//! Kernels against the roofline of their GPU.

use crate::backend::Bytes;
use crate::train::explain::flops_text;
use crate::train::simulate::{KernelTime, Percent, Seconds};
use meshwright_sim::cluster::Gpu;

use super::document::{legend, paragraph, table};
use super::plot::{Plot, PlotAxis};
use super::svg::polyline;

/// Kernels that are listed.
const LISTED: usize = 12;
/// Colors and names of kinds of kernels.
const KINDS: [(&str, &str); 3] = [("k0", "matmuls"), ("k1", "attention"), ("k3", "others")];

/// Returns the drawing of the kernels that take most of the time, and a table of them.
pub fn roofline_section(kernels: &[KernelTime], gpu: &Gpu, dtype: &str) -> String {
    let bandwidth = gpu.memory_bandwidth.value;
    let peak = gpu.peak.iter().find(|(known, _)| known.name() == dtype);
    // The dtype of a simulated step has one.
    let peak = peak.map_or(bandwidth, |(_, figure)| figure.value);
    let ridge = peak / bandwidth;
    let subject = format!(
        "Kernels by FLOPs per byte that they must move, and FLOP/s that they reach in the step, slowed by collectives \
         beside them. The lines are the peak of {} in {}, {} FLOP/s, and its memory bandwidth, {} per second. Kernels \
         without FLOPs, which only move bytes, are in the table.",
        gpu.name,
        dtype,
        flops_text(peak),
        Bytes(bandwidth)
    );
    let computing = || kernels.iter().filter(|kernel| kernel.flops > 0.0);
    let intensity = |kernel: &KernelTime| kernel.flops / kernel.bytes.max(1.0);
    let rate = |kernel: &KernelTime| kernel.flops / kernel.seconds.max(f64::MIN_POSITIVE);
    let least = |of: &dyn Fn(&KernelTime) -> f64, limit| computing().map(of).fold(limit, f64::min);
    let from = 0.5 * least(&intensity, ridge / 10.0);
    let to = 2.0 * computing().map(intensity).fold(10.0 * ridge, f64::max);
    let floor = 0.5 * least(&rate, from * bandwidth);
    let text = |value| flops_text(value);
    let x = PlotAxis { label: "FLOPs per byte", from, to, is_log: true, text };
    let y = PlotAxis { label: "FLOP/s", from: floor, to: 2.0 * peak, is_log: true, text };
    let mut plot = Plot::new("Roofline of kernels", &subject, x, y);
    let roof = [[from, from * bandwidth], [ridge, peak], [to, peak]];
    let roof = roof.map(|[x, y]| plot.place(x, y));
    plot.drawing.path("mark", &polyline(&roof), "");
    let total: f64 = kernels.iter().map(|kernel| kernel.seconds).sum();
    let share = |kernel: &KernelTime| kernel.seconds / total;
    for kernel in computing() {
        let [x, y] = plot.place(intensity(kernel), rate(kernel));
        let radius = 4.0 + 14.0 * share(kernel).sqrt();
        let title = format!(
            "{}: {} of the listed time, {} FLOP/s, {} FLOPs per byte",
            name(kernel),
            Percent(share(kernel)),
            flops_text(rate(kernel)),
            flops_text(intensity(kernel))
        );
        plot.drawing.circle([x, y, radius], &format!("{} big", kind(kernel).0), &title);
    }
    let used = KINDS.into_iter().filter(|known| computing().any(|kernel| kind(kernel) == *known));
    let rows = kernels.iter().take(LISTED).map(|kernel| {
        let moved = kernel.bytes / kernel.seconds;
        let of = |rate: f64, most: f64| {
            if rate > 0.0 { Percent(rate / most).to_string() } else { "-".to_owned() }
        };
        [
            name(kernel),
            kernel.count.to_string(),
            Seconds(kernel.seconds / kernel.count as f64).to_string(),
            Percent(share(kernel)).to_string(),
            of(rate(kernel), peak),
            of(moved, bandwidth),
        ]
    });
    let head =
        ["kernel", "launches", "each", "of the listed time", "of the peak", "of the bandwidth"];
    paragraph(&subject) + &plot.drawing.finish() + &legend(used) + &table(head, 1, rows)
}

/// Returns the operation and the sizes: `gemm 8192 x 4096 x 1024`.
fn name(kernel: &KernelTime) -> String {
    let sizes = if kind(kernel).0 == "k3" { &kernel.dims[..2] } else { &kernel.dims[..] };
    // The number of epilogues of a matmul is no size.
    let sizes = if kind(kernel).0 == "k0" { &sizes[..3] } else { sizes };
    let sizes = sizes.iter().filter(|size| **size > 0).map(u32::to_string);
    format!("{} {}", kernel.op, sizes.collect::<Vec<_>>().join(" x "))
}

fn kind(kernel: &KernelTime) -> (&'static str, &'static str) {
    match kernel.op {
        op if op.contains("attention") => KINDS[1],
        _ if kernel.flops > 0.0 => KINDS[0],
        _ => KINDS[2],
    }
}
