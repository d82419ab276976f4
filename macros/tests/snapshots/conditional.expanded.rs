use meshwright::__private::*;
use meshwright_macros::{dims, forward, model};
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
struct Net {
    layer: Linear<Hidden, Hidden>,
}
#[automatically_derived]
impl ::meshwright::__private::Build for Net {
    fn build(builder: &mut ::meshwright::__private::Builder<'_>) -> Self {
        Self {
            layer: ::meshwright::__private::Build::build(
                &mut ::meshwright::__private::Builder::field(builder, "layer"),
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
                    name: "layer",
                    ty: "Linear<Hidden, Hidden>",
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
#[deny(unused_must_use)]
impl Net {
    fn forward(
        &self,
        input: &impl ::meshwright::__private::ForwardInput<Tensor<(u8, u8, Hidden)>>,
    ) -> Tensor<(u8, u8, Hidden)> {
        let _scope = ::meshwright::__private::scope("Net::forward");
        let x: &Tensor<(u8, u8, Hidden)> = ::meshwright::__private::ForwardInput::<
            Tensor<(u8, u8, Hidden)>,
        >::as_declared(input);
        #[cfg(any())]
        {
            ::meshwright::__private::check_output::<
                Tensor<(u8, u8, Hidden)>,
            >(self.layer.unreduced(x))
        }
        #[cfg(all())]
        {
            ::meshwright::__private::check_output::<
                Tensor<(u8, u8, Hidden)>,
            >(self.layer.forward(x))
        }
    }
}
#[automatically_derived]
impl<
    __Received: ::meshwright::__private::StageInput<Tensor<(u8, u8, Hidden)>>,
> ::meshwright::__private::PipelineStage<__Received> for Net {
    type Output = Tensor<(u8, u8, Hidden)>;
    fn run(
        &self,
        _: ::core::ops::Range<usize>,
        input: __Received,
    ) -> Tensor<(u8, u8, Hidden)> {
        ::meshwright::__private::run_module(self, input)
    }
}
#[automatically_derived]
impl<
    __Received: ::meshwright::__private::ForwardInput<Tensor<(u8, u8, Hidden)>>,
> ::meshwright::__private::Layer<__Received> for Net {
    type Out = Tensor<(u8, u8, Hidden)>;
    fn forward(&self, input: &__Received) -> Tensor<(u8, u8, Hidden)> {
        Self::forward(self, input)
    }
}
#[automatically_derived]
impl ::meshwright::__private::Module for Net {
    type In = Tensor<(u8, u8, Hidden)>;
}
