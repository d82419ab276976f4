//! `#[init]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::parse::{ParseBuffer, ParseStream};
use syn::{Attribute, Ident, Lit, Token, parenthesized, token};

use super::args::{self, Args};
use super::table::{self, KeyRow, Least, Value};
use crate::diag::Ctxt;
use crate::tokens::shown;

/// `#[init(normal(0.02), bias = zeros)]`.
pub struct InitialValues {
    /// The attribute, for underlining.
    pub attr: Attribute,
    /// The initial values of all parameters, if they are given, and of parameters by name.
    pub values: Vec<NamedInit>,
}

/// Initial values of all parameters of a field, or of those of a name.
pub struct NamedInit {
    pub param: Option<Ident>,
    /// The variant of the runtime's `Init`; `None` for `scaled`.
    pub variant: Option<&'static str>,
    /// The number in its parentheses.
    pub number: Option<TokenStream>,
}

impl InitialValues {
    /// Parses the attribute; `None` if it has no arguments. Invalid arguments are reported and ignored.
    pub fn parse(cx: &Ctxt, attr: &Attribute) -> Option<Self> {
        let n_errors = cx.n_errors();
        let mut values: Vec<NamedInit> = Vec::new();
        Args::of(cx, &table::INIT, attr, "zeros")?.each(|args, key, input| {
            let is_named = input.peek(Token![=]);
            let (param, word) = if is_named {
                input.parse::<Token![=]>()?;
                let word = input.call(Ident::parse_any).map_err(|_| {
                    let message = format!("`{key}` takes initial values: `{key} = zeros`");
                    syn::Error::new(key.span(), message)
                })?;
                (Some(key.clone()), word)
            } else if input.peek(Token![.]) {
                let message = format!(
                    "a parameter is named alone, as in `bias = zeros`; put `#[init]` on the field inside `{key}`"
                );
                return Err(syn::Error::new(key.span(), message));
            } else {
                (None, key.clone())
            };
            let Some(row) = args.row(&word) else { return args::skip(input) };
            let Value::Initial { variant, number } = row.value else {
                let message = "write a name and its initial values: `bias = zeros`";
                return Err(syn::Error::new(word.span(), message));
            };
            let number = match number {
                Some(least) => Some(number_of(row, &word, least, input)?),
                None => {
                    no_number(row, &word, input)?;
                    None
                }
            };
            let is_same = |other: &&NamedInit| other.param == param;
            if values.iter().any(|other| is_same(&other)) {
                let message = match &param {
                    Some(param) => format!("`{param}` is given twice in `#[init(..)]`: keep one"),
                    None => "`#[init]` gives all parameters one kind of initial values, and this is the second: keep \
                             one, or name a parameter, as in `bias = zeros`"
                        .to_owned(),
                };
                return Err(syn::Error::new(key.span(), message));
            }
            values.push(NamedInit { param, variant, number });
            Ok(())
        });
        if values.is_empty() && cx.n_errors() == n_errors {
            cx.error_at(
                attr,
                "`#[init]` needs initial values: `#[init(zeros)]`, `#[init(normal(0.02))]`",
            );
        }
        // The values of all parameters come first: those by name replace them.
        values.sort_by_key(|value| value.param.is_some());
        Some(Self { attr: attr.clone(), values })
    }

    /// Formats the arguments.
    pub fn shown(&self) -> String {
        match &self.attr.meta {
            syn::Meta::List(list) => shown(&list.tokens).replace("- ", "-"),
            _ => String::new(),
        }
    }
}

/// Checks that initial values without a number have none.
fn no_number(row: &KeyRow, word: &Ident, input: ParseStream) -> syn::Result<()> {
    if input.is_empty() || input.peek(Token![,]) {
        return Ok(());
    }
    let name = row.name;
    Err(syn::Error::new(
        word.span(),
        format_args!("`{name}` takes no number: write `{name}` alone"),
    ))
}

/// Parses the number of initial values: `(0.02)`.
fn number_of(
    row: &KeyRow,
    word: &Ident,
    least: Least,
    input: ParseStream,
) -> syn::Result<TokenStream> {
    let name = row.name;
    let example = format!("`{name}(0.02)`");
    if !input.peek(token::Paren) {
        let message = format!("`{name}` takes a number: {example}");
        return Err(syn::Error::new(word.span(), message));
    }
    let inside: ParseBuffer;
    parenthesized!(inside in input);
    let place = inside.span();
    let text = inside.to_string().replace("- ", "-");
    let is_negative = inside.parse::<Option<Token![-]>>()?.is_some();
    let size: Option<f32> = match inside.parse::<Option<Lit>>() {
        Ok(Some(Lit::Float(number))) => number.base10_parse().ok(),
        Ok(Some(Lit::Int(number))) => number.base10_parse().ok(),
        _ => None,
    };
    let Some(size) = size.filter(|_| inside.is_empty()) else {
        while !inside.is_empty() {
            args::skip_token(&inside);
        }
        let message = format!(
            "`{name}` takes a number, as in {example}; one that the program computes is set by \
             `Sizes::with_init(\"field\", ..)`"
        );
        return Err(syn::Error::new(place, message));
    };
    let problem = match least {
        _ if !size.is_finite() => Some("too large for an f32".to_owned()),
        Least::Zero(what) if is_negative && size != 0.0 => {
            Some(format!("not {what}, which is at least 0"))
        }
        _ => None,
    };
    if let Some(problem) = problem {
        return Err(syn::Error::new(place, format_args!("{text} is {problem}: write {example}")));
    }
    Ok(if is_negative { quote!(-#size) } else { quote!(#size) })
}
