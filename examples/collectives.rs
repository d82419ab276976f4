//! All collectives on four ranks, messages, a barrier, and an asynchronous collective:
//! `cargo run --release --example collectives`.
//!
//! Reductions are sums and maxima. A minimum is the maximum of the negated values with its sign turned back, to the
//! bit, and a mean is the sum divided by the number of ranks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use meshwright::backend::Category;
use meshwright::comm::{Blocks, ReduceOp, Site};

/// The values of each rank.
type ByRank = Vec<Vec<f32>>;

fn main() -> meshwright::Result<()> {
    meshwright_examples::refuse_flags_and_processes();
    for (name, by_rank) in collectives()? {
        println!("{name}");
        for (rank, data) in by_rank.iter().enumerate() {
            println!("  rank {rank}: {data:?}");
        }
    }
    Ok(())
}

/// Returns the result of each collective on every rank.
pub fn collectives() -> meshwright::Result<Vec<(&'static str, ByRank)>> {
    let has_arrived = AtomicBool::new(false);
    let by_rank = meshwright::run_on("tp=4", 0, |rank| {
        let group = rank.comms().world();
        let (me, site) = (group.rank(), Site::here("collectives"));
        let is_root = me == 0;
        let one_each = Blocks::even(1, 1, 4);
        // Rank r starts with r, and with 10r, 10r + 1, 10r + 2, 10r + 3.
        let mine = [me as f32];
        let row: Vec<f32> = (0..4).map(|column| (10 * me + column) as f32).collect();
        let mut results = Vec::new();

        let mut data = mine;
        group.broadcast(&site, 2, data.as_mut_slice().into())?;
        results.push(("broadcast: what rank 2 has, everywhere", data.to_vec()));

        let src = is_root.then(|| row.as_slice().into());
        group.scatter(&site, 0, src, data.as_mut_slice().into(), &[1; 4])?;
        results.push(("scatter: the row of rank 0, one element each", data.to_vec()));

        let mut all = vec![0.0; if is_root { 4 } else { 0 }];
        let dst = is_root.then(|| all.as_mut_slice().into());
        group.gather(&site, 0, mine.as_slice().into(), dst, &[1; 4])?;
        results.push(("gather: an element of each, on rank 0", all));

        let mut data = mine;
        group.reduce(&site, 0, ReduceOp::Sum, data.as_mut_slice().into())?;
        results.push(("reduce: the sum on rank 0", data.to_vec()));

        let mut all = vec![0.0; 4];
        group.all_gather(&site, mine.as_slice().into(), all.as_mut_slice().into(), &one_each)?;
        results.push(("all_gather: an element of each, everywhere", all));

        let mut data = mine;
        let (src, dst) = (row.as_slice().into(), data.as_mut_slice().into());
        group.reduce_scatter(&site, src, dst, &one_each)?;
        results.push(("reduce_scatter: the sum of the rows, one element each", data.to_vec()));

        let mut data = mine;
        group.all_reduce(&site, ReduceOp::Max, data.as_mut_slice().into())?;
        results.push(("all_reduce: the maximum, everywhere", data.to_vec()));

        let mut data = mine.map(|x| -x);
        group.all_reduce(&site, ReduceOp::Max, data.as_mut_slice().into())?;
        results
            .push(("minimum: the negated maximum of negated elements", data.map(|x| -x).to_vec()));

        let mut data = mine;
        group.all_reduce(&site, ReduceOp::Sum, data.as_mut_slice().into())?;
        results.push(("sum: everywhere", data.to_vec()));
        results.push(("mean: the sum by the number of ranks", data.map(|x| x / 4.0).to_vec()));

        let mut column = vec![0.0; 4];
        let (src, dst) = (row.as_slice().into(), column.as_mut_slice().into());
        group.all_to_all(&site, src, dst, &[1; 4], &[1; 4])?;
        results.push(("all_to_all: rows become columns", column));

        // A send does not wait for its receiver, so all ranks may send first.
        let mut data = mine;
        group.send(&site, (me + 1) % 4, mine.as_slice().into())?;
        group.recv(&site, (me + 3) % 4, data.as_mut_slice().into())?;
        results.push(("send and recv: the element of the previous rank", data.to_vec()));

        // No rank passes the barrier before rank 3 has arrived there.
        if me == 3 {
            std::thread::sleep(Duration::from_millis(20));
            has_arrived.store(true, Ordering::SeqCst);
        }
        group.barrier(&site)?;
        let arrived = f32::from(u8::from(has_arrived.load(Ordering::SeqCst)));
        results.push(("barrier: 1, as the last rank has arrived", vec![arrived]));

        // Thirds are rounded, so another order of the sum would change bits.
        let thirds: Vec<f32> = row.iter().map(|x| (x + 1.0) / 3.0).collect();
        let mut in_one = thirds.clone();
        group.all_reduce(&site, ReduceOp::Sum, in_one.as_mut_slice().into())?;
        let (mut part, mut in_two) = ([0f32], vec![0f32; 4]);
        let (src, dst) = (thirds.as_slice().into(), part.as_mut_slice().into());
        group.reduce_scatter(&site, src, dst, &one_each)?;
        let (src, dst) = (part.as_slice().into(), in_two.as_mut_slice().into());
        group.all_gather(&site, src, dst, &one_each)?;
        let differing = in_one.iter().zip(&in_two).filter(|(a, b)| a.to_bits() != b.to_bits());
        let differing = differing.count() as f32;
        results
            .push(("two steps: bits of reduce_scatter + all_gather that differ", vec![differing]));
        results.push(("sum of thirds: everywhere", in_two));

        // An asynchronous collective owns its buffer until `wait` returns it; the rank can compute in the meantime.
        let buffer = rank.allocator().copy_of(&row, Category::Communication);
        let pending = group.start_all_reduce(&site, ReduceOp::Sum, buffer);
        let elsewhere: f32 = row.iter().sum();
        let mut sums = pending.wait()?.typed().to_vec();
        sums.push(elsewhere);
        results.push(("start_all_reduce: sums over ranks, and the row's own sum", sums));

        Ok(results)
    })?;

    let names = by_rank[0].iter().map(|(name, _)| *name);
    Ok(names
        .enumerate()
        .map(|(call, name)| (name, by_rank.iter().map(|rank| rank[call].1.clone()).collect()))
        .collect())
}
