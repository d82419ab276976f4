//! Collectives of bf16 against a sequential reference: sums in f32, rounded once.

use half::bf16;

use crate::{Blocks, ReduceOp, Site};
use meshwright_backend::{View, ViewMut};

use super::{data, on_ranks};

fn narrow(values: Vec<f32>) -> Vec<bf16> {
    values.into_iter().map(bf16::from_f32).collect()
}

fn reference(ranks: usize, len: usize, op: ReduceOp) -> Vec<bf16> {
    let widen = |rank| narrow(data(rank, len)).into_iter().map(bf16::to_f32);
    let mut acc: Vec<f32> = widen(0).collect();
    for rank in 1..ranks {
        for (a, b) in acc.iter_mut().zip(widen(rank)) {
            *a = if op == ReduceOp::Sum { *a + b } else { a.max(b) };
        }
    }
    narrow(acc)
}

#[test]
fn reductions_are_rounded_once() {
    for ranks in 1..=5 {
        for len in [0, 1, 33, 4096, 4097, 70_001] {
            for op in [ReduceOp::Sum, ReduceOp::Max] {
                let results = on_ranks(ranks, |tp| {
                    let mut all = narrow(data(tp.rank(), len));
                    let mut one = all.clone();
                    let root = len % ranks;
                    tp.all_reduce(&Site::new("all"), op, ViewMut::from(&mut all[..]))?;
                    tp.reduce(&Site::new("one"), root, op, ViewMut::from(&mut one[..]))?;
                    Ok((all, (tp.rank() == root).then_some(one)))
                });
                let expected = reference(ranks, len, op);
                for (all, one) in results {
                    assert_eq!(all, expected, "all_reduce, {ranks} ranks, {len} elements");
                    let at_root = one.unwrap_or_else(|| expected.clone());
                    assert_eq!(at_root, expected, "reduce, {ranks} ranks, {len} elements");
                }
            }
        }
    }
}

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

#[test]
fn every_other_collective_carries_bf16() {
    for base in [3, 9000] {
        let blocks = Blocks::new(1, [base, 0, base + 5]);
        let total = blocks.total();
        on_ranks(3, |tp| {
            let (site, me, own) = (Site::new("x"), tp.rank(), blocks.lens[tp.rank()]);
            let run = blocks.start(me)..blocks.start(me) + own;
            let whole = narrow(data(7, total));
            let part = &whole[run.clone()];

            let mut gathered = vec![bf16::ZERO; total];
            tp.all_gather(&site, View::from(part), ViewMut::from(&mut gathered[..]), &blocks)?;
            assert_eq!(gathered, whole);

            let contribution = narrow(data(me, total));
            let mut sum = vec![bf16::ZERO; own];
            tp.reduce_scatter(
                &site,
                View::from(&contribution[..]),
                ViewMut::from(&mut sum[..]),
                &blocks,
            )?;
            assert_eq!(sum, reference(3, total, ReduceOp::Sum)[run]);

            let mut copy = if me == 2 { whole.clone() } else { vec![bf16::ZERO; total] };
            tp.broadcast(&site, 2, ViewMut::from(&mut copy[..]))?;
            assert_eq!(copy, whole);

            let mut scattered = vec![bf16::ZERO; own];
            let src = (me == 1).then(|| View::from(&whole[..]));
            tp.scatter(&site, 1, src, ViewMut::from(&mut scattered[..]), &blocks.lens)?;
            assert_eq!(scattered, part);

            let mut back = vec![bf16::ZERO; total];
            let dst = if me == 0 { Some(ViewMut::from(&mut back[..])) } else { None };
            tp.gather(&site, 0, View::from(part), dst, &blocks.lens)?;
            assert!(me != 0 || back == whole);

            let mut exchanged = vec![bf16::ZERO; 3 * own];
            tp.all_to_all(
                &site,
                View::from(&whole[..]),
                ViewMut::from(&mut exchanged[..]),
                &blocks.lens,
                &[own; 3],
            )?;
            assert_eq!(exchanged, [part, part, part].concat());

            tp.send(&site, (me + 1) % 3, View::from(&whole[..]))?;
            let mut received = vec![bf16::ZERO; total];
            tp.recv(&site, (me + 2) % 3, ViewMut::from(&mut received[..]))?;
            assert_eq!(received, whole);
            Ok(())
        });
    }
}
