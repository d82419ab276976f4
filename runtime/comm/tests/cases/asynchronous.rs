//! Asynchronous collectives over buffers that are handed over.

use std::sync::Arc;

use meshwright_backend::ViewMut;
use meshwright_comm::{Blocks, Communicator, ReduceOp, Site};

use super::{CaseResult, LENS, assert_bits, buffer, data, part_of, reference, tokens, uneven};

/// All of them are in flight together.
pub fn every_collective(group: &Communicator) -> CaseResult {
    let (me, size, site) = (group.rank(), group.size(), Site::new("x"));
    let root = size - 1;
    for (outer, base) in [(1, 5), (3, 7), (2, 9001)] {
        let blocks = Blocks::new(outer, uneven(size, base));
        let (total, owned) = (blocks.total(), blocks.owned(me));
        let sums = reference(size, total, ReduceOp::Sum);
        let whole = data(7, total);
        let (part, room) = (part_of(&whole, &blocks, me), |len| buffer(&vec![f32::NAN; len]));

        let reduced = group.start_all_reduce(&site, ReduceOp::Sum, buffer(&data(me, total)));
        let gathered = group.start_all_gather(&site, Arc::new(buffer(&part)), room(total), &blocks);
        let own = Arc::new(buffer(&data(me, total)));
        let scattered_sum = group.start_reduce_scatter(&site, own, room(owned), &blocks);
        let to_root = group.start_reduce(&site, root, ReduceOp::Sum, buffer(&data(me, total)));
        let copied = group.start_broadcast(&site, root, buffer(&data(me, total)));
        let counts = uneven(size, base);
        let count: usize = counts.iter().sum();
        let of_root = (me == root).then(|| Arc::new(buffer(&data(root, count))));
        let scattered = group.start_scatter(&site, root, of_root, room(counts[me]), &counts);
        let own = Arc::new(buffer(&data(me, counts[me])));
        let dst = (me == root).then(|| room(count));
        let joined = group.start_gather(&site, root, own, dst, &counts);
        let own = Arc::new(buffer(&tokens(me, count)));
        let received = buffer(&vec![0u32; counts[me] * size]);
        let exchanged =
            group.start_all_to_all(&site, own, received, &counts, &vec![counts[me]; size]);

        assert_bits(reduced.wait()?.typed(), &sums, "all_reduce");
        assert_bits(gathered.wait()?.typed(), &whole, "all_gather");
        let expected = part_of(&sums, &blocks, me);
        assert_bits(scattered_sum.wait()?.typed(), &expected, "reduce_scatter");
        let expected = if me == root { sums } else { data(me, total) };
        assert_bits(to_root.wait()?.typed(), &expected, "reduce");
        assert_bits(copied.wait()?.typed(), &data(root, total), "broadcast");
        let start: usize = counts[..me].iter().sum();
        let expected = &data(root, count)[start..start + counts[me]];
        assert_bits(scattered.wait()?.typed(), expected, "scatter");
        if let Some(joined) = joined.wait()? {
            let expected: Vec<f32> =
                (0..size).flat_map(|member| data(member, counts[member])).collect();
            assert_bits(joined.typed(), &expected, "gather");
        }
        let run = start..start + counts[me];
        let expected: Vec<u32> =
            (0..size).flat_map(|member| tokens(member, count)[run.clone()].to_vec()).collect();
        assert_eq!(exchanged.wait()?.typed::<u32>(), expected);
    }
    Ok(())
}

/// Blocking collectives of the same group do not wait for asynchronous ones, nor these for them.
pub fn with_blocking_calls_between(group: &Communicator) -> CaseResult {
    let (me, size, site) = (group.rank(), group.size(), Site::new("x"));
    for len in LENS {
        let pending: Vec<_> = (0..5)
            .map(|_| group.start_all_reduce(&site, ReduceOp::Sum, buffer(&data(me, len))))
            .collect();
        let mut between = data(me, 33);
        group.all_reduce(&site, ReduceOp::Max, ViewMut::from(&mut between[..]))?;
        assert_bits(&between, &reference(size, 33, ReduceOp::Max), "all_reduce between");
        for pending in pending {
            let sums = reference(size, len, ReduceOp::Sum);
            assert_bits(pending.wait()?.typed(), &sums, "asynchronous all_reduce");
        }
    }
    Ok(())
}
