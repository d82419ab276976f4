//! Code of `#[mesh_test]`.

use proc_macro2::{Span, TokenStream};
use quote::quote;

use crate::mesh_test::MeshTest;

/// Writes the test, with the function inside.
///
/// ```text
/// #[test]
/// fn name() {
///     fn name(rank: &Rank) -> Result<Observed> { .. }
///     assert_mesh_independent(["dp=2", "tp=2"], name)
/// }
/// ```
pub fn expand(test: &MeshTest) -> TokenStream {
    let MeshTest { runtime, meshes, function } = test;
    let private = runtime.private(Span::call_site());
    let (attrs, vis, name) = (&function.attrs, &function.vis, &function.sig.ident);
    let inner = {
        let mut inner = function.clone();
        inner.attrs.clear();
        inner.vis = syn::Visibility::Inherited;
        inner
    };
    quote! {
        #[::core::prelude::v1::test]
        #(#attrs)*
        #vis fn #name() {
            #inner
            #private::assert_mesh_independent([#(#meshes),*], #name)
        }
    }
}

/// Writes the function alone, for one with mistakes.
pub fn fallback(test: &MeshTest) -> TokenStream {
    let function = &test.function;
    quote! {
        #[allow(dead_code)]
        #function
    }
}
