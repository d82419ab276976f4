//! Expansion of `#[pipeline_stage]`.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{Fields, Generics, Ident, Item};

use crate::attr::Runtime;
use crate::attr::pipeline_stage::PipelineStage;
use crate::model::{Field, Model, is_stage_attribute};
use crate::tokens::{ends, relocated};

/// Writes the visit of the stages. Its types are the types of a `forward` that runs them.
///
/// ```text
/// impl PipelineModel<<Llama as StagedForward>::Input, <Llama as StagedForward>::Output> for Llama {
///     fn visit_fields<V: StageVisitor>(
///         &self, visitor: &mut V, x: StageValue<V, <Llama as StagedForward>::Input>,
///     ) -> StageValue<V, <Llama as StagedForward>::Output> {
///         let __model = self;
///         let x = visit_stage(visitor, "embed", x, &__model.embed);
///         let __model = self;
///         let x = visit_stage(visitor, "blocks", x, &__model.blocks);
///         finish_stages::<V, <Llama as StagedForward>::Output, _>(x)
///     }
/// }
/// ```
///
/// The call of each stage has the span of the field's type, where a broken boundary is an error.
pub fn pipeline_model_impl(model: &Model) -> Option<TokenStream> {
    let is_stage = |field: &&Field| field.stage.as_ref().is_some_and(|stage| !stage.last);
    let last = model.fields.iter().rfind(is_stage)?;
    let name = &model.item.ident;
    if !model.stages_are_valid {
        return Some(stand_in(&model.runtime, name, &model.item.generics));
    }
    // All at the name, so that errors of a missing `forward` are the same one, which rustc shows once.
    let place = name.span();
    let visits = model.fields.iter().filter(is_stage).map(|field| visit(&model.runtime, field));
    let (start, end) = ends(&last.ty);
    let here = model.runtime.private(start);
    let (visitor, x) = (local("visitor", Span::mixed_site()), local("x", Span::mixed_site()));
    let (x_at_end, this) = (local("x", end), local("self", place));
    let private = model.runtime.private(place);
    let input = quote_spanned!(place=> <#name as #private::StagedForward>::Input);
    let output = quote_spanned!(place=> <#name as #private::StagedForward>::Output);
    let finish = quote_spanned!(end=> #here::finish_stages::<V, #output, _>(#x_at_end));
    Some(quote_spanned! {place=>
        #[automatically_derived]
        impl #private::PipelineModel<#input, #output> for #name {
            fn visit_fields<V: #private::StageVisitor>(
                &#this,
                #visitor: &mut V,
                #x: #private::StageValue<V, #input>,
            ) -> #private::StageValue<V, #output> {
                #(#visits)*
                #finish
            }
        }
    })
}

/// Writes the visit of one stage.
fn visit(runtime: &Runtime, field: &Field) -> TokenStream {
    let Field { name, ty, cfgs, .. } = field;
    let path = name.unraw().to_string();
    let (start, end) = ends(ty);
    let here = runtime.private(start);
    let (this, visitor, x) = (local("self", end), local("visitor", end), local("x", end));
    // The argument has the hygiene of the type, as rustc reports it there only then.
    let model = Ident::new("__model", end);
    let name = relocated(quote!(#name), end);
    let borrow = quote_spanned!(start=> &);
    quote_spanned! {end=>
        #(#cfgs)*
        let #model = #this;
        #(#cfgs)*
        let #x = #here::visit_stage(#visitor, #path, #x, #borrow #model.#name);
    }
}

/// A local variable of the generated function, or its `self`, located at `place`.
///
/// All of them have the hygiene of the expansion, as parts of the model may come from different `macro_rules!`.
fn local(name: &str, place: Span) -> Ident {
    Ident::new(name, Span::mixed_site().located_at(place))
}

/// Writes the stand-in for the stages of an invalid item, if it has stages.
pub fn stand_in_of_item(runtime: &Runtime, item: &Item) -> Option<TokenStream> {
    let Item::Struct(item) = item else { return None };
    let Fields::Named(fields) = &item.fields else { return None };
    let mut attrs = fields.named.iter().flat_map(|field| &field.attrs);
    attrs.any(is_stage_attribute).then(|| stand_in(runtime, &item.ident, &item.generics))
}

/// Writes a stand-in for stages with errors, so that a `forward` without a body is no further error.
fn stand_in(runtime: &Runtime, name: &Ident, generics: &Generics) -> TokenStream {
    if matches!(runtime, Runtime::Missing) {
        return TokenStream::new();
    }
    let private = runtime.private(Span::call_site());
    let mut generic = generics.clone();
    let (input, output) = (local("__In", Span::mixed_site()), local("__Out", Span::mixed_site()));
    generic.params.push(syn::parse_quote!(#input));
    generic.params.push(syn::parse_quote!(#output));
    let (impl_generics, ..) = generic.split_for_impl();
    let (_, ty_generics, where_clause) = generics.split_for_impl();
    quote! {
        #[automatically_derived]
        impl #impl_generics #private::PipelineModel<#input, #output> for #name #ty_generics #where_clause {
            fn visit_fields<V: #private::StageVisitor>(
                &self,
                _: &mut V,
                _: #private::StageValue<V, #input>,
            ) -> #private::StageValue<V, #output> {
                ::core::unreachable!()
            }
        }
    }
}

/// Writes the check of `#[pipeline_stage]` on the struct: its input and output can cross between stages.
pub fn boundary_check(model: &Model) -> Option<TokenStream> {
    model.stage_check.as_ref().filter(|_| model.stages_are_valid)?;
    let name = &model.item.ident;
    let private = model.runtime.private(name.span());
    Some(quote_spanned!(name.span()=> const _: fn() = #private::check_boundaries::<#name>;))
}

/// Writes the value of `FieldDescription::stage`.
pub fn describe_stage(private: &TokenStream, stage: Option<&PipelineStage>) -> TokenStream {
    let Some(PipelineStage { last, cost, .. }) = stage else {
        return quote!(::core::option::Option::None);
    };
    let cost = match cost {
        Some(cost) => quote!(::core::option::Option::Some(#cost)),
        None => quote!(::core::option::Option::None),
    };
    quote! {
        ::core::option::Option::Some(#private::StageDescription { last: #last, cost: #cost })
    }
}
