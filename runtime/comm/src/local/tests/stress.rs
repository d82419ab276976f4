//! More ranks than cores, and thousands of mixed calls; determinism; counters.

use std::sync::Arc;

use crate::{Blocks, CommError, ReduceOp, Site, launch};
use meshwright_backend::{CachingAllocator, Category, DType, View, ViewMut};
use meshwright_mesh::{AxisId, AxisSet};

use super::{TP, bits, data, mesh, on_ranks};

#[test]
fn thousands_of_mixed_calls_on_eight_ranks() {
    let shape = "dp=2,cp=2,tp=2".parse().unwrap();
    let result = launch(&shape, |comms| {
        let allocator = CachingAllocator::new();
        let axes = [AxisId::Dp, AxisId::Cp, AxisId::Tp].map(AxisSet::of);
        let groups = axes.map(|axis| comms.group(axis));
        let world = comms.world();
        let dp = &groups[0];
        let site = Site::new("stress");
        for i in 0..1500 {
            let len = [1, 17, 300, 2500][i % 4];
            let start = i as f32;
            let grads = allocator.copy_of(&vec![start; len], Category::Gradients);
            let pending = dp.start_all_reduce(&site, ReduceOp::Sum, grads);
            for group in &groups {
                let mut sum = vec![start; len];
                group.all_reduce(&site, ReduceOp::Sum, ViewMut::from(&mut sum[..]))?;
                assert!(sum.iter().all(|value| *value == 2.0 * start));
            }
            let mut gathered = [0; 8];
            let own = [(comms.rank() * 10_000 + i) as u32];
            let blocks = Blocks::even(1, 1, 8);
            world.all_gather(
                &site,
                View::from(&own[..]),
                ViewMut::from(&mut gathered[..]),
                &blocks,
            )?;
            assert!((0..8).all(|rank| gathered[rank] == (rank * 10_000 + i) as u32));
            let next = (comms.rank() + 1) % 8;
            world.send(&site, next, View::from(&own[..]))?;
            let mut got = [0u32];
            world.recv(&site, (comms.rank() + 7) % 8, ViewMut::from(&mut got[..]))?;
            assert_eq!(got[0], gathered[(comms.rank() + 7) % 8]);
            assert!(pending.wait()?.typed::<f32>().iter().all(|value| *value == 2.0 * start));
        }
        Ok::<_, CommError>(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn sums_have_the_same_bits_on_all_ranks_and_runs() {
    for len in [5, 3000, 20_011] {
        let run = || {
            on_ranks(4, |tp| {
                let mut sum = data(tp.rank(), len);
                let started = CachingAllocator::new().copy_of(&sum, Category::Gradients);
                let pending = tp.start_all_reduce(&Site::new("a"), ReduceOp::Sum, started);
                tp.all_reduce(&Site::new("s"), ReduceOp::Sum, ViewMut::from(&mut sum[..]))?;
                let started = pending.wait()?;
                assert_eq!(bits(started.typed()), bits(&sum));
                Ok(bits(&sum))
            })
        };
        let first = run();
        assert!(first.iter().all(|rank| *rank == first[0]));
        for _ in 0..5 {
            assert_eq!(run(), first);
        }
    }
}

#[test]
fn asynchronous_calls_have_their_own_order() {
    on_ranks(3, |tp| {
        let allocator = CachingAllocator::new();
        let site = Site::new("x");
        let blocks = Blocks::new(2, [3, 0, 4000]);
        let own_data = data(tp.rank(), blocks.owned(tp.rank()));
        let src = Arc::new(allocator.copy_of(&own_data, Category::Parameters));
        let whole = allocator.copy_of(&vec![0f32; blocks.total()], Category::Parameters);
        let gather = tp.start_all_gather(&site, Arc::clone(&src), whole, &blocks);
        let ones = Arc::new(allocator.copy_of(&vec![1f32; blocks.total()], Category::Gradients));
        let part = allocator.copy_of(&vec![0f32; blocks.owned(tp.rank())], Category::Gradients);
        let scatter = tp.start_reduce_scatter(&site, ones, part, &blocks);
        // The ranks reach these in another order relative to the calls that they have started.
        if tp.rank() == 1 {
            tp.barrier(&site)?;
        }
        let part = scatter.wait()?;
        let whole = gather.wait()?;
        if tp.rank() != 1 {
            tp.barrier(&site)?;
        }
        assert!(part.typed::<f32>().iter().all(|value| *value == 3.0));
        let own = &src.typed::<f32>()[..blocks.lens[tp.rank()]];
        assert_eq!(&whole.typed::<f32>()[blocks.start(tp.rank())..][..own.len()], own);
        Ok(())
    });
}

#[test]
fn asynchronous_results_match_blocking_ones() {
    on_ranks(3, |tp| {
        let allocator = CachingAllocator::new();
        let site = Site::new("x");
        let counts = [2usize, 0, 3];
        let (rank, own, root) = (tp.rank(), counts[tp.rank()], 2);
        let buffer = |len: usize| allocator.copy_of(&data(rank, len), Category::Communication);
        let room = |len: usize| allocator.zeros(DType::F32, len, Category::Communication);
        let at_root = |len: usize| (rank == root).then(|| room(len));

        // Every member sends `counts[m]` elements to member `m`, and so receives its own count from each.
        let received = [own; 3];
        let exchanged =
            tp.start_all_to_all(&site, Arc::new(buffer(5)), room(3 * own), &counts, &received);
        let spread = tp.start_broadcast(&site, root, buffer(4));
        let summed = tp.start_reduce(&site, root, ReduceOp::Sum, buffer(4));
        let source = (rank == root).then(|| Arc::new(buffer(5)));
        let scattered = tp.start_scatter(&site, root, source, room(own), &counts);
        let gathered = tp.start_gather(&site, root, Arc::new(buffer(own)), at_root(5), &counts);

        let mut expected = vec![0.0; 3 * own];
        let sent = data(rank, 5);
        tp.all_to_all(
            &site,
            View::from(&sent[..]),
            ViewMut::from(&mut expected[..]),
            &counts,
            &received,
        )?;
        assert_eq!(exchanged.wait()?.typed::<f32>(), expected);
        assert_eq!(spread.wait()?.typed::<f32>(), data(root, 4));
        let mut sum = data(rank, 4);
        tp.reduce(&site, root, ReduceOp::Sum, ViewMut::from(&mut sum[..]))?;
        assert_eq!(summed.wait()?.typed::<f32>(), sum);
        let start: usize = counts[..rank].iter().sum();
        assert_eq!(scattered.wait()?.typed::<f32>(), &data(root, 5)[start..start + own]);
        let all: Vec<f32> = (0..3).flat_map(|member| data(member, counts[member])).collect();
        assert_eq!(
            gathered.wait()?.map(|buffer| buffer.typed::<f32>().to_vec()),
            (rank == root).then_some(all)
        );
        Ok(())
    });
}

#[test]
fn bytes_follow_the_ring_convention() {
    let bytes = on_ranks(4, |tp| {
        let site = Site::new("x");
        let mut whole = vec![1f32; 1000];
        let counts = [400, 300, 200, 100];
        let part = vec![1f32; counts[tp.rank()]];
        let blocks = Blocks::new(1, counts);
        let mut seen = Vec::new();
        let mut last = 0;
        let mut step = || {
            let now = tp.comm_bytes();
            seen.push(now - last);
            last = now;
        };
        tp.all_reduce(&site, ReduceOp::Sum, ViewMut::from(&mut whole[..]))?;
        step();
        tp.all_gather(&site, View::from(&part[..]), ViewMut::from(&mut whole[..]), &blocks)?;
        step();
        tp.broadcast(&site, 1, ViewMut::from(&mut whole[..]))?;
        step();
        let is_root = tp.rank() == 0;
        let dst = if is_root { Some(ViewMut::from(&mut whole[..])) } else { None };
        tp.gather(&site, 0, View::from(&part[..]), dst, &counts)?;
        step();
        let src = is_root.then(|| View::from(&whole[..]));
        tp.scatter(&site, 0, src, ViewMut::from(&mut part.clone()[..]), &counts)?;
        step();
        tp.barrier(&site)?;
        step();
        assert_eq!(tp.stats().calls, 6);
        Ok(seen)
    });
    assert_eq!(bytes[0], [6000, 3000, 3000, 0, 2400, 0]);
    assert_eq!(bytes[2], [6000, 3000, 3000, 800, 0, 0]);
}

#[test]
fn asynchronous_calls_are_counted_when_issued() {
    on_ranks(2, |tp| {
        let site = Site::new("x");
        let data = CachingAllocator::new().zeros(DType::F32, 1000, Category::Gradients);
        if tp.rank() == 0 {
            // The other rank takes part only after the message.
            let pending = tp.start_all_reduce(&site, ReduceOp::Sum, data);
            assert_eq!(tp.comm_bytes(), 4000);
            tp.send(&site, 1, View::from(&[0f32][..]))?;
            pending.wait()?;
        } else {
            tp.recv(&site, 0, ViewMut::from(&mut [0f32][..]))?;
            tp.start_all_reduce(&site, ReduceOp::Sum, data).wait()?;
        }
        assert_eq!(tp.stats().calls, 2);
        Ok(())
    });
}

#[test]
fn same_axes_share_a_communicator() {
    let result = launch(&mesh(2), |comms| {
        let (first, second) = (comms.group(TP), comms.group(TP));
        first.barrier(&Site::new("x"))?;
        assert_eq!(second.stats().calls, 1);
        assert_eq!(comms.world().members(), [0, 1]);
        assert_eq!(comms.group(AxisSet::of(AxisId::Dp)).members(), [comms.rank()]);
        Ok::<_, CommError>(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}
