//! Functions in dry runs, which have no memory for large operands.

use std::sync::atomic::{AtomicUsize, Ordering};

use meshwright::backend::DryRunBackend;
use meshwright::comm::{CommError, launch};
use meshwright::prelude::*;
use meshwright::tensor::function::{Backward, Forward, Function, apply};

dims! { Batch @ data, Hidden }

/// Doubles each element, and counts its calls.
struct Double<'a>(&'a AtomicUsize);

impl Function<((Batch, Hidden),), ()> for Double<'static> {
    type Output = Tensor<(Batch, Hidden)>;
    type Saved = ();

    fn path(&self) -> &str {
        "double"
    }

    fn forward_pass(&self, call: Forward<'_, ((Batch, Hidden),), ()>) {
        let Forward { inputs: [x], mut output, .. } = call;
        self.0.fetch_add(1, Ordering::Relaxed);
        // As slices of the host, which any operand is on a CPU.
        let doubled: Vec<f32> = x.view().typed::<f32>().iter().map(|x| 2.0 * x).collect();
        output.view_mut().typed::<f32>().copy_from_slice(&doubled);
    }

    fn backward_pass(&self, call: Backward<'_, ((Batch, Hidden),), (), ()>) {
        let Backward { output_gradient: dy, input_gradients: [dx], .. } = call;
        self.0.fetch_add(1, Ordering::Relaxed);
        if let Some(mut dx) = dx.target() {
            dx.write_f32(&dy.to_f32());
        }
    }
}

/// Applies the function to `rows` rows of 1024 elements in a dry run, and returns the number of calls.
fn calls(rows: usize) -> usize {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    CALLS.store(0, Ordering::Relaxed);
    launch(&"1".parse().unwrap(), |comms| -> Result<(), CommError> {
        let rank = Rank::new(comms, Box::new(DryRunBackend::cpu()), 0);
        let x = Tensor::<(Batch, Hidden)>::from_fn(&rank, &[rows, 1024], |_| 1.0);
        let y = apply(Double(&CALLS), (&x,), ());
        assert_eq!(y.sizes(), [rows, 1024]);
        Ok(())
    })
    .unwrap();
    CALLS.load(Ordering::Relaxed)
}

#[test]
fn a_function_is_called_with_operands_that_a_dry_run_has_memory_for() {
    assert_eq!([calls(4), calls(64), calls(4096)], [1, 1, 0]);
}
