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
pub struct Mlp {
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
            ::meshwright::__private::AllReduce,
        >,
    >>::Sharded,
}
#[automatically_derived]
impl ::meshwright::__private::Build for Mlp {
    fn build(builder: &mut ::meshwright::__private::Builder<'_>) -> Self {
        ::meshwright::__private::Builder::unit(builder);
        Self {
            up: ::meshwright::__private::Build::build(
                ::meshwright::__private::Builder::unit(
                    &mut ::meshwright::__private::Builder::field(builder, "up"),
                ),
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
                    name: "up",
                    ty: "Linear<Hidden, Ffn>",
                    sharded: ::core::option::Option::Some("tp = \"col\", fsdp"),
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
                    sharded: ::core::option::Option::Some("tp = \"row\""),
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
#[allow(clippy::type_complexity)]
pub struct Block<M: Model> {
    mlp: <Mlp as ::meshwright::__private::Recompute>::Recomputed,
    inner: <Twice<M> as ::meshwright::__private::Recompute>::Recomputed,
}
#[automatically_derived]
impl<M: Model> ::meshwright::__private::Build for Block<M>
where
    <Twice<
        M,
    > as ::meshwright::__private::Recompute>::Recomputed: ::meshwright::__private::Build,
{
    fn build(builder: &mut ::meshwright::__private::Builder<'_>) -> Self {
        Self {
            mlp: ::meshwright::__private::Build::build(
                ::meshwright::__private::Builder::recompute(
                    &mut ::meshwright::__private::Builder::field(builder, "mlp"),
                    ::meshwright::__private::RecomputePolicy {
                        grouping: ::meshwright::__private::Grouping::Every(1usize),
                        save: &[],
                        offload: false,
                    },
                ),
            ),
            inner: ::meshwright::__private::Build::build(
                ::meshwright::__private::Builder::recompute(
                    &mut ::meshwright::__private::Builder::field(builder, "inner"),
                    ::meshwright::__private::RecomputePolicy {
                        grouping: ::meshwright::__private::Grouping::Every(1usize),
                        save: &["inner"],
                        offload: true,
                    },
                ),
            ),
        }
    }
}
#[automatically_derived]
impl<M: Model> ::meshwright::__private::Model for Block<M>
where
    <Twice<
        M,
    > as ::meshwright::__private::Recompute>::Recomputed: ::meshwright::__private::Build,
{
    fn describe() -> ::meshwright::__private::ModelDescription {
        ::meshwright::__private::ModelDescription {
            name: "Block",
            fields: &[
                ::meshwright::__private::FieldDescription {
                    name: "mlp",
                    ty: "Mlp",
                    sharded: ::core::option::Option::None,
                    tied: ::core::option::Option::None,
                    shared: false,
                    frozen: false,
                    init: ::core::option::Option::None,
                    recompute: ::core::option::Option::Some(""),
                    stage: ::core::option::Option::None,
                },
                ::meshwright::__private::FieldDescription {
                    name: "inner",
                    ty: "Twice<M>",
                    sharded: ::core::option::Option::None,
                    tied: ::core::option::Option::None,
                    shared: false,
                    frozen: false,
                    init: ::core::option::Option::None,
                    recompute: ::core::option::Option::Some("save = [inner], offload"),
                    stage: ::core::option::Option::None,
                },
            ],
        }
    }
}
#[automatically_derived]
impl<M: Model> ::meshwright::__private::Recompute for Block<M> {
    type Recomputed = ::meshwright::__private::Recomputed<Self>;
    type Layer = Self;
}
#[automatically_derived]
impl<M: Model> ::meshwright::__private::RecomputeEvery for Block<M> {
    type Recomputed = ::meshwright::__private::NotRecomputed<
        Self,
        ::meshwright::__private::Grouped,
    >;
    type Layer = Self;
}
pub struct Twice<M> {
    inner: M,
}
#[automatically_derived]
impl<M> ::meshwright::__private::Build for Twice<M>
where
    M: ::meshwright::__private::Build,
{
    fn build(builder: &mut ::meshwright::__private::Builder<'_>) -> Self {
        Self {
            inner: ::meshwright::__private::Build::build(
                &mut ::meshwright::__private::Builder::field(builder, "inner"),
            ),
        }
    }
}
#[automatically_derived]
impl<M> ::meshwright::__private::Model for Twice<M>
where
    M: ::meshwright::__private::Build,
{
    fn describe() -> ::meshwright::__private::ModelDescription {
        ::meshwright::__private::ModelDescription {
            name: "Twice",
            fields: &[
                ::meshwright::__private::FieldDescription {
                    name: "inner",
                    ty: "M",
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
impl<M> ::meshwright::__private::Recompute for Twice<M> {
    type Recomputed = ::meshwright::__private::Recomputed<Self>;
    type Layer = Self;
}
#[automatically_derived]
impl<M> ::meshwright::__private::RecomputeEvery for Twice<M> {
    type Recomputed = ::meshwright::__private::NotRecomputed<
        Self,
        ::meshwright::__private::Grouped,
    >;
    type Layer = Self;
}
#[allow(clippy::type_complexity)]
pub struct Tower {
    #[cfg(all())]
    blocks: <Stack<
        Block<Mlp>,
        3,
    > as ::meshwright::__private::RecomputeEvery>::Recomputed,
    #[cfg(any())]
    others: <Stack<
        DoesNotExist,
        3,
    > as ::meshwright::__private::RecomputeEvery>::Recomputed,
    mlps: <Stack<Mlp, 1> as ::meshwright::__private::RecomputeEvery>::Recomputed,
}
#[automatically_derived]
impl ::meshwright::__private::Build for Tower {
    fn build(builder: &mut ::meshwright::__private::Builder<'_>) -> Self {
        #[cfg(all())]
        let _ = |
            __layer: &<Stack<
                Block<Mlp>,
                3,
            > as ::meshwright::__private::RecomputeEvery>::Layer|
        {
            let _ = &__layer.mlp;
            let _ = &__layer.inner.inner.down;
        };
        #[cfg(any())]
        let _ = |
            __layer: &<Stack<
                DoesNotExist,
                3,
            > as ::meshwright::__private::RecomputeEvery>::Layer|
        {
            let _ = &__layer.nothing;
        };
        Self {
            #[cfg(all())]
            blocks: ::meshwright::__private::Build::build(
                ::meshwright::__private::Builder::recompute(
                    &mut ::meshwright::__private::Builder::field(builder, "blocks"),
                    ::meshwright::__private::RecomputePolicy {
                        grouping: ::meshwright::__private::Grouping::Every(2usize),
                        save: &["mlp", "inner.inner.down"],
                        offload: true,
                    },
                ),
            ),
            #[cfg(any())]
            others: ::meshwright::__private::Build::build(
                ::meshwright::__private::Builder::recompute(
                    &mut ::meshwright::__private::Builder::field(builder, "others"),
                    ::meshwright::__private::RecomputePolicy {
                        grouping: ::meshwright::__private::Grouping::Sqrt,
                        save: &["nothing"],
                        offload: false,
                    },
                ),
            ),
            mlps: ::meshwright::__private::Build::build(
                ::meshwright::__private::Builder::recompute(
                    ::meshwright::__private::Builder::unit(
                        &mut ::meshwright::__private::Builder::field(builder, "mlps"),
                    ),
                    ::meshwright::__private::RecomputePolicy {
                        grouping: ::meshwright::__private::Grouping::Sqrt,
                        save: &[],
                        offload: false,
                    },
                ),
            ),
        }
    }
}
#[automatically_derived]
impl ::meshwright::__private::Model for Tower {
    fn describe() -> ::meshwright::__private::ModelDescription {
        ::meshwright::__private::ModelDescription {
            name: "Tower",
            fields: &[
                #[cfg(all())]
                ::meshwright::__private::FieldDescription {
                    name: "blocks",
                    ty: "Stack<Block<Mlp>, 3>",
                    sharded: ::core::option::Option::None,
                    tied: ::core::option::Option::None,
                    shared: false,
                    frozen: false,
                    init: ::core::option::Option::None,
                    recompute: ::core::option::Option::Some(
                        "every = 2, save = [mlp, inner.inner.down], offload",
                    ),
                    stage: ::core::option::Option::None,
                },
                #[cfg(any())]
                ::meshwright::__private::FieldDescription {
                    name: "others",
                    ty: "Stack<DoesNotExist, 3>",
                    sharded: ::core::option::Option::None,
                    tied: ::core::option::Option::None,
                    shared: false,
                    frozen: false,
                    init: ::core::option::Option::None,
                    recompute: ::core::option::Option::Some(
                        "every = \"sqrt\", save = [nothing]",
                    ),
                    stage: ::core::option::Option::None,
                },
                ::meshwright::__private::FieldDescription {
                    name: "mlps",
                    ty: "Stack<Mlp, 1>",
                    sharded: ::core::option::Option::Some("fsdp"),
                    tied: ::core::option::Option::None,
                    shared: false,
                    frozen: false,
                    init: ::core::option::Option::None,
                    recompute: ::core::option::Option::Some("every = \"sqrt\""),
                    stage: ::core::option::Option::None,
                },
            ],
        }
    }
}
#[automatically_derived]
impl ::meshwright::__private::Recompute for Tower {
    type Recomputed = ::meshwright::__private::Recomputed<Self>;
    type Layer = Self;
}
#[automatically_derived]
impl ::meshwright::__private::RecomputeEvery for Tower {
    type Recomputed = ::meshwright::__private::NotRecomputed<
        Self,
        ::meshwright::__private::Grouped,
    >;
    type Layer = Self;
}
#[deny(unused_must_use)]
impl<M: Model> Block<M> {
    fn forward(
        &self,
        input: &impl ::meshwright::__private::ForwardInput<Tensor<(Batch, Seq, Hidden)>>,
    ) -> Tensor<(Batch, Seq, Hidden)> {
        let _scope = ::meshwright::__private::scope("Block::forward");
        let x: &Tensor<(Batch, Seq, Hidden)> = ::meshwright::__private::ForwardInput::<
            Tensor<(Batch, Seq, Hidden)>,
        >::as_declared(input);
        ::meshwright::__private::check_output::<
            Tensor<(Batch, Seq, Hidden)>,
        >(self.mlp.forward(x))
    }
}
#[automatically_derived]
impl<
    M: Model,
    __Received: ::meshwright::__private::StageInput<Tensor<(Batch, Seq, Hidden)>>,
> ::meshwright::__private::PipelineStage<__Received> for Block<M> {
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
    M: Model,
    __Received: ::meshwright::__private::ForwardInput<Tensor<(Batch, Seq, Hidden)>>,
> ::meshwright::__private::Layer<__Received> for Block<M> {
    type Out = Tensor<(Batch, Seq, Hidden)>;
    fn forward(&self, input: &__Received) -> Tensor<(Batch, Seq, Hidden)> {
        Self::forward(self, input)
    }
}
#[automatically_derived]
impl<M: Model> ::meshwright::__private::Module for Block<M> {
    type In = Tensor<(Batch, Seq, Hidden)>;
}
#[deny(unused_must_use)]
impl Mlp {
    fn forward(
        &self,
        input: &impl ::meshwright::__private::ForwardInput<Tensor<(Batch, Seq, Hidden)>>,
    ) -> Tensor<(Batch, Seq, Hidden)> {
        let _scope = ::meshwright::__private::scope("Mlp::forward");
        let x: &Tensor<(Batch, Seq, Hidden)> = ::meshwright::__private::ForwardInput::<
            Tensor<(Batch, Seq, Hidden)>,
        >::as_declared(input);
        let _ = self.up.forward(x);
        ::meshwright::__private::check_output::<
            Tensor<(Batch, Seq, Hidden)>,
        >(Tensor::new())
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
