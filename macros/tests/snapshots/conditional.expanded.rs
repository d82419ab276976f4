use meshwright::__private::*;
use meshwright_macros::{dims, forward, model};
::core::compile_error! {
    "the crate `meshwright` is not a dependency of this package, under any name: add it to `Cargo.toml`; if another crate re-exports it, set its path: `dims! { crate = facade::meshwright; .. }`"
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
::core::compile_error! {
    "the crate `meshwright` is not a dependency of this package, under any name: add it to `Cargo.toml`; if another crate re-exports it, set its path: `#[model(crate = facade::meshwright)]`"
}
struct Net {
    layer: Linear<Hidden, Hidden>,
}
::core::compile_error! {
    "the crate `meshwright` is not a dependency of this package, under any name: add it to `Cargo.toml`; if another crate re-exports it, set its path: `#[forward(crate = facade::meshwright)]`"
}
#[allow(unused_variables)]
impl Net {
    fn forward(&self, x: &Tensor<(u8, u8, Hidden)>) -> Tensor<(u8, u8, Hidden)> {
        ::core::unreachable!()
    }
}
