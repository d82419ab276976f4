//! Reductions, in the order of ranks.

use meshwright_backend::ViewMut;
use meshwright_comm::{Communicator, ReduceOp, Site};

use super::{CaseResult, LENS, assert_bits, data, narrow, narrow_reference, reference};

pub fn of_f32(group: &Communicator) -> CaseResult {
    let (me, size) = (group.rank(), group.size());
    for len in LENS {
        for op in [ReduceOp::Sum, ReduceOp::Max] {
            let expected = reference(size, len, op);
            let (mut all, mut one) = (data(me, len), data(me, len));
            group.all_reduce(&Site::new("all"), op, ViewMut::from(&mut all[..]))?;
            assert_bits(&all, &expected, "all_reduce");
            let root = len % size;
            group.reduce(&Site::new("one"), root, op, ViewMut::from(&mut one[..]))?;
            let at_root = if me == root { expected } else { data(me, len) };
            assert_bits(&one, &at_root, "reduce");
        }
    }
    Ok(())
}

pub fn of_bf16(group: &Communicator) -> CaseResult {
    let (me, size) = (group.rank(), group.size());
    for len in LENS {
        for op in [ReduceOp::Sum, ReduceOp::Max] {
            let expected = narrow_reference(size, len, op);
            let own = narrow(&data(me, len));
            let (mut all, mut one) = (own.clone(), own.clone());
            group.all_reduce(&Site::new("all"), op, ViewMut::from(&mut all[..]))?;
            assert_eq!(all, expected, "all_reduce of {len} elements");
            let root = len % size;
            group.reduce(&Site::new("one"), root, op, ViewMut::from(&mut one[..]))?;
            let at_root = if me == root { expected } else { own };
            assert_eq!(one, at_root, "reduce of {len} elements");
        }
    }
    Ok(())
}

pub fn of_f64(group: &Communicator) -> CaseResult {
    let value = |rank: usize, index: usize| (rank as f64 + 0.1).powi(3) * 1e-3 + index as f64;
    for len in [3, 5000] {
        let mut values: Vec<f64> = (0..len).map(|index| value(group.rank(), index)).collect();
        group.all_reduce_f64(&Site::new("norm"), &mut values)?;
        for (index, found) in values.iter().enumerate() {
            let sum: f64 = (0..group.size()).map(|rank| value(rank, index)).sum();
            assert_eq!(found.to_bits(), sum.to_bits(), "element {index} of {len}");
        }
    }
    Ok(())
}
