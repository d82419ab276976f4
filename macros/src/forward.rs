//! The declaration under `#[forward]`, as plain data.

use syn::parse::{Parse, ParseStream};
use syn::visit_mut::{self, VisitMut};
use syn::{
    Attribute, FnArg, GenericArgument, Ident, ImplItem, ImplItemFn, Item, ItemImpl, PatType,
    PathArguments, ReturnType, Signature, Token, Type, TypePath, Visibility, parse_quote,
};

use crate::attr::Runtime;
use crate::diag::{Ctxt, nearest};
use crate::fragments;
use crate::tokens::{first_line, shown};

/// An inherent impl block with `#[forward]`.
pub struct Forward {
    /// The block as written.
    pub item: ItemImpl,
    /// The path of the runtime crate.
    pub runtime: Runtime,
    /// The index of `fn forward` among the items.
    pub index: usize,
    /// `fn forward` as written.
    pub function: ImplItemFn,
    /// False for `fn forward(&self, x: &In) -> Out;`, which runs the pipeline stages.
    pub has_body: bool,
    /// The input and output types, if the signature is valid.
    pub types: Option<Types>,
}

/// The input and output types of a forward function.
pub struct Types {
    /// The parameter `x: &In`.
    pub param: PatType,
    /// `In`.
    pub input: Type,
    /// `Out`.
    pub output: Type,
}

impl Forward {
    /// Reads an impl block with `#[forward]`; reports an error if it has no usable `fn forward`. `bodiless` are the
    /// indices of the functions that were written without a body.
    pub fn lower(cx: &Ctxt, runtime: Runtime, item: &Item, bodiless: &[usize]) -> Option<Self> {
        let Item::Impl(item) = item else {
            cx.error_at(
                first_line(item),
                "`#[forward]` belongs on the impl block of the forward function: `#[forward] impl Mlp { fn \
                 forward(&self, x: &In) -> Out { .. } }`",
            );
            return None;
        };
        if let Some((path, _)) = &item.trait_ {
            let ty = shown(&item.self_ty);
            cx.error_at(
                path,
                format_args!(
                    "`#[forward]` writes the `Module` impl itself: put it on `impl {ty} {{ .. }}`"
                ),
            );
            return None;
        }
        let functions: Vec<(usize, &ImplItemFn)> = item
            .items
            .iter()
            .enumerate()
            .filter_map(|(i, item)| match item {
                ImplItem::Fn(function) if function.sig.ident == "forward" => Some((i, function)),
                _ => None,
            })
            .collect();
        for (_, second) in functions.iter().skip(1) {
            let message = if second.attrs.iter().any(|attr| attr.path().is_ident("cfg")) {
                "this block has a `forward` already: write each in its own block, with `#[forward]` and its \
                 `#[cfg(..)]`"
            } else {
                "this block has a `forward` already: a model has one, so give this function another name"
            };
            cx.error_at(&second.sig.ident, message);
        }
        let Some((index, function)) = functions.first().copied() else {
            report_missing_forward(cx, item);
            return None;
        };
        let types = Types::of(&function.sig);
        let has_body = !bodiless.contains(&index);
        let (item, function) = (item.clone(), function.clone());
        Some(Self { item, runtime, index, function, has_body, types })
    }
}

/// Adds a body to each `fn forward(..) -> Out;` in an impl block, also to a misspelled one, so that the block is valid
/// Rust. Returns their indices.
pub fn complete_bodies(item: &mut Item) -> Vec<usize> {
    let Item::Impl(item) = item else { return Vec::new() };
    let mut bodiless = Vec::new();
    for (i, inner) in item.items.iter_mut().enumerate() {
        let ImplItem::Verbatim(tokens) = inner else { continue };
        let Ok(Bodiless(mut function)) = syn::parse2(tokens.clone()) else { continue };
        if nearest(&function.sig.ident.to_string(), ["forward"]).is_some() {
            fragments::dissolve(&mut function);
            *inner = ImplItem::Fn(function);
            bodiless.push(i);
        }
    }
    bodiless
}

/// Makes the shape of each `Tensor<Batch, Seq, Hidden>` in an item a tuple, and reports the first one: every mention
/// would be several errors.
pub fn complete_shapes(cx: &Ctxt, item: &mut Item) {
    Shapes { cx, is_reported: false }.visit_item_mut(item);
}

struct Shapes<'a> {
    cx: &'a Ctxt,
    is_reported: bool,
}

impl VisitMut for Shapes<'_> {
    fn visit_type_path_mut(&mut self, path: &mut TypePath) {
        visit_mut::visit_type_path_mut(self, path);
        let written = path.clone();
        let Some(tensor) = path.path.segments.last_mut().filter(|last| last.ident == "Tensor")
        else {
            return;
        };
        let PathArguments::AngleBracketed(shape) = &mut tensor.arguments else { return };
        let dims = &shape.args;
        if dims.len() < 2 || !dims.iter().all(|dim| matches!(dim, GenericArgument::Type(_))) {
            return;
        }
        shape.args = parse_quote!((#dims));
        if !std::mem::replace(&mut self.is_reported, true) {
            let fix = shown(path);
            self.cx.error_at(
                written,
                format_args!("the shape of a tensor is one tuple: write `{fix}`"),
            );
        }
    }
}

/// A function without a body, which gets one that is never run.
struct Bodiless(ImplItemFn);

impl Parse for Bodiless {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let attrs = input.call(Attribute::parse_outer)?;
        let vis: Visibility = input.parse()?;
        let sig: Signature = input.parse()?;
        input.parse::<Token![;]>()?;
        let mut function: ImplItemFn = parse_quote!(
            fn forward() {
                ::core::unreachable!()
            }
        );
        function.attrs = attrs;
        function.vis = vis;
        function.sig = sig;
        Ok(Self(function))
    }
}

impl Types {
    fn of(signature: &Signature) -> Option<Self> {
        let param = inputs(signature).next()?;
        let input = shared_reference(&param.ty)?.clone();
        match &signature.output {
            ReturnType::Type(_, output) => {
                Some(Self { param: param.clone(), input, output: (**output).clone() })
            }
            ReturnType::Default => None,
        }
    }
}

/// Returns the parameters besides `self`.
pub fn inputs(signature: &Signature) -> impl Iterator<Item = &PatType> {
    signature.inputs.iter().filter_map(|arg| match arg {
        FnArg::Typed(param) => Some(param),
        FnArg::Receiver(_) => None,
    })
}

/// Returns `In` for `&In`.
pub fn shared_reference(ty: &Type) -> Option<&Type> {
    match ty {
        Type::Reference(reference) if reference.mutability.is_none() => Some(&reference.elem),
        _ => None,
    }
}

fn report_missing_forward(cx: &Ctxt, item: &ItemImpl) {
    let names: Vec<(&Ident, String)> = item
        .items
        .iter()
        .filter_map(|item| match item {
            ImplItem::Fn(function) => Some((&function.sig.ident, function.sig.ident.to_string())),
            _ => None,
        })
        .collect();
    let close = names.iter().find(|(_, name)| nearest(name, ["forward"]).is_some());
    match close {
        Some((ident, name)) => cx.error_at(
            ident,
            format_args!("this block has no `fn forward`; did you mean `forward` instead of `{name}`?"),
        ),
        None => cx.error_at(
            &item.self_ty,
            "`#[forward]` needs a forward function in this block: `fn forward(&self, x: &In) -> Out`",
        ),
    }
}
