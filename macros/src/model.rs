//! What the author declared, as plain data: a model and its fields, a forward function.
//!
//! Everything keeps the tokens it came from, so that a rule broken or a bound not met is shown at the
//! author's own word. Lowering reports what has no meaning at all; `check` reports what breaks a rule.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::visit_mut::VisitMut;
use syn::{
    Attribute, Fields, FnArg, Generics, Ident, ImplItem, ImplItemFn, Item, ItemImpl, ItemStruct,
    PatType, Path, ReturnType, Signature, Type,
};

use crate::attr::{self, Sharded, Tied, table};
use crate::diag::{Ctxt, nearest};
use crate::tokens::shown;

/// A struct with `#[model]`.
pub struct Model {
    /// The author's struct without our attributes.
    pub item: ItemStruct,
    /// Where the runtime is.
    pub runtime: Path,
    pub fields: Vec<Field>,
}

/// A field of a model.
pub struct Field {
    pub name: Ident,
    /// The type as the author wrote it.
    pub ty: Type,
    /// Conditions that whatever is generated for the field repeats.
    pub cfgs: Vec<Attribute>,
    pub sharded: Option<Sharded>,
    pub tied: Option<Tied>,
    /// The attributes that are not ours.
    pub others: Vec<Attribute>,
}

/// An inherent impl block with `#[forward]`.
pub struct Forward {
    pub item: ItemImpl,
    /// Where the runtime is.
    pub runtime: Path,
    /// The place of `fn forward` among the items.
    pub index: usize,
    /// What it takes and returns, where the signature says so.
    pub types: Option<Types>,
}

/// What a forward function takes and returns.
pub struct Types {
    /// The parameter `x: &In`.
    pub param: PatType,
    /// `In`.
    pub input: Type,
    /// `Out`.
    pub output: Type,
}

impl Forward {
    /// The author's `fn forward`.
    pub fn function(&self) -> &ImplItemFn {
        match &self.item.items[self.index] {
            ImplItem::Fn(function) => function,
            _ => unreachable!("lowering found a function here"),
        }
    }
}

impl Model {
    /// Reads a struct with `#[model]`; an error if the item is no struct with named fields.
    pub fn lower(cx: &Ctxt, runtime: Path, item: &Item) -> Option<Self> {
        let Item::Struct(item) = item else {
            refuse_item(cx, item);
            return None;
        };
        refuse_struct_attributes(cx, item);
        let name = &item.ident;
        match &item.fields {
            Fields::Named(named) => {
                let fields =
                    named.named.iter().filter_map(|field| Field::lower(cx, field)).collect();
                let mut item = item.clone();
                StripAttributes.visit_item_struct_mut(&mut item);
                Some(Self { item, runtime, fields })
            }
            Fields::Unnamed(unnamed) => {
                cx.error_at(
                    unnamed,
                    format_args!(
                        "a model's fields need names, which become the names of its parameters in messages \
                         and checkpoints: write `struct {name} {{ first: .., second: .. }}`"
                    ),
                );
                None
            }
            Fields::Unit => {
                cx.error_at(
                    name,
                    format_args!(
                        "a model without parameters still has braces: write `struct {name} {{}}`"
                    ),
                );
                None
            }
        }
    }
}

impl Field {
    fn lower(cx: &Ctxt, field: &syn::Field) -> Option<Self> {
        let mut lowered = Self {
            name: field.ident.clone()?,
            ty: field.ty.clone(),
            cfgs: Vec::new(),
            sharded: None,
            tied: None,
            others: Vec::new(),
        };
        let mut seen: Vec<(&Attribute, &str)> = Vec::new();
        for attr in &field.attrs {
            let Some(row) = our_attribute(attr) else {
                if attr.path().is_ident("cfg") {
                    lowered.cfgs.push(attr.clone());
                }
                lowered.others.push(attr.clone());
                continue;
            };
            let misspelled = report_misspelling(cx, attr, row);
            if let Some((first, _)) = seen.iter().find(|(_, name)| *name == row.name) {
                cx.error_at(
                    attr,
                    format_args!(
                        "`#[{}]` is given twice on `{}`; the first is `{}`: keep one",
                        row.name,
                        lowered.name,
                        attr::written(first)
                    ),
                );
                continue;
            }
            seen.push((attr, row.name));
            match row.name {
                "sharded" => lowered.sharded = attr::sharded(cx, attr),
                "tied" => lowered.tied = attr::tied(cx, attr),
                _ if misspelled => {}
                _ => refuse_later_attribute(cx, attr, row),
            }
        }
        Some(lowered)
    }
}

impl Forward {
    /// Reads an impl block with `#[forward]`; an error if it holds no usable `fn forward`.
    pub fn lower(cx: &Ctxt, runtime: Path, item: &Item) -> Option<Self> {
        let Item::Impl(item) = item else {
            cx.error_at(
                first_line(item),
                "`#[forward]` goes on an impl block that holds the forward function: \
                 `#[forward] impl Mlp { fn forward(&self, x: &In) -> Out { .. } }`",
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
            cx.error_at(
                &second.sig.ident,
                "this block has a `forward` already: a model has one, so give this function another name",
            );
        }
        let Some((index, function)) = functions.first().copied() else {
            report_missing_forward(cx, item);
            return None;
        };
        let types = Types::of(&function.sig);
        Some(Self { item: item.clone(), runtime, index, types })
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

/// The parameters besides `self`.
pub fn inputs(signature: &Signature) -> impl Iterator<Item = &PatType> {
    signature.inputs.iter().filter_map(|arg| match arg {
        FnArg::Typed(param) => Some(param),
        FnArg::Receiver(_) => None,
    })
}

/// `In` of `&In`.
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

/// The attribute of ours that `attr` is, or that it is a misspelling of.
fn our_attribute(attr: &Attribute) -> Option<&'static table::AttributeRow> {
    let word = match attr.path().segments.last() {
        Some(only) if attr.path().segments.len() == 1 => nearest(
            &only.ident.to_string(),
            table::field_attributes().map(|row| row.name).filter(|_| !is_built_in(&only.ident)),
        )?,
        Some(last) => table::field_attributes().find(|row| last.ident == row.name)?.name,
        None => return None,
    };
    table::field_attributes().find(|row| row.name == word)
}

/// Attributes of the language that may stand on a field, and could look like a misspelling of ours.
fn is_built_in(name: &Ident) -> bool {
    const BUILT_IN: [&str; 10] = [
        "doc",
        "cfg",
        "cfg_attr",
        "allow",
        "warn",
        "deny",
        "forbid",
        "expect",
        "deprecated",
        "serde",
    ];
    BUILT_IN.iter().any(|built_in| name == built_in)
}

/// Reports an attribute that is not quite ours; whether it did.
fn report_misspelling(cx: &Ctxt, attr: &Attribute, row: &table::AttributeRow) -> bool {
    let (name, path) = (row.name, attr.path());
    if path.segments.len() > 1 {
        cx.error_at(path, format_args!("inside `#[model]` write `#[{name}(..)]`, without a path"));
        return true;
    }
    let misspelled = !path.is_ident(name);
    if misspelled {
        let later =
            if row.since == table::Since::Later { " (comes in a later version)" } else { "" };
        let typed = shown(path);
        cx.error_at(
            path,
            format_args!("unknown attribute `{typed}`; did you mean `{name}`{later}?"),
        );
    }
    misspelled
}

fn refuse_later_attribute(cx: &Ctxt, attr: &Attribute, row: &table::AttributeRow) {
    let table::AttributeRow { name, meaning, .. } = row;
    cx.error_at(
        attr,
        format_args!("`#[{name}]` ({meaning}) comes in a later version: remove it for now"),
    );
}

/// Attributes of fields that were put on the struct.
fn refuse_struct_attributes(cx: &Ctxt, item: &ItemStruct) {
    for attr in &item.attrs {
        let Some(row) = table::field_attributes().find(|row| attr.path().is_ident(row.name)) else {
            continue;
        };
        if row.since == table::Since::Later {
            refuse_later_attribute(cx, attr, row);
        } else {
            let written = attr::written(attr);
            cx.error_at(attr, format_args!("`{written}` goes on a field, not on the struct"));
        }
    }
}

fn refuse_item(cx: &Ctxt, item: &Item) {
    match item {
        Item::Enum(item) => cx.error_at(
            &item.ident,
            "a model is a struct, whose fields exist on every rank; write one struct for each variant, and \
             give the model that chooses a type parameter for it",
        ),
        Item::Union(item) => cx.error_at(
            &item.ident,
            "a model is a struct with named fields; the fields of a union cannot be built one by one",
        ),
        Item::Impl(item) => {
            cx.error_at(item.impl_token, "`#[model]` goes on the struct; on the impl block write `#[forward]`");
        }
        other => cx.error_at(first_line(other), "`#[model]` goes on a struct with named fields"),
    }
}

/// The item up to its body, to be underlined.
fn first_line(item: &Item) -> TokenStream {
    item.to_token_stream()
        .into_iter()
        .take_while(|token| !matches!(token, proc_macro2::TokenTree::Group(_)))
        .collect()
}

/// Takes our attributes, misspelled ones too, off an item and its fields.
pub struct StripAttributes;

impl VisitMut for StripAttributes {
    fn visit_attributes_mut(&mut self, attrs: &mut Vec<Attribute>) {
        attrs.retain(|attr| !table::field_attributes().any(|row| attr.path().is_ident(row.name)));
    }

    fn visit_field_mut(&mut self, field: &mut syn::Field) {
        field.attrs.retain(|attr| our_attribute(attr).is_none());
    }
}

/// The generics of an item that can have any, and its name.
pub fn name_and_generics(item: &Item) -> Option<(&Ident, &Generics)> {
    match item {
        Item::Struct(item) => Some((&item.ident, &item.generics)),
        Item::Enum(item) => Some((&item.ident, &item.generics)),
        Item::Union(item) => Some((&item.ident, &item.generics)),
        _ => None,
    }
}
