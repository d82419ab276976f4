//! Expansion of `#[model]`.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{Fields, Generics, Ident, Item, Type, WherePredicate, parse_quote};

use crate::attr::init::NamedInit;
use crate::attr::recompute::{Grouping, Recompute};
use crate::attr::sharded::Cut;
use crate::attr::{FieldPath, Runtime, Tied};
use crate::expand::{describe, stages};
use crate::model::{Field, Model, StripAttributes, name_and_generics};
use crate::tokens::{ends, option, relocated};

/// Writes the struct with its sharded field types, and the impls that build and describe it.
///
/// ```text
/// struct Mlp { up: <Linear<Hidden, Ffn> as Shard<Col<Tp>>>::Sharded, .. }
/// impl Build for Mlp { .. }
/// impl Model for Mlp { .. }
/// impl Recompute for Mlp { .. }
/// impl PipelineModel for Mlp { .. }
/// ```
pub fn expand(model: &Model) -> TokenStream {
    let item = sharded_struct(model);
    let build = build_impl(model);
    let describe = describe::model_impl(model, &generics_that_build(model));
    let recompute = recompute_impl(&model.runtime, &model.item.ident, &model.item.generics);
    let stages = stages::pipeline_model_impl(model);
    let boundaries = stages::boundary_check(model);
    quote!(#item #build #describe #recompute #stages #boundaries)
}

/// Writes the fallback of an invalid model: the item without our attributes, and stand-in impls.
pub fn fallback(runtime: &Runtime, item: &Item) -> TokenStream {
    let mut stripped = item.clone();
    syn::visit_mut::VisitMut::visit_item_mut(&mut StripAttributes, &mut stripped);
    let stand_ins =
        name_and_generics(item).map(|(name, generics)| stand_ins(runtime, name, generics));
    let stages = stages::stand_in_of_item(runtime, item);
    quote!(#stripped #stand_ins #stages)
}

/// Writes stand-in impls for an invalid model, which avoid errors at its uses.
pub fn stand_ins(runtime: &Runtime, name: &Ident, generics: &Generics) -> TokenStream {
    if matches!(runtime, Runtime::Missing) {
        return TokenStream::new();
    }
    let (impl_generics, ty_generics, where_clause) = generics.split_for_impl();
    let private = runtime.private(Span::call_site());
    quote! {
        impl #impl_generics #private::Build for #name #ty_generics #where_clause {
            fn build(_: &mut #private::Builder<'_>) -> Self { ::core::unreachable!() }
        }
        impl #impl_generics #private::Model for #name #ty_generics #where_clause {
            fn describe() -> #private::ModelDescription { ::core::unreachable!() }
        }
        impl #impl_generics #private::Recompute for #name #ty_generics #where_clause {
            type Recomputed = #private::Recomputed<Self>;
            type Layer = Self;
        }
        impl #impl_generics #private::RecomputeEvery for #name #ty_generics #where_clause {
            type Recomputed = #private::NotRecomputed<Self, #private::Grouped>;
            type Layer = Self;
        }
    }
}

fn sharded_struct(model: &Model) -> TokenStream {
    let mut item = model.item.clone();
    if let Fields::Named(named) = &mut item.fields {
        for (written, field) in named.named.iter_mut().zip(&model.fields) {
            written.ty = Type::Verbatim(field_type(&model.runtime, field));
        }
        if let Some(index) = last_field(model) {
            let mut fields: Vec<_> = named.named.iter().cloned().collect();
            let last = fields.remove(index);
            named.named = fields.into_iter().chain([last]).collect();
        }
    }
    // The field is simple in the source, however complex clippy finds its sharded form.
    let allow = model.fields.iter().any(is_rewritten);
    let allow = allow.then(|| quote!(#[allow(clippy::type_complexity)]));
    quote!(#allow #item)
}

/// Returns true if the expansion changes the type of the field.
fn is_rewritten(field: &Field) -> bool {
    cuts_of(field).next().is_some() || field.recompute.is_some()
}

/// Returns the field that becomes the last one: the last one whose type stays, if there is one.
///
/// The compiler computes the size of a struct at each mention, from its last field. If the layer of that field did not
/// support the style, every mention would be another error.
fn last_field(model: &Model) -> Option<usize> {
    model.fields.iter().rposition(|field| !is_rewritten(field) && field.cfgs.is_empty())
}

fn cuts_of(field: &Field) -> impl Iterator<Item = &Cut> {
    field.sharded.iter().flat_map(|sharded| &sharded.cuts)
}

/// Writes the type of a field: `Linear<Hidden, Ffn>`, `<Linear<Hidden, Ffn> as Shard<Col<Tp>>>::Sharded`, or
/// `<Mlp as Recompute>::Recomputed`. A layer without that form is an error at the type in the source.
fn field_type(runtime: &Runtime, field: &Field) -> TokenStream {
    let ty = &field.ty;
    let (start, end) = ends(ty);
    let private = runtime.private(end);
    let open = quote_spanned!(start=> <);
    let mut form = quote!(#ty);
    for cut in cuts_of(field) {
        let style = style_type(&private, cut, end);
        form = quote_spanned!(end=> #open #form as #private::Shard<#style>>::Sharded);
    }
    if let Some(recompute) = &field.recompute {
        let form_trait = Ident::new(recompute.bound(), end);
        form = quote_spanned!(end=> #open #form as #private::#form_trait>::Recomputed);
    }
    form
}

/// Writes the style type: `Row<Tp, Scatter<Seq>>`.
fn style_type(private: &TokenStream, cut: &Cut, span: Span) -> TokenStream {
    let axis = Ident::new(cut.axis, span);
    let style = Ident::new(cut.style.value.runtime, span);
    if !cut.style.value.sums {
        let folded = cut.fold.iter().flat_map(|fold| fold.value.runtime_axes());
        let folded: Vec<Ident> = folded.map(|axis| Ident::new(axis, span)).collect();
        // A tuple of one axis is the axis.
        return match &folded[..] {
            [] => quote_spanned!(span=> #private::#style<#private::#axis>),
            _ => quote_spanned!(span=> #private::#style<(#private::#axis #(, #private::#folded)*)>),
        };
    }
    let end = match &cut.scatter {
        Some(scatter) => {
            let dim = &scatter.value;
            quote_spanned!(span=> #private::Scatter<#dim>)
        }
        None => quote_spanned!(span=> #private::AllReduce),
    };
    quote_spanned!(span=> #private::#style<#private::#axis, #end>)
}

/// Writes the `Build` impl.
///
/// ```text
/// impl Build for Llama {
///     fn build(builder: &mut Builder<'_>) -> Self {
///         Self {
///             embed: Build::build(&mut Builder::field(builder, "embed")),
///             head: Build::build(Builder::tie(
///                 &mut Builder::field(builder, "head"), "embed.tokens", None,
///             )),
///         }
///     }
/// }
/// ```
fn build_impl(model: &Model) -> TokenStream {
    let (private, name) = (private(model), &model.item.ident);
    let builder = Ident::new("builder", Span::mixed_site());
    let generics = generics_that_build(model);
    let (impl_generics, ty_generics, where_clause) = generics.split_for_impl();
    let ties = model.fields.iter().filter_map(|field| tie_probe(&model.runtime, field));
    let saved = model.fields.iter().filter_map(|field| save_probe(model, field));
    let probes = ties.chain(saved);
    let unit = model.is_unit.then(|| quote!(#private::Builder::unit(#builder);));
    let fields = model.fields.iter().map(|field| build_field(model, &builder, field));
    let is_unused = !model.is_unit && model.fields.iter().all(|field| !field.cfgs.is_empty());
    let unused = is_unused.then(|| quote!(let _ = #builder;));
    quote! {
        #[automatically_derived]
        impl #impl_generics #private::Build for #name #ty_generics #where_clause {
            fn build(#builder: &mut #private::Builder<'_>) -> Self {
                #unused
                #unit
                #(#probes)*
                Self { #(#fields)* }
            }
        }
    }
}

/// Writes the call that builds a field. It has the span of the field's type, so that a type that is not a layer is an
/// error there.
fn build_field(model: &Model, builder: &Ident, field: &Field) -> TokenStream {
    let Field { name, ty, cfgs, .. } = field;
    let private = private(model);
    let path = name.unraw().to_string();
    let mut child = quote!(&mut #private::Builder::field(#builder, #path));
    if field.sharded.as_ref().is_some_and(|sharded| sharded.fsdp.is_some()) {
        child = quote!(#private::Builder::unit(#child));
    }
    if let Some(tied) = &field.tied {
        let target = tied.path.dotted();
        let when = option(tied.when.as_ref().map(|when| when.value.value()));
        child = quote!(#private::Builder::tie(#child, #target, #when));
    }
    if field.shared.is_some() {
        child = quote!(#private::Builder::share(#child));
    }
    if field.frozen.is_some() {
        child = quote!(#private::Builder::freeze(#child));
    }
    for value in field.init.iter().flat_map(|init| &init.values) {
        child = set_init(&private, child, value);
    }
    if let Some(recompute) = &field.recompute {
        let policy = policy(&private, recompute);
        child = quote!(#private::Builder::recompute(#child, #policy));
    }
    let value = build_call(&model.runtime, ty, child);
    // The name gets the span of the type too, as rustc underlines the two together.
    let name = relocated(quote!(#name), ends(ty).0);
    quote!(#(#cfgs)* #name: #value,)
}

/// Writes the call that sets initial values: `Builder::init(.., None, Init::Normal(0.02))`.
fn set_init(private: &TokenStream, child: TokenStream, value: &NamedInit) -> TokenStream {
    let param = option(value.param.as_ref().map(|param| param.unraw().to_string()));
    let Some(variant) = value.variant else {
        return quote!(#private::Builder::scaled_init(#child, #param));
    };
    let variant = Ident::new(variant, Span::call_site());
    let number = value.number.as_ref().map(|number| quote!((#number)));
    quote!(#private::Builder::init(#child, #param, #private::Init::#variant #number))
}

/// Writes the policy: `RecomputePolicy { grouping: Grouping::Every(2), save: &["attn.core"], offload: false }`.
fn policy(private: &TokenStream, recompute: &Recompute) -> TokenStream {
    let grouping = match recompute.every.as_ref().map(|every| every.value) {
        None => quote!(Every(1usize)),
        Some(Grouping::Every(layers)) => quote!(Every(#layers)),
        Some(Grouping::Named(row)) => {
            let variant = Ident::new(row.runtime, Span::call_site());
            quote!(#variant)
        }
    };
    let save = recompute.saved().iter().map(FieldPath::dotted);
    let offload = recompute.offload.is_some();
    quote! {
        #private::RecomputePolicy {
            grouping: #private::Grouping::#grouping,
            save: &[#(#save),*],
            offload: #offload,
        }
    }
}

fn build_call(runtime: &Runtime, ty: &Type, builder: TokenStream) -> TokenStream {
    let (start, end) = ends(ty);
    let private = runtime.private(start);
    quote_spanned!(end=> #private::Build::build(#builder))
}

/// Writes the check of a tie.
///
/// ```text
/// let _ = |__model: &Self| check_tie(&__model.embed.tokens, &__model.head);
/// ```
/// A missing field is an error at its name in the path, a different shape at the attribute.
fn tie_probe(runtime: &Runtime, field: &Field) -> Option<TokenStream> {
    let Field { name, cfgs, tied, .. } = field;
    let Tied { attr, path, .. } = tied.as_ref()?;
    let path = path.fields();
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

/// Writes the check of the paths of `save`.
///
/// ```text
/// let _ = |__layer: &<Stack<Block> as Recompute>::Layer| { let _ = &__layer.attn.core; };
/// ```
/// A missing field is an error at its name in the path. The fields of a type parameter are unknown here; the builder
/// checks them.
fn save_probe(model: &Model, field: &Field) -> Option<TokenStream> {
    let Field { ty, cfgs, .. } = field;
    let recompute = field.recompute.as_ref()?;
    let saved = recompute.saved();
    if saved.is_empty() || mentions(quote!(#ty), &parameters(&model.item.generics)) {
        return None;
    }
    let (start, end) = ends(ty);
    let private = model.runtime.private(end);
    let form_trait = Ident::new(recompute.bound(), end);
    let open = quote_spanned!(start=> <);
    let layer = Ident::new("__layer", ends(&recompute.attr).1);
    let looks = saved.iter().map(|path| {
        let fields = path.fields();
        quote_spanned!(path.span()=> let _ = &#layer #(.#fields)*;)
    });
    let layer_type = quote_spanned!(end=> #open #ty as #private::#form_trait>::Layer);
    Some(quote! {
        #(#cfgs)*
        let _ = |#layer: &#layer_type| { #(#looks)* };
    })
}

/// Writes the `Recompute` impl, and the `RecomputeEvery` impl with which `every` is one error, at the field.
///
/// ```text
/// impl Recompute for Mlp {
///     type Recomputed = Recomputed<Self>;
///     type Layer = Self;
/// }
/// impl RecomputeEvery for Mlp {
///     type Recomputed = NotRecomputed<Self, Grouped>;
///     type Layer = Self;
/// }
/// ```
///
/// It has the span of the struct's name, which rustc prints in its list of types that can be recomputed.
pub fn recompute_impl(runtime: &Runtime, name: &Ident, generics: &Generics) -> TokenStream {
    let private = runtime.private(name.span());
    let (impl_generics, ty_generics, where_clause) = generics.split_for_impl();
    quote_spanned! {name.span()=>
        #[automatically_derived]
        impl #impl_generics #private::Recompute for #name #ty_generics #where_clause {
            type Recomputed = #private::Recomputed<Self>;
            type Layer = Self;
        }
        #[automatically_derived]
        impl #impl_generics #private::RecomputeEvery for #name #ty_generics #where_clause {
            type Recomputed = #private::NotRecomputed<Self, #private::Grouped>;
            type Layer = Self;
        }
    }
}

fn private(model: &Model) -> TokenStream {
    model.runtime.private(Span::call_site())
}

/// Returns the struct's generics with a `Build` bound for every field whose type depends on them. A field under `cfg`
/// gets no bound, as predicates take no attributes on stable Rust.
fn generics_that_build(model: &Model) -> Generics {
    let mut generics = model.item.generics.clone();
    let params = parameters(&generics);
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

/// Returns the names of the type and const parameters.
fn parameters(generics: &Generics) -> Vec<Ident> {
    let types = generics.type_params().map(|param| param.ident.clone());
    types.chain(generics.const_params().map(|param| param.ident.clone())).collect()
}

/// Returns true if a type mentions one of the parameters.
fn mentions(ty: TokenStream, params: &[Ident]) -> bool {
    ty.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => params.contains(&ident),
        TokenTree::Group(group) => mentions(group.stream(), params),
        _ => false,
    })
}
