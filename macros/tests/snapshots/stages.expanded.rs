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
pub type Stream = Tensor<(Batch, Seq, Hidden)>;
pub struct Block {
    norm: RmsNorm<Hidden>,
}
#[automatically_derived]
impl ::meshwright::__private::Build for Block {
    fn build(builder: &mut ::meshwright::__private::Builder<'_>) -> Self {
        Self {
            norm: ::meshwright::__private::Build::build(
                &mut ::meshwright::__private::Builder::field(builder, "norm"),
            ),
        }
    }
}
#[automatically_derived]
impl ::meshwright::__private::Model for Block {
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
            ],
        }
    }
}
#[automatically_derived]
impl ::meshwright::__private::Recompute for Block {
    type Recomputed = ::meshwright::__private::Recomputed<Self>;
    type Layer = Self;
}
#[automatically_derived]
impl ::meshwright::__private::RecomputeEvery for Block {
    type Recomputed = ::meshwright::__private::NotRecomputed<
        Self,
        ::meshwright::__private::Grouped,
    >;
    type Layer = Self;
}
const _: fn() = ::meshwright::__private::check_boundaries::<Block>;
#[deny(unused_must_use)]
impl Block {
    fn forward(
        &self,
        input: &impl ::meshwright::__private::ForwardInput<Tensor<(Batch, Seq, Ffn)>>,
    ) -> Tensor<(Batch, Seq, Ffn)> {
        let _scope = ::meshwright::__private::scope("Block::forward");
        let x: &Tensor<(Batch, Seq, Ffn)> = ::meshwright::__private::ForwardInput::<
            Tensor<(Batch, Seq, Ffn)>,
        >::as_declared(input);
        ::meshwright::__private::check_output::<Tensor<(Batch, Seq, Ffn)>>(x.split())
    }
}
#[automatically_derived]
impl<
    __Received: ::meshwright::__private::StageInput<Tensor<(Batch, Seq, Ffn)>>,
> ::meshwright::__private::PipelineStage<__Received> for Block {
    type Output = Tensor<(Batch, Seq, Ffn)>;
    fn run(
        &self,
        _: ::core::ops::Range<usize>,
        input: __Received,
    ) -> Tensor<(Batch, Seq, Ffn)> {
        ::meshwright::__private::run_module(self, input)
    }
}
#[automatically_derived]
impl<
    __Received: ::meshwright::__private::ForwardInput<Tensor<(Batch, Seq, Ffn)>>,
> ::meshwright::__private::Layer<__Received> for Block {
    type Out = Tensor<(Batch, Seq, Ffn)>;
    fn forward(&self, input: &__Received) -> Tensor<(Batch, Seq, Ffn)> {
        Self::forward(self, input)
    }
}
#[automatically_derived]
impl ::meshwright::__private::Module for Block {
    type In = Tensor<(Batch, Seq, Ffn)>;
}
pub struct Net {
    up: Linear<Hidden, Ffn>,
    #[cfg(any())]
    missing: Nothing,
    r#type: Block,
    down: Linear<Ffn, Hidden>,
    pub head: Linear<Hidden, Hidden>,
}
#[automatically_derived]
impl ::meshwright::__private::Build for Net {
    fn build(builder: &mut ::meshwright::__private::Builder<'_>) -> Self {
        Self {
            up: ::meshwright::__private::Build::build(
                &mut ::meshwright::__private::Builder::field(builder, "up"),
            ),
            #[cfg(any())]
            missing: ::meshwright::__private::Build::build(
                &mut ::meshwright::__private::Builder::field(builder, "missing"),
            ),
            r#type: ::meshwright::__private::Build::build(
                &mut ::meshwright::__private::Builder::field(builder, "type"),
            ),
            down: ::meshwright::__private::Build::build(
                &mut ::meshwright::__private::Builder::field(builder, "down"),
            ),
            head: ::meshwright::__private::Build::build(
                &mut ::meshwright::__private::Builder::field(builder, "head"),
            ),
        }
    }
}
#[automatically_derived]
impl ::meshwright::__private::Model for Net {
    fn describe() -> ::meshwright::__private::ModelDescription {
        ::meshwright::__private::ModelDescription {
            name: "Net",
            fields: &[
                ::meshwright::__private::FieldDescription {
                    name: "up",
                    ty: "Linear<Hidden, Ffn>",
                    sharded: ::core::option::Option::None,
                    tied: ::core::option::Option::None,
                    shared: false,
                    frozen: false,
                    init: ::core::option::Option::None,
                    recompute: ::core::option::Option::None,
                    stage: ::core::option::Option::Some(::meshwright::__private::StageDescription {
                        last: false,
                        cost: ::core::option::Option::None,
                    }),
                },
                #[cfg(any())]
                ::meshwright::__private::FieldDescription {
                    name: "missing",
                    ty: "Nothing",
                    sharded: ::core::option::Option::None,
                    tied: ::core::option::Option::None,
                    shared: false,
                    frozen: false,
                    init: ::core::option::Option::None,
                    recompute: ::core::option::Option::None,
                    stage: ::core::option::Option::Some(::meshwright::__private::StageDescription {
                        last: false,
                        cost: ::core::option::Option::None,
                    }),
                },
                ::meshwright::__private::FieldDescription {
                    name: "type",
                    ty: "Block",
                    sharded: ::core::option::Option::None,
                    tied: ::core::option::Option::None,
                    shared: false,
                    frozen: false,
                    init: ::core::option::Option::None,
                    recompute: ::core::option::Option::None,
                    stage: ::core::option::Option::Some(::meshwright::__private::StageDescription {
                        last: false,
                        cost: ::core::option::Option::Some(1.5f64),
                    }),
                },
                ::meshwright::__private::FieldDescription {
                    name: "down",
                    ty: "Linear<Ffn, Hidden>",
                    sharded: ::core::option::Option::None,
                    tied: ::core::option::Option::None,
                    shared: false,
                    frozen: false,
                    init: ::core::option::Option::None,
                    recompute: ::core::option::Option::None,
                    stage: ::core::option::Option::Some(::meshwright::__private::StageDescription {
                        last: false,
                        cost: ::core::option::Option::Some(2f64),
                    }),
                },
                ::meshwright::__private::FieldDescription {
                    name: "head",
                    ty: "Linear<Hidden, Hidden>",
                    sharded: ::core::option::Option::None,
                    tied: ::core::option::Option::None,
                    shared: false,
                    frozen: false,
                    init: ::core::option::Option::None,
                    recompute: ::core::option::Option::None,
                    stage: ::core::option::Option::Some(::meshwright::__private::StageDescription {
                        last: true,
                        cost: ::core::option::Option::None,
                    }),
                },
            ],
        }
    }
}
#[automatically_derived]
impl ::meshwright::__private::Recompute for Net {
    type Recomputed = ::meshwright::__private::Recomputed<Self>;
    type Layer = Self;
}
#[automatically_derived]
impl ::meshwright::__private::RecomputeEvery for Net {
    type Recomputed = ::meshwright::__private::NotRecomputed<
        Self,
        ::meshwright::__private::Grouped,
    >;
    type Layer = Self;
}
#[automatically_derived]
impl ::meshwright::__private::PipelineModel<
    <Net as ::meshwright::__private::StagedForward>::Input,
    <Net as ::meshwright::__private::StagedForward>::Output,
> for Net {
    fn visit_fields<V: ::meshwright::__private::StageVisitor>(
        &self,
        visitor: &mut V,
        x: ::meshwright::__private::StageValue<
            V,
            <Net as ::meshwright::__private::StagedForward>::Input,
        >,
    ) -> ::meshwright::__private::StageValue<
        V,
        <Net as ::meshwright::__private::StagedForward>::Output,
    > {
        let __model = self;
        let x = ::meshwright::__private::visit_stage(visitor, "up", x, &__model.up);
        #[cfg(any())]
        let __model = self;
        #[cfg(any())]
        let x = ::meshwright::__private::visit_stage(
            visitor,
            "missing",
            x,
            &__model.missing,
        );
        let __model = self;
        let x = ::meshwright::__private::visit_stage(
            visitor,
            "type",
            x,
            &__model.r#type,
        );
        let __model = self;
        let x = ::meshwright::__private::visit_stage(visitor, "down", x, &__model.down);
        ::meshwright::__private::finish_stages::<
            V,
            <Net as ::meshwright::__private::StagedForward>::Output,
            _,
        >(x)
    }
}
#[deny(unused_must_use)]
impl Net {
    /// Runs the stages.
    pub fn forward(
        &self,
        input: &impl ::meshwright::__private::ForwardInput<Stream>,
    ) -> Stream {
        let _scope = ::meshwright::__private::scope("Net::forward");
        ::meshwright::__private::forward_stages::<
            Self,
        >(self, ::meshwright::__private::ForwardInput::<Stream>::as_declared(input))
    }
}
#[automatically_derived]
impl<
    __Received: ::meshwright::__private::StageInput<Stream>,
> ::meshwright::__private::PipelineStage<__Received> for Net {
    type Output = Stream;
    fn run(&self, _: ::core::ops::Range<usize>, input: __Received) -> Stream {
        ::meshwright::__private::run_module(self, input)
    }
}
#[automatically_derived]
impl<
    __Received: ::meshwright::__private::ForwardInput<Stream>,
> ::meshwright::__private::Layer<__Received> for Net {
    type Out = Stream;
    fn forward(&self, input: &__Received) -> Stream {
        Self::forward(self, input)
    }
}
#[automatically_derived]
impl ::meshwright::__private::Module for Net {
    type In = Stream;
    fn visit_stages<V: ::meshwright::__private::StageVisitor>(
        &self,
        visitor: &mut V,
        input: ::meshwright::__private::StageValue<
            V,
            <Self as ::meshwright::__private::Module>::In,
        >,
    ) -> ::core::option::Option<::meshwright::__private::StageValue<V, Stream>> {
        ::meshwright::__private::visit_model(self, visitor, input)
    }
}
#[automatically_derived]
impl ::meshwright::__private::StagedForward for Net {
    type Input = Stream;
    type Output = Stream;
}
