//! Expansion of `#[model]` on an enum.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::Ident;
use syn::ext::IdentExt;

use crate::expand::model::recompute_impl;
use crate::tokens::{ends, shown};
use crate::variants::{LayerKind, LayerKinds};

/// Writes the enum, and the impls that build, apply and describe it.
///
/// ```text
/// enum Block { Dense(DenseBlock), Moe(MoeBlock) }
/// impl Build for Block {
///     fn build(builder: &mut Builder<'_>) -> Self {
///         match Builder::kind(builder, "Block", &["Dense", "Moe"]) {
///             0usize => Self::Dense(Build::build(builder)),
///             _ => Self::Moe(Build::build(builder)),
///         }
///     }
/// }
/// impl<X: ForwardInput<In>> Layer<X> for Block { .. }
/// impl Module for Block { type In = <DenseBlock as Module>::In; }
/// impl<X: StageInput<In>> PipelineStage<X> for Block { .. }
/// impl Model for Block { .. }
/// impl Recompute for Block { .. }
/// ```
pub fn expand(model: &LayerKinds) -> TokenStream {
    let item = &model.item;
    let build = build_impl(model);
    let module = module_impls(model);
    let describe = describe_impl(model);
    let recompute = recompute_impl(&model.runtime, &item.ident, &item.generics);
    quote!(#item #build #module #describe #recompute)
}

fn build_impl(model: &LayerKinds) -> TokenStream {
    let (private, name) = (model.runtime.private(Span::call_site()), &model.item.ident);
    let builder = Ident::new("builder", Span::mixed_site());
    let (written, names) = (name.unraw().to_string(), model.names());
    let last = model.kinds.len() - 1;
    let arms = model.kinds.iter().enumerate().map(|(index, LayerKind { name, layer })| {
        let (start, end) = ends(layer);
        let here = model.runtime.private(start);
        let build = quote_spanned!(end=> #here::Build::build(#builder));
        let pattern = if index == last { quote!(_) } else { quote!(#index) };
        quote!(#pattern => Self::#name(#build),)
    });
    quote! {
        #[automatically_derived]
        impl #private::Build for #name {
            fn build(#builder: &mut #private::Builder<'_>) -> Self {
                match #private::Builder::kind(#builder, #written, &[#(#names),*]) { #(#arms)* }
            }
        }
    }
}

/// Writes the impls of a layer, whose types are those of the first variant. Other types are an error at the type of the
/// variant.
fn module_impls(model: &LayerKinds) -> TokenStream {
    let (private, name) = (model.runtime.private(Span::call_site()), &model.item.ident);
    let first = &model.kinds[0].layer;
    let input = quote!(<#first as #private::Module>::In);
    let output = quote!(<#first as #private::Layer<#input>>::Out);
    let received = Ident::new("__Received", Span::mixed_site());
    let x = Ident::new("input", Span::mixed_site());
    let arms = model.kinds.iter().map(|LayerKind { name, layer }| {
        let (start, end) = ends(layer);
        let here = model.runtime.private(start);
        // Located at the type, where rustc reports other types.
        let local = |name: &str| Ident::new(name, Span::mixed_site().located_at(end));
        let (inner, x) = (local("layer"), local("input"));
        let call = quote_spanned! {end=>
            #here::forward_variant::<#layer, #first>(#inner, #x)
        };
        quote!(Self::#name(#inner) => #call,)
    });
    quote! {
        #[automatically_derived]
        impl<#received: #private::StageInput<#input>> #private::PipelineStage<#received> for #name {
            type Output = #output;
            fn run(&self, _: ::core::ops::Range<usize>, #x: #received) -> #output {
                #private::run_module(self, #x)
            }
        }
        #[automatically_derived]
        impl<#received: #private::ForwardInput<#input>> #private::Layer<#received> for #name {
            type Out = #output;
            fn forward(&self, #x: &#received) -> #output {
                let #x: &#input = #private::ForwardInput::<#input>::as_declared(#x);
                match self { #(#arms)* }
            }
        }
        #[automatically_derived]
        impl #private::Module for #name {
            type In = #input;
        }
    }
}

/// Writes the `Model` impl, which describes the variants as fields.
fn describe_impl(model: &LayerKinds) -> TokenStream {
    let (private, name) = (model.runtime.private(Span::call_site()), &model.item.ident);
    let written = name.unraw().to_string();
    let fields = model.kinds.iter().map(|LayerKind { name, layer }| {
        let (name, ty) = (name.unraw().to_string(), shown(layer));
        quote! {
            #private::FieldDescription {
                name: #name,
                ty: #ty,
                sharded: ::core::option::Option::None,
                tied: ::core::option::Option::None,
                shared: false,
                frozen: false,
                init: ::core::option::Option::None,
                recompute: ::core::option::Option::None,
                stage: ::core::option::Option::None,
            }
        }
    });
    quote! {
        #[automatically_derived]
        impl #private::Model for #name {
            fn describe() -> #private::ModelDescription {
                #private::ModelDescription { name: #written, fields: &[#(#fields),*] }
            }
        }
    }
}
