//! Expansion of `#[model]`: the description of the model.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::Generics;
use syn::ext::IdentExt;

use crate::attr::init::InitialValues;
use crate::attr::recompute::Recompute;
use crate::attr::sharded::Sharded;
use crate::expand::stages;
use crate::model::{Field, Model};
use crate::tokens::{option, shown};

/// Writes the `Model` impl, with the struct's generics and their bounds.
///
/// ```text
/// impl Model for Mlp {
///     fn describe() -> ModelDescription {
///         ModelDescription { name: "Mlp", fields: &[FieldDescription { name: "up", .. }] }
///     }
/// }
/// ```
pub fn model_impl(model: &Model, generics: &Generics) -> TokenStream {
    let (private, name) = (model.runtime.private(Span::call_site()), &model.item.ident);
    let (impl_generics, ty_generics, where_clause) = generics.split_for_impl();
    let model_name = name.unraw().to_string();
    let fields = model.fields.iter().map(|field| describe_field(&private, field));
    quote! {
        #[automatically_derived]
        impl #impl_generics #private::Model for #name #ty_generics #where_clause {
            fn describe() -> #private::ModelDescription {
                #private::ModelDescription { name: #model_name, fields: &[#(#fields)*] }
            }
        }
    }
}

fn describe_field(private: &TokenStream, field: &Field) -> TokenStream {
    let cfgs = &field.cfgs;
    let name = field.name.unraw().to_string();
    let ty = shown(&field.ty);
    let sharded = option(field.sharded.as_ref().map(Sharded::shown));
    let tied = option(field.tied.as_ref().map(|tied| tied.path.dotted()));
    let (shared, frozen) = (field.shared.is_some(), field.frozen.is_some());
    let init = option(field.init.as_ref().map(InitialValues::shown));
    let recompute = option(field.recompute.as_ref().map(Recompute::shown));
    let stage = stages::describe_stage(private, field.stage.as_ref());
    quote! {
        #(#cfgs)*
        #private::FieldDescription {
            name: #name,
            ty: #ty,
            sharded: #sharded,
            tied: #tied,
            shared: #shared,
            frozen: #frozen,
            init: #init,
            recompute: #recompute,
            stage: #stage,
        },
    }
}
