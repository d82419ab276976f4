//! A tensor of other tokens than the router has routed, and rows that go back to others.

use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Hidden, Experts, TopK }

type Tokens<S> = Tensor<(Batch, S, Hidden)>;

fn dispatched(routing: &TokenRouting<(Batch, Split<Seq, Tp>), Experts, TopK>, x: &Tokens<Seq>) {
    let _ = routing.dispatch(x, Ep);
}

fn combined(
    routing: &TokenRouting<(Batch, Split<Seq, Tp>), Experts, TopK>,
    rows: &Tensor<(Routed<(Batch, Seq), Experts>, Hidden)>,
) -> Tokens<Split<Seq, Tp>> {
    routing.combine(rows)
}

fn main() {}
