//! An update rule without an update.

use meshwright::optim::{FlatSlice, Group, UpdateRule, Updated};

#[derive(Debug)]
struct Idle;

impl UpdateRule for Idle {
    fn name(&self) -> &str {
        "idle"
    }

    fn state_kinds(&self, _: Group) -> &'static [&'static str] {
        &[]
    }

    fn update(&self, slice: FlatSlice<'_>) -> Updated {
        let _lr = slice.lr();
    }
}

fn main() {}
