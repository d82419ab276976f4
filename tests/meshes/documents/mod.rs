//! Documents in the rows of a batch: positions, masks, packing, and runs that are resumed.

mod bags;
mod examples;
mod metrics;
mod resuming;
mod rows;
mod run;
mod unused;
