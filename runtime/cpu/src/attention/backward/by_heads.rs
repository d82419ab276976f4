//! One task per key/value head of a sample.

use std::ops::Range;

use super::pass::{HeadBackward, TileScratch};
use super::query_sums::QuerySums;
use super::{BackwardCall, dquery_len, key_blocks, queries_that_see, tiles_of, tiles_scratch_len};
use crate::attention::{LINE, ScratchParts};
use crate::float::Float;
use crate::scratch::with_scratch;
use crate::workers::Workers;

/// Keys per section: enough to amortize the start of a section.
const SECTION: usize = 4096;

/// Keys that are held at a time, a multiple of blocks except for the last ones, and the queries that see them.
struct Section {
    keys: Range<usize>,
    queries: Range<usize>,
}

pub(super) fn run_by_heads<T: Float>(workers: &Workers, call: &BackwardCall<T>) {
    let kv_heads = call.s.kv_heads;
    workers.for_each_task(call.s.batch * kv_heads, |task| {
        kv_head(call, [task / kv_heads, task % kv_heads])
    });
}

/// Computes the gradients of all query heads that read a key/value head.
fn kv_head<T: Float>(call: &BackwardCall<T>, at @ [sample, kv_head]: [usize; 2]) {
    let heads = call.s.heads_of(kv_head);
    let sections = sections(call, sample, heads.len());
    let row_len = dquery_len::<T>(call.task_sizes(0, 0));
    with_scratch(scratch_len(call, &sections, heads.len()), |scratch| {
        let mut parts = ScratchParts(scratch);
        let mut tile = TileScratch::new(call, &mut parts);
        let (sums, sum_len) = sum_lens::<T>(call, &sections, heads.len());
        let mut sums: Vec<_> =
            (0..sums).map(|_| QuerySums::new(parts.take_part(sum_len), row_len)).collect();
        let rest = parts.0;
        for (number, section) in sections.iter().enumerate() {
            let sizes = call.task_sizes(section.queries.len(), section.keys.len());
            let (key, value) = call.keys_of(at, &section.keys);
            let mut tiles = tiles_of(sizes, key, value, &mut ScratchParts(&mut *rest));
            for (index, head) in heads.clone().enumerate() {
                let put = |query: usize, sum: Option<&[f32]>| {
                    // SAFETY: this sample and query head belong to this task alone.
                    unsafe { call.put_query([sample, query, head], sum) }
                };
                let sums_here = index % sums.len();
                let sums = &mut sums[sums_here];
                sums.advance_to(section.queries.clone(), put);
                let (query, dout) = call.queries_of([sample, head], &section.queries);
                tiles.turn_to_head(query, dout);
                let mut pass = HeadBackward::new(call, [sample, head], &mut tile);
                let first = [section.queries.start, section.keys.start];
                for keys in key_blocks(section.keys.clone()) {
                    for queries in pass.key_chunks(&keys) {
                        pass.compute_tile(&mut *tiles, first, &queries, &keys);
                        pass.add_to_queries(&mut *tiles, first[1], &keys, sums.sums_of(&queries));
                    }
                }
                if number + 1 == sections.len() {
                    sums.finish_rows(call.s.queries.len, put);
                }
            }
            call.put_keys(at, section.keys.clone(), &mut *tiles);
        }
    });
}

/// Returns all keys in one section, or in several if that takes less memory: then, the gradients of queries of all
/// heads are held at the same time, but only of those that see one section.
fn sections<T: Float>(call: &BackwardCall<T>, sample: usize, heads: usize) -> Vec<Section> {
    let (queries, keys) = (call.s.queries.len, call.s.keys.len);
    let visible = call.mask.of_sample(sample);
    let one = vec![Section { keys: 0..keys, queries: 0..queries }];
    let several: Vec<Section> = (0..keys)
        .step_by(SECTION)
        .map(|start| start..keys.min(start + SECTION))
        .map(|keys| Section { queries: queries_that_see(visible, keys.clone()), keys })
        .collect();
    let is_smaller =
        several.len() > 1 && scratch_len(call, &several, heads) < scratch_len(call, &one, heads);
    if is_smaller { several } else { one }
}

/// Returns the number of sums over queries, and the elements of each.
fn sum_lens<T: Float>(
    call: &BackwardCall<T>,
    sections: &[Section],
    heads: usize,
) -> (usize, usize) {
    let queries = sections.iter().map(|section| section.queries.len()).max().unwrap_or(0);
    let count = if sections.len() == 1 { 1 } else { heads };
    (count, queries * dquery_len::<T>(call.task_sizes(0, 0)))
}

fn scratch_len<T: Float>(call: &BackwardCall<T>, sections: &[Section], heads: usize) -> usize {
    let (sums, sum_len) = sum_lens(call, sections, heads);
    let sizes = |section: &Section| call.task_sizes(section.queries.len(), section.keys.len());
    let tiles = sections.iter().map(|section| tiles_scratch_len::<T>(sizes(section))).max();
    TileScratch::len(call) + sums * sum_len.next_multiple_of(LINE) + tiles.unwrap_or(0)
}
