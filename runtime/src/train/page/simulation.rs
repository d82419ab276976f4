//! The page of `--simulate`.

use std::fmt::Write;

use serde_json::json;

use crate::train::simulate::{Percent, Seconds, SimulatedRun};
use meshwright_sim::cluster::Cluster;

use super::document::{PageDocument, escaped, legend, paragraph};
use super::key_numbers::key_numbers_of_run;
use super::memory::memory_section;
use super::roofline::roofline_section;
use super::timeline::timeline_section;
use super::trust::trust_section;

/// Returns the page of a simulated run; `about` describes the run in lines.
pub fn page_of_simulation(about: &str, run: &SimulatedRun, cluster: &Cluster) -> String {
    let SimulatedRun { cluster: name, gpu, gpus, mesh, .. } = run;
    let title = format!("Simulated step of {mesh} on {gpus} {gpu} of {name}");
    let mut page = PageDocument::new(&title, about);
    page.add(&key_numbers_of_run(run, ""));
    add_step(&mut page, run, cluster);
    page.finish(&json!(run))
}

/// Adds the sections of a simulated step.
pub fn add_step(page: &mut PageDocument, run: &SimulatedRun, cluster: &Cluster) {
    page.section("The step by use", &bar_of(run));
    let Some(course) = &run.course else { return };
    let is_pipeline = run.mesh.contains("pp=");
    let heading = if is_pipeline { "The pipeline" } else { "The timeline" };
    page.section(heading, &timeline_section(&course.timeline, run.step_s, is_pipeline));
    let limit = Some(run.gpu_memory_bytes as f64);
    let time = ("time", (|seconds| Seconds(seconds).to_string()) as fn(f64) -> String);
    let memory =
        memory_section((&course.memory_over_time, &course.memory_peak), is_pipeline, limit, time);
    page.section("Memory over the step", &memory);
    let kernels = roofline_section(&course.kernels, &cluster.gpu, run.dtype);
    page.section("Kernels against the roofline", &kernels);
    page.section("How far to trust this", &trust_section(run, cluster));
}

/// Smallest part of a step that is shown.
const LEAST_SHARE: f64 = 5e-4;

/// Returns the parts of a step as one bar.
fn bar_of(run: &SimulatedRun) -> String {
    let mut parts: Vec<(&str, f64)> =
        run.time_s.iter().map(|(name, seconds)| (&**name, *seconds / run.step_s)).collect();
    parts.retain(|(_, share)| *share >= LEAST_SHARE);
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut bar = String::new();
    for (name, share) in &parts {
        let (color, title) = (color_of(name), escaped(&format!("{name}: {}", Percent(*share))));
        let _ = write!(
            bar,
            "<span class=\"{color}\" style=\"width:{:.2}%\" title=\"{title}\"></span>",
            100.0 * share
        );
    }
    let text: Vec<String> =
        parts.iter().map(|(name, share)| format!("{name} {}", Percent(*share))).collect();
    let label = escaped(&text.join(", "));
    let legend = legend(parts.iter().zip(&text).map(|((name, _), text)| (color_of(name), text)));
    let about =
        "The mean of all positions along pp. Communication is exposed if the GPU waits for it.";
    format!("<div class=\"bar\" role=\"img\" aria-label=\"{label}\">{bar}</div>\n")
        + &legend
        + &paragraph(about)
}

fn color_of(name: &str) -> &'static str {
    match name {
        "matmuls" => "k0",
        "attention" => "k1",
        "head" => "k2",
        "optimizer" => "k3",
        "other" => "k4",
        "bubble" => "k7",
        "transfers" => "k9",
        "launches" => "k8",
        name if name.contains("tp") => "k5",
        _ => "k6",
    }
}
