//! An enum under `#[model]`: kinds of layers of one stack, as plain data.

use syn::ext::IdentExt;
use syn::{Attribute, Fields, Ident, ItemEnum, Type};

use crate::attr::{Runtime, table};
use crate::diag::Ctxt;
use crate::tokens::shown;

/// An enum with `#[model]`, each of whose variants holds a layer.
pub struct LayerKinds {
    /// The enum without our attributes.
    pub item: ItemEnum,
    /// The path of the runtime crate.
    pub runtime: Runtime,
    pub kinds: Vec<LayerKind>,
}

/// A variant.
pub struct LayerKind {
    pub name: Ident,
    /// The type of its layer.
    pub layer: Type,
}

impl LayerKinds {
    /// Reads an enum with `#[model]`; reports errors if it is not one of layers.
    pub fn lower(cx: &Ctxt, runtime: Runtime, item: &ItemEnum) -> Option<Self> {
        let n_errors = cx.n_errors();
        if let Some(param) = item.generics.params.first() {
            let name = &item.ident;
            cx.error_at(
                param,
                format_args!(
                    "an enum of layers has no parameters: write the types of the layers in `{name}`"
                ),
            );
        }
        if item.variants.is_empty() {
            cx.error_at(
                &item.ident,
                "an enum of layers has a variant for each kind: `enum Block { Dense(DenseBlock), Moe(MoeBlock) }`",
            );
        }
        refuse_attributes(cx, &item.attrs, "enum");
        let mut kinds = Vec::new();
        for variant in &item.variants {
            let name = &variant.ident;
            refuse_attributes(cx, &variant.attrs, "variant");
            if let Some(cfg) = variant.attrs.iter().find(|attr| attr.path().is_ident("cfg")) {
                cx.error_at(
                    cfg,
                    "a kind of layers is not conditional: write the enum twice, once for each `#[cfg(..)]`",
                );
            }
            match &variant.fields {
                Fields::Unnamed(layers) if layers.unnamed.len() == 1 => {
                    let layer = &layers.unnamed[0];
                    refuse_attributes(cx, &layer.attrs, "layer of a variant");
                    kinds.push(LayerKind { name: name.clone(), layer: layer.ty.clone() });
                }
                _ => cx.error_at(
                    variant,
                    format_args!(
                        "a variant holds one layer, which has the fields: `{name}({name}Block)`, and a struct \
                         `{name}Block` with `#[model]`"
                    ),
                ),
            }
        }
        let item = item.clone();
        (cx.n_errors() == n_errors).then_some(Self { item, runtime, kinds })
    }

    /// Returns the names of the variants.
    pub fn names(&self) -> Vec<String> {
        self.kinds.iter().map(|kind| kind.name.unraw().to_string()).collect()
    }
}

/// Reports attributes of fields of structs.
fn refuse_attributes(cx: &Ctxt, attrs: &[Attribute], place: &str) {
    let is_ours =
        |attr: &&Attribute| table::field_attributes().any(|row| attr.path().is_ident(row.name));
    for attr in attrs.iter().filter(is_ours) {
        let written = shown(attr);
        cx.error_at(
            attr,
            format_args!(
                "`{written}` belongs on a field of a struct, not on the {place}: put it on the fields of the layers, \
                 or on the `Stack`"
            ),
        );
    }
}
