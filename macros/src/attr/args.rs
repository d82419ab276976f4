//! Parser of attribute arguments, `key = value, key = value`, driven by the table of keys.

use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, Expr, Ident, Lit, Meta, MetaNameValue, Token, token};

use super::table::{AttributeRow, KeyRow, Value};
use crate::diag::{Ctxt, expected, nearest, one_of};
use crate::tokens::shown;

/// The arguments of one attribute.
pub struct Args<'a> {
    cx: &'a Ctxt,
    attribute: &'static AttributeRow,
    tokens: TokenStream,
}

/// A value with its key.
pub struct Keyed<T> {
    pub key: Ident,
    pub value: T,
}

/// A value that may be given at most once.
pub struct Once<T> {
    pub value: Option<Keyed<T>>,
}

/// A value that can be printed as source text.
pub trait Shown {
    /// Formats the text after `=`; empty for a flag.
    fn shown(&self) -> String;
}

/// The value of a flag.
pub struct Given;

impl Shown for Given {
    fn shown(&self) -> String {
        String::new()
    }
}

impl<'a> Args<'a> {
    /// Creates arguments from tokens.
    pub fn new(cx: &'a Ctxt, attribute: &'static AttributeRow, tokens: TokenStream) -> Self {
        Self { cx, attribute, tokens }
    }

    /// Returns the arguments in the parentheses of `attr`; reports an error and returns `None` if there are none.
    pub fn of(
        cx: &'a Ctxt,
        attribute: &'static AttributeRow,
        attr: &Attribute,
        example: &str,
    ) -> Option<Self> {
        if let Meta::List(list) = &attr.meta {
            return Some(Self::new(cx, attribute, list.tokens.clone()));
        }
        let name = attribute.name;
        let given = match &attr.meta {
            Meta::NameValue(MetaNameValue { value: Expr::Lit(value), .. }) => {
                argument(attribute, &value.lit, true)
            }
            _ => None,
        };
        let example = given.as_deref().unwrap_or(example);
        cx.error_at(attr, format_args!("write `#[{name}({example})]`"));
        None
    }

    /// Calls `each` for every key, to parse its value. After a mistake, parsing continues after the next comma.
    pub fn each(self, mut each: impl FnMut(&Self, Ident, ParseStream) -> syn::Result<()>) {
        let parser = |input: ParseStream| {
            let mut is_first = true;
            while !input.is_empty() {
                let key = self.key(input, is_first);
                is_first = false;
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

    /// Parses the key of an argument. The error for a value without a key suggests the key, if it can be inferred.
    fn key(&self, input: ParseStream, is_first: bool) -> syn::Result<Ident> {
        let (name, start) = (self.attribute.name, input.span());
        if input.peek(Lit) {
            let value: Lit = input.parse()?;
            let text = shown(&value);
            let message = match argument(self.attribute, &value, is_first) {
                Some(path) if self.takes_path() && is_path(&path) => {
                    format!("the path is written without quotes: `#[{name}({path})]`")
                }
                Some(word) if text.trim_matches('"') == word => {
                    format!("write it without quotes: `{word}`")
                }
                Some(argument) => format!("write what {text} is for: `{argument}`"),
                None => {
                    format!(
                        "{text} is not an argument of `#[{name}(..)]`: expected {}",
                        self.expected()
                    )
                }
            };
            return Err(syn::Error::new(start, message));
        }
        let lists = |row: &&KeyRow| matches!(row.value, Value::FieldPaths | Value::Meshes);
        if input.peek(token::Bracket)
            && let Some(row) = self.attribute.keys.iter().find(lists)
        {
            let list = shown(input.parse::<TokenTree>()?);
            let is_of_fields = matches!(row.value, Value::FieldPaths);
            let list = if is_of_fields { list.replace('"', "") } else { list };
            let message = format!("write what the list is for: `{} = {list}`", row.name);
            return Err(syn::Error::new(start, message));
        }
        input.call(Ident::parse_any)
    }

    /// Returns true if the attribute takes a field path without a key.
    fn takes_path(&self) -> bool {
        self.attribute.keys.iter().any(|row| matches!(row.value, Value::FieldPath))
    }

    /// Describes the tokens that an argument may begin with.
    fn expected(&self) -> String {
        let path = self.takes_path().then_some("embed.tokens");
        one_of(path.into_iter().chain(self.names()))
    }

    /// Returns true if `key` is neither a key of the attribute nor similar to one.
    pub fn is_foreign(&self, key: &Ident) -> bool {
        let (word, keys) = (key.unraw().to_string(), self.attribute.keys);
        !keys.iter().any(|row| row.name == word) && nearest(&word, self.names()).is_none()
    }

    /// The keys that this version supports.
    fn names(&self) -> Vec<&'static str> {
        let usable = |row: &&KeyRow| {
            !matches!(row.value, Value::Elsewhere(_) | Value::FieldPath | Value::OfParameter)
        };
        self.attribute.keys.iter().filter(usable).map(|row| row.name).collect()
    }

    /// Returns the table's row for `key`. An unknown key is reported, and replaced by its nearest neighbor.
    pub fn row(&self, key: &Ident) -> Option<&'static KeyRow> {
        let Self { cx, attribute, .. } = self;
        let (name, names, word) = (attribute.name, self.names(), key.unraw().to_string());
        let row_of = |word: &str| attribute.keys.iter().find(|row| row.name == word);
        let message = match row_of(&word).map(|row| row.value) {
            Some(Value::Elsewhere(hint)) => format!("`{word}` is not for `#[{name}]`: {hint}"),
            Some(_) => return row_of(&word),
            None if let Some(argument) = named_value(attribute, &word) => {
                format!("write what `{word}` is for: `{argument}`")
            }
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

/// Infers the argument from a value without a key.
fn argument(attribute: &AttributeRow, value: &Lit, is_first: bool) -> Option<String> {
    let text = match value {
        Lit::Str(quoted) => quoted.value(),
        Lit::Int(_) | Lit::Float(_) => {
            let counts = |row: &&KeyRow| match row.value {
                Value::Layers { .. } => matches!(value, Lit::Int(_)),
                Value::Cost => true,
                _ => false,
            };
            let row = attribute.keys.iter().find(counts)?;
            return Some(format!("{} = {}", row.name, shown(value)));
        }
        _ => return None,
    };
    let path = text.replace("::", ".");
    let by_kind = |row: &KeyRow| match row.value {
        Value::FieldPath if is_first && is_path(&path) => Some(path.clone()),
        Value::FieldPaths if is_path(&path) => Some(format!("{} = [{path}]", row.name)),
        Value::Dim if is_path(&path) && text.starts_with(char::is_uppercase) => {
            Some(format!("{} = {text}", row.name))
        }
        Value::ConfigKey => Some(format!("{} = {text:?}", row.name)),
        Value::Crate if is_path(&path) => Some(format!("{} = {text}", row.name)),
        _ => None,
    };
    named_value(attribute, &text).or_else(|| attribute.keys.iter().find_map(by_kind))
}

/// Finds the argument with the value or flag `word`.
fn named_value(attribute: &AttributeRow, word: &str) -> Option<String> {
    let named = |row: &KeyRow| match row.value {
        Value::Style { styles, .. } => styles
            .iter()
            .any(|style| style.name == word)
            .then(|| format!("{} = {word:?}", row.name)),
        Value::Layers { words } => {
            words.iter().any(|row| row.name == word).then(|| format!("{} = {word:?}", row.name))
        }
        Value::Flag => (row.name == word).then(|| word.to_owned()),
        _ => None,
    };
    attribute.keys.iter().find_map(named)
}

/// Returns true if `text` is a path of fields: `embed.tokens`.
pub fn is_path(text: &str) -> bool {
    text.split('.').all(|field| syn::parse_str::<Ident>(field).is_ok())
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self { value: None }
    }
}

impl<T: Shown> Once<T> {
    /// Sets the value; a duplicate is reported at its key.
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

/// Parses the `=` between a key and its value.
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

/// Checks that a flag has no value.
pub fn alone(row: &KeyRow, key: &Ident, input: ParseStream) -> syn::Result<()> {
    if input.is_empty() || input.peek(Token![,]) {
        return Ok(());
    }
    let name = row.name;
    Err(syn::Error::new(key.span(), format_args!("`{name}` takes no value: write `{name}` alone")))
}

/// Skips the rest of an argument that was already reported.
pub fn skip(input: ParseStream) -> syn::Result<()> {
    skip_to_comma(input);
    Ok(())
}

/// Skips tokens up to the next comma.
pub fn skip_to_comma(input: ParseStream) {
    take_to_comma(input);
}

/// Reads tokens up to the next comma.
pub fn take_to_comma(input: ParseStream) -> TokenStream {
    let mut taken = TokenStream::new();
    while !input.is_empty() && !input.peek(Token![,]) {
        taken.extend(input.parse::<TokenTree>());
    }
    taken
}

/// Skips all tokens.
pub fn skip_all(input: ParseStream) {
    while !input.is_empty() {
        skip_token(input);
    }
}

/// Skips one token, if there is one.
pub fn skip_token(input: ParseStream) {
    let _: syn::Result<TokenTree> = input.parse();
}
