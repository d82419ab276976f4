//! The check that a shape names each of its dims once.

use std::marker::PhantomData;

use super::{DimInfo, Dims};

/// Compiles if no two dims of `S` have the same name: an operation that takes a dim by its name could not tell them
/// apart.
pub(crate) const fn refuse_repeated<S: Dims>() {
    if let Some(position) = repeated(S::DIMS) {
        let _ = position;
        panic!("{}", Refusal::<S>::TEXT);
    }
}

/// The message for a shape with a repeated dim.
struct Refusal<S>(PhantomData<S>);

const BEFORE: &str = "the result would have two dims `";
const AFTER: &str = "`: rename one of them first, `.rename(Dim, Other)`, or name the dim in `each` if the product is \
                     computed for each of its elements";

impl<S: Dims> Refusal<S> {
    const NAME: &'static str = match repeated(S::DIMS) {
        Some(position) => S::DIMS[position].name,
        None => "",
    };
    const BYTES: [u8; 512] = joined([BEFORE, Self::NAME, AFTER]);
    const TEXT: &'static str = {
        let len = BEFORE.len() + Self::NAME.len() + AFTER.len();
        let len = if len < 512 { len } else { 512 };
        match std::str::from_utf8(Self::BYTES.split_at(len).0) {
            Ok(text) => text,
            Err(_) => BEFORE,
        }
    };
}

/// Returns the bytes of all texts, as many as there is room for.
const fn joined(texts: [&str; 3]) -> [u8; 512] {
    let (mut bytes, mut end, mut text) = ([0; 512], 0, 0);
    while text < texts.len() {
        let (from, mut at) = (texts[text].as_bytes(), 0);
        while at < from.len() && end < bytes.len() {
            bytes[end] = from[at];
            (end, at) = (end + 1, at + 1);
        }
        text += 1;
    }
    bytes
}

/// Returns the position of a dim that has the name of an earlier one.
pub(super) const fn repeated(dims: &[DimInfo]) -> Option<usize> {
    let mut position = 0;
    while position < dims.len() {
        let mut earlier = 0;
        while earlier < position {
            if are_equal(dims[earlier].name, dims[position].name) {
                return Some(position);
            }
            earlier += 1;
        }
        position += 1;
    }
    None
}

const fn are_equal(left: &str, right: &str) -> bool {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    if left.len() != right.len() {
        return false;
    }
    let mut at = 0;
    while at < left.len() {
        if left[at] != right[at] {
            return false;
        }
        at += 1;
    }
    true
}
