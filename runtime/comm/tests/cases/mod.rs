//! Cases that every engine has to pass, on any number of ranks: each rank compares what it gets with a sequential
//! reference, to the bit.

mod asynchronous;
mod gathers;
mod messages;
mod reductions;
mod rooted;

use half::bf16;
use meshwright_backend::{Buffer, CachingAllocator, Category, Element};
use meshwright_comm::{Blocks, CommError, Communicator, ReduceOp};

pub type CaseResult = Result<(), CommError>;

/// A case, by its name in messages.
pub type Case = (&'static str, fn(&Communicator) -> CaseResult);

pub const CASES: [Case; 12] = [
    ("reductions of f32", reductions::of_f32),
    ("reductions of bf16", reductions::of_bf16),
    ("sums of f64", reductions::of_f64),
    ("gathers and scatters of uneven blocks", gathers::uneven_blocks),
    ("all-to-all", gathers::all_to_all),
    ("gathers in place", gathers::in_place),
    ("every collective of bf16", gathers::of_bf16),
    ("rooted collectives", rooted::from_every_root),
    ("blocking messages", messages::around_a_ring),
    ("messages in both forms", messages::in_both_forms),
    ("every asynchronous collective", asynchronous::every_collective),
    ("blocking calls between asynchronous ones", asynchronous::with_blocking_calls_between),
];

/// Below and above the sizes from which engines divide the work, on and off cache lines and blocks.
const LENS: [usize; 8] = [0, 1, 7, 1000, 2048, 2049, 4099, 70_001];

/// The data of a rank: irregular, so that the order of additions shows in the last bits.
fn data(rank: usize, len: usize) -> Vec<f32> {
    let value = |i: usize| ((i * 31 + rank * 17 + 3) as f32 * 0.377).sin();
    (0..len).map(|i| value(i) * 10f32.powi(i as i32 % 5)).collect()
}

fn tokens(rank: usize, len: usize) -> Vec<u32> {
    (0..len).map(|i| (rank * 1_000_003 + i * 7) as u32).collect()
}

fn narrow(values: &[f32]) -> Vec<bf16> {
    values.iter().map(|value| bf16::from_f32(*value)).collect()
}

/// Reduces the data of all ranks, in their order.
fn reference(ranks: usize, len: usize, op: ReduceOp) -> Vec<f32> {
    reduce((0..ranks).map(|rank| data(rank, len)), op)
}

/// Reduces the narrowed data of all ranks in f32, rounded once.
fn narrow_reference(ranks: usize, len: usize, op: ReduceOp) -> Vec<bf16> {
    let widened = |rank| narrow(&data(rank, len)).into_iter().map(bf16::to_f32).collect();
    narrow(&reduce((0..ranks).map(widened), op))
}

fn reduce(mut operands: impl Iterator<Item = Vec<f32>>, op: ReduceOp) -> Vec<f32> {
    let mut sum = operands.next().expect("a group has a rank");
    for operand in operands {
        for (a, b) in sum.iter_mut().zip(operand) {
            *a = if op == ReduceOp::Sum { *a + b } else { a.max(b) };
        }
    }
    sum
}

/// Compares bits: `-0` and `0` differ.
#[track_caller]
fn assert_bits(found: &[f32], expected: &[f32], name: &str) {
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(found), bits(expected), "{name} of {} elements", expected.len());
}

fn uneven(ranks: usize, base: usize) -> Vec<usize> {
    (0..ranks).map(|rank| if rank == 1 { 0 } else { base + rank * 3 }).collect()
}

/// The part of `member` of a whole.
fn part_of<T: Clone>(whole: &[T], blocks: &Blocks, member: usize) -> Vec<T> {
    blocks.runs(member).flat_map(|(run, _)| whole[run].to_vec()).collect()
}

fn buffer<T: Element>(values: &[T]) -> Buffer {
    CachingAllocator::new().copy_of(values, Category::Communication)
}
