//! Several parameters over the batch, built in a loop.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden }

struct Bank {
    rows: Vec<Param<(Batch, Hidden)>>,
}

impl Build for Bank {
    fn build(builder: &mut Builder<'_>) -> Self {
        let rows = (0..4).map(|i| Param::build(&mut builder.field(&format!("row_{i}"))));
        Bank { rows: rows.collect() }
    }
}

fn main() {}
