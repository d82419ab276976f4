//! Parsing: from attributes to typed values that keep their spans.
//!
//! No parser here returns at the first mistake. Each reports to the [`Ctxt`] and goes on behind the next
//! comma, so that all the mistakes of an item show together. Where a misspelled word has a likely
//! meaning, parsing goes on with that meaning, so that one typo does not break the rest of the program.

pub mod args;
#[cfg(test)]
mod reference;
pub mod table;

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{Attribute, Ident, Lit, LitStr, Path, Token};

use crate::diag::{Ctxt, expected, nearest};
use crate::tokens::{relocated, shown};
use args::{Args, Keyed, Once, Shown};
use table::{AttributeRow, StyleRow, Value};

/// `#[sharded(tp = "row", scatter = Seq)]`.
pub struct Sharded {
    /// The runtime's name of the axis.
    pub axis: &'static str,
    /// The style, behind the axis as its key.
    pub style: Keyed<&'static StyleRow>,
    /// The dim along which the sum ends split.
    pub scatter: Option<Keyed<Path>>,
}

/// `#[tied(embed.tokens, when = "tie_word_embeddings")]`.
pub struct Tied {
    /// The attribute itself, to be underlined.
    pub attr: Attribute,
    /// Where the shared weight is; at least one segment.
    pub path: Vec<Ident>,
    /// The key of the configuration that decides.
    pub when: Option<Keyed<LitStr>>,
}

/// Where the expansion finds the runtime.
#[derive(Clone, Default)]
pub struct Runtime {
    /// The path after `crate =`; `::meshwright` if there was none.
    path: Option<Path>,
}

impl Sharded {
    /// Parses the attribute; `None` if it does not say how the layer is cut.
    pub fn parse(cx: &Ctxt, attr: &Attribute) -> Option<Self> {
        let n_errors = cx.n_errors();
        let mut style = Once::default();
        let mut scatter = Once::default();
        Args::of(cx, &table::SHARDED, attr, "tp = \"col\"")?.each(|args, key, input| {
            let Some(row) = args.row(&key) else { return args::skip(input) };
            match row.value {
                Value::Style { axis, styles } => {
                    args::equals(row, &key, input, "\"col\"")?;
                    if let Some(found) = style_of(cx, &key, styles, input)? {
                        style.set(args, key, (axis, found));
                    }
                }
                _ => {
                    args::equals(row, &key, input, "Seq")?;
                    let found = dim(&key, input)?;
                    scatter.set(args, key, found);
                }
            }
            Ok(())
        });
        let Some(Keyed { key, value: (axis, style) }) = style.value else {
            if cx.n_errors() == n_errors {
                cx.error_at(
                    attr,
                    "`#[sharded]` has to say how the layer is cut: `#[sharded(tp = \"col\")]`, `\"row\"` \
                     or `\"vocab\"`",
                );
            }
            return None;
        };
        // With a guessed word, do not find fault with the combination as well.
        let scatter = scatter.value.filter(|_| style.sums || cx.n_errors() == n_errors);
        Some(Self { axis, style: Keyed { key, value: style }, scatter })
    }
}

impl Tied {
    /// Parses the attribute; `None` if it does not say to what.
    pub fn parse(cx: &Ctxt, attr: &Attribute) -> Option<Self> {
        let n_errors = cx.n_errors();
        let mut when = Once::default();
        let mut path = None;
        Args::of(cx, &table::TIED, attr, "embed.tokens")?.each(|args, key, input| {
            if !input.peek(Token![=]) {
                let span = key.span();
                let found = field_path(key, input)?;
                if path.is_some() {
                    let message = "`#[tied]` names one weight; this is the second path";
                    return Err(syn::Error::new(span, message));
                }
                path = Some(found);
                return Ok(());
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
                "`#[tied]` has to say which weight is shared: `#[tied(embed.tokens)]`, a path of fields \
                 from this struct on",
            );
        }
        Some(Self { attr: attr.clone(), path: path?, when: when.value })
    }

    /// `embed.tokens`.
    pub fn dotted_path(&self) -> String {
        self.path.iter().map(|ident| ident.unraw().to_string()).collect::<Vec<_>>().join(".")
    }
}

impl Runtime {
    /// Parses the arguments of `#[model(..)]` and `#[forward(..)]`.
    pub fn parse_args(cx: &Ctxt, attribute: &'static AttributeRow, tokens: TokenStream) -> Self {
        let mut path = Once::default();
        Args::new(cx, attribute, tokens).each(|args, key, input| {
            let Some(row) = args.row(&key) else { return args::skip(input) };
            args::equals(row, &key, input, "some::path")?;
            let found = crate_path(input)?;
            path.set(args, key, found);
            Ok(())
        });
        Self { path: path.value.map(|keyed| keyed.value) }
    }

    /// Parses the path after `crate =`.
    pub fn parse(input: ParseStream) -> syn::Result<Self> {
        Ok(Self { path: Some(crate_path(input)?) })
    }

    /// The path of what expansions may use, as if written at `place`.
    pub fn private(&self, place: Span) -> TokenStream {
        match &self.path {
            None => quote_spanned!(place=> ::meshwright::__private),
            Some(path) => {
                let path = relocated(path.to_token_stream(), place);
                quote_spanned!(place=> #path::__private)
            }
        }
    }
}

fn crate_path(input: ParseStream) -> syn::Result<Path> {
    if input.peek(LitStr) {
        let quoted: LitStr = input.parse()?;
        return Err(unquote(&quoted, &format!("crate = {}", quoted.value())));
    }
    input.call(Path::parse_mod_style).map_err(|error| {
        syn::Error::new(error.span(), "`crate` takes the path of the crate: `crate = some::path`")
    })
}

/// The style after `tp =`. An unknown one is reported, and read as its nearest neighbour.
fn style_of(
    cx: &Ctxt,
    axis: &Ident,
    styles: &'static [StyleRow],
    input: ParseStream,
) -> syn::Result<Option<&'static StyleRow>> {
    let named = |word: &str| styles.iter().find(|style| style.name == word);
    let (word, span) = match input.parse::<Lit>() {
        Ok(Lit::Str(quoted)) => (quoted.value(), quoted.span()),
        Ok(other) => (shown(&other), other.span()),
        Err(_) => {
            let bare = input.call(Ident::parse_any)?;
            let word = bare.to_string();
            if named(&word).is_some() {
                cx.error(bare.span(), format_args!("quote the style: `{axis} = \"{word}\"`"));
                return Ok(named(&word));
            }
            (word, bare.span())
        }
    };
    if let Some(style) = named(&word) {
        return Ok(Some(style));
    }
    let names: Vec<&str> = styles.iter().map(|style| style.name).collect();
    let expected = expected(&word, &names);
    cx.error(span, format_args!("unknown style `{word}` for axis `{axis}`: {expected}"));
    Ok(nearest(&word, names).and_then(named))
}

fn dim(key: &Ident, input: ParseStream) -> syn::Result<Path> {
    if input.peek(LitStr) {
        let quoted: LitStr = input.parse()?;
        return Err(unquote(&quoted, &format!("{key} = {}", quoted.value())));
    }
    input.parse().map_err(|error| {
        let message =
            format_args!("`{key}` takes a dim declared with `dims!`: `{key} = Seq`").to_string();
        syn::Error::new(error.span(), message)
    })
}

fn unquote(quoted: &LitStr, fixed: &str) -> syn::Error {
    syn::Error::new(quoted.span(), format_args!("write it without quotes: `{fixed}`"))
}

fn config_key(key: &Ident, input: ParseStream) -> syn::Result<LitStr> {
    let start = input.span();
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

/// The rest of `embed.tokens` behind its first word.
fn field_path(first: Ident, input: ParseStream) -> syn::Result<Vec<Ident>> {
    let mut path = vec![first];
    while input.peek(Token![.]) {
        input.parse::<Token![.]>()?;
        let segment = input.call(Ident::parse_any).map_err(|error| {
            syn::Error::new(error.span(), "a tied path is made of field names: `embed.tokens`")
        })?;
        path.push(segment);
    }
    if input.peek(Token![::]) {
        return Err(input.error("separate the fields of a tied path by dots: `embed.tokens`"));
    }
    Ok(path)
}

impl Shown for Path {
    fn shown(&self) -> String {
        shown(self)
    }
}

impl Shown for LitStr {
    fn shown(&self) -> String {
        shown(self)
    }
}

impl Shown for (&'static str, &'static StyleRow) {
    fn shown(&self) -> String {
        format!("{:?}", self.1.name)
    }
}
