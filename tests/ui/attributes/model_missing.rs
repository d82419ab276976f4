//! The attributes of fields without the one of the struct.

use meshwright::prelude::*;

dims! { Batch @ data, Hidden, Ffn }

struct Mlp {
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row")]
    down: Linear<Ffn, Hidden>,
}

fn main() {}
