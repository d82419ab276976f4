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
///The dim `Vocab`.
#[derive(
    ::core::clone::Clone,
    ::core::marker::Copy,
    ::core::fmt::Debug,
    ::core::default::Default,
    ::core::cmp::PartialEq,
    ::core::cmp::Eq,
    ::core::hash::Hash,
)]
pub struct Vocab;
#[automatically_derived]
impl ::meshwright::__private::Whole for Vocab {
    const DECLARED_NAME: &'static str = "Vocab";
    type Home = ::meshwright::__private::Here;
}
#[automatically_derived]
impl ::meshwright::__private::Named for Vocab {
    type Name = (
        ::meshwright::__private::name::HE,
        (
            ::meshwright::__private::name::H6,
            (
                ::meshwright::__private::name::H8,
                (
                    ::meshwright::__private::name::HD,
                    (
                        ::meshwright::__private::name::H4,
                        (
                            ::meshwright::__private::name::H5,
                            (
                                ::meshwright::__private::name::H6,
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
impl ::meshwright::__private::Local for Vocab {}
///The dim `Other`.
#[derive(
    ::core::clone::Clone,
    ::core::marker::Copy,
    ::core::fmt::Debug,
    ::core::default::Default,
    ::core::cmp::PartialEq,
    ::core::cmp::Eq,
    ::core::hash::Hash,
)]
pub struct Other;
#[automatically_derived]
impl ::meshwright::__private::Whole for Other {
    const DECLARED_NAME: &'static str = "Other";
    type Home = ::meshwright::__private::Here;
}
#[automatically_derived]
impl ::meshwright::__private::Named for Other {
    type Name = (
        ::meshwright::__private::name::H6,
        (
            ::meshwright::__private::name::HE,
            (
                ::meshwright::__private::name::H3,
                (
                    ::meshwright::__private::name::H8,
                    (
                        ::meshwright::__private::name::HF,
                        (
                            ::meshwright::__private::name::HF,
                            (
                                ::meshwright::__private::name::H9,
                                (::meshwright::__private::name::H5, ()),
                            ),
                        ),
                    ),
                ),
            ),
        ),
    );
}
#[automatically_derived]
impl ::meshwright::__private::Local for Other {}
#[allow(clippy::type_complexity)]
pub struct Embed {
    tokens: <Embedding<
        Vocab,
        Hidden,
    > as ::meshwright::__private::Shard<
        ::meshwright::__private::VocabSplit<
            ::meshwright::__private::Tp,
            ::meshwright::__private::AllReduce,
        >,
    >>::Sharded,
}
#[automatically_derived]
impl ::meshwright::__private::Build for Embed {
    fn build(builder: &mut ::meshwright::__private::Builder<'_>) -> Self {
        Self {
            tokens: ::meshwright::__private::Build::build(
                &mut ::meshwright::__private::Builder::field(builder, "tokens"),
            ),
        }
    }
}
#[automatically_derived]
impl ::meshwright::__private::Model for Embed {
    fn describe() -> ::meshwright::__private::ModelDescription {
        ::meshwright::__private::ModelDescription {
            name: "Embed",
            fields: &[
                ::meshwright::__private::FieldDescription {
                    name: "tokens",
                    ty: "Embedding<Vocab, Hidden>",
                    sharded: ::core::option::Option::Some("tp = \"vocab\""),
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
impl ::meshwright::__private::Recompute for Embed {
    type Recomputed = ::meshwright::__private::Recomputed<Self>;
    type Layer = Self;
}
#[automatically_derived]
impl ::meshwright::__private::RecomputeEvery for Embed {
    type Recomputed = ::meshwright::__private::NotRecomputed<
        Self,
        ::meshwright::__private::Grouped,
    >;
    type Layer = Self;
}
#[allow(clippy::type_complexity)]
pub struct Llama {
    #[cfg(all())]
    norm: RmsNorm<Hidden>,
    #[cfg(any())]
    r#type: DoesNotExist,
    head: <Linear<
        Hidden,
        Vocab,
    > as ::meshwright::__private::Shard<
        ::meshwright::__private::Col<::meshwright::__private::Tp>,
    >>::Sharded,
    #[cfg(any())]
    other: DoesNotExist,
    embed: Embed,
}
#[automatically_derived]
impl ::meshwright::__private::Build for Llama {
    fn build(builder: &mut ::meshwright::__private::Builder<'_>) -> Self {
        let _ = |__model: &Self| ::meshwright::__private::check_tie(
            &__model.embed.tokens,
            &__model.head,
        );
        #[cfg(any())]
        let _ = |__model: &Self| ::meshwright::__private::check_tie(
            &__model.embed.nothing,
            &__model.other,
        );
        Self {
            embed: ::meshwright::__private::Build::build(
                &mut ::meshwright::__private::Builder::field(builder, "embed"),
            ),
            #[cfg(all())]
            norm: ::meshwright::__private::Build::build(
                &mut ::meshwright::__private::Builder::field(builder, "norm"),
            ),
            #[cfg(any())]
            r#type: ::meshwright::__private::Build::build(
                &mut ::meshwright::__private::Builder::field(builder, "type"),
            ),
            head: ::meshwright::__private::Build::build(
                ::meshwright::__private::Builder::tie(
                    &mut ::meshwright::__private::Builder::field(builder, "head"),
                    "embed.tokens",
                    ::core::option::Option::Some("tie_word_embeddings"),
                ),
            ),
            #[cfg(any())]
            other: ::meshwright::__private::Build::build(
                ::meshwright::__private::Builder::tie(
                    &mut ::meshwright::__private::Builder::field(builder, "other"),
                    "embed.nothing",
                    ::core::option::Option::None,
                ),
            ),
        }
    }
}
#[automatically_derived]
impl ::meshwright::__private::Model for Llama {
    fn describe() -> ::meshwright::__private::ModelDescription {
        ::meshwright::__private::ModelDescription {
            name: "Llama",
            fields: &[
                ::meshwright::__private::FieldDescription {
                    name: "embed",
                    ty: "Embed",
                    sharded: ::core::option::Option::None,
                    tied: ::core::option::Option::None,
                    shared: false,
                    frozen: false,
                    init: ::core::option::Option::None,
                    recompute: ::core::option::Option::None,
                    stage: ::core::option::Option::None,
                },
                #[cfg(all())]
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
                #[cfg(any())]
                ::meshwright::__private::FieldDescription {
                    name: "type",
                    ty: "DoesNotExist",
                    sharded: ::core::option::Option::None,
                    tied: ::core::option::Option::None,
                    shared: false,
                    frozen: false,
                    init: ::core::option::Option::None,
                    recompute: ::core::option::Option::None,
                    stage: ::core::option::Option::None,
                },
                ::meshwright::__private::FieldDescription {
                    name: "head",
                    ty: "Linear<Hidden, Vocab>",
                    sharded: ::core::option::Option::Some("tp = \"col\""),
                    tied: ::core::option::Option::Some("embed.tokens"),
                    shared: false,
                    frozen: false,
                    init: ::core::option::Option::None,
                    recompute: ::core::option::Option::None,
                    stage: ::core::option::Option::None,
                },
                #[cfg(any())]
                ::meshwright::__private::FieldDescription {
                    name: "other",
                    ty: "DoesNotExist",
                    sharded: ::core::option::Option::None,
                    tied: ::core::option::Option::Some("embed.nothing"),
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
impl ::meshwright::__private::Recompute for Llama {
    type Recomputed = ::meshwright::__private::Recomputed<Self>;
    type Layer = Self;
}
#[automatically_derived]
impl ::meshwright::__private::RecomputeEvery for Llama {
    type Recomputed = ::meshwright::__private::NotRecomputed<
        Self,
        ::meshwright::__private::Grouped,
    >;
    type Layer = Self;
}
#[deny(unused_must_use)]
impl Llama {
    fn forward(
        &self,
        input: &impl ::meshwright::__private::ForwardInput<
            (Tensor<(Batch, Seq, Hidden)>, Option<bool>),
        >,
    ) -> (Tensor<(Batch, Seq, Split<Vocab, Tp>)>, usize) {
        let _scope = ::meshwright::__private::scope("Llama::forward");
        let (x, choose): &(Tensor<(Batch, Seq, Hidden)>, Option<bool>) = ::meshwright::__private::ForwardInput::<
            (Tensor<(Batch, Seq, Hidden)>, Option<bool>),
        >::as_declared(input);
        let length = [1].map(|x| return x + 1).len();
        match choose {
            None => panic!("choose"),
            Some(true) => {
                return (
                    ::meshwright::__private::check_output::<
                        Tensor<(Batch, Seq, Split<Vocab, Tp>)>,
                    >(self.head.forward(&self.norm.forward(x))),
                    ::meshwright::__private::check_output::<usize>(length),
                );
            }
            Some(false) => {
                let y = self.head.forward(x);
                (
                    ::meshwright::__private::check_output::<
                        Tensor<(Batch, Seq, Split<Vocab, Tp>)>,
                    >(y),
                    ::meshwright::__private::check_output::<usize>(length),
                )
            }
        }
    }
}
#[automatically_derived]
impl<
    __Received: ::meshwright::__private::StageInput<
            (Tensor<(Batch, Seq, Hidden)>, Option<bool>),
        >,
> ::meshwright::__private::PipelineStage<__Received> for Llama {
    type Output = (Tensor<(Batch, Seq, Split<Vocab, Tp>)>, usize);
    fn run(
        &self,
        _: ::core::ops::Range<usize>,
        input: __Received,
    ) -> (Tensor<(Batch, Seq, Split<Vocab, Tp>)>, usize) {
        ::meshwright::__private::run_module(self, input)
    }
}
#[automatically_derived]
impl<
    __Received: ::meshwright::__private::ForwardInput<
            (Tensor<(Batch, Seq, Hidden)>, Option<bool>),
        >,
> ::meshwright::__private::Layer<__Received> for Llama {
    type Out = (Tensor<(Batch, Seq, Split<Vocab, Tp>)>, usize);
    fn forward(
        &self,
        input: &__Received,
    ) -> (Tensor<(Batch, Seq, Split<Vocab, Tp>)>, usize) {
        Self::forward(self, input)
    }
}
#[automatically_derived]
impl ::meshwright::__private::Module for Llama {
    type In = (Tensor<(Batch, Seq, Hidden)>, Option<bool>);
}
