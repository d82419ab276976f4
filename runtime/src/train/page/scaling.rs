//! The best plan on fewer and more GPUs.

use crate::backend::Bytes;
use crate::train::planner::ScalingPoint;
use crate::train::simulate::{Percent, Scaled, Seconds};

use super::document::{legend, paragraph, table};
use super::plot::{Plot, PlotAxis};
use super::svg::polyline;

const KINDS: [(&str, &str, &str); 2] = [
    ("k0", "weak", "weak scaling: the batch grows with the GPUs"),
    ("k5", "strong", "strong scaling: the batch remains"),
];

/// Returns the drawing and the table of the points; `gpus` and `tokens_per_s` are those of the plan.
pub fn scaling_section(points: &[ScalingPoint], gpus: usize, tokens_per_s: f64) -> String {
    let per_gpu = tokens_per_s / gpus as f64;
    let relative = |point: &ScalingPoint| point.tokens_per_s / point.gpus as f64 / per_gpu;
    let most = points.iter().map(relative).fold(1.0, f64::max);
    let ends = |of: fn(f64, f64) -> f64| {
        points.iter().map(|point| point.gpus as f64).fold(gpus as f64, of)
    };
    let subject = "The best plan with fewer and more data-parallel ranks: tokens per second of a GPU, over those of \
                   the plan. Settings that a run refuses are left out.";
    let x = PlotAxis {
        label: "GPUs",
        from: ends(f64::min) / 1.3,
        to: ends(f64::max) * 1.3,
        is_log: true,
        text: |gpus| format!("{gpus:.0}"),
    };
    let y = PlotAxis {
        label: "tokens per second of a GPU",
        from: 0.0,
        to: 1.15 * most,
        is_log: false,
        text: |part| format!("{:.0} %", 100.0 * part),
    };
    let mut plot = Plot::new("Scaling of the best plan", subject, x, y);
    for (color, kind, _) in KINDS {
        let of_kind = points.iter().filter(|point| point.scaling == kind);
        let places: Vec<[f64; 2]> =
            of_kind.clone().map(|point| plot.place(point.gpus as f64, relative(point))).collect();
        plot.drawing.path(&format!("curve {color}"), &polyline(&places), "style=\"fill:none\"");
        for (point, [x, y]) in of_kind.zip(places) {
            let title = format!(
                "{} GPUs, {} sequences: {} of the plan's rate, {} a step",
                point.gpus,
                point.batch,
                Percent(relative(point)),
                Seconds(point.step_s)
            );
            plot.drawing.circle([x, y, 5.0], &format!("{color} big"), &title);
        }
    }
    let rows = points.iter().map(|point| {
        [
            point.scaling.to_owned(),
            point.flags.clone(),
            point.gpus.to_string(),
            point.batch.to_string(),
            Seconds(point.step_s).to_string(),
            Scaled(point.tokens_per_s).to_string(),
            Percent(point.mfu).to_string(),
            Bytes(point.memory_bytes as f64).to_string(),
        ]
    });
    let head = ["scaling", "flags", "GPUs", "batch", "step", "tokens/s", "MFU", "memory"];
    paragraph(subject)
        + &plot.drawing.finish()
        + &legend(KINDS.map(|(color, _, name)| (color, name)))
        + &table(head, 2, rows)
}
