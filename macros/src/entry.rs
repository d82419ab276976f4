//! The macros on `proc_macro2` tokens: parse, model, check, expand.
//!
//! With errors, a fallback of the item is emitted too, so that one mistake in a model does not cause an error at each
//! of its uses.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{DeriveInput, Item};

use crate::attr::{MeshTestArgs, Runtime, table};
use crate::diag::Ctxt;
use crate::forward::{Forward, complete_bodies, complete_shapes};
use crate::library::hide_impls;
use crate::mesh_test::MeshTest;
use crate::model::Model;
use crate::variants::LayerKinds;
use crate::{check, expand, fragments, tokens};

/// Expands `dims!`.
pub fn dims(input: TokenStream) -> TokenStream {
    let cx = Ctxt::new();
    let code = crate::dims::dims(&cx, input);
    finish("dims!", cx, code)
}

/// Expands `#[model]`.
pub fn model(args: TokenStream, item: TokenStream) -> TokenStream {
    let cx = Ctxt::new();
    let code = model_code(&cx, args, item);
    finish("#[model]", cx, code)
}

/// Expands `#[derive(Model)]`.
pub fn derive_model(item: TokenStream) -> TokenStream {
    let cx = Ctxt::new();
    let code = derive_model_code(&cx, item);
    finish("#[derive(Model)]", cx, code)
}

/// Expands `#[forward]`.
pub fn forward(args: TokenStream, item: TokenStream) -> TokenStream {
    let cx = Ctxt::new();
    let code = forward_code(&cx, args, item);
    finish("#[forward]", cx, code)
}

/// Expands an attribute that `#[model]` has not removed, on a struct: an error.
pub fn without_model(attribute: &str, item: TokenStream) -> TokenStream {
    let cx = Ctxt::new();
    cx.error(
        Span::call_site(),
        format_args!("`#[{attribute}]` is read by `#[model]`: write `#[model]` above it"),
    );
    finish(attribute, cx, item)
}

/// Expands `#[mesh_test]`.
pub fn mesh_test(args: TokenStream, item: TokenStream) -> TokenStream {
    let cx = Ctxt::new();
    let code = mesh_test_code(&cx, args, item);
    finish("#[mesh_test]", cx, code)
}

/// Expands `#[model]`; errors go to `cx`.
pub fn model_code(cx: &Ctxt, args: TokenStream, tokens: TokenStream) -> TokenStream {
    let runtime = Runtime::parse_args(cx, &table::MODEL, args);
    let Some(item) = parse(cx, &tokens) else { return tokens };
    if let Item::Enum(item) = &item
        && !matches!(runtime, Runtime::Missing)
        && let Some(kinds) = LayerKinds::lower(cx, runtime.clone(), item)
    {
        return expand::variants::expand(&kinds);
    }
    let Some(mut model) = Model::lower(cx, runtime.clone(), &item) else {
        return expand::model::fallback(&runtime, &item);
    };
    check::model::check(cx, &mut model);
    let borrows = model.item.generics.lifetimes().next().is_some();
    if borrows || matches!(runtime, Runtime::Missing) {
        return expand::model::fallback(&runtime, &item);
    }
    expand::model::expand(&model)
}

/// Expands `#[derive(Model)]`; errors go to `cx`.
pub fn derive_model_code(cx: &Ctxt, tokens: TokenStream) -> TokenStream {
    cx.error(
        Span::call_site(),
        "`Model` is not derived: write `#[model]` above the struct instead of `#[derive(Model)]` (a derive macro \
         cannot change the types of fields)",
    );
    match syn::parse2::<DeriveInput>(tokens) {
        // `#[model]` below it writes the impls.
        Ok(item) if !item.attrs.iter().any(|attr| attr.path().is_ident("model")) => {
            expand::model::stand_ins(&Runtime::of_package(), &item.ident, &item.generics)
        }
        _ => TokenStream::new(),
    }
}

/// Expands `#[forward]`; errors go to `cx`.
pub fn forward_code(cx: &Ctxt, args: TokenStream, tokens: TokenStream) -> TokenStream {
    let runtime = Runtime::parse_args(cx, &table::FORWARD, args);
    let Some(mut item) = parse(cx, &tokens) else { return tokens };
    complete_shapes(cx, &mut item);
    let bodiless = complete_bodies(&mut item);
    let Some(forward) = Forward::lower(cx, runtime, &item, &bodiless) else { return quote!(#item) };
    check::forward::check(cx, &forward);
    match &forward.types {
        Some(types) if cx.n_errors() == 0 => expand::forward::expand(&forward, types),
        _ => expand::forward::fallback(&forward),
    }
}

/// Expands `#[mesh_test]`; errors go to `cx`.
pub fn mesh_test_code(cx: &Ctxt, args: TokenStream, tokens: TokenStream) -> TokenStream {
    let args = MeshTestArgs::parse(cx, args);
    let Some(item) = parse(cx, &tokens) else { return tokens };
    let Some(test) = MeshTest::lower(cx, args, &item) else { return quote!(#item) };
    check::mesh_test::check(cx, &test);
    if cx.n_errors() == 0 {
        expand::mesh_test::expand(&test)
    } else {
        expand::mesh_test::fallback(&test)
    }
}

fn parse(cx: &Ctxt, tokens: &TokenStream) -> Option<Item> {
    fragments::parse_item(tokens.clone()).map_err(|error| cx.push(error)).ok()
}

fn finish(name: &str, cx: Ctxt, code: TokenStream) -> TokenStream {
    if std::env::var_os("MESHWRIGHT_MACROS_DEBUG").is_some_and(|value| value == "1") {
        eprintln!("// {name}\n{}\n", tokens::shown(&code));
    }
    let (errors, code) = (cx.finish(), hide_impls(code));
    quote!(#errors #code)
}
