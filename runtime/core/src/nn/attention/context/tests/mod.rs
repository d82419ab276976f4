//! Context-parallel attention on ranks that are threads.

mod bf16;
mod bytes;
mod case;
mod delays;
mod key_ranges;
mod parity;
mod work;
