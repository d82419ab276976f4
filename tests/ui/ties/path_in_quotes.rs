//! The path of a tie is written like a path, without quotes.

use meshwright::prelude::*;

dims! { Batch @ data, Vocab, Hidden }

#[model]
struct Ends {
    embed: Embedding<Vocab, Hidden>,
    #[tied("embed")]
    head: LmHead<Hidden, Vocab>,
}

fn main() {}
