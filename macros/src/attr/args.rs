//! The arguments of an attribute, `key = value, key = value`, against the table of what may stand there.

use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, Ident, Lit, Meta, Token};

use super::table::{AttributeRow, KeyRow, Value};
use crate::diag::{Ctxt, expected, nearest, one_of};
use crate::tokens::shown;

/// The arguments of one attribute.
pub struct Args<'a> {
    cx: &'a Ctxt,
    attribute: &'static AttributeRow,
    tokens: TokenStream,
}

/// A value and the key it was given to.
pub struct Keyed<T> {
    pub key: Ident,
    pub value: T,
}

/// A place for a value that may be given once.
pub struct Once<T> {
    pub value: Option<Keyed<T>>,
}

/// A value as the author would write it.
pub trait Shown {
    /// The text behind `=`; empty for a word that stands alone.
    fn shown(&self) -> String;
}

/// The value of a word that stands alone.
pub struct Given;

impl Shown for Given {
    fn shown(&self) -> String {
        String::new()
    }
}

impl<'a> Args<'a> {
    /// Arguments that are tokens already.
    pub fn new(cx: &'a Ctxt, attribute: &'static AttributeRow, tokens: TokenStream) -> Self {
        Self { cx, attribute, tokens }
    }

    /// The tokens in the parentheses of `attr`; `None`, and an error, if it has none.
    pub fn of(
        cx: &'a Ctxt,
        attribute: &'static AttributeRow,
        attr: &Attribute,
        example: &str,
    ) -> Option<Self> {
        let Meta::List(list) = &attr.meta else {
            let name = attribute.name;
            cx.error_at(attr, format_args!("write `#[{name}({example})]`"));
            return None;
        };
        Some(Self::new(cx, attribute, list.tokens.clone()))
    }

    /// Hands every key to `each`, which parses its value. After a mistake it goes on behind the next comma.
    pub fn each(self, mut each: impl FnMut(&Self, Ident, ParseStream) -> syn::Result<()>) {
        let parser = |input: ParseStream| {
            while !input.is_empty() {
                let key = self.key(input);
                let parsed = key.and_then(|key| each(&self, key, input)).and_then(|()| {
                    let ended = input.is_empty() || input.peek(Token![,]);
                    if ended { Ok(()) } else { Err(input.error("expected `,` before this")) }
                });
                if let Err(error) = parsed {
                    self.cx.push(error);
                    skip_to_comma(input);
                }
                input.parse::<Option<Token![,]>>()?;
            }
            Ok(())
        };
        if let Err(error) = parser.parse2(self.tokens.clone()) {
            self.cx.push(error);
        }
    }

    fn key(&self, input: ParseStream) -> syn::Result<Ident> {
        if input.peek(Lit) {
            let value: Lit = input.parse()?;
            let text = shown(&value);
            let key = self.names().first().copied().unwrap_or("key");
            let message = format_args!("write what {text} is for: `{key} = {text}`").to_string();
            return Err(syn::Error::new(value.span(), message));
        }
        input.call(Ident::parse_any)
    }

    /// The words that may be used as keys in this version.
    fn names(&self) -> Vec<&'static str> {
        let usable = |row: &&KeyRow| {
            !matches!(row.value, Value::Later(_) | Value::Elsewhere(_) | Value::FieldPath)
        };
        self.attribute.keys.iter().filter(usable).map(|row| row.name).collect()
    }

    /// The table's row for `key`. A word that is not in it is reported, and read as its nearest neighbour.
    pub fn row(&self, key: &Ident) -> Option<&'static KeyRow> {
        let Self { cx, attribute, .. } = self;
        let (name, names, word) = (attribute.name, self.names(), key.unraw().to_string());
        let row_of = |word: &str| attribute.keys.iter().find(|row| row.name == word);
        let message = match row_of(&word).map(|row| row.value) {
            Some(Value::Later(what)) => format!(
                "`{word}` ({what}) comes in a later version; in this one `#[{name}]` takes {}",
                one_of(names.iter().copied())
            ),
            Some(Value::Elsewhere(hint)) => format!("`{word}` is not for `#[{name}]`: {hint}"),
            Some(_) => return row_of(&word),
            None => {
                let is_axis = |row: &KeyRow| matches!(row.value, Value::Style { .. });
                let kind =
                    if attribute.keys.iter().any(is_axis) { "axis or option" } else { "option" };
                let expected = expected(&word, &names);
                cx.error(
                    key.span(),
                    format_args!("unknown {kind} `{word}` in `#[{name}(..)]`: {expected}"),
                );
                return nearest(&word, names).and_then(row_of);
            }
        };
        cx.error(key.span(), message);
        None
    }
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self { value: None }
    }
}

impl<T: Shown> Once<T> {
    /// Keeps the first value; a second one is reported where it stands.
    pub fn set(&mut self, args: &Args<'_>, key: Ident, value: T) {
        let Some(first) = &self.value else {
            self.value = Some(Keyed { key, value });
            return;
        };
        let (name, word) = (args.attribute.name, &first.key);
        let first = match first.value.shown() {
            alone if alone.is_empty() => alone,
            value => format!("; the first is `{word} = {value}`"),
        };
        args.cx.error(
            key.span(),
            format_args!("`{word}` is given twice in `#[{name}(..)]`{first}: keep one"),
        );
    }
}

/// Takes the `=` between a key and its value.
pub fn equals(row: &KeyRow, key: &Ident, input: ParseStream, example: &str) -> syn::Result<()> {
    if input.peek(Token![=]) {
        input.parse::<Token![=]>()?;
        if !input.is_empty() && !input.peek(Token![,]) {
            return Ok(());
        }
    }
    let name = row.name;
    Err(syn::Error::new(key.span(), format_args!("`{name}` needs a value: `{name} = {example}`")))
}

/// Makes sure that nothing stands behind a word.
pub fn alone(row: &KeyRow, key: &Ident, input: ParseStream) -> syn::Result<()> {
    if input.is_empty() || input.peek(Token![,]) {
        return Ok(());
    }
    let name = row.name;
    Err(syn::Error::new(key.span(), format_args!("`{name}` takes no value: write `{name}` alone")))
}

/// Drops the rest of an argument that was reported already.
pub fn skip(input: ParseStream) -> syn::Result<()> {
    skip_to_comma(input);
    Ok(())
}

/// Drops tokens up to the next comma.
pub fn skip_to_comma(input: ParseStream) {
    take_to_comma(input);
}

/// Takes tokens up to the next comma.
pub fn take_to_comma(input: ParseStream) -> TokenStream {
    let mut taken = TokenStream::new();
    while !input.is_empty() && !input.peek(Token![,]) {
        taken.extend(input.parse::<TokenTree>());
    }
    taken
}

/// Drops a token, if there is one.
pub fn skip_token(input: ParseStream) {
    let _: syn::Result<TokenTree> = input.parse();
}
