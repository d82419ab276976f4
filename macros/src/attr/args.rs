//! The arguments of an attribute, `key = value, key = value`, against the table of what may stand there.

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

    /// Hands every key to `each`, which parses its value. After a mistake it goes on behind the next comma.
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

    /// The word at the beginning of an argument. A value in its place is an error that says the key, if it can be known.
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
                        "{text} is no argument of `#[{name}(..)]`: expected {}",
                        self.expected()
                    )
                }
            };
            return Err(syn::Error::new(start, message));
        }
        let lists = |row: &&KeyRow| matches!(row.value, Value::FieldPaths);
        if input.peek(token::Bracket)
            && let Some(row) = self.attribute.keys.iter().find(lists)
        {
            let list = shown(input.parse::<TokenTree>()?).replace('"', "");
            let message = format!("write what the list is for: `{} = {list}`", row.name);
            return Err(syn::Error::new(start, message));
        }
        input.call(Ident::parse_any)
    }

    /// Whether a path of fields stands without a key.
    fn takes_path(&self) -> bool {
        self.attribute.keys.iter().any(|row| matches!(row.value, Value::FieldPath))
    }

    /// What an argument may begin with.
    fn expected(&self) -> String {
        let path = self.takes_path().then_some("embed.tokens");
        one_of(path.into_iter().chain(self.names()))
    }

    /// Whether `key` is none of the attribute's keys, nor like one.
    pub fn is_foreign(&self, key: &Ident) -> bool {
        let (word, keys) = (key.unraw().to_string(), self.attribute.keys);
        !keys.iter().any(|row| row.name == word) && nearest(&word, self.names()).is_none()
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

/// The argument that was meant by a value without a key, if that can be known.
fn argument(attribute: &AttributeRow, value: &Lit, is_first: bool) -> Option<String> {
    let text = match value {
        Lit::Str(quoted) => quoted.value(),
        Lit::Int(_) => {
            let counts = |row: &&KeyRow| matches!(row.value, Value::Layers { .. });
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

/// The argument whose value, or flag, is `word`.
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

/// Whether a text is a path of fields: `embed.tokens`.
pub fn is_path(text: &str) -> bool {
    text.split('.').all(|field| syn::parse_str::<Ident>(field).is_ok())
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
