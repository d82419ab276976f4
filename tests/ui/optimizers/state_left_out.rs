//! An elementwise update with two states; only one gets a new value.

use meshwright::optim::{FlatSlice, Group, UpdateRule, Updated};

#[derive(Debug)]
struct Forgetful;

impl UpdateRule for Forgetful {
    fn name(&self) -> &str {
        "forgetful"
    }

    fn state_kinds(&self, _: Group) -> &'static [&'static str] {
        &["first", "second"]
    }

    fn update(&self, slice: FlatSlice<'_>) -> Updated {
        slice.update_elementwise(["first", "second"], |param, gradient, [first, second]| {
            (param - first / second, [0.9 * first + gradient])
        })
    }
}

fn main() {}
