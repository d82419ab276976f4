use meshwright::__private::*;
use meshwright_macros::{dims, forward, model};
::core::compile_error! {
    "the crate `meshwright` is not a dependency of this package, under any name: add it to `Cargo.toml`; if another crate re-exports it, set its path: `dims! { crate = facade::meshwright; .. }`"
}
///The dim `Batch`.
#[derive(
    ::core::clone::Clone,
    ::core::marker::Copy,
    ::core::fmt::Debug,
    ::core::default::Default,
    ::core::cmp::PartialEq,
    ::core::cmp::Eq,
    ::core::hash::Hash,
)]
pub struct Batch;
///The dim `Seq`.
#[derive(
    ::core::clone::Clone,
    ::core::marker::Copy,
    ::core::fmt::Debug,
    ::core::default::Default,
    ::core::cmp::PartialEq,
    ::core::cmp::Eq,
    ::core::hash::Hash,
)]
pub struct Seq;
///The dim `Hidden`.
#[derive(
    ::core::clone::Clone,
    ::core::marker::Copy,
    ::core::fmt::Debug,
    ::core::default::Default,
    ::core::cmp::PartialEq,
    ::core::cmp::Eq,
    ::core::hash::Hash,
)]
pub struct Hidden;
::core::compile_error! {
    "the crate `meshwright` is not a dependency of this package, under any name: add it to `Cargo.toml`; if another crate re-exports it, set its path: `#[model(crate = facade::meshwright)]`"
}
pub struct Block<M, Ffn: Whole, Along: Whole = Seq, const N: usize = 2>
where
    M: Module,
{
    norm: RmsNorm<Hidden>,
    inner: Stack<M, N>,
    up: Linear<Hidden, Ffn>,
    down: Linear<Hidden, Hidden>,
}
::core::compile_error! {
    "the crate `meshwright` is not a dependency of this package, under any name: add it to `Cargo.toml`; if another crate re-exports it, set its path: `#[forward(crate = facade::meshwright)]`"
}
#[allow(unused_variables)]
impl<M, Ffn: Whole, Along: Whole, const N: usize> Block<M, Ffn, Along, N>
where
    M: Module<In = Tensor<(Batch, Seq, Hidden)>, Out = Tensor<(Batch, Seq, Hidden)>>,
{
    fn forward(
        &self,
        x: &Tensor<(Batch, Seq, Hidden)>,
    ) -> Tensor<(Batch, Seq, Split<Ffn, Tp>)> {
        ::core::unreachable!()
    }
}
