//! Parsing: from attributes to typed values that keep their spans.
//!
//! No parser here returns at the first mistake. Each reports to the [`Ctxt`] and continues after the next comma, so
//! that all mistakes of an item are reported together. If a misspelled word has a likely meaning, parsing continues
//! with that meaning, so that one typo does not break the rest of the program.

pub mod args;
mod fold;
pub mod init;
pub mod mesh_test;
mod param_rows;
pub mod pipeline_stage;
pub mod recompute;
#[cfg(test)]
mod reference;
mod rows;
pub mod runtime;
pub mod sharded;
pub mod table;

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{Attribute, Ident, LitStr, Token};

use crate::diag::Ctxt;
use crate::tokens::shown;
use args::{Args, Keyed, Once, Shown};
pub use mesh_test::MeshTestArgs;
pub use runtime::Runtime;

/// `#[tied(embed.tokens, when = "tie_word_embeddings")]`.
pub struct Tied {
    /// The attribute, for underlining.
    pub attr: Attribute,
    /// The path of the shared weight.
    pub path: FieldPath,
    /// The configuration key that enables the tie.
    pub when: Option<Keyed<LitStr>>,
}

/// A non-empty path of nested fields: `embed.tokens`.
pub struct FieldPath(Vec<Ident>);

impl Tied {
    /// Parses the attribute; `None` if it names no target.
    pub fn parse(cx: &Ctxt, attr: &Attribute) -> Option<Self> {
        let n_errors = cx.n_errors();
        let mut when = Once::default();
        let mut path = None;
        Args::of(cx, &table::TIED, attr, "embed.tokens")?.each(|args, key, input| {
            if !input.peek(Token![=]) {
                let span = key.span();
                let found = FieldPath::parse_rest(key, input)?;
                if path.is_some() {
                    let message = "`#[tied]` names one weight; this is the second path";
                    return Err(syn::Error::new(span, message));
                }
                path = Some(found);
                return Ok(());
            }
            if args.is_foreign(&key) {
                let value = input.fork();
                value.parse::<Token![=]>()?;
                let path = shown(args::take_to_comma(&value)).replace('"', "");
                if args::is_path(&path) {
                    let message = format!("the path is written alone: `#[tied({path})]`");
                    return Err(syn::Error::new(key.span(), message));
                }
            }
            let Some(row) = args.row(&key) else { return args::skip(input) };
            args::equals(row, &key, input, "\"tie_word_embeddings\"")?;
            let found = config_key(&key, input)?;
            when.set(args, key, found);
            Ok(())
        });
        if path.is_none() && cx.n_errors() == n_errors {
            cx.error_at(
                attr,
                "`#[tied]` needs the shared weight: `#[tied(embed.tokens)]`, a path of fields from this struct on",
            );
        }
        Some(Self { attr: attr.clone(), path: path?, when: when.value })
    }
}

impl FieldPath {
    /// Parses the rest of a path after its first field.
    fn parse_rest(first: Ident, input: ParseStream) -> syn::Result<Self> {
        let mut path = vec![first];
        while input.peek(Token![.]) {
            input.parse::<Token![.]>()?;
            let segment = input.call(Ident::parse_any).map_err(|error| {
                syn::Error::new(error.span(), "a path is made of field names: `embed.tokens`")
            })?;
            path.push(segment);
        }
        if input.peek(Token![::]) {
            return Err(input.error("separate the fields of a path by dots: `embed.tokens`"));
        }
        Ok(Self(path))
    }

    /// The fields of the path, as written.
    pub fn fields(&self) -> &[Ident] {
        &self.0
    }

    /// The outermost field.
    pub fn first(&self) -> &Ident {
        &self.0[0]
    }

    /// Formats the path: `embed.tokens`.
    pub fn dotted(&self) -> String {
        let names: Vec<String> = self.0.iter().map(|ident| ident.unraw().to_string()).collect();
        names.join(".")
    }

    /// Returns true if `other` is this path or a prefix of it.
    fn is_in(&self, other: &FieldPath) -> bool {
        self.0.len() >= other.0.len()
            && self.0.iter().zip(&other.0).all(|(own, other)| own.unraw() == other.unraw())
    }

    /// The span of the first field.
    pub fn span(&self) -> Span {
        self.first().span()
    }
}

impl std::fmt::Display for FieldPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.dotted())
    }
}

/// Creates the error for a string in place of a name or path.
pub fn unquote(quoted: &LitStr, fixed: &str) -> syn::Error {
    syn::Error::new(quoted.span(), format_args!("write it without quotes: `{fixed}`"))
}

fn config_key(key: &Ident, input: ParseStream) -> syn::Result<LitStr> {
    let start = input.span();
    if let Ok(bare) = input.fork().call(Ident::parse_any) {
        let message = format!("quote the key of the configuration: `{key} = \"{bare}\"`");
        return Err(syn::Error::new(start, message));
    }
    match input.parse::<LitStr>() {
        Ok(literal) if !literal.value().trim().is_empty() => Ok(literal),
        _ => Err(syn::Error::new(
            start,
            format_args!(
                "`{key}` takes a key of the configuration in quotes: `{key} = \"tie_word_embeddings\"`"
            ),
        )),
    }
}

impl Shown for LitStr {
    fn shown(&self) -> String {
        shown(self)
    }
}
