//! `#[model]`.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{Fields, Generics, Ident, Item, Type, WherePredicate, parse_quote};

use crate::attr::{Runtime, Sharded, Tied};
use crate::model::{Field, Model, StripAttributes, name_and_generics};
use crate::tokens::{ends, relocated, shown};

/// The struct with its sharded field types, and the impls that build and describe it.
///
/// ```text
/// struct Mlp { up: <Linear<Hidden, Ffn> as Shard<Col<Tp>>>::Sharded, .. }
/// impl Build for Mlp { .. }
/// impl Model for Mlp { .. }
/// ```
pub fn expand(model: &Model) -> TokenStream {
    let item = sharded_struct(model);
    let build = build_impl(model);
    let describe = model_impl(model);
    quote!(#item #build #describe)
}

/// What remains of an item that is no model: itself without our attributes, and impls that only keep
/// its users from failing too.
pub fn fallback(runtime: &Runtime, item: &Item) -> TokenStream {
    let mut stripped = item.clone();
    syn::visit_mut::VisitMut::visit_item_mut(&mut StripAttributes, &mut stripped);
    let Some((name, generics)) = name_and_generics(item) else { return quote!(#stripped) };
    let (impl_generics, ty_generics, where_clause) = generics.split_for_impl();
    let private = runtime.private(Span::call_site());
    quote! {
        #stripped
        impl #impl_generics #private::Build for #name #ty_generics #where_clause {
            fn build(_: &mut #private::Builder<'_>) -> Self { ::core::unreachable!() }
        }
        impl #impl_generics #private::Model for #name #ty_generics #where_clause {
            fn describe() -> #private::ModelDescription { ::core::unreachable!() }
        }
    }
}

fn sharded_struct(model: &Model) -> TokenStream {
    let mut item = model.item.clone();
    if let Fields::Named(named) = &mut item.fields {
        for (written, field) in named.named.iter_mut().zip(&model.fields) {
            written.ty = Type::Verbatim(field_type(&model.runtime, field));
        }
        if let Some(end) = end_field(model) {
            let ty = end_type();
            named.named.push(parse_quote!(#[doc(hidden)] #end: #ty));
        }
    }
    // The author's field is simple, whatever its sharded form looks like to clippy.
    let allow = model.fields.iter().any(|field| field.sharded.is_some());
    let allow = allow.then(|| quote!(#[allow(clippy::type_complexity)]));
    quote!(#allow #item)
}

/// A field of no size after a sharded last one. The compiler asks for the size of a struct wherever it is named, and
/// for that looks at its last field: were that one's layer without the style, every mention would be an error of its
/// own.
fn end_field(model: &Model) -> Option<Ident> {
    let last = model.fields.last()?;
    last.sharded.as_ref().map(|_| Ident::new("_end", Span::mixed_site()))
}

/// Type and value of that field. A plain `()` would look like a way to keep others from building the struct.
fn end_type() -> TokenStream {
    quote!(::core::marker::PhantomData::<()>)
}

/// `Linear<Hidden, Ffn>`, or `<Linear<Hidden, Ffn> as Shard<Col<Tp>>>::Sharded`, which fails at the
/// author's type if the layer has no such form.
fn field_type(runtime: &Runtime, field: &Field) -> TokenStream {
    let ty = &field.ty;
    let Some(sharded) = &field.sharded else { return quote!(#ty) };
    let (start, end) = ends(ty);
    let private = runtime.private(end);
    let style = style_type(&private, sharded, end);
    let open = quote_spanned!(start=> <);
    quote_spanned!(end=> #open #ty as #private::Shard<#style>>::Sharded)
}

/// `Row<Tp, Scatter<Seq>>`.
fn style_type(private: &TokenStream, sharded: &Sharded, span: Span) -> TokenStream {
    let axis = Ident::new(sharded.axis, span);
    let style = Ident::new(sharded.style.value.runtime, span);
    if !sharded.style.value.sums {
        return quote_spanned!(span=> #private::#style<#private::#axis>);
    }
    let end = match &sharded.scatter {
        Some(scatter) => {
            let dim = &scatter.value;
            quote_spanned!(span=> #private::Scatter<#dim>)
        }
        None => quote_spanned!(span=> #private::AllReduce),
    };
    quote_spanned!(span=> #private::#style<#private::#axis, #end>)
}

/// ```text
/// impl Build for Llama {
///     fn build(builder: &mut Builder<'_>) -> Self {
///         Self {
///             embed: Build::build(&mut Builder::field(builder, "embed")),
///             head: {
///                 let mut child = Builder::field(builder, "head");
///                 Builder::tie(&mut child, "embed.tokens", None);
///                 Build::build(&mut child)
///             },
///         }
///     }
/// }
/// ```
fn build_impl(model: &Model) -> TokenStream {
    let (private, name) = (private(model), &model.item.ident);
    let builder = Ident::new("builder", Span::mixed_site());
    let generics = generics_that_build(model);
    let (impl_generics, ty_generics, where_clause) = generics.split_for_impl();
    let probes = model.fields.iter().filter_map(|field| tie_probe(&model.runtime, field));
    let fields = model.fields.iter().map(|field| build_field(model, &builder, field));
    let end = end_field(model).map(|end| {
        let ty = end_type();
        quote!(#end: #ty,)
    });
    let unused =
        model.fields.iter().all(|field| !field.cfgs.is_empty()).then(|| quote!(let _ = #builder;));
    quote! {
        #[automatically_derived]
        impl #impl_generics #private::Build for #name #ty_generics #where_clause {
            fn build(#builder: &mut #private::Builder<'_>) -> Self {
                #unused
                #(#probes)*
                Self { #(#fields)* #end }
            }
        }
    }
}

/// Builds one field. The call is written over the field's type, so that a type that is no layer fails
/// there.
fn build_field(model: &Model, builder: &Ident, field: &Field) -> TokenStream {
    let Field { name, ty, cfgs, .. } = field;
    let private = private(model);
    let path = name.unraw().to_string();
    let child = quote!(#private::Builder::field(#builder, #path));
    let value = match &field.tied {
        None => build_call(&model.runtime, ty, quote!(&mut #child)),
        Some(tied) => {
            let target = tied.dotted_path();
            let when = option(tied.when.as_ref().map(|when| when.value.value()));
            let child_name = Ident::new("child", Span::mixed_site());
            let build = build_call(&model.runtime, ty, quote!(&mut #child_name));
            quote! {{
                let mut #child_name = #child;
                #private::Builder::tie(&mut #child_name, #target, #when);
                #build
            }}
        }
    };
    // The name moves to the type as well: rustc underlines the two together.
    let name = relocated(quote!(#name), ends(ty).0);
    quote!(#(#cfgs)* #name: #value,)
}

fn build_call(runtime: &Runtime, ty: &Type, builder: TokenStream) -> TokenStream {
    let (start, end) = ends(ty);
    let private = runtime.private(start);
    quote_spanned!(end=> #private::Build::build(#builder))
}

/// ```text
/// let _ = |__model: &Self| check_tie(&__model.embed.tokens, &__model.head);
/// ```
/// A missing field fails at its name in the path, a different shape at the attribute.
fn tie_probe(runtime: &Runtime, field: &Field) -> Option<TokenStream> {
    let Field { name, cfgs, tied, .. } = field;
    let Tied { attr, path, .. } = tied.as_ref()?;
    let (start, end) = ends(attr);
    let private = runtime.private(start);
    let model = Ident::new("__model", end);
    let name = relocated(quote!(#name), end);
    let borrow = quote_spanned!(start=> &);
    Some(quote_spanned! {end=>
        #(#cfgs)*
        let _ = |#model: &Self| #private::check_tie(&#model #(.#path)*, #borrow #model.#name);
    })
}

/// ```text
/// impl Model for Mlp {
///     fn describe() -> ModelDescription {
///         ModelDescription { name: "Mlp", fields: &[FieldDescription { name: "up", .. }] }
///     }
/// }
/// ```
fn model_impl(model: &Model) -> TokenStream {
    let (private, name) = (private(model), &model.item.ident);
    let generics = generics_that_build(model);
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
    let sharded = option(field.sharded.as_ref().map(describe_sharding));
    let tied = option(field.tied.as_ref().map(Tied::dotted_path));
    quote! {
        #(#cfgs)*
        #private::FieldDescription { name: #name, ty: #ty, sharded: #sharded, tied: #tied },
    }
}

/// `tp = "row", scatter = Seq`.
fn describe_sharding(sharded: &Sharded) -> String {
    let axis = &sharded.style.key;
    let style = sharded.style.value.name;
    let scatter = sharded.scatter.as_ref().map(|dim| format!(", scatter = {}", shown(&dim.value)));
    format!("{axis} = \"{style}\"{}", scatter.unwrap_or_default())
}

fn option(text: Option<String>) -> TokenStream {
    match text {
        Some(text) => quote!(::core::option::Option::Some(#text)),
        None => quote!(::core::option::Option::None),
    }
}

fn private(model: &Model) -> TokenStream {
    model.runtime.private(Span::call_site())
}

/// The struct's generics, and for every field whose type depends on them that it can be built. A field
/// under `cfg` cannot be bounded (a predicate takes no attributes on stable); the author's bounds have to
/// do.
fn generics_that_build(model: &Model) -> Generics {
    let mut generics = model.item.generics.clone();
    let params: Vec<Ident> = generics
        .type_params()
        .map(|param| param.ident.clone())
        .chain(generics.const_params().map(|param| param.ident.clone()))
        .collect();
    let private = private(model);
    let unconditional = model.fields.iter().filter(|field| field.cfgs.is_empty());
    let bounds: Vec<WherePredicate> = unconditional
        .map(|field| field_type(&model.runtime, field))
        .filter(|ty| mentions(ty.clone(), &params))
        .map(|ty| parse_quote!(#ty: #private::Build))
        .collect();
    if !bounds.is_empty() {
        generics.make_where_clause().predicates.extend(bounds);
    }
    generics
}

/// Whether a type mentions one of the parameters.
fn mentions(ty: TokenStream, params: &[Ident]) -> bool {
    ty.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => params.contains(&ident),
        TokenTree::Group(group) => mentions(group.stream(), params),
        _ => false,
    })
}
