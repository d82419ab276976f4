//! The declaration under `#[model]`, as plain data.
//!
//! Every node keeps its tokens, so that errors are shown at the source of the mistake. Lowering reports syntax without
//! a meaning; `check` reports violated rules.

use syn::punctuated::Punctuated;
use syn::visit_mut::VisitMut;
use syn::{
    Attribute, Fields, Generics, Ident, Item, ItemStruct, Meta, Path, Token, Type, parse_quote,
};

use crate::attr::init::InitialValues;
use crate::attr::pipeline_stage::PipelineStage;
use crate::attr::recompute::Recompute;
use crate::attr::sharded::Sharded;
use crate::attr::{Runtime, Tied, table};
use crate::diag::{Ctxt, nearest};
use crate::tokens::{first_line, shown};

/// A struct with `#[model]`.
pub struct Model {
    /// The struct without our attributes.
    pub item: ItemStruct,
    /// The path of the runtime crate.
    pub runtime: Runtime,
    /// True if each value of the struct is an FSDP unit.
    pub is_unit: bool,
    /// `#[pipeline_stage]` on the struct.
    pub stage_check: Option<Attribute>,
    /// False if `#[pipeline_stage]` breaks a rule.
    pub stages_are_valid: bool,
    pub fields: Vec<Field>,
}

/// A field of a model.
pub struct Field {
    pub name: Ident,
    /// The type as written.
    pub ty: Type,
    /// The `cfg` attributes, which generated code for the field repeats.
    pub cfgs: Vec<Attribute>,
    pub sharded: Option<Sharded>,
    pub tied: Option<Tied>,
    /// `#[shared]`.
    pub shared: Option<Attribute>,
    /// `#[frozen]`.
    pub frozen: Option<Attribute>,
    pub init: Option<InitialValues>,
    pub recompute: Option<Recompute>,
    pub stage: Option<PipelineStage>,
    /// The attributes that are not ours.
    pub others: Vec<Attribute>,
}

impl Model {
    /// Reads a struct with `#[model]`; reports an error if the item is not a struct with named fields.
    pub fn lower(cx: &Ctxt, runtime: Runtime, item: &Item) -> Option<Self> {
        let Item::Struct(item) = item else {
            refuse_item(cx, item);
            return None;
        };
        let StructAttributes { is_unit, stage_check } = read_struct_attributes(cx, item);
        refuse_derived_model(cx, item);
        let name = &item.ident;
        match &item.fields {
            Fields::Named(named) => {
                let fields =
                    named.named.iter().filter_map(|field| Field::lower(cx, field)).collect();
                let mut item = item.clone();
                StripAttributes.visit_item_struct_mut(&mut item);
                Some(Self { item, runtime, is_unit, stage_check, stages_are_valid: true, fields })
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
            shared: None,
            frozen: None,
            init: None,
            recompute: None,
            stage: None,
            others: Vec::new(),
        };
        let (ours, others): (Vec<_>, Vec<_>) =
            field.attrs.iter().cloned().partition(|attr| our_attribute(attr).is_some());
        lowered.cfgs = others.iter().filter(|attr| attr.path().is_ident("cfg")).cloned().collect();
        lowered.others = others;
        cx.in_field(&lowered.name.clone(), || lowered.read(cx, &ours));
        Some(lowered)
    }

    /// Reads the attributes that are ours.
    fn read(&mut self, cx: &Ctxt, attrs: &[Attribute]) {
        let mut seen: Vec<(&Attribute, &str)> = Vec::new();
        let mut sharded = Vec::new();
        for attr in attrs {
            let Some(row) = our_attribute(attr) else { continue };
            report_misspelling(cx, attr, row);
            let name = row.name;
            if name == "sharded" {
                sharded.push(attr);
                continue;
            }
            if let Some((first, _)) = seen.iter().find(|(_, other)| *other == name) {
                let first = shown(first);
                cx.error_at(
                    attr,
                    format_args!("`#[{name}]` is given twice; the first is `{first}`: keep one"),
                );
                continue;
            }
            seen.push((attr, name));
            match name {
                "tied" => self.tied = Tied::parse(cx, attr),
                "shared" => self.shared = alone(cx, attr),
                "frozen" => self.frozen = alone(cx, attr),
                "init" => self.init = InitialValues::parse(cx, attr),
                "recompute" => self.recompute = Some(Recompute::parse(cx, attr)),
                _ => self.stage = Some(PipelineStage::parse(cx, attr)),
            }
        }
        if !sharded.is_empty() {
            self.sharded = Sharded::parse(cx, &sharded);
        }
    }
}

/// Returns an attribute that takes no arguments; reports an error if it has some.
fn alone(cx: &Ctxt, attr: &Attribute) -> Option<Attribute> {
    let name = shown(attr.path());
    match &attr.meta {
        Meta::Path(_) => {}
        Meta::List(list) if name == table::SHARED.name => {
            let tokens = shown(&list.tokens);
            cx.error_at(
                attr,
                format_args!(
                    "`#[shared]` takes no arguments; did you mean `#[sharded({tokens})]`?"
                ),
            );
        }
        _ => cx.error_at(
            attr,
            format_args!("`#[{name}]` takes no arguments: write `#[{name}]` alone"),
        ),
    }
    Some(attr.clone())
}

/// Returns our attribute that `attr` is, or a misspelling of.
fn our_attribute(attr: &Attribute) -> Option<&'static table::AttributeRow> {
    let segments: Vec<String> =
        attr.path().segments.iter().map(|segment| segment.ident.to_string()).collect();
    let word = match segments.as_slice() {
        [word] if BUILT_IN.contains(&word.as_str()) => return None,
        [word] => {
            let has_arguments = !matches!(attr.meta, Meta::Path(_));
            let fits = |row: &&table::AttributeRow| {
                row.name == word || !has_arguments || !row.keys.is_empty()
            };
            nearest(word, table::field_attributes().filter(fits).map(|row| row.name))?
        }
        [ours, word] if ours == "meshwright" => word,
        _ => return None,
    };
    table::field_attributes().find(|row| row.name == word)
}

/// Built-in attributes of fields, which are never reported as misspellings.
const BUILT_IN: [&str; 9] =
    ["doc", "cfg", "cfg_attr", "allow", "warn", "deny", "forbid", "expect", "deprecated"];

/// Reports a misspelled attribute.
fn report_misspelling(cx: &Ctxt, attr: &Attribute, row: &table::AttributeRow) {
    let (name, path) = (row.name, attr.path());
    if path.segments.len() > 1 {
        cx.error_at(path, format_args!("inside `#[model]` write `#[{name}(..)]`, without a path"));
    } else if !path.is_ident(name) {
        let typed = shown(path);
        cx.error_at(path, format_args!("unknown attribute `{typed}`; did you mean `{name}`?"));
    }
}

/// Returns true for `#[pipeline_stage]`, with or without arguments.
pub fn is_stage_attribute(attr: &Attribute) -> bool {
    attr.path().is_ident(table::PIPELINE_STAGE.name)
}

/// Our attributes on the struct.
#[derive(Default)]
struct StructAttributes {
    is_unit: bool,
    stage_check: Option<Attribute>,
}

fn read_struct_attributes(cx: &Ctxt, item: &ItemStruct) -> StructAttributes {
    let mut found = StructAttributes::default();
    let mut sharded = Vec::new();
    for attr in &item.attrs {
        let Some(row) = table::field_attributes().find(|row| attr.path().is_ident(row.name)) else {
            continue;
        };
        if row.name == "sharded" {
            sharded.push(attr);
        } else if is_stage_attribute(attr) && matches!(attr.meta, Meta::Path(_)) {
            found.stage_check = Some(attr.clone());
        } else {
            let written = shown(attr);
            cx.error_at(attr, format_args!("`{written}` belongs on a field, not on the struct"));
        }
    }
    if sharded.is_empty() {
        return found;
    }
    let Some(Sharded { cuts, fsdp }) = Sharded::parse(cx, &sharded) else { return found };
    for cut in cuts {
        let written = cut.shown();
        cx.error(
            cut.style.key.span(),
            format_args!(
                "`{written}` belongs on a field, not on the struct, which can only be a unit: `#[sharded(fsdp)]`"
            ),
        );
    }
    found.is_unit = fsdp.is_some();
    found
}

/// Removes our derive macro, which is only a diagnostic; next to `#[model]` it would repeat impls.
fn refuse_derived_model(cx: &Ctxt, item: &ItemStruct) {
    let derived = item.attrs.iter().filter_map(derived_traits).flatten();
    for path in derived.filter(is_our_derive) {
        let written = shown(&path);
        cx.error_at(
            &path,
            format_args!(
                "`#[model]` makes the struct a model: remove `{written}` from the derives"
            ),
        );
    }
}

/// Returns the paths in `#[derive(..)]`.
fn derived_traits(attr: &Attribute) -> Option<Punctuated<Path, Token![,]>> {
    let derive = attr.path().is_ident("derive").then_some(attr)?;
    derive.parse_args_with(Punctuated::parse_terminated).ok()
}

/// Returns true for `Model` and `meshwright::Model`.
fn is_our_derive(path: &Path) -> bool {
    let ends = (path.segments.first(), path.segments.last());
    let (Some(first), Some(last)) = ends else { return false };
    last.ident == "Model" && (path.segments.len() == 1 || first.ident == "meshwright")
}

fn refuse_item(cx: &Ctxt, item: &Item) {
    match item {
        // Its mistakes are reported.
        Item::Enum(_) => {}
        Item::Union(item) => cx.error_at(
            &item.ident,
            "a model is a struct with named fields; the fields of a union cannot be built one by one",
        ),
        Item::Impl(item) => {
            cx.error_at(item.impl_token, "`#[model]` belongs on the struct; write `#[forward]` on the impl block");
        }
        other => cx.error_at(first_line(other), "`#[model]` belongs on a struct with named fields"),
    }
}

/// Removes our attributes and derive, and misspellings of them, from an item and its fields.
pub struct StripAttributes;

impl VisitMut for StripAttributes {
    fn visit_attributes_mut(&mut self, attrs: &mut Vec<Attribute>) {
        attrs.retain(|attr| !table::field_attributes().any(|row| attr.path().is_ident(row.name)));
        for attr in attrs {
            let Some(derived) = derived_traits(attr) else { continue };
            if derived.iter().any(is_our_derive) {
                let others = derived.iter().filter(|path| !is_our_derive(path));
                *attr = parse_quote!(#[derive(#(#others),*)]);
            }
        }
    }

    fn visit_field_mut(&mut self, field: &mut syn::Field) {
        field.attrs.retain(|attr| our_attribute(attr).is_none());
    }
}

/// Returns the name and generics of an item that can have generics.
pub fn name_and_generics(item: &Item) -> Option<(&Ident, &Generics)> {
    match item {
        Item::Struct(item) => Some((&item.ident, &item.generics)),
        Item::Enum(item) => Some((&item.ident, &item.generics)),
        Item::Union(item) => Some((&item.ident, &item.generics)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_of_other_macros_are_left_alone() {
        let others: [Attribute; 12] = [
            parse_quote!(#[serde(skip)]),
            parse_quote!(#[builder(default)]),
            parse_quote!(#[arg(long)]),
            parse_quote!(#[source]),
            parse_quote!(#[pin]),
            parse_quote!(#[validate(range(min = 1))]),
            parse_quote!(#[param]),
            parse_quote!(#[field]),
            parse_quote!(#[other::sharded]),
            parse_quote!(#[rustfmt::skip]),
            parse_quote!(#[id]),
            parse_quote!(#[test]),
        ];
        for other in &others {
            let ours = our_attribute(other).map(|row| row.name);
            assert_eq!(ours, None, "{}", shown(other));
        }
    }
}
