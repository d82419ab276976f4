//! `dims!`: parsing, checking and expansion of a list of dims.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, Ident, LitStr, Token, Visibility};

use crate::attr::args::{skip_to_comma, skip_token};
use crate::attr::table::{AXES, AxisRow};
use crate::attr::{Runtime, unquote};
use crate::diag::{Ctxt, expected, one_of};

/// The dims of one `dims!`.
struct Dims {
    runtime: Runtime,
    dims: Vec<DeclaredDim>,
}

/// `pub Seq @ cp`.
struct DeclaredDim {
    attrs: Vec<Attribute>,
    vis: Option<Visibility>,
    name: Ident,
    axis: Option<&'static AxisRow>,
}

/// Expands `dims!`; the valid dims of a list with mistakes are declared too.
pub fn dims(cx: &Ctxt, input: TokenStream) -> TokenStream {
    let Dims { runtime, dims } = Dims::parse(cx, input);
    dims.iter().map(|dim| expand(&runtime, dim)).collect()
}

impl Dims {
    fn parse(cx: &Ctxt, input: TokenStream) -> Self {
        let parser = |input: ParseStream| {
            let runtime = parse_runtime(cx, input);
            let mut dims: Vec<DeclaredDim> = Vec::new();
            while !input.is_empty() {
                match DeclaredDim::parse(cx, input) {
                    Ok(dim) => {
                        if is_new(cx, &dims, &dim) {
                            dims.push(dim);
                        }
                    }
                    Err(error) => {
                        cx.push(error);
                        skip_to_comma(input);
                    }
                }
                input.parse::<Option<Token![,]>>()?;
            }
            Ok(Self { runtime, dims })
        };
        parser.parse2(input).unwrap_or_else(|error| {
            cx.push(error);
            Self { runtime: Runtime::of_package(), dims: Vec::new() }
        })
    }
}

/// Parses `crate = some::path;` at the beginning.
fn parse_runtime(cx: &Ctxt, input: ParseStream) -> Runtime {
    if !(input.peek(Token![crate]) && input.peek2(Token![=])) {
        return Runtime::of_package_or_error(cx, "dims! { crate = facade::meshwright; .. }");
    }
    let parsed = input.parse::<Token![crate]>().and_then(|_| {
        input.parse::<Token![=]>()?;
        let runtime = Runtime::parse(input)?;
        input.parse::<Token![;]>().map_err(|error| {
            syn::Error::new(error.span(), "expected `;` between `crate = some::path` and the dims")
        })?;
        Ok(runtime)
    });
    parsed.unwrap_or_else(|error| {
        cx.push(error);
        // Continues after the missing `;`, or after the `,` in its place.
        while !input.is_empty() && !input.peek(Token![,]) && !input.peek(Token![;]) {
            skip_token(input);
        }
        skip_token(input);
        Runtime::of_package()
    })
}

impl DeclaredDim {
    fn parse(cx: &Ctxt, input: ParseStream) -> syn::Result<Self> {
        let attrs = input.call(Attribute::parse_outer)?;
        let vis = match input.parse()? {
            Visibility::Inherited => None,
            written => Some(written),
        };
        if input.peek(LitStr) {
            let quoted: LitStr = input.parse()?;
            return Err(unquote(&quoted, &quoted.value()));
        }
        let name: Ident = input.parse().map_err(|error| {
            syn::Error::new(
                error.span(),
                "expected the name of a dim, such as `Hidden` or `Batch @ data`",
            )
        })?;
        name_is_a_type_name(cx, &name);
        let axis = if input.peek(Token![@]) {
            input.parse::<Token![@]>()?;
            parse_axis(cx, &name, input)?
        } else {
            None
        };
        if !input.is_empty() && !input.peek(Token![,]) {
            let or_axis = if axis.is_none() { " or `@ axis`" } else { "" };
            cx.push(input.error(format_args!("expected `,`{or_axis} after the dim `{name}`")));
            if !input.peek(Ident) {
                skip_to_comma(input);
            }
        }
        Ok(Self { attrs, vis, name, axis })
    }

    fn conditions(&self) -> impl Iterator<Item = &Attribute> {
        self.attrs.iter().filter(|attr| attr.path().is_ident("cfg"))
    }
}

/// Parses the axis after `@`. An invalid one is reported, and the dim is declared without an axis.
fn parse_axis(cx: &Ctxt, dim: &Ident, input: ParseStream) -> syn::Result<Option<&'static AxisRow>> {
    let names: Vec<&str> = AXES.iter().map(|axis| axis.name).collect();
    if input.peek(LitStr) {
        let quoted: LitStr = input.parse()?;
        cx.push(unquote(&quoted, &format!("{dim} @ {}", quoted.value())));
        return Ok(None);
    }
    let word = input.call(Ident::parse_any).map_err(|error| {
        let names = one_of(names.iter().copied());
        syn::Error::new(error.span(), format_args!("`{dim} @` needs a mesh axis: {names}"))
    })?;
    let known = AXES.iter().find(|axis| word == axis.name);
    let message = match word.to_string().to_lowercase().as_str() {
        _ if known.is_some() => return Ok(known),
        "tp" => format!(
            "`{dim} @ {word}`: a declaration distributes no dim over `tp`: declare `{dim}` without `@`; to split it, \
             write `#[sharded(tp = \"col\")]`, `\"row\"` or `\"vocab\"` on the fields of layers, or \
             `Split<{dim}, Tp>` in the type of a tensor"
        ),
        "pp" => format!(
            "`{dim} @ {word}`: pipeline stages are cut by the fields of a model, not by dims: declare `{dim}` \
             without `@`"
        ),
        unknown => {
            let expected = expected(unknown, &names);
            format!("unknown mesh axis `{word}` for the dim `{dim}`: {expected}")
        }
    };
    cx.error(word.span(), message);
    Ok(None)
}

/// Checks that the name of a dim is a type name.
fn name_is_a_type_name(cx: &Ctxt, name: &Ident) {
    let text = name.unraw().to_string();
    let camel: String = text
        .split('_')
        .map(|word| {
            let mut letters = word.chars();
            letters
                .next()
                .map(|first| first.to_uppercase().chain(letters).collect::<String>())
                .unwrap_or_default()
        })
        .collect();
    if camel != text {
        cx.error(
            name.span(),
            format_args!("a dim is a type: call it `{camel}` instead of `{text}`"),
        );
    }
}

/// Returns true unless the dim is already declared without `cfg`.
fn is_new(cx: &Ctxt, dims: &[DeclaredDim], dim: &DeclaredDim) -> bool {
    let unconditional = |dim: &&DeclaredDim| dim.conditions().next().is_none();
    let first = dims.iter().filter(unconditional).find(|first| first.name == dim.name);
    let Some(first) = first.filter(|_| unconditional(&dim)) else { return true };
    let at = first.axis.map(|axis| format!(" @ {}", axis.name)).unwrap_or_default();
    let name = &dim.name;
    cx.error(
        name.span(),
        format_args!("the dim `{name}` is declared twice; the first is `{name}{at}`: keep one"),
    );
    false
}

/// Writes the unit struct of a dim and its impls.
///
/// ```text
/// pub struct Batch;
/// impl Whole for Batch { const DECLARED_NAME: &'static str = "Batch"; type Home = Data; }
/// impl BatchDim for Batch {}
/// ```
///
/// A dim without a home is `Local` instead.
fn expand(runtime: &Runtime, dim: &DeclaredDim) -> TokenStream {
    let item = unit_struct(dim);
    let impls = (!matches!(runtime, Runtime::Missing)).then(|| impls(runtime, dim));
    quote!(#item #impls)
}

fn unit_struct(dim: &DeclaredDim) -> TokenStream {
    let DeclaredDim { attrs, name, .. } = dim;
    let vis = dim.vis.as_ref().map_or_else(|| quote!(pub), |vis| quote!(#vis));
    let documented = attrs.iter().any(|attr| attr.path().is_ident("doc"));
    let doc = (!documented).then(|| {
        let doc = format!("The dim `{}`.", name.unraw());
        quote!(#[doc = #doc])
    });
    quote! {
        #(#attrs)*
        #doc
        #[derive(
            ::core::clone::Clone, ::core::marker::Copy, ::core::fmt::Debug, ::core::default::Default,
            ::core::cmp::PartialEq, ::core::cmp::Eq, ::core::hash::Hash,
        )]
        #vis struct #name;
    }
}

fn impls(runtime: &Runtime, dim: &DeclaredDim) -> TokenStream {
    let private = runtime.private(Span::call_site());
    let name = &dim.name;
    let text = name.unraw().to_string();
    let cfgs: Vec<_> = dim.conditions().collect();
    let home = syn::Ident::new(dim.axis.map_or("Here", |axis| axis.home), name.span());
    let marker = match dim.axis {
        None => Some(quote!(Local)),
        Some(axis) if axis.name == "data" => Some(quote!(BatchDim)),
        Some(_) => None,
    };
    let marked = marker.map(|marker| {
        quote! {
            #(#cfgs)*
            #[automatically_derived]
            impl #private::#marker for #name {}
        }
    });
    let digits = name_digits(&private, &text);
    quote! {
        #(#cfgs)*
        #[automatically_derived]
        impl #private::Whole for #name {
            const DECLARED_NAME: &'static str = #text;
            type Home = #private::#home;
        }
        #(#cfgs)*
        #[automatically_derived]
        impl #private::Named for #name {
            type Name = #digits;
        }
        #marked
    }
}

/// Returns the hash (FNV-1a, 32 bits) of a name as a list of eight digits, `(HA, (H3, ..))`, by which the compiler
/// compares names.
fn name_digits(private: &TokenStream, name: &str) -> TokenStream {
    let hash = name
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (0..8).fold(quote!(()), |rest, digit| {
        let digit = quote::format_ident!("H{:X}", hash >> (4 * digit) & 15);
        quote!((#private::name::#digit, #rest))
    })
}
