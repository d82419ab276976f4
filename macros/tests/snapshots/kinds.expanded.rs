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
type Stream = Tensor<(Batch, Seq, Hidden)>;
pub struct Narrow {
    norm: RmsNorm<Hidden>,
}
#[automatically_derived]
impl ::meshwright::__private::Build for Narrow {
    fn build(builder: &mut ::meshwright::__private::Builder<'_>) -> Self {
        Self {
            norm: ::meshwright::__private::Build::build(
                &mut ::meshwright::__private::Builder::field(builder, "norm"),
            ),
        }
    }
}
#[automatically_derived]
impl ::meshwright::__private::Model for Narrow {
    fn describe() -> ::meshwright::__private::ModelDescription {
        ::meshwright::__private::ModelDescription {
            name: "Narrow",
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
impl ::meshwright::__private::Recompute for Narrow {
    type Recomputed = ::meshwright::__private::Recomputed<Self>;
    type Layer = Self;
}
#[automatically_derived]
impl ::meshwright::__private::RecomputeEvery for Narrow {
    type Recomputed = ::meshwright::__private::NotRecomputed<
        Self,
        ::meshwright::__private::Grouped,
    >;
    type Layer = Self;
}
#[deny(unused_must_use)]
impl Narrow {
    fn forward(
        &self,
        input: &impl ::meshwright::__private::ForwardInput<Stream>,
    ) -> Stream {
        let _scope = ::meshwright::__private::scope("Narrow::forward");
        let x: &Stream = ::meshwright::__private::ForwardInput::<
            Stream,
        >::as_declared(input);
        ::meshwright::__private::check_output::<Stream>(self.norm.forward(x))
    }
}
#[automatically_derived]
impl<
    __Received: ::meshwright::__private::StageInput<Stream>,
> ::meshwright::__private::PipelineStage<__Received> for Narrow {
    type Output = Stream;
    fn run(&self, _: ::core::ops::Range<usize>, input: __Received) -> Stream {
        ::meshwright::__private::run_module(self, input)
    }
}
#[automatically_derived]
impl<
    __Received: ::meshwright::__private::ForwardInput<Stream>,
> ::meshwright::__private::Layer<__Received> for Narrow {
    type Out = Stream;
    fn forward(&self, input: &__Received) -> Stream {
        Self::forward(self, input)
    }
}
#[automatically_derived]
impl ::meshwright::__private::Module for Narrow {
    type In = Stream;
}
pub struct Wide {
    norm: RmsNorm<Hidden>,
    other: RmsNorm<Hidden>,
}
#[automatically_derived]
impl ::meshwright::__private::Build for Wide {
    fn build(builder: &mut ::meshwright::__private::Builder<'_>) -> Self {
        Self {
            norm: ::meshwright::__private::Build::build(
                &mut ::meshwright::__private::Builder::field(builder, "norm"),
            ),
            other: ::meshwright::__private::Build::build(
                &mut ::meshwright::__private::Builder::field(builder, "other"),
            ),
        }
    }
}
#[automatically_derived]
impl ::meshwright::__private::Model for Wide {
    fn describe() -> ::meshwright::__private::ModelDescription {
        ::meshwright::__private::ModelDescription {
            name: "Wide",
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
                    name: "other",
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
impl ::meshwright::__private::Recompute for Wide {
    type Recomputed = ::meshwright::__private::Recomputed<Self>;
    type Layer = Self;
}
#[automatically_derived]
impl ::meshwright::__private::RecomputeEvery for Wide {
    type Recomputed = ::meshwright::__private::NotRecomputed<
        Self,
        ::meshwright::__private::Grouped,
    >;
    type Layer = Self;
}
#[deny(unused_must_use)]
impl Wide {
    fn forward(
        &self,
        input: &impl ::meshwright::__private::ForwardInput<Stream>,
    ) -> Stream {
        let _scope = ::meshwright::__private::scope("Wide::forward");
        let x: &Stream = ::meshwright::__private::ForwardInput::<
            Stream,
        >::as_declared(input);
        ::meshwright::__private::check_output::<
            Stream,
        >(self.other.forward(&self.norm.forward(x)))
    }
}
#[automatically_derived]
impl<
    __Received: ::meshwright::__private::StageInput<Stream>,
> ::meshwright::__private::PipelineStage<__Received> for Wide {
    type Output = Stream;
    fn run(&self, _: ::core::ops::Range<usize>, input: __Received) -> Stream {
        ::meshwright::__private::run_module(self, input)
    }
}
#[automatically_derived]
impl<
    __Received: ::meshwright::__private::ForwardInput<Stream>,
> ::meshwright::__private::Layer<__Received> for Wide {
    type Out = Stream;
    fn forward(&self, input: &__Received) -> Stream {
        Self::forward(self, input)
    }
}
#[automatically_derived]
impl ::meshwright::__private::Module for Wide {
    type In = Stream;
}
/// A layer of a stack of both.
pub enum Block {
    Narrow(Narrow),
    Wide(Wide),
}
#[automatically_derived]
impl ::meshwright::__private::Build for Block {
    fn build(builder: &mut ::meshwright::__private::Builder<'_>) -> Self {
        match ::meshwright::__private::Builder::kind(
            builder,
            "Block",
            &["Narrow", "Wide"],
        ) {
            0usize => Self::Narrow(::meshwright::__private::Build::build(builder)),
            _ => Self::Wide(::meshwright::__private::Build::build(builder)),
        }
    }
}
#[automatically_derived]
impl<
    __Received: ::meshwright::__private::StageInput<
            <Narrow as ::meshwright::__private::Module>::In,
        >,
> ::meshwright::__private::PipelineStage<__Received> for Block {
    type Output = <Narrow as ::meshwright::__private::Layer<
        <Narrow as ::meshwright::__private::Module>::In,
    >>::Out;
    fn run(
        &self,
        _: ::core::ops::Range<usize>,
        input: __Received,
    ) -> <Narrow as ::meshwright::__private::Layer<
        <Narrow as ::meshwright::__private::Module>::In,
    >>::Out {
        ::meshwright::__private::run_module(self, input)
    }
}
#[automatically_derived]
impl<
    __Received: ::meshwright::__private::ForwardInput<
            <Narrow as ::meshwright::__private::Module>::In,
        >,
> ::meshwright::__private::Layer<__Received> for Block {
    type Out = <Narrow as ::meshwright::__private::Layer<
        <Narrow as ::meshwright::__private::Module>::In,
    >>::Out;
    fn forward(
        &self,
        input: &__Received,
    ) -> <Narrow as ::meshwright::__private::Layer<
        <Narrow as ::meshwright::__private::Module>::In,
    >>::Out {
        let input: &<Narrow as ::meshwright::__private::Module>::In = ::meshwright::__private::ForwardInput::<
            <Narrow as ::meshwright::__private::Module>::In,
        >::as_declared(input);
        match self {
            Self::Narrow(layer) => {
                ::meshwright::__private::forward_variant::<Narrow, Narrow>(layer, input)
            }
            Self::Wide(layer) => {
                ::meshwright::__private::forward_variant::<Wide, Narrow>(layer, input)
            }
        }
    }
}
#[automatically_derived]
impl ::meshwright::__private::Module for Block {
    type In = <Narrow as ::meshwright::__private::Module>::In;
}
#[automatically_derived]
impl ::meshwright::__private::Model for Block {
    fn describe() -> ::meshwright::__private::ModelDescription {
        ::meshwright::__private::ModelDescription {
            name: "Block",
            fields: &[
                ::meshwright::__private::FieldDescription {
                    name: "Narrow",
                    ty: "Narrow",
                    sharded: ::core::option::Option::None,
                    tied: ::core::option::Option::None,
                    shared: false,
                    frozen: false,
                    init: ::core::option::Option::None,
                    recompute: ::core::option::Option::None,
                    stage: ::core::option::Option::None,
                },
                ::meshwright::__private::FieldDescription {
                    name: "Wide",
                    ty: "Wide",
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
