use meshwright::__private::*;
use meshwright_macros::{dims, forward, model};
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
#[automatically_derived]
impl ::meshwright::__private::Whole for Batch {
    const DECLARED_NAME: &'static str = "Batch";
    type Home = ::meshwright::__private::Dp;
}
#[automatically_derived]
impl ::meshwright::__private::Named for Batch {
    type Name = (
        ::meshwright::__private::name::HE,
        (
            ::meshwright::__private::name::HB,
            (
                ::meshwright::__private::name::HF,
                (
                    ::meshwright::__private::name::HE,
                    (
                        ::meshwright::__private::name::H6,
                        (
                            ::meshwright::__private::name::H2,
                            (
                                ::meshwright::__private::name::H9,
                                (::meshwright::__private::name::HB, ()),
                            ),
                        ),
                    ),
                ),
            ),
        ),
    );
}
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
#[automatically_derived]
impl ::meshwright::__private::Whole for Seq {
    const DECLARED_NAME: &'static str = "Seq";
    type Home = ::meshwright::__private::Here;
}
#[automatically_derived]
impl ::meshwright::__private::Named for Seq {
    type Name = (
        ::meshwright::__private::name::H2,
        (
            ::meshwright::__private::name::HB,
            (
                ::meshwright::__private::name::HB,
                (
                    ::meshwright::__private::name::H1,
                    (
                        ::meshwright::__private::name::HA,
                        (
                            ::meshwright::__private::name::H3,
                            (
                                ::meshwright::__private::name::H5,
                                (::meshwright::__private::name::HC, ()),
                            ),
                        ),
                    ),
                ),
            ),
        ),
    );
}
#[automatically_derived]
impl ::meshwright::__private::Local for Seq {}
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
#[automatically_derived]
impl ::meshwright::__private::Whole for Hidden {
    const DECLARED_NAME: &'static str = "Hidden";
    type Home = ::meshwright::__private::Here;
}
#[automatically_derived]
impl ::meshwright::__private::Named for Hidden {
    type Name = (
        ::meshwright::__private::name::H3,
        (
            ::meshwright::__private::name::HC,
            (
                ::meshwright::__private::name::H2,
                (
                    ::meshwright::__private::name::HD,
                    (
                        ::meshwright::__private::name::HF,
                        (
                            ::meshwright::__private::name::HE,
                            (
                                ::meshwright::__private::name::H5,
                                (::meshwright::__private::name::H9, ()),
                            ),
                        ),
                    ),
                ),
            ),
        ),
    );
}
#[automatically_derived]
impl ::meshwright::__private::Local for Hidden {}
#[allow(clippy::type_complexity)]
pub struct Block<M, Ffn: Whole, Along: Whole = Seq, const N: usize = 2>
where
    M: Module,
{
    norm: RmsNorm<Hidden>,
    up: <Linear<
        Hidden,
        Ffn,
    > as ::meshwright::__private::Shard<
        ::meshwright::__private::Col<::meshwright::__private::Tp>,
    >>::Sharded,
    down: <Linear<
        Hidden,
        Hidden,
    > as ::meshwright::__private::Shard<
        ::meshwright::__private::Row<
            ::meshwright::__private::Tp,
            ::meshwright::__private::Scatter<Along>,
        >,
    >>::Sharded,
    inner: Stack<M, N>,
}
#[automatically_derived]
impl<M, Ffn: Whole, Along: Whole, const N: usize> ::meshwright::__private::Build
for Block<M, Ffn, Along, N>
where
    M: Module,
    Stack<M, N>: ::meshwright::__private::Build,
    <Linear<
        Hidden,
        Ffn,
    > as ::meshwright::__private::Shard<
        ::meshwright::__private::Col<::meshwright::__private::Tp>,
    >>::Sharded: ::meshwright::__private::Build,
    <Linear<
        Hidden,
        Hidden,
    > as ::meshwright::__private::Shard<
        ::meshwright::__private::Row<
            ::meshwright::__private::Tp,
            ::meshwright::__private::Scatter<Along>,
        >,
    >>::Sharded: ::meshwright::__private::Build,
{
    fn build(builder: &mut ::meshwright::__private::Builder<'_>) -> Self {
        Self {
            norm: ::meshwright::__private::Build::build(
                &mut ::meshwright::__private::Builder::field(builder, "norm"),
            ),
            inner: ::meshwright::__private::Build::build(
                &mut ::meshwright::__private::Builder::field(builder, "inner"),
            ),
            up: ::meshwright::__private::Build::build(
                &mut ::meshwright::__private::Builder::field(builder, "up"),
            ),
            down: ::meshwright::__private::Build::build(
                &mut ::meshwright::__private::Builder::field(builder, "down"),
            ),
        }
    }
}
#[automatically_derived]
impl<M, Ffn: Whole, Along: Whole, const N: usize> ::meshwright::__private::Model
for Block<M, Ffn, Along, N>
where
    M: Module,
    Stack<M, N>: ::meshwright::__private::Build,
    <Linear<
        Hidden,
        Ffn,
    > as ::meshwright::__private::Shard<
        ::meshwright::__private::Col<::meshwright::__private::Tp>,
    >>::Sharded: ::meshwright::__private::Build,
    <Linear<
        Hidden,
        Hidden,
    > as ::meshwright::__private::Shard<
        ::meshwright::__private::Row<
            ::meshwright::__private::Tp,
            ::meshwright::__private::Scatter<Along>,
        >,
    >>::Sharded: ::meshwright::__private::Build,
{
    fn describe() -> ::meshwright::__private::ModelDescription {
        ::meshwright::__private::ModelDescription {
            name: "Block",
            fields: &[
                ::meshwright::__private::FieldDescription {
                    name: "norm",
                    ty: "RmsNorm<Hidden>",
                    sharded: ::core::option::Option::None,
                    tied: ::core::option::Option::None,
                    shared: false,
                    frozen: false,
                    init: ::core::option::Option::None,
                    recompute: ::core::option::Option::None,
                    stage: ::core::option::Option::None,
                },
                ::meshwright::__private::FieldDescription {
                    name: "inner",
                    ty: "Stack<M, N>",
                    sharded: ::core::option::Option::None,
                    tied: ::core::option::Option::None,
                    shared: false,
                    frozen: false,
                    init: ::core::option::Option::None,
                    recompute: ::core::option::Option::None,
                    stage: ::core::option::Option::None,
                },
                ::meshwright::__private::FieldDescription {
                    name: "up",
                    ty: "Linear<Hidden, Ffn>",
                    sharded: ::core::option::Option::Some("tp = \"col\""),
                    tied: ::core::option::Option::None,
                    shared: false,
                    frozen: false,
                    init: ::core::option::Option::None,
                    recompute: ::core::option::Option::None,
                    stage: ::core::option::Option::None,
                },
                ::meshwright::__private::FieldDescription {
                    name: "down",
                    ty: "Linear<Hidden, Hidden>",
                    sharded: ::core::option::Option::Some(
                        "tp = \"row\", scatter = Along",
                    ),
                    tied: ::core::option::Option::None,
                    shared: false,
                    frozen: false,
                    init: ::core::option::Option::None,
                    recompute: ::core::option::Option::None,
                    stage: ::core::option::Option::None,
                },
            ],
        }
    }
}
#[automatically_derived]
impl<M, Ffn: Whole, Along: Whole, const N: usize> ::meshwright::__private::Recompute
for Block<M, Ffn, Along, N>
where
    M: Module,
{
    type Recomputed = ::meshwright::__private::Recomputed<Self>;
    type Layer = Self;
}
#[automatically_derived]
impl<M, Ffn: Whole, Along: Whole, const N: usize> ::meshwright::__private::RecomputeEvery
for Block<M, Ffn, Along, N>
where
    M: Module,
{
    type Recomputed = ::meshwright::__private::NotRecomputed<
        Self,
        ::meshwright::__private::Grouped,
    >;
    type Layer = Self;
}
#[deny(unused_must_use)]
impl<M, Ffn: Whole, Along: Whole, const N: usize> Block<M, Ffn, Along, N>
where
    M: Module<In = Tensor<(Batch, Seq, Hidden)>, Out = Tensor<(Batch, Seq, Hidden)>>,
{
    fn forward(
        &self,
        input: &impl ::meshwright::__private::ForwardInput<Tensor<(Batch, Seq, Hidden)>>,
    ) -> Tensor<(Batch, Seq, Split<Ffn, Tp>)> {
        let _scope = ::meshwright::__private::scope("Block::forward");
        let x: &Tensor<(Batch, Seq, Hidden)> = ::meshwright::__private::ForwardInput::<
            Tensor<(Batch, Seq, Hidden)>,
        >::as_declared(input);
        let mut y = self.norm.forward(x);
        for block in &self.inner.0 {
            y = block.forward(&y);
        }
        ::meshwright::__private::check_output::<
            Tensor<(Batch, Seq, Split<Ffn, Tp>)>,
        >(self.up.forward(&y))
    }
}
#[automatically_derived]
impl<
    M,
    Ffn: Whole,
    Along: Whole,
    const N: usize,
    __Received: ::meshwright::__private::StageInput<Tensor<(Batch, Seq, Hidden)>>,
> ::meshwright::__private::PipelineStage<__Received> for Block<M, Ffn, Along, N>
where
    M: Module<In = Tensor<(Batch, Seq, Hidden)>, Out = Tensor<(Batch, Seq, Hidden)>>,
{
    type Output = Tensor<(Batch, Seq, Split<Ffn, Tp>)>;
    fn run(
        &self,
        _: ::core::ops::Range<usize>,
        input: __Received,
    ) -> Tensor<(Batch, Seq, Split<Ffn, Tp>)> {
        ::meshwright::__private::run_module(self, input)
    }
}
#[automatically_derived]
impl<
    M,
    Ffn: Whole,
    Along: Whole,
    const N: usize,
    __Received: ::meshwright::__private::ForwardInput<Tensor<(Batch, Seq, Hidden)>>,
> ::meshwright::__private::Layer<__Received> for Block<M, Ffn, Along, N>
where
    M: Module<In = Tensor<(Batch, Seq, Hidden)>, Out = Tensor<(Batch, Seq, Hidden)>>,
{
    type Out = Tensor<(Batch, Seq, Split<Ffn, Tp>)>;
    fn forward(&self, input: &__Received) -> Tensor<(Batch, Seq, Split<Ffn, Tp>)> {
        Self::forward(self, input)
    }
}
#[automatically_derived]
impl<M, Ffn: Whole, Along: Whole, const N: usize> ::meshwright::__private::Module
for Block<M, Ffn, Along, N>
where
    M: Module<In = Tensor<(Batch, Seq, Hidden)>, Out = Tensor<(Batch, Seq, Hidden)>>,
{
    type In = Tensor<(Batch, Seq, Hidden)>;
}
