//! A dim that is not declared: the compiler suggests declared names.

use meshwright::prelude::*;

dims! { Seq, Hidden, Ffn, Vocab }

#[model]
struct Mlp {
    #[sharded(tp = "row", scatter = Sequ)]
    down: Linear<Ffn, Hidden>,
    up: Linear<Hiden, Ffn>,
}

fn main() {}
