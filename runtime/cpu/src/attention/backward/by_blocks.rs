//! One task per block of keys: it owns the gradients of its keys and values, and the gradients of queries are added in
//! the order of blocks.
//!
//! A block computes a chunk of queries, then waits until the block before it has added that chunk. So blocks run one or
//! two chunks behind each other.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::pass::{HeadBackward, TileScratch};
use super::turns::Turns;
use super::{BackwardCall, dquery_len, key_blocks, tiles_of, tiles_scratch_len};
use crate::attention::ScratchParts;
use crate::attention::backward_tiles::QUERIES;
use crate::attention::results::InterleavedOutput;
use crate::float::Float;
use crate::scratch::with_scratch;
use crate::workers::Workers;

pub(super) fn run_by_blocks<T: Float>(workers: &Workers, call: &BackwardCall<T>) {
    let s = call.s;
    let row_len = dquery_len::<T>(call.task_sizes(0, 0));
    let head_len = s.queries.len * row_len;
    let keys: Vec<Range<usize>> = key_blocks(0..s.keys.len).collect();
    let mut sums = vec![0.0; s.batch * s.heads * head_len];
    let shared = QueryGradientSums { all: InterleavedOutput::new(&mut sums), row_len };
    let turns = Turns::new(s.batch * s.heads, keys.len());
    let (kv_heads, next) = (s.batch * s.kv_heads, AtomicUsize::new(0));
    workers.for_each_task(kv_heads * keys.len(), |_| {
        // A block waits for earlier ones, which must have begun: tasks may be called in any order.
        let task = next.fetch_add(1, Ordering::Relaxed);
        let (block, kv_head) = (task / kv_heads, task % kv_heads);
        let at = [kv_head / s.kv_heads, kv_head % s.kv_heads];
        let _guard = turns.guard();
        key_block(call, at, (block, &keys[block]), &shared, &turns);
    });
    workers.for_each_task(s.batch * s.heads, |task| {
        let sums = &sums[task * head_len..][..head_len];
        for (query, row) in sums.chunks_exact(row_len).enumerate() {
            // SAFETY: this sample and head belong to this task alone.
            unsafe { call.put_query([task / s.heads, query, task % s.heads], Some(row)) };
        }
    });
}

/// Gradients of queries, `[batch, heads, queries]`.
struct QueryGradientSums<'a> {
    all: InterleavedOutput<'a, f32>,
    row_len: usize,
}

fn key_block<T: Float>(
    call: &BackwardCall<T>,
    at @ [sample, kv_head]: [usize; 2],
    (block, keys): (usize, &Range<usize>),
    sums: &QueryGradientSums,
    turns: &Turns,
) {
    let s = call.s;
    let sizes = call.task_sizes(QUERIES.min(s.queries.len), keys.len());
    with_scratch(TileScratch::len(call) + tiles_scratch_len::<T>(sizes), |scratch| {
        let mut parts = ScratchParts(scratch);
        let mut tile = TileScratch::new(call, &mut parts);
        let (key, value) = call.keys_of(at, keys);
        let mut tiles = tiles_of(sizes, key, value, &mut parts);
        for head in s.heads_of(kv_head) {
            let row = sample * s.heads + head;
            let mut pass = HeadBackward::new(call, [sample, head], &mut tile);
            for queries in pass.key_chunks(keys) {
                let (query, dout) = call.queries_of([sample, head], &queries);
                tiles.turn_to_head(query, dout);
                pass.compute_tile(&mut *tiles, [queries.start, keys.start], &queries, keys);
                turns.wait_for_turn(row, block, queries.end);
                let start = (row * s.queries.len + queries.start) * sums.row_len;
                // SAFETY: blocks take turns on each row, in order: earlier blocks have finished these rows, and later
                // ones wait for this block. The queries that a block sees never move back from one block to the next,
                // so the block before this one has finished these rows, or has itself waited for the blocks before it.
                let dqueries = unsafe { sums.all.piece(start, queries.len() * sums.row_len) };
                pass.add_to_queries(&mut *tiles, keys.start, keys, dqueries);
                turns.advance_row(row, block, queries.end);
            }
            turns.advance_row(row, block, usize::MAX);
        }
        call.put_keys(at, keys.clone(), &mut *tiles);
    });
}
