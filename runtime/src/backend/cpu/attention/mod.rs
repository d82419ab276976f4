//! Scaled dot-product attention in tiles; no `seq x seq` matrix exists.
//!
//! Work is cut by (sample, key/value head): the query heads that share keys and values run on one thread, so that
//! the gradients of keys and values are summed in a fixed order.

mod backward;
mod forward;
mod heads;

pub(super) use backward::attention_backward;
pub(super) use forward::attention;
