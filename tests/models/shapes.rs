//! Models written with products of activations and operations on shapes: attention by hand on a sequence-parallel
//! stream, and on a sequence that is distributed over cp.

use meshwright::prelude::*;
use meshwright::tensor::Index;

dims! {
    /// Sequences of the global batch.
    Batch @ data,
    /// Pairs of sequences.
    Pairs @ data,
    /// The first or the second of a pair.
    Side,
    /// Positions.
    Seq,
    /// Positions, distributed over the ranks of `cp`.
    Places @ cp,
    /// Pairs of neighboring positions.
    Steps @ cp,
    /// Positions as keys.
    Keys,
    /// Residual stream.
    Hidden,
    /// Residual stream of another operand.
    Hidden2,
    /// Both streams.
    Wide,
    /// Heads.
    Heads,
    /// Elements of one head.
    HeadDim,
    /// The first elements of a head.
    Front,
    /// The elements between.
    Middle,
    /// The last elements of a head.
    Back,
    /// Groups of heads.
    Groups,
    /// Heads of a group.
    Members,
    /// Gates.
    Two,
    /// Sequences of all ranks.
    Others,
    /// Positions with some before and behind.
    Padded,
}

/// The residual stream.
pub type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

/// Attention by hand, with one further key head for all queries.
#[model]
pub struct ByHand {
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Linear<Hidden, (Heads, HeadDim)>,
    shared: Linear<Hidden, HeadDim>,
    gate: Linear<Hidden, Two>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Linear<(Heads, HeadDim), Hidden>,
}

impl ByHand {
    fn attend(&self, x: &Stream) -> Stream {
        let (q, k, v) = (self.q.forward(x), self.k.forward(x), self.v.forward(x));
        let (k, v) = (k.rename(Seq, Keys), v.rename(Seq, Keys));
        let scores: Tensor<(Batch, Split<Heads, Tp>, Seq, Keys)> =
            q.dot(&k, HeadDim, (Batch, Heads));
        // The key that all heads share enters the regions of tp.
        let shared = self.shared.forward(&x.gather(Seq)).rename(Seq, Keys);
        let more: Tensor<(Batch, Seq, Split<Heads, Tp>, Keys)> = q.dot(&shared, HeadDim, (Batch,));
        let weights = (scores * 0.5 + more.permute((Batch, Heads, Seq, Keys)) * 0.3).softmax();
        let mixed = weights.dot(&v, Keys, (Batch, Heads)).permute((Batch, Seq, Heads, HeadDim));
        // Parts of heads, and heads of groups, change places.
        let (front, middle, back) = mixed.cut(HeadDim, (Front, Middle, Back), [1, 2]);
        let mixed =
            back.concat(&front, (Back, Front), Wide).concat(&middle, (Wide, Middle), HeadDim);
        let grouped = mixed.part(Heads, (Groups, Members), 2);
        let [first, second] = [0, 1].map(|member| grouped.select(Members, member));
        let swapped = second.expand(Side, 1).concat(&first.expand(Side, 1), (Side, Side), Members);
        let swapped =
            swapped.permute((Batch, Seq, Groups, Members, HeadDim)).join((Groups, Members), Heads);
        self.o.forward(&swapped)
    }

    /// Returns terms that depend on all operations of the model.
    pub fn terms(&self, x: &Stream) -> Tensor<(Batch, Split<Seq, Tp>, Hidden)> {
        let y = x + self.attend(x);
        let gate: Tensor<(Batch, Split<Seq, Tp>)> = self.gate.forward(&y).select(Two, 1).sigmoid();
        let gated = gate.expand_as(Hidden, &y) * &y;
        let last: Partial<(Batch, Hidden), Tp> = gated.select(Seq, 5);
        let last = last.all_reduce().expand_as(Seq, &y);
        // The first positions of all but the last two, moved by two.
        let whole = y.gather(Seq);
        let moved = whole.range(Seq, 0..4, Keys).pad(Keys, 2, 0, Seq).slice(Seq, Tp);
        let both: Tensor<(Batch, Seq, Wide)> =
            whole.concat(&whole.rename(Hidden, Hidden2).tanh(), (Hidden, Hidden2), Wide);
        let total: Tensor<(Batch, Seq)> = both.square().sum(Wide);
        gated * last + moved + total.slice(Seq, Tp).expand(Hidden, 8) * 0.1
    }

    /// Returns a product of every sample with every other, of samples in pairs, and over all samples.
    pub fn samples(&self, x: &Stream) -> Tensor<(Hidden, Hidden2)> {
        let pooled: Tensor<(Batch, Hidden)> = self.attend(x).mean(Seq).all_reduce();
        let all: Tensor<(Others, Hidden)> = pooled.gather_as(Batch, Others);
        let near: Tensor<(Batch, Others)> = pooled.dot(&all, Hidden, ());
        let pairs: Tensor<(Pairs, Side, Hidden)> = pooled.part(Batch, (Pairs, Side), 2);
        let [chosen, rejected] = [0, 1].map(|side| pairs.select(Side, side));
        let mean: Partial<(Hidden,), Data> = (chosen - rejected).square().mean(Pairs);
        let mixed: Tensor<(Batch, Hidden)> = near.softmax().dot(&all, Others, ());
        let mean = mean.all_reduce().expand_as(Batch, &mixed);
        let products: Partial<(Hidden, Hidden2), Data> =
            (mixed * mean).dot(&pooled.rename(Hidden, Hidden2), Batch, ());
        products.all_reduce()
    }
}

#[forward]
impl ByHand {
    fn forward(&self, x: &Stream) -> Stream {
        self.attend(x)
    }
}

/// Attention by hand to all keys of a distributed sequence, and linear attention, a product over its positions.
#[model]
pub struct Distributed {
    q: Linear<Hidden, (Heads, HeadDim)>,
    k: Linear<Hidden, (Heads, HeadDim)>,
    v: Linear<Hidden, (Heads, HeadDim)>,
    o: Linear<(Heads, HeadDim), Hidden>,
}

impl Distributed {
    /// Returns terms that depend on all operations of the model.
    pub fn terms(&self, x: &Tensor<(Batch, Places, Hidden)>) -> Tensor<(Batch, Places, Hidden)> {
        let (q, k, v) = (self.q.forward(x), self.k.forward(x), self.v.forward(x));
        let (keys, values) = (k.gather_as(Places, Keys), v.gather_as(Places, Keys));
        let scores: Tensor<(Batch, Heads, Places, Keys)> = q.dot(&keys, HeadDim, (Batch, Heads));
        let by_keys = scores.softmax().dot(&values, Keys, (Batch, Heads));
        let state: Partial<(Batch, Heads, HeadDim, Front), Cp> =
            k.tanh().dot(&v.rename(HeadDim, Front), Places, (Batch, Heads));
        let linear: Tensor<(Batch, Heads, Places, Front)> =
            q.dot(&state.all_reduce(), HeadDim, (Batch, Heads));
        let mixed = by_keys + linear.rename(Front, HeadDim) * 0.3;
        let y = x + self.o.forward(&mixed.permute((Batch, Places, Heads, HeadDim)));
        // Neighbors change places.
        let steps: Tensor<(Batch, Steps, Side, Hidden)> = y.part(Places, (Steps, Side), 2);
        let [first, second] = [0..1, 1..2].map(|range| steps.range(Side, range, Two));
        let swapped = second.concat(&first.tanh(), (Two, Two), Side).join((Steps, Side), Places);
        let early: Partial<(Batch, Hidden), Cp> = y.select(Places, 3);
        // Positions by their index, of which each rank has some.
        let chosen = Index::<Places, (Batch, Keys)>::from_fn(x.rank(), &[4, 3], 8, |at| {
            (at[0] * 3 + at[1] * 5) % 8
        });
        let rows: Partial<(Batch, Keys, Hidden), Cp> = y.take(&chosen, (Batch,));
        let rows = rows.all_reduce().tanh().sum(Keys);
        y * swapped * early.all_reduce().expand_as(Places, x) + rows.expand_as(Places, x)
    }
}

#[forward]
impl Distributed {
    fn forward(&self, x: &Tensor<(Batch, Places, Hidden)>) -> Tensor<(Batch, Places, Hidden)> {
        self.terms(x)
    }
}

/// Tokens that are chosen by a score, moved by their index, and added up.
#[model]
pub struct Chosen {
    up: Linear<Hidden, Hidden>,
    score: Linear<Hidden, Two>,
}

impl Chosen {
    /// Returns terms that depend on all operations of the model.
    pub fn terms(&self, x: &Stream) -> Tensor<(Batch, Seq, Hidden)> {
        let y: Stream = self.up.forward(x);
        let whole = y.gather(Seq);
        let score: Tensor<(Batch, Seq)> = self.score.forward(&whole).select(Two, 0);
        let (best, chosen) = score.top_k(Seq, 3, Keys);
        let rows: Tensor<(Batch, Keys, Hidden)> = whole.take(&chosen, (Batch,));
        // Each rank takes the positions that it holds.
        let same: Partial<(Batch, Keys, Hidden), Tp> = y.take(&chosen, (Batch,));
        let rows = (rows + same.all_reduce().tanh()) * best.expand(Hidden, 8);
        let merged: Tensor<(Batch, Seq, Hidden)> =
            rows.cumsum(Keys).scatter_add(&chosen, Keys, (Batch,));
        let first: Tensor<(Batch, Hidden)> = whole.take(&score.arg_max(Seq), (Batch,));
        // Groups of positions, of which each rank has some.
        let group = Index::<Groups, (Split<Seq, Tp>,)>::from_fn(x.rank(), &[6], 2, |at| at[0] % 2);
        let groups: Partial<(Groups, Batch, Hidden), Tp> = y.square().scatter_add(&group, Seq, ());
        let back = Index::<Groups, (Seq,)>::from_fn(x.rank(), &[6], 2, |at| at[0] % 2);
        let groups = groups.all_reduce().take(&back, ()).permute((Batch, Seq, Hidden));
        whole * merged + first.expand_as(Seq, &groups) * groups
    }
}

#[forward]
impl Chosen {
    fn forward(&self, x: &Stream) -> Tensor<(Batch, Seq, Hidden)> {
        self.terms(x)
    }
}
