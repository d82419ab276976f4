//! Tests of the moving average (EMA) of parameters.

use meshwright::backend::DType;
use meshwright::optim::AdamWOptions;
use meshwright::tensor::Settings;
use meshwright_tests::compare::{Report, Tensors, assert_same_bits};

use super::meshes::levels;
use super::net::{Case, first};

const DECAY: f64 = 0.7;

/// The average follows its recurrence in double precision. Swapping it with the parameters after every step does not
/// change training.
#[test]
fn the_average_follows_its_recurrence() {
    let mut report = Report::default();
    for mesh in ["1", "tp=2", "fsdp=2", "fsdp=2,tp=2", "dp=2,fsdp=2"] {
        for zero in levels(mesh) {
            for compute in [DType::F32, DType::Bf16] {
                let mut plain = Case::new(AdamWOptions::default());
                plain.settings = Settings { compute, zero: *zero, ..plain.settings };
                let run = first(mesh, &Case { ema: Some(DECAY), ..plain.clone() });
                let label = format!("{mesh}, {zero}, {compute}");
                let without = first(mesh, &plain);
                assert_eq!(run.losses, without.losses, "{label}");
                let (last, expected) = (run.params.last(), without.params.last());
                assert_same_bits(&label, last.unwrap(), expected.unwrap());

                let mut expected: Vec<Vec<f64>> = wide(&run.params[0]);
                for (params, (average, loss)) in run.params[1..].iter().zip(&run.averages) {
                    for (expected, params) in expected.iter_mut().zip(wide(params)) {
                        for (expected, param) in expected.iter_mut().zip(params) {
                            *expected = DECAY * *expected + (1.0 - DECAY) * param;
                        }
                    }
                    let narrow = |values: &Vec<f64>| values.iter().map(|x| *x as f32).collect();
                    let values = expected.iter().map(narrow);
                    let expected: Tensors = average.keys().cloned().zip(values).collect();
                    report.tensors("average", &label, average, &expected, 1e-6);
                    assert!(
                        !run.losses.contains(loss),
                        "{label}: the loss is not that of the average"
                    );
                }
            }
        }
    }
    report.print();
}

fn wide(tensors: &Tensors) -> Vec<Vec<f64>> {
    tensors.values().map(|values| values.iter().copied().map(f64::from).collect()).collect()
}
