//! The profile as text: named tables of comma-separated values.

use std::fmt::Write;

use super::{CallKey, CallTimes, Profile};
use crate::algorithm_choices::{AttentionChoice, ChoiceOrigin, MatMulChoice};
use crate::autotune::AlgorithmTiming;
use crate::gpu::lock_unpoisoned;

impl Profile {
    /// Returns the tables of everything measured so far.
    pub fn table(&self) -> String {
        let mut text = String::from(
            "# calls\nname,shape,rank,stream,calls,total_ms,min_us,median_us,first_us\n",
        );
        let times = lock_unpoisoned(&self.times);
        let mut calls: Vec<_> = times.iter().collect();
        let order = |(call, times): &(&CallKey, &CallTimes)| {
            (std::cmp::Reverse(times.total.to_bits()), call.name.clone(), call.shape.clone())
        };
        calls.sort_by_cached_key(order);
        for (call, times) in calls {
            let CallKey { name, shape, rank, stream } = call;
            let CallTimes { first, count, total, .. } = times;
            let microseconds =
                |time: Option<f32>| time.map_or(String::new(), |time| format!("{:.2}", 1e3 * time));
            let least = microseconds((*count > 0).then_some(times.least));
            let (median, first) = (microseconds(times.median()), microseconds(Some(*first)));
            write_line(
                &mut text,
                &format!(
                    "{name},{shape},{rank},{stream},{count},{total:.3},{least},{median},{first}"
                ),
            );
        }
        let choices = lock_unpoisoned(&self.choices);
        write_line(&mut text, "\n# matmuls\nshape,alignment,origin,algorithm,workspace,timings");
        let mut matmuls: Vec<_> =
            choices.iter().flat_map(|choices| &choices.matmuls).map(matmul_row).collect();
        matmuls.sort();
        matmuls.iter().for_each(|row| write_line(&mut text, row));
        write_line(&mut text, "\n# attention\npass,parts,samples,scratch,kernels");
        let mut all: Vec<_> =
            choices.iter().flat_map(|choices| &choices.attention).map(attention_row).collect();
        all.sort();
        all.iter().for_each(|row| write_line(&mut text, row));
        text
    }
}

fn write_line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("memory can be written to");
}

/// Returns text as a single value of a table.
fn single_value(text: &str) -> String {
    text.replace([',', '\n'], ";")
}

fn matmul_row(choice: &MatMulChoice) -> String {
    let MatMulChoice { shape, alignment: [left, right, result], configuration, workspace, .. } =
        choice;
    let (origin, timings) = match &choice.origin {
        ChoiceOrigin::Heuristic => ("heuristic".to_owned(), String::new()),
        ChoiceOrigin::Cached => ("cached".to_owned(), String::new()),
        ChoiceOrigin::Autotuned { algorithm, timings } => {
            let timings: Vec<_> = timings.iter().map(timing_text).collect();
            (format!("autotuned: {algorithm}"), timings.join("; "))
        }
    };
    format!("{shape},{left}/{right}/{result},{origin},{configuration},{workspace},{timings}")
}

fn timing_text(timing: &AlgorithmTiming) -> String {
    let AlgorithmTiming { algorithm, same_bits, milliseconds } = timing;
    let bits = if *same_bits { "" } else { " (not bitwise equal)" };
    match milliseconds {
        Some(milliseconds) => format!("{algorithm}: {:.2} us{bits}", 1e3 * milliseconds),
        None => format!("{algorithm}: not timed{bits}"),
    }
}

fn attention_row(choice: &AttentionChoice) -> String {
    let AttentionChoice { name, batch, samples, scratch, kernels } = choice;
    let (name, kernels) = (single_value(name), single_value(kernels));
    match samples {
        Some(samples) => format!("{name},{},{samples},{scratch},{kernels}", batch / samples),
        None => format!("{name},,,,{kernels}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm_choices::AlgorithmChoices;
    use crate::{MatMul, MatMulEpilogue};
    use meshwright_backend::{DType, Gemm};

    #[test]
    fn first_call_is_reported_separately() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("profile.csv");
        let profile = Profile::new(file.clone());
        let call = |name: &str| CallKey {
            name: name.into(),
            shape: "1 KiB".into(),
            rank: 0,
            stream: "0".into(),
        };
        for time in [9.0, 2.0, 1.0, 4.0] {
            profile.record_time(call("copy"), time);
        }
        profile.record_time(call("once"), 0.5);
        let gemm = Gemm { m: 2, n: 3, k: 4, trans_a: false, trans_b: true, accumulate: true };
        let (inputs, result) = (DType::Bf16, DType::F32);
        let timings = vec![
            AlgorithmTiming { algorithm: 0, same_bits: true, milliseconds: Some(0.25) },
            AlgorithmTiming { algorithm: 2, same_bits: false, milliseconds: None },
        ];
        let matmuls = vec![MatMulChoice {
            shape: MatMul {
                gemm,
                inputs,
                result,
                epilogue: MatMulEpilogue::Plain,
                is_grouped: false,
                batch: None,
            },
            alignment: [16, 16, 4],
            configuration: "tile 20".into(),
            workspace: 512,
            origin: ChoiceOrigin::Autotuned { algorithm: 0, timings },
        }];
        let attention = vec![AttentionChoice {
            name: "attention, batch 4".into(),
            batch: 4,
            samples: Some(2),
            scratch: 256,
            kernels: "flash".into(),
        }];
        let choices = AlgorithmChoices { matmuls, attention };
        // Reported by two ranks that share a device.
        profile.note_choices(choices.clone());
        profile.note_choices(choices);
        drop(profile);
        let expected = "# calls\n\
                        name,shape,rank,stream,calls,total_ms,min_us,median_us,first_us\n\
                        copy,1 KiB,0,0,3,7.000,1000.00,2000.00,9000.00\n\
                        once,1 KiB,0,0,0,0.000,,,500.00\n\
                        \n\
                        # matmuls\n\
                        shape,alignment,origin,algorithm,workspace,timings\n\
                        2 x 3 x 4 NT bf16 -> f32 accumulate,16/16/4,autotuned: 0,tile 20,512,0: 250.00 us; 2: not \
                        timed (not bitwise equal)\n\
                        \n\
                        # attention\n\
                        pass,parts,samples,scratch,kernels\n\
                        attention; batch 4,2,2,256,flash\n";
        assert_eq!(std::fs::read_to_string(file).unwrap(), expected);
    }
}
