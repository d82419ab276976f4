//! Collectives that divide a tensor, or join one.

use half::bf16;
use meshwright_backend::{Element, View, ViewMut};
use meshwright_comm::{Blocks, Communicator, ReduceOp, Site};

use super::{
    CaseResult, assert_bits, buffer, data, narrow, narrow_reference, part_of, reference, tokens,
    uneven,
};

pub fn uneven_blocks(group: &Communicator) -> CaseResult {
    let (me, size, site) = (group.rank(), group.size(), Site::new("x"));
    for (outer, base) in [(0, 4), (1, 0), (1, 5), (3, 1), (5, 1001), (1, 20_000)] {
        let blocks = Blocks::new(outer, uneven(size, base));
        let whole = data(7, blocks.total());
        let mut gathered = vec![0.0; blocks.total()];
        let own = part_of(&whole, &blocks, me);
        group.all_gather(&site, View::from(&own[..]), ViewMut::from(&mut gathered[..]), &blocks)?;
        assert_bits(&gathered, &whole, "all_gather");

        let ids = tokens(7, blocks.total());
        let mut gathered = vec![0; blocks.total()];
        let own = part_of(&ids, &blocks, me);
        group.all_gather(&site, View::from(&own[..]), ViewMut::from(&mut gathered[..]), &blocks)?;
        assert_eq!(gathered, ids, "{blocks}");

        let mut part = vec![0.0; blocks.owned(me)];
        let contribution = data(me, blocks.total());
        let (src, dst) = (View::from(&contribution[..]), ViewMut::from(&mut part[..]));
        group.reduce_scatter(&site, src, dst, &blocks)?;
        let sums = reference(size, blocks.total(), ReduceOp::Sum);
        assert_bits(&part, &part_of(&sums, &blocks, me), "reduce_scatter");
    }
    Ok(())
}

pub fn all_to_all(group: &Communicator) -> CaseResult {
    let (me, size) = (group.rank(), group.size());
    // The number of elements that rank `a` sends to rank `b`.
    let count =
        |base: usize, a: usize, b: usize| if (a + b) % 3 == 2 { 0 } else { base + a * 5 + b };
    for base in [0, 3, 5000] {
        let send: Vec<_> = (0..size).map(|to| count(base, me, to)).collect();
        let recv: Vec<_> = (0..size).map(|from| count(base, from, me)).collect();
        let src = tokens(me, send.iter().sum());
        let mut dst = vec![0; recv.iter().sum()];
        let (from, to) = (View::from(&src[..]), ViewMut::from(&mut dst[..]));
        group.all_to_all(&Site::new("experts"), from, to, &send, &recv)?;
        let part_from = |from: usize| {
            let before: usize = (0..me).map(|to| count(base, from, to)).sum();
            tokens(from, before + count(base, from, me))[before..].to_vec()
        };
        let expected: Vec<u32> = (0..size).flat_map(part_from).collect();
        assert_eq!(dst, expected, "base {base}");
    }
    Ok(())
}

/// Fits the own run of `whole` among elements that are wrong.
fn own_part<T: Element>(group: &Communicator, whole: &[T], wrong: T, blocks: &Blocks) -> Vec<T> {
    let mut own = vec![wrong; whole.len()];
    let run = blocks.start(group.rank())..blocks.start(group.rank() + 1);
    own[run.clone()].copy_from_slice(&whole[run]);
    own
}

pub fn in_place(group: &Communicator) -> CaseResult {
    let (me, size) = (group.rank(), group.size());
    for base in [0, 16, 9000, 40_000] {
        let blocks = Blocks::new(1, uneven(size, base));
        let (whole, run) = (data(3, blocks.total()), blocks.start(me)..blocks.start(me + 1));
        let narrow_whole = narrow(&whole);
        let own = own_part(group, &whole, f32::NAN, &blocks);
        let wide = group.start_all_gather_in_place(&Site::new("w"), buffer(&own), &blocks);
        let own = own_part(group, &narrow_whole, bf16::MAX, &blocks);
        let narrowed = group.start_all_gather_in_place(&Site::new("n"), buffer(&own), &blocks);
        assert_bits(wide.wait()?.typed::<f32>(), &whole, "all_gather in place");
        assert_eq!(narrowed.wait()?.typed::<bf16>(), narrow_whole, "{blocks}");

        let own = data(me, blocks.total());
        let wide = group.start_reduce_scatter_in_place(&Site::new("w"), buffer(&own), &blocks);
        let own = narrow(&own);
        let narrowed = group.start_reduce_scatter_in_place(&Site::new("n"), buffer(&own), &blocks);
        let sums = reference(size, blocks.total(), ReduceOp::Sum);
        assert_bits(&wide.wait()?.typed::<f32>()[run.clone()], &sums[run.clone()], "in place");
        let sums = narrow_reference(size, blocks.total(), ReduceOp::Sum);
        assert_eq!(narrowed.wait()?.typed::<bf16>()[run.clone()], sums[run], "{blocks}");
    }
    Ok(())
}

pub fn of_bf16(group: &Communicator) -> CaseResult {
    let (me, size, site) = (group.rank(), group.size(), Site::new("x"));
    for base in [3, 9000] {
        let blocks = Blocks::new(1, uneven(size, base));
        let (total, own) = (blocks.total(), blocks.lens[me]);
        let run = blocks.start(me)..blocks.start(me) + own;
        let whole = narrow(&data(7, total));
        let part = &whole[run.clone()];

        let mut gathered = vec![bf16::ZERO; total];
        group.all_gather(&site, View::from(part), ViewMut::from(&mut gathered[..]), &blocks)?;
        assert_eq!(gathered, whole);

        let contribution = narrow(&data(me, total));
        let mut sum = vec![bf16::ZERO; own];
        let (src, dst) = (View::from(&contribution[..]), ViewMut::from(&mut sum[..]));
        group.reduce_scatter(&site, src, dst, &blocks)?;
        assert_eq!(sum, narrow_reference(size, total, ReduceOp::Sum)[run]);

        let root = size - 1;
        let mut copy = if me == root { whole.clone() } else { vec![bf16::ZERO; total] };
        group.broadcast(&site, root, ViewMut::from(&mut copy[..]))?;
        assert_eq!(copy, whole);

        let mut scattered = vec![bf16::ZERO; own];
        let src = (me == root).then(|| View::from(&whole[..]));
        group.scatter(&site, root, src, ViewMut::from(&mut scattered[..]), &blocks.lens)?;
        assert_eq!(scattered, part);

        let mut back = vec![bf16::ZERO; total];
        let dst = if me == 0 { Some(ViewMut::from(&mut back[..])) } else { None };
        group.gather(&site, 0, View::from(part), dst, &blocks.lens)?;
        assert!(me != 0 || back == whole);

        let mut exchanged = vec![bf16::ZERO; size * own];
        let (src, dst) = (View::from(&whole[..]), ViewMut::from(&mut exchanged[..]));
        group.all_to_all(&site, src, dst, &blocks.lens, &vec![own; size])?;
        assert_eq!(exchanged, vec![part; size].concat());

        group.send(&site, (me + 1) % size, View::from(&whole[..]))?;
        let mut received = vec![bf16::ZERO; total];
        group.recv(&site, (me + size - 1) % size, ViewMut::from(&mut received[..]))?;
        assert_eq!(received, whole);
    }
    Ok(())
}
