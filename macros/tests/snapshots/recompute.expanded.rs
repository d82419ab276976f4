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
///The dim `Ffn`.
#[derive(
    ::core::clone::Clone,
    ::core::marker::Copy,
    ::core::fmt::Debug,
    ::core::default::Default,
    ::core::cmp::PartialEq,
    ::core::cmp::Eq,
    ::core::hash::Hash,
)]
pub struct Ffn;
::core::compile_error! {
    "the crate `meshwright` is not a dependency of this package, under any name: add it to `Cargo.toml`; if another crate re-exports it, set its path: `#[model(crate = facade::meshwright)]`"
}
pub struct Mlp {
    up: Linear<Hidden, Ffn>,
    down: Linear<Ffn, Hidden>,
}
::core::compile_error! {
    "the crate `meshwright` is not a dependency of this package, under any name: add it to `Cargo.toml`; if another crate re-exports it, set its path: `#[model(crate = facade::meshwright)]`"
}
pub struct Block<M: Model> {
    mlp: Mlp,
    inner: Twice<M>,
}
::core::compile_error! {
    "the crate `meshwright` is not a dependency of this package, under any name: add it to `Cargo.toml`; if another crate re-exports it, set its path: `#[model(crate = facade::meshwright)]`"
}
pub struct Twice<M> {
    inner: M,
}
::core::compile_error! {
    "the crate `meshwright` is not a dependency of this package, under any name: add it to `Cargo.toml`; if another crate re-exports it, set its path: `#[model(crate = facade::meshwright)]`"
}
pub struct Tower {
    #[cfg(all())]
    blocks: Stack<Block<Mlp>, 3>,
    #[cfg(any())]
    others: Stack<DoesNotExist, 3>,
    mlps: Stack<Mlp, 1>,
}
::core::compile_error! {
    "the crate `meshwright` is not a dependency of this package, under any name: add it to `Cargo.toml`; if another crate re-exports it, set its path: `#[forward(crate = facade::meshwright)]`"
}
#[allow(unused_variables)]
impl<M: Model> Block<M> {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
        ::core::unreachable!()
    }
}
::core::compile_error! {
    "the crate `meshwright` is not a dependency of this package, under any name: add it to `Cargo.toml`; if another crate re-exports it, set its path: `#[forward(crate = facade::meshwright)]`"
}
#[allow(unused_variables)]
impl Mlp {
    fn forward(&self, x: &Tensor<(Batch, Seq, Hidden)>) -> Tensor<(Batch, Seq, Hidden)> {
        ::core::unreachable!()
    }
}
