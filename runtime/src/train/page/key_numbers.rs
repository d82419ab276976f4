//! The main numbers of a page.

use std::fmt::Write;

use crate::backend::Bytes;
use crate::train::simulate::{Percent, Scaled, Seconds, SimulatedRun, WholeRun};

use super::document::escaped;

/// A number, with its place in the document of the page.
pub struct KeyNumber {
    /// Pointer into the document: `/step_s`.
    pub place: String,
    pub name: &'static str,
    pub value: String,
    pub note: String,
    pub is_bad: bool,
}

/// Returns numbers in boxes, in their order.
pub fn key_numbers(all: &[KeyNumber]) -> String {
    let mut html = "<div class=\"numbers\">\n".to_owned();
    for KeyNumber { place, name, value, note, is_bad } in all {
        let (class, value, note) =
            (if *is_bad { "number bad" } else { "number" }, escaped(value), escaped(note));
        let _ = writeln!(
            html,
            "<div class=\"{class}\"><span>{name}</span><b data-place=\"{place}\">{value}</b><span>{note}</span></div>"
        );
    }
    html + "</div>\n"
}

/// Returns the main numbers of a simulated run, which is at `place` in the document.
pub fn key_numbers_of_run(run: &SimulatedRun, place: &str) -> String {
    let number = |key: &str, name, value: String, note: String| KeyNumber {
        place: format!("{place}/{key}"),
        name,
        value,
        note,
        is_bad: false,
    };
    let mut all = vec![
        number(
            "step_s",
            "step",
            Seconds(run.step_s).to_string(),
            format!("\u{b1} {:.0} %", 100.0 * run.uncertainty),
        ),
        number(
            "tokens_per_s",
            "tokens per second",
            Scaled(run.tokens_per_s).to_string(),
            format!("{} tokens a step", Scaled(run.step_tokens)),
        ),
        number("mfu", "MFU", Percent(run.mfu).to_string(), "attention over all pairs".to_owned()),
        number(
            "mfu_causal",
            "MFU, causal",
            Percent(run.mfu_causal).to_string(),
            "attention over visible pairs".to_owned(),
        ),
        number("hfu", "HFU", Percent(run.hfu).to_string(), "with recomputation".to_owned()),
        KeyNumber {
            is_bad: !run.fits(),
            ..number(
                "memory_bytes",
                "memory",
                Bytes(run.memory_bytes as f64).to_string(),
                format!(
                    "{} {} of a {}",
                    if run.fits() { "of" } else { "does not fit in" },
                    Bytes(run.gpu_memory_bytes as f64),
                    run.gpu
                ),
            )
        },
        number(
            "bubble",
            "pipeline bubble",
            Percent(run.bubble).to_string(),
            "of the step".to_owned(),
        ),
    ];
    if let Some(WholeRun { tokens, days, gpu_hours }) = run.run {
        let whole = format!("for {} tokens, without interruptions", Scaled(tokens));
        all.push(number("run/days", "days", format!("{days:.1}"), whole.clone()));
        all.push(number("run/gpu_hours", "GPU-hours", Scaled(gpu_hours).to_string(), whole));
    }
    key_numbers(&all)
}
