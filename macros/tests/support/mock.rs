//! A minimal mock of `__private`, against which expansions type-check and run.
//!
//! Its types carry shardings like the runtime's; its builder logs calls.

#![allow(missing_docs, dead_code, clippy::new_without_default)]

use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::Range;
use std::rc::Rc;

pub mod __private {
    pub use super::*;
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AxisId {
    Pp,
    Dp,
    Fsdp,
    Ep,
    Cp,
    Tp,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AxisSet(u8);
impl AxisSet {
    pub const NONE: AxisSet = AxisSet(0);
    pub const DATA: AxisSet = AxisSet(0b1110);
    pub const fn of(axis: AxisId) -> AxisSet {
        AxisSet(1 << axis as u8)
    }
}

pub struct Pp;
pub struct Tp;

/// The axes that distribute a dim.
pub trait Home {
    const VARIES: AxisSet;
}
macro_rules! homes {
    ($($home:ident $varies:expr),*) => {$(
        pub struct $home;
        impl Home for $home {
            const VARIES: AxisSet = $varies;
        }
    )*};
}
homes!(
    Here AxisSet::NONE,
    Data AxisSet::DATA,
    Dp AxisSet::of(AxisId::Dp),
    Fsdp AxisSet::of(AxisId::Fsdp),
    Ep AxisSet::of(AxisId::Ep),
    Cp AxisSet::of(AxisId::Cp)
);

pub trait Dim {
    const NAME: &'static str;
    const VARIES: AxisSet;
}
pub trait Whole {
    const DECLARED_NAME: &'static str;
    type Home: Home;
}
impl<D: Whole> Dim for D {
    const NAME: &'static str = <D as Whole>::DECLARED_NAME;
    const VARIES: AxisSet = D::Home::VARIES;
}
pub trait Named: Dim {
    type Name;
}
pub mod name {
    macro_rules! digits {
        ($($digit:ident)*) => {$(
            pub struct $digit;
        )*};
    }
    digits! { H0 H1 H2 H3 H4 H5 H6 H7 H8 H9 HA HB HC HD HE HF }
}
pub trait Local: Whole<Home = Here> {}
pub trait BatchDim: Whole<Home = Data> {}
pub struct Split<D, A>(PhantomData<(D, A)>);

/// Logs every field, tie, unit and policy.
pub struct Builder<'a> {
    path: String,
    log: Rc<RefCell<Vec<String>>>,
    parent: PhantomData<&'a mut ()>,
}
impl Builder<'_> {
    pub fn new() -> Self {
        Builder { path: String::new(), log: Rc::default(), parent: PhantomData }
    }
    pub fn field(&mut self, name: &'static str) -> Builder<'_> {
        Builder {
            path: format!("{}.{name}", self.path),
            log: self.log.clone(),
            parent: PhantomData,
        }
    }
    pub fn tie(&mut self, target: &'static str, when: Option<&'static str>) -> &mut Self {
        let when = when.map(|key| format!(" when {key}")).unwrap_or_default();
        self.log.borrow_mut().push(format!("{} -> {target}{when}", self.path));
        self
    }
    pub fn kind(&self, name: &str, variants: &[&str]) -> usize {
        self.log.borrow_mut().push(format!("{} is a {name} of {variants:?}", self.path));
        1
    }
    pub fn share(&mut self) -> &mut Self {
        self.log.borrow_mut().push(format!("{} is shared", self.path));
        self
    }
    pub fn init(&mut self, param: Option<&str>, init: Init) -> &mut Self {
        let param = param.map(|name| format!("`{name}` of ")).unwrap_or_default();
        self.log.borrow_mut().push(format!("{param}{} begins as {init:?}", self.path));
        self
    }
    pub fn scaled_init(&mut self, param: Option<&str>) -> &mut Self {
        self.log.borrow_mut().push(format!("{} is scaled, {param:?}", self.path));
        self
    }
    pub fn freeze(&mut self) -> &mut Self {
        self.log.borrow_mut().push(format!("{} is frozen", self.path));
        self
    }
    pub fn unit(&mut self) -> &mut Self {
        self.log.borrow_mut().push(format!("{} is a unit", self.path));
        self
    }
    pub fn recompute(&mut self, policy: RecomputePolicy) -> &mut Self {
        let RecomputePolicy { grouping, save, offload } = policy;
        let text = format!("{} recomputes {grouping:?} but {save:?}", self.path);
        self.log.borrow_mut().push(text + if offload { ", offloading" } else { "" });
        self
    }
    pub fn log(&self) -> Vec<String> {
        self.log.borrow().clone()
    }
}

#[derive(Debug)]
pub enum Init {
    Zeros,
    Ones,
    Constant(f32),
    Normal(f32),
    Uniform(f32),
}

pub trait Build: Sized {
    fn build(builder: &mut Builder<'_>) -> Self;
}
pub trait Model: Build {
    fn describe() -> ModelDescription;
}
#[derive(Debug, PartialEq)]
pub struct ModelDescription {
    pub name: &'static str,
    pub fields: &'static [FieldDescription],
}
#[derive(Debug, PartialEq)]
pub struct FieldDescription {
    pub name: &'static str,
    pub ty: &'static str,
    pub sharded: Option<&'static str>,
    pub tied: Option<&'static str>,
    pub shared: bool,
    pub frozen: bool,
    pub init: Option<&'static str>,
    pub recompute: Option<&'static str>,
    pub stage: Option<StageDescription>,
}
#[derive(Debug, PartialEq)]
pub struct StageDescription {
    pub last: bool,
    pub cost: Option<f64>,
}

#[derive(Debug)]
pub enum Grouping {
    Every(usize),
    Sqrt,
}
pub struct RecomputePolicy {
    pub grouping: Grouping,
    pub save: &'static [&'static str],
    pub offload: bool,
}
pub trait Recompute {
    type Recomputed;
    type Layer;
}
pub trait RecomputeEvery {
    type Recomputed;
    type Layer;
}
/// The type of a model with a recomputation that it cannot have.
pub struct NotRecomputed<M, Way>(M, std::marker::PhantomData<Way>);
pub enum Grouped {}
pub struct Recomputed<M>(M);
impl<X, M: Layer<X>> Layer<X> for Recomputed<M> {
    type Out = M::Out;
    fn forward(&self, x: &X) -> M::Out {
        self.0.forward(x)
    }
}
impl<M> std::ops::Deref for Recomputed<M> {
    type Target = M;
    fn deref(&self) -> &M {
        &self.0
    }
}
impl<M: Build> Build for Recomputed<M> {
    fn build(builder: &mut Builder<'_>) -> Self {
        Recomputed(M::build(builder))
    }
}
impl<M, const N: usize> Recompute for Stack<M, N> {
    type Recomputed = Stack<M, N>;
    type Layer = M;
}
impl<M, const N: usize> RecomputeEvery for Stack<M, N> {
    type Recomputed = Stack<M, N>;
    type Layer = M;
}

pub struct AllReduce;
pub struct Scatter<D>(PhantomData<D>);
pub struct Replicated;
pub struct Col<A>(PhantomData<A>);
pub struct Row<A, End>(PhantomData<(A, End)>);
pub struct VocabSplit<A, End>(PhantomData<(A, End)>);

#[diagnostic::on_unimplemented(message = "`{Self}` cannot be sharded as `{Style}`")]
pub trait Shard<Style> {
    type Sharded;
}
pub trait Module: Layer<<Self as Module>::In> {
    type In;
    fn visit_stages<V: StageVisitor>(
        &self,
        _: &mut V,
        _: StageValue<V, Self::In>,
    ) -> Option<StageValue<V, Self::Out>> {
        None
    }
}

pub trait PipelineStage<X> {
    type Output;
    fn run(&self, layers: Range<usize>, input: X) -> Self::Output;
}
impl<X, I, O, Style> PipelineStage<X> for Linear<I, O, Style>
where
    Self: Layer<X>,
{
    type Output = <Self as Layer<X>>::Out;
    fn run(&self, _: Range<usize>, input: X) -> Self::Output {
        Layer::forward(self, &input)
    }
}
pub trait StageInput<T> {
    fn stage_input(self) -> T;
}
impl<T> StageInput<T> for T {
    fn stage_input(self) -> T {
        self
    }
}
pub fn run_module<M: Module, X: StageInput<M::In>>(model: &M, input: X) -> M::Out {
    model.forward(&input.stage_input())
}
/// Logs the names of the stages.
pub trait StageVisitor: Sized {
    fn visit(&mut self, name: &'static str);
}
impl StageVisitor for Vec<&'static str> {
    fn visit(&mut self, name: &'static str) {
        self.push(name);
    }
}
pub struct StageValue<V, T> {
    pub value: T,
    visitor: PhantomData<V>,
}
impl<V, T> StageValue<V, T> {
    pub fn new(value: T) -> Self {
        StageValue { value, visitor: PhantomData }
    }
}
pub fn visit_stage<V: StageVisitor, X, S: PipelineStage<X>>(
    visitor: &mut V,
    name: &'static str,
    input: StageValue<V, X>,
    stage: &S,
) -> StageValue<V, S::Output> {
    visitor.visit(name);
    StageValue::new(stage.run(0..1, input.value))
}
pub fn finish_stages<V: StageVisitor, T, X: StageInput<T>>(
    output: StageValue<V, X>,
) -> StageValue<V, T> {
    StageValue::new(output.value.stage_input())
}
pub trait PipelineModel<In, Out> {
    fn visit_fields<V: StageVisitor>(
        &self,
        visitor: &mut V,
        input: StageValue<V, In>,
    ) -> StageValue<V, Out>;
}
pub trait StagedForward:
    Module<In = <Self as StagedForward>::Input, Out = <Self as StagedForward>::Output>
    + PipelineModel<<Self as StagedForward>::Input, <Self as StagedForward>::Output>
{
    type Input;
    type Output;
}
pub fn visit_model<M: StagedForward, V: StageVisitor>(
    model: &M,
    visitor: &mut V,
    input: StageValue<V, M::In>,
) -> Option<StageValue<V, M::Out>> {
    Some(model.visit_fields(visitor, input))
}
pub fn check_boundaries<M: Module>() {}
pub fn forward_stages<M: StagedForward<Input: Clone>>(model: &M, input: &M::In) -> M::Out {
    model.visit_fields(&mut Vec::new(), StageValue::new(input.clone())).value
}
#[diagnostic::on_unimplemented(message = "`forward` takes `{T}`, not `{Self}`")]
pub trait ForwardInput<T> {
    fn as_declared(&self) -> &T;
}
impl<T> ForwardInput<T> for T {
    fn as_declared(&self) -> &T {
        self
    }
}
pub trait ForwardOutput<T> {
    fn into_declared(self) -> T;
}
impl<T> ForwardOutput<T> for T {
    fn into_declared(self) -> T {
        self
    }
}
pub fn check_output<T>(x: impl ForwardOutput<T>) -> T {
    x.into_declared()
}

thread_local! {
    /// The scopes that were entered.
    pub static SCOPES: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}
pub struct Scope;
pub fn scope(name: &'static str) -> Scope {
    SCOPES.with_borrow_mut(|scopes| scopes.push(name));
    Scope
}

pub trait TiedWeight {
    type Weight;
}
#[diagnostic::on_unimplemented(message = "the weight of `{Self}` has another shape than `{W}`")]
pub trait SameWeightAs<W>: TiedWeight {}
pub fn check_tie<A: TiedWeight, B: SameWeightAs<A::Weight>>(_: &A, _: &B) {}

#[derive(Debug, Clone)]
pub struct Tensor<S>(PhantomData<S>);
impl<S> Tensor<S> {
    pub fn new() -> Self {
        Tensor(PhantomData)
    }
    pub fn silu(&self) -> Self {
        Tensor::new()
    }
    pub fn split<D>(&self) -> Tensor<D> {
        Tensor::new()
    }
}
#[must_use]
pub struct Partial<S>(PhantomData<S>);
impl<S> Partial<S> {
    pub fn new() -> Self {
        Partial(PhantomData)
    }
    pub fn all_reduce(self) -> Tensor<S> {
        Tensor::new()
    }
}

pub struct Linear<I, O, Style = Replicated>(PhantomData<(I, O, Style)>);
impl<I, O, A> Shard<Col<A>> for Linear<I, O> {
    type Sharded = Linear<I, O, Col<A>>;
}
impl<I, O, A, End> Shard<Row<A, End>> for Linear<I, O> {
    type Sharded = Linear<I, O, Row<A, End>>;
}
impl<I, O, A> TiedWeight for Linear<I, O, Col<A>> {
    type Weight = (I, O);
}
impl<I, O, A> SameWeightAs<(O, I)> for Linear<I, O, Col<A>> {}

/// A layer, generic in its input.
pub trait Layer<X: ?Sized> {
    type Out;
    fn forward(&self, x: &X) -> Self::Out;
}
impl<B, S, I: Whole, O: Whole> Layer<Tensor<(B, S, I)>> for Linear<I, O> {
    type Out = Tensor<(B, S, O)>;
    fn forward(&self, _: &Tensor<(B, S, I)>) -> Self::Out {
        Tensor::new()
    }
}
impl<B, S, I: Whole, O: Whole> Layer<Tensor<(B, S, I)>> for Linear<I, O, Col<Tp>> {
    type Out = Tensor<(B, S, Split<O, Tp>)>;
    fn forward(&self, _: &Tensor<(B, S, I)>) -> Self::Out {
        Tensor::new()
    }
}
impl<B, S, I: Whole, O: Whole, E> Layer<Tensor<(B, S, Split<I, Tp>)>> for Linear<I, O, Row<Tp, E>> {
    type Out = Tensor<(B, S, O)>;
    fn forward(&self, _: &Tensor<(B, S, Split<I, Tp>)>) -> Self::Out {
        Tensor::new()
    }
}
impl<I, O, Style> Linear<I, O, Style> {
    /// A contraction without its reduction.
    pub fn unreduced<B, S>(&self, _: &Tensor<(B, S, I)>) -> Partial<(B, S, O)> {
        Partial::new()
    }
}

pub struct Embedding<V, H, Style = Replicated>(PhantomData<(V, H, Style)>);
impl<V, H, A, End> Shard<VocabSplit<A, End>> for Embedding<V, H> {
    type Sharded = Embedding<V, H, VocabSplit<A, End>>;
}
impl<V, H, A, End> TiedWeight for Embedding<V, H, VocabSplit<A, End>> {
    type Weight = (V, H);
}

pub struct RmsNorm<H>(PhantomData<H>);
impl<B, S, H> Layer<Tensor<(B, S, H)>> for RmsNorm<H> {
    type Out = Tensor<(B, S, H)>;
    fn forward(&self, _: &Tensor<(B, S, H)>) -> Self::Out {
        Tensor::new()
    }
}

macro_rules! leaves {
    ($([$($param:ident),*] $layer:ty),*) => {$(
        impl<$($param),*> Build for $layer {
            fn build(builder: &mut Builder<'_>) -> Self {
                builder.log.borrow_mut().push(builder.path.clone());
                Self(PhantomData)
            }
        }
    )*};
}
leaves!([I, O, Style] Linear<I, O, Style>, [V, H, Style] Embedding<V, H, Style>, [H] RmsNorm<H>);

pub struct Stack<M, const N: usize>(pub [M; N]);
impl<M: Build, const N: usize> Build for Stack<M, N> {
    fn build(builder: &mut Builder<'_>) -> Self {
        Stack(std::array::from_fn(|_| M::build(builder)))
    }
}

pub struct Rank(usize);
impl Rank {
    pub fn index(&self) -> usize {
        self.0
    }
}

/// The loss of a rank.
pub struct Observed(f64);
impl Observed {
    pub fn new(_: &Rank) -> Observed {
        Observed(0.0)
    }

    pub fn loss(&mut self, loss: f64) {
        self.0 = loss;
    }
}

/// Fails if two ranks observe different losses.
pub fn assert_mesh_independent<const N: usize>(
    meshes: [&str; N],
    body: impl Fn(&Rank) -> Result<Observed, ()>,
) {
    let of = |index| body(&Rank(index)).map_or(f64::NAN, |observed| observed.0);
    assert!(N == 0 || of(0) == of(1), "{meshes:?} differs");
}

pub fn forward_variant<V: Module, F: Module<In = V::In, Out = V::Out>>(
    layer: &V,
    input: &V::In,
) -> V::Out {
    layer.forward(input)
}
