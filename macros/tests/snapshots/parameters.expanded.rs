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
    type Home = ::meshwright::__private::Data;
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
#[automatically_derived]
impl ::meshwright::__private::BatchDim for Batch {}
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
#[automatically_derived]
impl ::meshwright::__private::Whole for Ffn {
    const DECLARED_NAME: &'static str = "Ffn";
    type Home = ::meshwright::__private::Here;
}
#[automatically_derived]
impl ::meshwright::__private::Named for Ffn {
    type Name = (
        ::meshwright::__private::name::H0,
        (
            ::meshwright::__private::name::HD,
            (
                ::meshwright::__private::name::H9,
                (
                    ::meshwright::__private::name::H5,
                    (
                        ::meshwright::__private::name::H7,
                        (
                            ::meshwright::__private::name::H1,
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
impl ::meshwright::__private::Local for Ffn {}
#[allow(clippy::type_complexity)]
pub struct Adapted {
    base: <Linear<
        Hidden,
        Ffn,
    > as ::meshwright::__private::Shard<
        ::meshwright::__private::Col<::meshwright::__private::Tp>,
    >>::Sharded,
    norm: RmsNorm<Hidden>,
    table: RmsNorm<Hidden>,
}
#[automatically_derived]
impl ::meshwright::__private::Build for Adapted {
    fn build(builder: &mut ::meshwright::__private::Builder<'_>) -> Self {
        Self {
            base: ::meshwright::__private::Build::build(
                ::meshwright::__private::Builder::freeze(
                    &mut ::meshwright::__private::Builder::field(builder, "base"),
                ),
            ),
            norm: ::meshwright::__private::Build::build(
                ::meshwright::__private::Builder::init(
                    ::meshwright::__private::Builder::init(
                        &mut ::meshwright::__private::Builder::field(builder, "norm"),
                        ::core::option::Option::None,
                        ::meshwright::__private::Init::Normal(0.01f32),
                    ),
                    ::core::option::Option::Some("bias"),
                    ::meshwright::__private::Init::Constant(-1.5f32),
                ),
            ),
            table: ::meshwright::__private::Build::build(
                ::meshwright::__private::Builder::scaled_init(
                    ::meshwright::__private::Builder::share(
                        &mut ::meshwright::__private::Builder::field(builder, "table"),
                    ),
                    ::core::option::Option::None,
                ),
            ),
        }
    }
}
#[automatically_derived]
impl ::meshwright::__private::Model for Adapted {
    fn describe() -> ::meshwright::__private::ModelDescription {
        ::meshwright::__private::ModelDescription {
            name: "Adapted",
            fields: &[
                ::meshwright::__private::FieldDescription {
                    name: "base",
                    ty: "Linear<Hidden, Ffn>",
                    sharded: ::core::option::Option::Some("tp = \"col\""),
                    tied: ::core::option::Option::None,
                    shared: false,
                    frozen: true,
                    init: ::core::option::Option::None,
                    recompute: ::core::option::Option::None,
                    stage: ::core::option::Option::None,
                },
                ::meshwright::__private::FieldDescription {
                    name: "norm",
                    ty: "RmsNorm<Hidden>",
                    sharded: ::core::option::Option::None,
                    tied: ::core::option::Option::None,
                    shared: false,
                    frozen: false,
                    init: ::core::option::Option::Some(
                        "normal(0.01), bias = constant(-1.5)",
                    ),
                    recompute: ::core::option::Option::None,
                    stage: ::core::option::Option::None,
                },
                ::meshwright::__private::FieldDescription {
                    name: "table",
                    ty: "RmsNorm<Hidden>",
                    sharded: ::core::option::Option::None,
                    tied: ::core::option::Option::None,
                    shared: true,
                    frozen: false,
                    init: ::core::option::Option::Some("scaled"),
                    recompute: ::core::option::Option::None,
                    stage: ::core::option::Option::None,
                },
            ],
        }
    }
}
#[automatically_derived]
impl ::meshwright::__private::Recompute for Adapted {
    type Recomputed = ::meshwright::__private::Recomputed<Self>;
    type Layer = Self;
}
#[automatically_derived]
impl ::meshwright::__private::RecomputeEvery for Adapted {
    type Recomputed = ::meshwright::__private::NotRecomputed<
        Self,
        ::meshwright::__private::Grouped,
    >;
    type Layer = Self;
}
#[deny(unused_must_use)]
impl Adapted {
    fn forward(
        &self,
        input: &impl ::meshwright::__private::ForwardInput<Tensor<(Batch, Seq, Hidden)>>,
    ) -> Tensor<(Batch, Seq, Split<Ffn, Tp>)> {
        let _scope = ::meshwright::__private::scope("Adapted::forward");
        let x: &Tensor<(Batch, Seq, Hidden)> = ::meshwright::__private::ForwardInput::<
            Tensor<(Batch, Seq, Hidden)>,
        >::as_declared(input);
        ::meshwright::__private::check_output::<
            Tensor<(Batch, Seq, Split<Ffn, Tp>)>,
        >(self.base.forward(&self.table.forward(&self.norm.forward(x))))
    }
}
#[automatically_derived]
impl<
    __Received: ::meshwright::__private::StageInput<Tensor<(Batch, Seq, Hidden)>>,
> ::meshwright::__private::PipelineStage<__Received> for Adapted {
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
    __Received: ::meshwright::__private::ForwardInput<Tensor<(Batch, Seq, Hidden)>>,
> ::meshwright::__private::Layer<__Received> for Adapted {
    type Out = Tensor<(Batch, Seq, Split<Ffn, Tp>)>;
    fn forward(&self, input: &__Received) -> Tensor<(Batch, Seq, Split<Ffn, Tp>)> {
        Self::forward(self, input)
    }
}
#[automatically_derived]
impl ::meshwright::__private::Module for Adapted {
    type In = Tensor<(Batch, Seq, Hidden)>;
}
