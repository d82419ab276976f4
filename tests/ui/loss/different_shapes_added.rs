//! Two losses add up if they count over the same dims.

use meshwright::prelude::*;

dims! { Batch @ data, Seq, Hidden, Ffn }

fn total(main: Loss<(Batch, Seq)>, auxiliary: Loss<(Batch,)>) -> Loss<(Batch, Seq)> {
    main + auxiliary
}

fn main() {}
