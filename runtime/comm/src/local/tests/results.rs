//! Every operation against a sequential reference.

use crate::{Blocks, ReduceOp, Site};
use meshwright_backend::{View, ViewMut};

use super::{bits, data, on_ranks, tokens};

fn reference(ranks: usize, len: usize, op: ReduceOp) -> Vec<f32> {
    let mut sum = data(0, len);
    for rank in 1..ranks {
        for (a, b) in sum.iter_mut().zip(data(rank, len)) {
            *a = if op == ReduceOp::Sum { *a + b } else { a.max(b) };
        }
    }
    sum
}

/// Below and above the size from which memory is lent, on and off cache lines and blocks.
const LENS: [usize; 8] = [0, 1, 7, 1000, 2048, 2049, 4099, 70_001];

#[test]
fn reductions_add_in_rank_order() {
    for ranks in 1..=5 {
        for len in LENS {
            for op in [ReduceOp::Sum, ReduceOp::Max] {
                let expected = bits(&reference(ranks, len, op));
                let root = len % ranks;
                let results = on_ranks(ranks, |tp| {
                    let (mut all, mut one) = (data(tp.rank(), len), data(tp.rank(), len));
                    tp.all_reduce(&Site::new("all"), op, ViewMut::from(&mut all[..]))?;
                    tp.reduce(&Site::new("one"), root, op, ViewMut::from(&mut one[..]))?;
                    Ok((all, one))
                });
                for (rank, (all, one)) in results.iter().enumerate() {
                    assert_eq!(bits(all), expected, "all_reduce, {ranks} ranks, {len} elements");
                    let at_root =
                        if rank == root { expected.clone() } else { bits(&data(rank, len)) };
                    assert_eq!(bits(one), at_root, "reduce, {ranks} ranks, {len} elements");
                }
            }
        }
    }
}

fn uneven(ranks: usize, base: usize) -> Vec<usize> {
    (0..ranks).map(|rank| if rank == 1 { 0 } else { base + rank * 3 }).collect()
}

#[test]
fn gather_and_scatter_follow_uneven_blocks() {
    for ranks in 1..=5 {
        for (outer, base) in [(0, 4), (1, 0), (1, 5), (3, 1), (5, 1001), (1, 20_000)] {
            let blocks = Blocks::new(outer, uneven(ranks, base));
            let results = on_ranks(ranks, |tp| {
                let mut gathered = vec![0.0; blocks.total()];
                let mut ids = vec![0; blocks.total()];
                let owned = blocks.owned(tp.rank());
                let site = Site::new("x");
                tp.all_gather(
                    &site,
                    View::from(&data(tp.rank(), owned)[..]),
                    ViewMut::from(&mut gathered[..]),
                    &blocks,
                )?;
                tp.all_gather(
                    &site,
                    View::from(&tokens(tp.rank(), owned)[..]),
                    ViewMut::from(&mut ids[..]),
                    &blocks,
                )?;
                let mut part = vec![0.0; owned];
                tp.reduce_scatter(
                    &site,
                    View::from(&data(tp.rank(), blocks.total())[..]),
                    ViewMut::from(&mut part[..]),
                    &blocks,
                )?;
                Ok((gathered, ids, part))
            });
            let sums = reference(ranks, blocks.total(), ReduceOp::Sum);
            let (mut gathered, mut ids) = (Vec::new(), Vec::<u32>::new());
            let mut parts = vec![Vec::new(); ranks];
            for row in 0..outer {
                for (rank, len) in blocks.lens.iter().enumerate() {
                    let own = row * len..(row + 1) * len;
                    parts[rank].extend(bits(&sums[gathered.len()..][..*len]));
                    gathered.extend(bits(&data(rank, blocks.owned(rank))[own.clone()]));
                    ids.extend(&tokens(rank, blocks.owned(rank))[own]);
                }
            }
            for (rank, result) in results.iter().enumerate() {
                assert_eq!(bits(&result.0), gathered);
                assert_eq!(result.1, ids);
                assert_eq!(bits(&result.2), parts[rank]);
            }
        }
    }
}

#[test]
fn all_to_all_delivers_every_part() {
    // The number of elements that rank `a` sends to rank `b`.
    let count =
        |base: usize, a: usize, b: usize| if (a + b) % 3 == 2 { 0 } else { base + a * 5 + b };
    for ranks in 1..=5 {
        for base in [0, 3, 5000] {
            let results = on_ranks(ranks, |tp| {
                let me = tp.rank();
                let send: Vec<_> = (0..ranks).map(|to| count(base, me, to)).collect();
                let recv: Vec<_> = (0..ranks).map(|from| count(base, from, me)).collect();
                let src = tokens(me, send.iter().sum());
                let mut dst = vec![0; recv.iter().sum()];
                let site = Site::new("experts");
                tp.all_to_all(
                    &site,
                    View::from(&src[..]),
                    ViewMut::from(&mut dst[..]),
                    &send,
                    &recv,
                )?;
                Ok(dst)
            });
            for (me, dst) in results.iter().enumerate() {
                let mut expected = Vec::<u32>::new();
                for from in 0..ranks {
                    let before: usize = (0..me).map(|to| count(base, from, to)).sum();
                    let sent = tokens(from, before + count(base, from, me));
                    expected.extend(&sent[before..]);
                }
                assert_eq!(*dst, expected);
            }
        }
    }
}

#[test]
fn rooted_collectives_work_from_every_root() {
    for ranks in 1..=5 {
        for root in 0..ranks {
            for base in [0, 2, 4001] {
                let counts = uneven(ranks, base);
                let total: usize = counts.iter().sum();
                let results = on_ranks(ranks, |tp| {
                    let is_root = tp.rank() == root;
                    let site = Site::new("x");
                    let mut copy = tokens(tp.rank(), total);
                    tp.broadcast(&site, root, ViewMut::from(&mut copy[..]))?;
                    let all = tokens(root, total);
                    let mut part = vec![0; counts[tp.rank()]];
                    let src = is_root.then(|| View::from(&all[..]));
                    tp.scatter(&site, root, src, ViewMut::from(&mut part[..]), &counts)?;
                    let mut back = vec![0; if is_root { total } else { 0 }];
                    let dst = if is_root { Some(ViewMut::from(&mut back[..])) } else { None };
                    tp.gather(&site, root, View::from(&part[..]), dst, &counts)?;
                    tp.barrier(&site)?;
                    Ok((copy, part, back))
                });
                let all = tokens(root, total);
                for (rank, (copy, part, back)) in results.iter().enumerate() {
                    let start: usize = counts[..rank].iter().sum();
                    assert_eq!(*copy, all);
                    assert_eq!(*part, all[start..start + counts[rank]]);
                    assert_eq!(*back, if rank == root { &all[..] } else { &[] });
                }
            }
        }
    }
}

#[test]
fn messages_keep_their_order_without_waiting() {
    for ranks in 1..=5 {
        for len in [0, 3, 50_000] {
            on_ranks(ranks, |tp| {
                let (next, previous) = ((tp.rank() + 1) % ranks, (tp.rank() + ranks - 1) % ranks);
                for round in 0..4 {
                    // All send first, round a ring: would hang if a sender waited for its receiver.
                    for turn in 0..2 {
                        let sent = tokens(tp.rank() * 100 + round * 10 + turn, len);
                        tp.send(&Site::new("ring"), next, View::from(&sent[..]))?;
                    }
                    for turn in 0..2 {
                        let mut got = vec![0; len];
                        tp.recv(&Site::new("ring"), previous, ViewMut::from(&mut got[..]))?;
                        assert_eq!(got, tokens(previous * 100 + round * 10 + turn, len));
                    }
                }
                Ok(())
            });
        }
    }
}
