//! The guide, and the README: their Rust blocks are compiled and run as documentation tests of this crate.

#[cfg(doctest)]
mod pages {
    include!(concat!(env!("OUT_DIR"), "/pages.rs"));
}
