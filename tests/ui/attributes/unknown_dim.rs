//! A dim that is not declared: the compiler knows the names of those that are.

use meshwright::prelude::*;

dims! { Seq, Hidden, Ffn, Vocab }

#[model]
struct Mlp {
    #[sharded(tp = "row", scatter = Sequ)]
    down: Linear<Ffn, Hidden>,
    up: Linear<Hiden, Ffn>,
}

fn main() {}
