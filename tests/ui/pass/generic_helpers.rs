//! Functions and layers that are generic in dims, shapes, axes and layers.

use meshwright::layout::{Axis, Dims, Shape};
use meshwright::nn::{NormInput, build};
use meshwright::prelude::*;
use meshwright::tensor::{Contract, Operand};

dims! { Batch @ data, Seq, Hidden, Ffn, Heads, HeadDim, Vocab }

type Stream = Tensor<(Batch, Seq, Hidden)>;

/// Creates a tensor of ones.
fn ones<S: Shape>(rank: &Rank, sizes: &[usize]) -> Tensor<S> {
    Tensor::from_fn(rank, sizes, |_| 1.0)
}

/// Creates a tensor with the shape of another one.
fn shifted<S: Shape>(x: &Tensor<S>) -> Tensor<S> {
    x + Tensor::from_fn(x.rank(), &x.sizes(), |_| 0.5)
}

/// Sums with a tensor that has the shape of another one, whole or split.
fn shifted_stream(
    x: &Tensor<(Batch, Split<Seq, Tp>, Hidden)>,
) -> Tensor<(Batch, Split<Seq, Tp>, Hidden)> {
    let shift = x.like(|_| 0.5);
    let whole = x.gather(Seq);
    let whole = &whole + whole.like(|_| 0.5);
    x + shift + whole.slice(Seq, Tp)
}

/// Operators in code generic in the shape.
fn blended<S: Dims>(x: &Tensor<S>, y: &Tensor<S>, share: f32) -> Tensor<S> {
    let mixed = share * x + y * (1.0 - share);
    2.0 - (1.0 - mixed / 4.0) * 4.0 + 2.0
}

/// Operators in code generic in the dims.
fn squared<B: Dim, D: Dim>(x: &Tensor<(B, D)>) -> Tensor<(B, D)> {
    x * x
}

fn total<S: Dims>(first: Tensor<S>, others: &[Tensor<S>]) -> Tensor<S> {
    others.iter().fold(first, |sum, x| sum + x)
}

/// A table split over a generic axis.
fn table<A: Axis>(rank: &Rank, sizes: [usize; 2]) -> Tensor<(Split<Seq, A>, Hidden)>
where
    (Split<Seq, A>, Hidden): Shape,
{
    Tensor::from_fn(rank, &sizes, |at| (at[0] * 10 + at[1]) as f32)
}

fn normed<T: Operand>(norm: &RmsNorm<Hidden>, x: &T) -> Tensor<T::Shape>
where
    T::Shape: NormInput<Hidden>,
{
    norm.forward(x)
}

/// Self-attention generic in whole dims.
fn attended<B: Dim, S: Local, H: Local, D: Local>(
    core: &Attention<H, H, D>,
    x: &Tensor<(B, S, H, D)>,
) -> Tensor<(B, S, H, D)> {
    core.forward(&(x.clone(), x.clone(), x.clone()))
}

/// Attention of split queries to keys and values with whole heads, generic in the heads.
fn attended_by_shards<B: Dim, S: Local, H: Local, K: Local, D: Local>(
    core: &Attention<H, K, D>,
    q: &Tensor<(B, S, Split<H, Tp>, D)>,
    kv: &Tensor<(B, S, K, D)>,
) -> Tensor<(B, S, Split<H, Tp>, D)> {
    core.forward(&(q.clone(), kv.clone(), kv.clone()))
}

/// Rotation generic in the other dims, by the layer and by any layer.
fn rotated<
    B: Dim,
    S: Dim,
    H: Dim,
    L: Layer<Tensor<(B, S, H, HeadDim)>, Out = Tensor<(B, S, H, HeadDim)>>,
>(
    rope: &Rope<HeadDim>,
    layer: &L,
    x: &Tensor<(B, S, H, HeadDim)>,
) -> Tensor<(B, S, H, HeadDim)> {
    layer.forward(&rope.forward(x))
}

/// A model whose result has no type of its own: it is as declared, a split stream.
#[model]
struct Constant {}

#[forward]
impl Constant {
    fn forward(
        &self,
        x: &Tensor<(Batch, Split<Seq, Tp>, Hidden)>,
    ) -> Tensor<(Batch, Split<Seq, Tp>, Hidden)> {
        Tensor::from_fn(x.rank(), &x.sizes(), |_| 1.0)
    }
}

fn twice<S: Dims, L: Layer<Tensor<S>, Out = Tensor<S>>>(layer: &L, x: &Tensor<S>) -> Tensor<S> {
    layer.forward(&layer.forward(x))
}

/// Two weights between any features.
struct Glu<I, O> {
    gate: Param<(I, O)>,
    up: Param<(I, O)>,
}

impl<I, O> Build for Glu<I, O>
where
    (I, O): Shape,
{
    fn build(builder: &mut Builder<'_>) -> Self {
        let init = Init::Normal(0.5);
        Glu { gate: builder.param("gate", init), up: builder.param("up", init) }
    }
}

impl<I, O, X, Y: Shape> Layer<Tensor<X>> for Glu<I, O>
where
    (I, O): Shape,
    X: Contract<(I, O), Out = Tensor<Y>>,
{
    type Out = Tensor<Y>;

    fn forward(&self, x: &Tensor<X>) -> Tensor<Y> {
        x.contract(&self.gate).silu() * x.contract(&self.up)
    }
}

/// A block generic in its features, which are bounded to be whole.
#[model]
struct Block<H: Local, F: Whole> {
    norm: LayerNorm<H>,
    #[sharded(tp = "col")]
    up: Linear<H, F>,
    #[sharded(tp = "col")]
    bias: Bias<F>,
    #[sharded(tp = "row")]
    down: Linear<F, H>,
    gain: Param<(H,)>,
}

#[forward]
impl<H: Local, F: Whole> Block<H, F> {
    fn forward(&self, x: &Tensor<(Batch, Seq, H)>) -> Tensor<(Batch, Seq, H)> {
        let h = self.bias.forward(&self.up.forward(&self.norm.forward(x))).gelu();
        x + self.down.forward(&h) * &self.gain
    }
}

#[model]
struct Tower {
    glu: Glu<Hidden, Ffn>,
    norm: RmsNorm<Hidden>,
    blocks: Stack<Block<Hidden, Ffn>>,
    core: Attention<Heads, Heads, HeadDim>,
    #[sharded(tp = "vocab")]
    head: LmHead<Hidden, Vocab>,
}

#[forward]
impl Tower {
    fn forward(&self, x: &Stream) -> Stream {
        self.blocks.forward(&normed(&self.norm, x))
    }
}

#[test]
fn generic_code_runs() {
    let sizes = Sizes::new().with(Hidden, 4).with(Ffn, 6).with(Layers, 2).with(Heads, 2);
    let sizes = sizes.with(HeadDim, 2).with(Vocab, 8);
    super::on_mesh::<Tower>("dp=2,tp=2", &sizes, |rank, built| {
        let x: Stream = ones(rank, &[2, 4, 4]);
        assert_eq!(shifted(&x).to_local_vec(), vec![1.5; 16]);
        assert_eq!(blended(&x, &shifted(&x), 0.5).to_local_vec(), vec![1.25; 16]);
        assert_eq!(total(x.clone(), &[x.clone(), &x * 2.0]).to_local_vec(), vec![4.0; 16]);
        let rows: Tensor<(Batch, Hidden)> = ones(rank, &[2, 4]);
        assert_eq!(squared(&(rows * 3.0)).to_local_vec(), vec![9.0; 4]);
        assert_eq!(table::<Tp>(rank, [4, 2]).gather(Seq).to_local_vec().len(), 8);
        let model = &built.model;
        let y = twice(&model.blocks, &model.forward(&x));
        assert_eq!(y.sizes(), [2, 4, 4]);
        assert_eq!(model.glu.forward(&y).sizes(), [2, 4, 6]);
        let heads: Tensor<(Batch, Seq, Heads, HeadDim)> = ones(rank, &[2, 4, 2, 2]);
        assert_eq!(attended(&model.core, &heads).to_local_vec(), vec![1.0; 16]);
        let by_shards = attended_by_shards(&model.core, &heads.slice(Heads, Tp), &heads);
        assert_eq!(by_shards.gather(Heads).to_local_vec(), vec![1.0; 16]);
        let rope = build::<Rope<HeadDim>>(rank, &sizes).expect("a rotation is built").model;
        assert_eq!(rotated(&rope, &rope, &heads).sizes(), heads.sizes());
        let stream = x.slice(Seq, Tp);
        assert_eq!(shifted_stream(&stream).gather(Seq).to_local_vec(), vec![3.0; 16]);
        let constant = build::<Constant>(rank, &Sizes::new()).expect("nothing is built").model;
        assert_eq!(constant.forward(&stream).gather(Seq).to_local_vec(), vec![1.0; 16]);
        let logits = model.head.logits(&y).gather(Vocab).softmax();
        assert_eq!(logits.sizes(), [2, 4, 8]);
    });
}
