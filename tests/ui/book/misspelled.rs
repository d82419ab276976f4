use meshwright::prelude::*;

dims! { Batch @ dat, Hidden, Ffn }

#[model]
struct Mlp {
    #[sharded(tp = "column")]
    gate: Linear<Hidden, Ffn>,
    #[shard(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row", scater = Batch)]
    down: Linear<Ffn, Hidden>,
}

fn main() {}
