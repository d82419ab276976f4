//! Sums of bf16: in f32, rounded once.

use half::bf16;

use crate::{ReduceOp, Site};
use meshwright_backend::ViewMut;

use super::on_ranks;

#[test]
fn sum_over_eight_ranks_is_rounded_once() {
    // 1/256 is half of the last place of 1: rounded after each addition, the sum would stay 1.
    let sums = on_ranks(8, |tp| {
        let value = if tp.rank() == 0 { 1.0 } else { 1.0 / 256.0 };
        let mut values = [bf16::from_f32(value)];
        tp.all_reduce(&Site::new("x"), ReduceOp::Sum, ViewMut::from(&mut values[..]))?;
        Ok(values[0].to_f32())
    });
    assert_eq!(sums, [1.0 + 8.0 / 256.0; 8]);
}
