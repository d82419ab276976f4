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
    type Home = ::meshwright::__private::Cp;
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
/// Width of the residual stream.
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
pub(crate) struct Ffn;
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
#[derive(Default)]
pub struct NoParameters {}
#[automatically_derived]
impl ::meshwright::__private::Build for NoParameters {
    fn build(builder: &mut ::meshwright::__private::Builder<'_>) -> Self {
        let _ = builder;
        Self {}
    }
}
#[automatically_derived]
impl ::meshwright::__private::Model for NoParameters {
    fn describe() -> ::meshwright::__private::ModelDescription {
        ::meshwright::__private::ModelDescription {
            name: "NoParameters",
            fields: &[],
        }
    }
}
#[automatically_derived]
impl ::meshwright::__private::Recompute for NoParameters {
    type Recomputed = ::meshwright::__private::Recomputed<Self>;
    type Layer = Self;
}
#[automatically_derived]
impl ::meshwright::__private::RecomputeEvery for NoParameters {
    type Recomputed = ::meshwright::__private::NotRecomputed<
        Self,
        ::meshwright::__private::Grouped,
    >;
    type Layer = Self;
}
#[allow(clippy::type_complexity)]
/// The feed-forward part of a block.
pub struct Mlp {
    /// Up.
    pub gate: <Linear<
        Hidden,
        Ffn,
    > as ::meshwright::__private::Shard<
        ::meshwright::__private::Col<::meshwright::__private::Tp>,
    >>::Sharded,
    up: <Linear<
        Hidden,
        Ffn,
    > as ::meshwright::__private::Shard<
        ::meshwright::__private::Col<::meshwright::__private::Tp>,
    >>::Sharded,
    down: <Linear<
        Ffn,
        Hidden,
    > as ::meshwright::__private::Shard<
        ::meshwright::__private::Row<
            ::meshwright::__private::Tp,
            ::meshwright::__private::Scatter<Seq>,
        >,
    >>::Sharded,
}
#[automatically_derived]
impl ::meshwright::__private::Build for Mlp {
    fn build(builder: &mut ::meshwright::__private::Builder<'_>) -> Self {
        Self {
            gate: ::meshwright::__private::Build::build(
                &mut ::meshwright::__private::Builder::field(builder, "gate"),
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
impl ::meshwright::__private::Model for Mlp {
    fn describe() -> ::meshwright::__private::ModelDescription {
        ::meshwright::__private::ModelDescription {
            name: "Mlp",
            fields: &[
                ::meshwright::__private::FieldDescription {
                    name: "gate",
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
                    ty: "Linear<Ffn, Hidden>",
                    sharded: ::core::option::Option::Some("tp = \"row\", scatter = Seq"),
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
impl ::meshwright::__private::Recompute for Mlp {
    type Recomputed = ::meshwright::__private::Recomputed<Self>;
    type Layer = Self;
}
#[automatically_derived]
impl ::meshwright::__private::RecomputeEvery for Mlp {
    type Recomputed = ::meshwright::__private::NotRecomputed<
        Self,
        ::meshwright::__private::Grouped,
    >;
    type Layer = Self;
}
#[deny(unused_must_use)]
impl Mlp {
    pub fn forward(
        &self,
        input: &impl ::meshwright::__private::ForwardInput<Tensor<(Batch, Seq, Hidden)>>,
    ) -> Tensor<(Batch, Seq, Hidden)> {
        let _scope = ::meshwright::__private::scope("Mlp::forward");
        let x: &Tensor<(Batch, Seq, Hidden)> = ::meshwright::__private::ForwardInput::<
            Tensor<(Batch, Seq, Hidden)>,
        >::as_declared(input);
        if self.is_linear() {
            return ::meshwright::__private::check_output::<
                Tensor<(Batch, Seq, Hidden)>,
            >(self.down.forward(&self.up.forward(x)));
        }
        let _gate = self.gate.forward(x);
        ::meshwright::__private::check_output::<
            Tensor<(Batch, Seq, Hidden)>,
        >(self.down.forward(&self.up.forward(x).silu()))
    }
    fn is_linear(&self) -> bool {
        let _scope = ::meshwright::__private::scope("Mlp::is_linear");
        false
    }
}
#[automatically_derived]
impl<
    __Received: ::meshwright::__private::StageInput<Tensor<(Batch, Seq, Hidden)>>,
> ::meshwright::__private::PipelineStage<__Received> for Mlp {
    type Output = Tensor<(Batch, Seq, Hidden)>;
    fn run(
        &self,
        _: ::core::ops::Range<usize>,
        input: __Received,
    ) -> Tensor<(Batch, Seq, Hidden)> {
        ::meshwright::__private::run_module(self, input)
    }
}
#[automatically_derived]
impl<
    __Received: ::meshwright::__private::ForwardInput<Tensor<(Batch, Seq, Hidden)>>,
> ::meshwright::__private::Layer<__Received> for Mlp {
    type Out = Tensor<(Batch, Seq, Hidden)>;
    fn forward(&self, input: &__Received) -> Tensor<(Batch, Seq, Hidden)> {
        Self::forward(self, input)
    }
}
#[automatically_derived]
impl ::meshwright::__private::Module for Mlp {
    type In = Tensor<(Batch, Seq, Hidden)>;
}
