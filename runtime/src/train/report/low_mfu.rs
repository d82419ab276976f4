//! The hint of a summary about a low MFU: the parts of a step that a run has measured, and what would change them.

use super::usage::Report;

/// MFU below which a run gets the hint: what is reached on thousands of GPUs.
const LOW: f64 = 0.3;

/// Part of a step that is worth a line.
const WORTH_A_LINE: f64 = 0.05;

/// Returns the hint for a run whose FLOPs take `ideal` seconds at the peak; nothing if its MFU is not low.
pub fn describe_low_mfu(report: &Report, ideal: f64) -> String {
    let step_time = report.step_time.as_secs_f64();
    let mfu = ideal / step_time;
    // NaN without a step.
    if !(mfu < LOW && mfu > 0.0) {
        return String::new();
    }
    let part = |seconds: f64| (seconds / step_time).min(1.0);
    let mut lines = Vec::new();
    let mut computed: f64 = 1.0;
    for used in &report.communication {
        let exposed = part(used.exposed.as_secs_f64());
        computed -= exposed;
        if exposed >= WORTH_A_LINE {
            lines.push(format!(
                "  {:>3.0} % waits for communication over {}: more work between its calls (--batch, --seq), or fewer \
                 ranks along it",
                100.0 * exposed,
                used.axes
            ));
        }
    }
    let data = part(report.data_wait.as_secs_f64());
    computed -= data;
    if data >= WORTH_A_LINE {
        lines.push(format!(
            "  {:>3.0} % waits for data: tokenize it before, or read it from a faster disk",
            100.0 * data
        ));
    }
    if computed >= WORTH_A_LINE {
        let rate = 100.0 * mfu / computed;
        lines.push(format!(
            "  {:>3.0} % computes, at {rate:.1} % of the peak: wider layers and larger micro-batches have larger \
             matmuls; `meshwright bench gemm` shows the share by size, and --record the kernels",
            100.0 * computed
        ));
    }
    let mfu = 100.0 * mfu;
    format!("mfu is {mfu:.1} %, which is low; of a step of rank 0,\n{}\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::AxisUse;
    use super::*;

    fn report() -> Report {
        let used = |axes: &str, milliseconds| AxisUse {
            axes: axes.into(),
            planned: None,
            bytes: 1,
            overlapped: Duration::ZERO,
            exposed: Duration::from_millis(milliseconds),
        };
        Report {
            memory: Vec::new(),
            communication: vec![used("dp", 80), used("tp", 2)],
            step_time: Duration::from_millis(200),
            data_wait: Duration::from_millis(20),
            flops: 0.0,
            planned_flops: None,
            recomputed: 0.0,
            attention: None,
            peak: None,
        }
    }

    #[test]
    fn the_parts_of_a_step_are_named() {
        // In 200 ms: 40 % over dp, 1 % over tp, 10 % of data.
        let expected = "\
mfu is 9.8 %, which is low; of a step of rank 0,
   40 % waits for communication over dp: more work between its calls (--batch, --seq), or fewer ranks along it
   10 % waits for data: tokenize it before, or read it from a faster disk
   49 % computes, at 20.0 % of the peak: wider layers and larger micro-batches have larger matmuls; `meshwright bench \
gemm` shows the share by size, and --record the kernels
";
        assert_eq!(describe_low_mfu(&report(), 0.2 * 0.098), expected);
    }

    #[test]
    fn a_good_mfu_and_no_step_have_no_hint() {
        assert_eq!(describe_low_mfu(&report(), 0.2 * 0.31), "");
        let none = Report { step_time: Duration::ZERO, ..report() };
        assert_eq!(describe_low_mfu(&none, 0.0), "");
    }
}
