//! What compiles computes what one rank computes, or is refused at the author's line.

mod accumulation;
mod checks;
mod harness;
mod micro;
mod net;
mod programs;
mod scenarios;
mod tokens;
