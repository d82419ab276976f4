//! Parsing: from attributes to typed values that keep their spans.
//!
//! No parser here returns at the first mistake. Each reports to the [`Ctxt`] and goes on behind the next
//! comma, so that all the mistakes of an item show together. Where a misspelled word has a likely
//! meaning, parsing goes on with that meaning, so that one typo does not break the rest of the program.

#[cfg(test)]
mod reference;
pub mod table;

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, Ident, Lit, LitStr, Meta, Path, Token};

use crate::diag::{Ctxt, did_you_mean, nearest, one_of};
use crate::tokens;
use table::{AttributeRow, KeyRow, StyleRow, Value};

/// A value and the key it was given to.
pub struct Keyed<T> {
    pub key: Ident,
    pub value: T,
}

/// `#[sharded(tp = "row", scatter = Seq)]`.
pub struct Sharded {
    /// The runtime's name of the axis.
    pub axis: &'static str,
    pub style: Keyed<&'static StyleRow>,
    pub scatter: Option<Keyed<Path>>,
}

/// `#[tied(embed.tokens, when = "tie_word_embeddings")]`.
pub struct Tied {
    pub attr: Attribute,
    /// At least one segment.
    pub path: Vec<Ident>,
    pub when: Option<Keyed<LitStr>>,
}

impl Tied {
    /// `embed.tokens`.
    pub fn dotted_path(&self) -> String {
        self.path.iter().map(|ident| ident.unraw().to_string()).collect::<Vec<_>>().join(".")
    }
}

/// What stands in the parentheses of `#[model(..)]` and `#[forward(..)]`: where the runtime is.
pub fn runtime_path(cx: &Ctxt, attribute: &'static AttributeRow, args: TokenStream) -> Path {
    let mut path = Once::default();
    each_arg(cx, args, |key, input| {
        let Some(row) = known_key(cx, attribute, &key) else {
            skip_to_comma(input);
            return Ok(());
        };
        expect_equals(row, &key, input, "some::path")?;
        path.set(cx, attribute, &key, crate_path(input)?);
        Ok(())
    });
    path.value.map_or_else(default_runtime, |keyed| keyed.value)
}

/// Where the runtime is unless the author says otherwise.
pub fn default_runtime() -> Path {
    syn::parse_quote!(::meshwright)
}

/// The path after `crate =`.
pub fn crate_path(input: ParseStream) -> syn::Result<Path> {
    if input.peek(LitStr) {
        let quoted: LitStr = input.parse()?;
        return Err(unquote(&quoted, "crate = some::path"));
    }
    input.call(Path::parse_mod_style)
}

/// Parses `#[sharded(..)]`; `None` if it does not say how.
pub fn sharded(cx: &Ctxt, attr: &Attribute) -> Option<Sharded> {
    let mut style = Once::default();
    let mut scatter = Once::default();
    let n_errors = cx.n_errors();
    let args = arguments(cx, &table::SHARDED, attr, "tp = \"col\"")?;
    each_arg(cx, args, |key, input| {
        let Some(row) = known_key(cx, &table::SHARDED, &key) else {
            skip_to_comma(input);
            return Ok(());
        };
        match row.value {
            Value::Style { axis, styles } => {
                expect_equals(row, &key, input, "\"col\"")?;
                if let Some(found) = style_of(cx, &key, styles, input)? {
                    style.set(cx, &table::SHARDED, &key, (axis, found));
                }
            }
            _ => {
                expect_equals(row, &key, input, "Seq")?;
                scatter.set(cx, &table::SHARDED, &key, dim(&key, input)?);
            }
        }
        Ok(())
    });
    let Some(Keyed { key, value: (axis, style) }) = style.value else {
        if cx.n_errors() == n_errors {
            cx.error_at(
                attr,
                "`#[sharded]` has to say how the layer is cut: `#[sharded(tp = \"col\")]`, \
                 `\"row\"` or `\"vocab\"`",
            );
        }
        return None;
    };
    // With a guessed word, do not find fault with the combination as well.
    let scatter = scatter.value.filter(|_| style.sums || cx.n_errors() == n_errors);
    Some(Sharded { axis, style: Keyed { key, value: style }, scatter })
}

/// Parses `#[tied(..)]`; `None` if it does not say to what.
pub fn tied(cx: &Ctxt, attr: &Attribute) -> Option<Tied> {
    let mut when = Once::default();
    let mut path = None;
    let n_errors = cx.n_errors();
    let args = arguments(cx, &table::TIED, attr, "embed.tokens")?;
    each_arg(cx, args, |key, input| {
        if !input.peek(Token![=]) {
            let found = field_path(key.clone(), input)?;
            if path.is_some() {
                return Err(syn::Error::new(
                    key.span(),
                    "`#[tied]` names one weight; this is the second path",
                ));
            }
            path = Some(found);
            return Ok(());
        }
        let Some(row) = known_key(cx, &table::TIED, &key) else {
            skip_to_comma(input);
            return Ok(());
        };
        expect_equals(row, &key, input, "\"tie_word_embeddings\"")?;
        when.set(cx, &table::TIED, &key, config_key(&key, input)?);
        Ok(())
    });
    let Some(path) = path else {
        if cx.n_errors() == n_errors {
            cx.error_at(
                attr,
                "`#[tied]` has to say which weight is shared: `#[tied(embed.tokens)]`, a path of fields \
                 from this struct on",
            );
        }
        return None;
    };
    Some(Tied { attr: attr.clone(), path, when: when.value })
}

/// Goes through `key ..., key ...`; after a mistake it goes on behind the next comma.
pub fn each_arg(
    cx: &Ctxt,
    args: TokenStream,
    mut each: impl FnMut(Ident, ParseStream) -> syn::Result<()>,
) {
    let parser = |input: ParseStream| {
        while !input.is_empty() {
            let parsed = parse_key(input).and_then(|key| each(key, input)).and_then(|()| {
                let ended = input.is_empty() || input.peek(Token![,]);
                if ended { Ok(()) } else { Err(input.error("expected `,`")) }
            });
            if let Err(error) = parsed {
                cx.push(error);
                skip_to_comma(input);
            }
            input.parse::<Option<Token![,]>>()?;
        }
        Ok(())
    };
    if let Err(error) = parser.parse2(args) {
        cx.push(error);
    }
}

/// Drops tokens up to the next comma.
pub fn skip_to_comma(input: ParseStream) {
    while !input.is_empty() && !input.peek(Token![,]) {
        // A token tree always parses where the input is not empty.
        let _: syn::Result<proc_macro2::TokenTree> = input.parse();
    }
}

/// A place for a value that may be given once.
struct Once<T> {
    value: Option<Keyed<T>>,
    /// What was written first, for the message about the second.
    first: String,
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self { value: None, first: String::new() }
    }
}

impl<T: Shown> Once<T> {
    /// Keeps the first value; a second one is reported where it stands.
    fn set(&mut self, cx: &Ctxt, attribute: &AttributeRow, key: &Ident, value: T) {
        if self.value.is_some() {
            let (name, first) = (attribute.name, &self.first);
            cx.error(
                key.span(),
                format_args!("`{key}` is given twice in `#[{name}(..)]`; the first is `{key} = {first}`: keep one"),
            );
        } else {
            self.first = value.shown();
            self.value = Some(Keyed { key: key.clone(), value });
        }
    }
}

/// A value as the author wrote it.
trait Shown {
    fn shown(&self) -> String;
}

impl Shown for Path {
    fn shown(&self) -> String {
        tokens::shown(self)
    }
}

impl Shown for LitStr {
    fn shown(&self) -> String {
        tokens::shown(self)
    }
}

impl Shown for (&'static str, &'static StyleRow) {
    fn shown(&self) -> String {
        format!("{:?}", self.1.name)
    }
}

/// The tokens in the parentheses of `attr`.
fn arguments(
    cx: &Ctxt,
    row: &AttributeRow,
    attr: &Attribute,
    example: &str,
) -> Option<TokenStream> {
    match &attr.meta {
        Meta::List(list) => Some(list.tokens.clone()),
        _ => {
            let name = row.name;
            cx.error_at(attr, format_args!("write `#[{name}({example})]`"));
            None
        }
    }
}

fn parse_key(input: ParseStream) -> syn::Result<Ident> {
    if input.peek(LitStr) {
        let quoted: LitStr = input.parse()?;
        let text = quoted.value();
        return Err(syn::Error::new(
            quoted.span(),
            format_args!("`\"{text}\"` stands here without a key: write `key = \"{text}\"`"),
        ));
    }
    input.call(Ident::parse_any)
}

/// The table's row for `key`. A word that is not in it is reported, and read as its nearest neighbour.
fn known_key(cx: &Ctxt, attribute: &'static AttributeRow, key: &Ident) -> Option<&'static KeyRow> {
    let usable = |row: &&KeyRow| {
        !matches!(row.value, Value::Later(_) | Value::Elsewhere(_) | Value::FieldPath)
    };
    let word = key.unraw().to_string();
    let names = attribute.keys.iter().filter(usable).map(|row| row.name);
    let name = attribute.name;
    let found = attribute.keys.iter().find(|row| row.name == word);
    match found.map(|row| row.value) {
        Some(Value::Later(what)) => cx.error(
            key.span(),
            format_args!(
                "`{word}` ({what}) comes in a later version; in this one `#[{name}]` takes {}",
                one_of(names)
            ),
        ),
        Some(Value::Elsewhere(hint)) => {
            cx.error(key.span(), format_args!("`{word}` is not for `#[{name}]`: {hint}"));
        }
        Some(_) => return found,
        None => {
            let is_axis = |row: &KeyRow| matches!(row.value, Value::Style { .. });
            let kind = if attribute.keys.iter().any(is_axis) { "axis or option" } else { "option" };
            let (expected, meant) = (one_of(names.clone()), did_you_mean(&word, names.clone()));
            cx.error(
                key.span(),
                format_args!(
                    "unknown {kind} `{word}` in `#[{name}(..)]`: expected {expected}{meant}"
                ),
            );
            let guess = nearest(&word, names)?;
            return attribute.keys.iter().find(|row| row.name == guess);
        }
    }
    None
}

fn expect_equals(row: &KeyRow, key: &Ident, input: ParseStream, example: &str) -> syn::Result<()> {
    if input.peek(Token![=]) {
        input.parse::<Token![=]>()?;
        if !input.is_empty() && !input.peek(Token![,]) {
            return Ok(());
        }
    }
    let name = row.name;
    Err(syn::Error::new(key.span(), format_args!("`{name}` needs a value: `{name} = {example}`")))
}

/// The style after `tp =`. An unknown one is reported, and read as its nearest neighbour.
fn style_of(
    cx: &Ctxt,
    axis: &Ident,
    styles: &'static [StyleRow],
    input: ParseStream,
) -> syn::Result<Option<&'static StyleRow>> {
    let names = styles.iter().map(|style| style.name);
    let (word, span) = match input.parse::<Lit>() {
        Ok(Lit::Str(quoted)) => (quoted.value(), quoted.span()),
        Ok(other) => (tokens::shown(&other), other.span()),
        Err(_) => {
            let bare = input.call(Ident::parse_any)?;
            let word = bare.to_string();
            if styles.iter().any(|style| style.name == word) {
                let message = format_args!("quote the style: `{axis} = \"{word}\"`").to_string();
                cx.error(bare.span(), message);
                return Ok(styles.iter().find(|style| style.name == word));
            }
            (word, bare.span())
        }
    };
    if let Some(style) = styles.iter().find(|style| style.name == word) {
        return Ok(Some(style));
    }
    let guess = nearest(&word, names.clone());
    cx.error(
        span,
        format_args!(
            "unknown style `{word}` for axis `{axis}`: expected {}{}",
            one_of(names.clone()),
            did_you_mean(&word, names)
        ),
    );
    Ok(styles.iter().find(|style| Some(style.name) == guess))
}

fn dim(key: &Ident, input: ParseStream) -> syn::Result<Path> {
    if input.peek(LitStr) {
        let quoted: LitStr = input.parse()?;
        return Err(unquote(&quoted, &format!("{key} = {}", quoted.value())));
    }
    input.parse().map_err(|error| {
        syn::Error::new(
            error.span(),
            format_args!("`{key}` takes a dim declared with `dims!`: `{key} = Seq`"),
        )
    })
}

fn unquote(quoted: &LitStr, fixed: &str) -> syn::Error {
    syn::Error::new(quoted.span(), format_args!("write it without quotes: `{fixed}`"))
}

fn config_key(key: &Ident, input: ParseStream) -> syn::Result<LitStr> {
    let wrong = |span: Span| {
        syn::Error::new(
            span,
            format_args!(
                "`{key}` takes a key of the configuration in quotes: `{key} = \"tie_word_embeddings\"`"
            ),
        )
    };
    let start = input.span();
    let literal: LitStr = input.parse().map_err(|_| wrong(start))?;
    if literal.value().trim().is_empty() { Err(wrong(start)) } else { Ok(literal) }
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

/// `#[name(..)]` as the author wrote it.
pub fn written(attr: &Attribute) -> String {
    tokens::shown(attr.to_token_stream())
}
