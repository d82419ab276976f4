//! Context-parallel attention to the keys of another sequence that is distributed over the same ranks.

use meshwright::prelude::*;

mod own {
    meshwright::dims! { pub Batch @ data, pub Seq @ cp, pub Heads, pub HeadDim }
}
mod other {
    meshwright::dims! { pub Seq @ cp }
}
use own::{Batch, HeadDim, Heads, Seq};

type Queries = Tensor<(Batch, Seq, Heads, HeadDim)>;
type Keys = Tensor<(Batch, other::Seq, Heads, HeadDim)>;

#[model]
struct Cross {
    #[sharded(cp = "gather")]
    core: Attention<Heads, Heads, HeadDim, Bidirectional>,
}

impl Cross {
    fn attend(&self, q: Queries, kv: Keys) -> Queries {
        self.core.forward(&(q, kv.clone(), kv))
    }
}

fn main() {}
