//! Context parallelism: attention over a sequence that is distributed over ranks.
//!
//! A rank holds two chunks of the sequence, an early and a late one (zig-zag order), so that causal attention is equal
//! work for all ranks. Four styles compute the same attention:
//!
//! | style | sent | ranks |
//! |---|---|---|
//! | ring | keys and values, one hop at a time, behind the attention to the keys of the hop before | any number |
//! | gather | keys and values of all ranks, before any attention | any number |
//! | ulysses | queries, keys, values and outputs, for whole sequences of some heads | a divisor of the query heads |
//! | hybrid | ulysses among neighbors, ring among ranks with the same heads | any with such a divisor |

mod blocks;
mod call;
mod gather;
mod heads;
mod local;
mod operation;
mod order;
mod ring;
mod style;
#[cfg(test)]
mod tests;
mod ulysses;

pub(super) use operation::ContextAttention;
pub use style::{
    Attended, ContextParallel, ContextStyle, DistributedOver, GatherStyle, GatheredKeys, Hybrid,
    HybridStyle, Ring, RingStyle, TypedContextStyle, Ulysses, UlyssesStyle,
};
