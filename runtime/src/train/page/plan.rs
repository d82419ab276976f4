//! The page of `--plan`.

use crate::backend::Bytes;
use crate::train::planner::{EstimatedPoint, PlanReport, PlannedRun};
use crate::train::simulate::{Percent, Seconds};

use super::document::{PageDocument, escaped, legend, paragraph, table};
use super::key_numbers::key_numbers_of_run;
use super::plot::{Plot, PlotAxis};
use super::scaling::scaling_section;
use super::simulation::add_step;

/// Colors and names of candidates.
const KINDS: [(&str, &str); 4] = [
    ("k4", "slower than twice the best"),
    ("k5", "does not fit"),
    ("k3", "estimated behind the best"),
    ("k0", "simulated"),
];

/// Returns the page of a search that has found plans.
pub fn page_of_plan(report: &PlanReport) -> String {
    let PlannedRun { candidate, run } = report.best();
    let mut title = report.question();
    title.replace_range(..1, "P");
    let mut page = PageDocument::new(&title, "");
    page.add(&format!("<pre>{}</pre>\n", escaped(&format!("--device cuda {candidate}"))));
    page.add(&key_numbers_of_run(run, "/plans/0/run"));
    page.add(&paragraph(&format!("Its limit is {}.", report.binds)));
    let omissions: Vec<String> = report.omissions.iter().map(ToString::to_string).collect();
    if !omissions.is_empty() {
        page.add(&paragraph(&format!("The same plan, {}.", omissions.join("; "))));
    }
    page.section("Candidates", &candidates(report));
    page.section("The best plans", &plans(report));
    if let Some(points) = &report.scaling {
        let section = scaling_section(points, run.gpus, run.tokens_per_s);
        page.section("Fewer and more GPUs", &section);
    }
    page.section("Rules of thumb", &rules(report));
    add_step(&mut page, run, &report.on.cluster);
    page.finish(&report.to_json())
}

/// Returns the drawing of the candidates, memory against MFU.
fn candidates(report: &PlanReport) -> String {
    let (best, plans) = (&report.best().run, &report.found.plans);
    // All candidates have the same FLOPs of the model.
    let mfu = |step_s: f64| best.mfu * best.step_s / step_s;
    let memory = best.gpu_memory_bytes as f64;
    let most = plans.iter().map(|plan| plan.run.mfu).fold(0.0, f64::max);
    let subject = "Memory of the fullest rank against MFU. Estimates choose what is simulated, and some of them are \
                   drawn.";
    let text = |bytes| Bytes(bytes).to_string();
    let x = PlotAxis { label: "memory", from: 0.0, to: 2.0 * memory, is_log: false, text };
    let text = |mfu: f64| format!("{:.0} %", 100.0 * mfu);
    let y = PlotAxis { label: "MFU", from: 0.0, to: 1.2 * most, is_log: false, text };
    let mut plot = Plot::new("Candidates", subject, x, y);
    for (color, kind) in KINDS {
        let of_kind = report.found.estimates.iter().filter(|point| point.left_out == kind);
        let dots = of_kind.map(|EstimatedPoint { memory_bytes, step_s, .. }| {
            let [x, y] = plot.place(*memory_bytes as f64, mfu(*step_s));
            format!("M{x:.0} {y:.0}h0")
        });
        let dots: String = dots.collect();
        if !dots.is_empty() {
            plot.drawing.path(&format!("dots {color}"), &dots, "style=\"fill:none\"");
        }
    }
    let from = plot.place(memory, 0.0);
    plot.drawing.line(from, plot.place(memory, 1.2 * most), "mark");
    plot.drawing.text([from[0] + 6.0, 26.0], "", &format!("{} of a GPU", Bytes(memory)));
    for PlannedRun { candidate, run } in plans.iter().rev() {
        let [x, y] = plot.place(run.memory_bytes as f64, run.mfu);
        let title = format!("{}, MFU {}: {candidate}", Seconds(run.step_s), Percent(run.mfu));
        plot.drawing.circle([x, y, 7.0], "k0 big", &title);
    }
    paragraph(subject)
        + &plot.drawing.finish()
        + &legend(KINDS)
        + &paragraph(&format!("{}.", report.comparison()))
}

fn plans(report: &PlanReport) -> String {
    let best = report.best().run.step_s;
    let rows = report.listed().iter().map(|PlannedRun { candidate, run }| {
        [
            candidate.to_string(),
            Seconds(run.step_s).to_string(),
            format!("{:.2}", run.step_s / best),
            Percent(run.mfu).to_string(),
            Percent(run.bubble).to_string(),
            Bytes(run.memory_bytes as f64).to_string(),
        ]
    });
    let head = ["flags", "step", "over the first", "MFU", "bubble", "memory"];
    let about = "Times that a prediction cannot tell apart are ties, and the simpler plan comes first: fewer axes, \
                 then less recomputation, then more free memory.";
    table(head, 1, rows) + &paragraph(about)
}

fn rules(report: &PlanReport) -> String {
    let rows = report.rules.iter().map(|verdict| {
        let kept = if verdict.is_kept { "kept" } else { "departs" };
        let reason = verdict.reason.clone().unwrap_or_default();
        [verdict.rule.to_owned(), kept.to_owned(), reason]
    });
    table(["rule", "the plan", "reason"], 3, rows)
}
