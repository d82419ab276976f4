//! Context-parallel attention on ranks that are threads.

mod bytes;
mod case;
mod delays;
mod parity;
