//! The profile as text: named tables of comma-separated values.

use std::fmt::Write;

use super::{Call, Profile, Times};
use crate::backend::cuda::choices::{AttentionChoice, Origin, ProductChoice};
use crate::backend::cuda::gpu::lock;
use crate::backend::cuda::trial::Trial;

impl Profile {
    /// Returns the tables of everything measured so far.
    pub fn table(&self) -> String {
        let mut text = String::from(
            "# calls\nname,shape,rank,stream,calls,total_ms,min_us,median_us,first_us\n",
        );
        let times = lock(&self.times);
        let mut calls: Vec<_> = times.iter().collect();
        let order = |(call, times): &(&Call, &Times)| {
            (std::cmp::Reverse(times.total.to_bits()), call.name.clone(), call.shape.clone())
        };
        calls.sort_by_cached_key(order);
        for (call, times) in calls {
            let Call { name, shape, rank, stream } = call;
            let Times { first, count, total, .. } = times;
            let microseconds =
                |time: Option<f32>| time.map_or(String::new(), |time| format!("{:.2}", 1e3 * time));
            let least = microseconds((*count > 0).then_some(times.least));
            let (median, first) = (microseconds(times.median()), microseconds(Some(*first)));
            line(
                &mut text,
                &format!(
                    "{name},{shape},{rank},{stream},{count},{total:.3},{least},{median},{first}"
                ),
            );
        }
        let choices = lock(&self.choices);
        line(&mut text, "\n# matrix products\nshape,alignment,origin,settings,workspace,ways");
        let mut products: Vec<_> =
            choices.iter().flat_map(|choices| &choices.products).map(product).collect();
        products.sort();
        products.iter().for_each(|product| line(&mut text, product));
        line(&mut text, "\n# attention\npass,parts,samples,scratch,kernels");
        let mut all: Vec<_> =
            choices.iter().flat_map(|choices| &choices.attention).map(attention).collect();
        all.sort();
        all.iter().for_each(|attention| line(&mut text, attention));
        text
    }
}

fn line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("memory can be written to");
}

/// Returns text as a single value of a table.
fn value(text: &str) -> String {
    text.replace([',', '\n'], ";")
}

fn product(choice: &ProductChoice) -> String {
    let ProductChoice { shape, alignment: [left, right, result], settings, workspace, .. } = choice;
    let (origin, ways) = match &choice.origin {
        Origin::Proposed => ("first proposal".to_owned(), String::new()),
        Origin::Kept => ("kept".to_owned(), String::new()),
        Origin::Tried { way, trials } => {
            let ways: Vec<_> = trials.iter().map(trial).collect();
            (format!("tried: way {way}"), ways.join("; "))
        }
    };
    format!("{shape},{left}/{right}/{result},{origin},{settings},{workspace},{ways}")
}

fn trial(trial: &Trial) -> String {
    let Trial { way, same_bits, milliseconds } = trial;
    let bits = if *same_bits { "" } else { " (other bits)" };
    match milliseconds {
        Some(milliseconds) => format!("{way}: {:.2} us{bits}", 1e3 * milliseconds),
        None => format!("{way}: not timed{bits}"),
    }
}

fn attention(choice: &AttentionChoice) -> String {
    let AttentionChoice { name, batch, samples, scratch, kernels } = choice;
    let (name, kernels) = (value(name), value(kernels));
    match samples {
        Some(samples) => format!("{name},{},{samples},{scratch},{kernels}", batch / samples),
        None => format!("{name},,,,{kernels}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cuda::choices::Choices;
    use crate::backend::cuda::{Ending, MatMul};
    use crate::backend::{DType, Gemm};

    #[test]
    fn the_first_call_is_apart() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("profile.csv");
        let profile = Profile::new(file.clone());
        let call = |name: &str| Call {
            name: name.into(),
            shape: "1 KiB".into(),
            rank: 0,
            stream: "0".into(),
        };
        for time in [9.0, 2.0, 1.0, 4.0] {
            profile.note(call("copy"), time);
        }
        profile.note(call("once"), 0.5);
        let gemm = Gemm { m: 2, n: 3, k: 4, trans_a: false, trans_b: true, accumulate: true };
        let (factors, result) = (DType::Bf16, DType::F32);
        let trials = vec![
            Trial { way: 0, same_bits: true, milliseconds: Some(0.25) },
            Trial { way: 2, same_bits: false, milliseconds: None },
        ];
        let products = vec![ProductChoice {
            shape: MatMul { gemm, factors, result, ending: Ending::Plain },
            alignment: [16, 16, 4],
            settings: "tile 20".into(),
            workspace: 512,
            origin: Origin::Tried { way: 0, trials },
        }];
        let attention = vec![AttentionChoice {
            name: "attention, batch 4".into(),
            batch: 4,
            samples: Some(2),
            scratch: 256,
            kernels: "flash".into(),
        }];
        let choices = Choices { products, attention };
        // Reported by two ranks that share a device.
        profile.note_choices(choices.clone());
        profile.note_choices(choices);
        drop(profile);
        let expected = "# calls\n\
                        name,shape,rank,stream,calls,total_ms,min_us,median_us,first_us\n\
                        copy,1 KiB,0,0,3,7.000,1000.00,2000.00,9000.00\n\
                        once,1 KiB,0,0,0,0.000,,,500.00\n\
                        \n\
                        # matrix products\n\
                        shape,alignment,origin,settings,workspace,ways\n\
                        2 x 3 x 4 NT bf16 -> f32 added,16/16/4,tried: way 0,tile 20,512,0: 250.00 us; 2: not timed (other bits)\n\
                        \n\
                        # attention\n\
                        pass,parts,samples,scratch,kernels\n\
                        attention; batch 4,2,2,256,flash\n";
        assert_eq!(std::fs::read_to_string(file).unwrap(), expected);
    }
}
