//! `#[recompute(..)]`.

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::parse::{ParseBuffer, ParseStream};
use syn::{Attribute, Ident, Lit, LitStr, Meta, Token, bracketed, token};

use super::args::{self, Args, Given, Keyed, Once, Shown};
use super::table::{self, GroupingRow, Value};
use super::{FieldPath, unquote};
use crate::diag::{Ctxt, nearest, one_of};
use crate::tokens::shown;

/// `#[recompute(every = 2, save = [attn.core], offload)]`.
pub struct Recompute {
    /// The attribute, for underlining.
    pub attr: Attribute,
    /// Number of layers per segment; only for stacks.
    pub every: Option<Keyed<Grouping>>,
    /// Fields whose results are saved.
    pub save: Option<Keyed<Vec<FieldPath>>>,
    /// The flag that offloads saved tensors to host memory.
    pub offload: Option<Ident>,
}

/// `2` or `"sqrt"`.
#[derive(Clone, Copy)]
pub enum Grouping {
    /// A number of layers.
    Every(usize),
    /// A named grouping.
    Named(&'static GroupingRow),
}

impl Recompute {
    /// Returns the trait that the type of the field must implement.
    pub fn bound(&self) -> &'static str {
        if self.every.is_some() { "RecomputeEvery" } else { "Recompute" }
    }

    /// Parses the attribute. Invalid arguments are reported and ignored.
    pub fn parse(cx: &Ctxt, attr: &Attribute) -> Self {
        let mut every = Once::default();
        let mut save = Once::default();
        let mut offload = Once::default();
        let args = match attr.meta {
            Meta::Path(_) => None,
            _ => Args::of(cx, &table::RECOMPUTE, attr, "every = 2"),
        };
        if let Some(args) = args {
            args.each(|args, key, input| {
                if args.is_foreign(&key) && input.peek(Token![.]) {
                    let (span, path) = (key.span(), FieldPath::parse_rest(key, input)?);
                    let message = format!("write what `{path}` is for: `save = [{path}]`");
                    return Err(syn::Error::new(span, message));
                }
                let Some(row) = args.row(&key) else { return args::skip(input) };
                match row.value {
                    Value::Layers { words } => {
                        args::equals(row, &key, input, "2")?;
                        if let Some(found) = grouping(cx, row.name, words, input)? {
                            every.set(args, key, found);
                        }
                    }
                    Value::FieldPaths => {
                        args::equals(row, &key, input, "[attn.core]")?;
                        let found = field_paths(cx, row.name, input)?;
                        save.set(args, key, found);
                    }
                    _ => {
                        args::alone(row, &key, input)?;
                        offload.set(args, key, Given);
                    }
                }
                Ok(())
            });
        }
        Self {
            attr: attr.clone(),
            every: every.value,
            save: save.value,
            offload: offload.value.map(|given| given.key),
        }
    }

    /// The paths of the fields whose results are saved.
    pub fn saved(&self) -> &[FieldPath] {
        self.save.as_ref().map_or(&[], |save| &save.value)
    }

    /// Formats the arguments: `every = 2, save = [attn.core], offload`.
    pub fn shown(&self) -> String {
        let every = self.every.as_ref().map(|every| format!("every = {}", every.value.shown()));
        let save = self.save.as_ref().map(|save| format!("save = {}", save.value.shown()));
        let offload = self.offload.as_ref().map(Ident::to_string);
        [every, save, offload].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// Parses the number or word after `every =`. An invalid one is reported, and replaced by the likely intention.
fn grouping(
    cx: &Ctxt,
    key: &str,
    words: &'static [GroupingRow],
    input: ParseStream,
) -> syn::Result<Option<Grouping>> {
    let named = |word: &str| words.iter().find(|row| row.name == word).map(Grouping::Named);
    let names = || words.iter().map(|row| row.name);
    let unknown = |text: &str, span: Span| {
        let close = nearest(text.trim_matches('"'), names());
        let hint = close.map(|close| format!("; did you mean `\"{close}\"`?")).unwrap_or_default();
        let quoted: Vec<String> = names().map(|name| format!("\"{name}\"")).collect();
        let words = one_of(quoted.iter().map(String::as_str));
        cx.error(
            span,
            format_args!("`{key} = {text}` is not a number of layers, nor {words}{hint}"),
        );
        close.and_then(named)
    };
    match input.parse::<Lit>() {
        Ok(Lit::Int(number)) => match number.base10_parse() {
            Ok(0) => {
                cx.error(
                    number.span(),
                    format_args!(
                        "`{key} = 0`: a segment has at least one layer; omit `{key}` for segments of one layer"
                    ),
                );
                Ok(None)
            }
            Ok(layers) => Ok(Some(Grouping::Every(layers))),
            Err(_) => Ok(unknown(number.base10_digits(), number.span())),
        },
        Ok(Lit::Str(quoted)) => {
            let word = quoted.value();
            if let Ok(layers) = word.parse()
                && layers > 0
            {
                cx.push(unquote(&quoted, &format!("{key} = {layers}")));
                return Ok(Some(Grouping::Every(layers)));
            }
            Ok(named(&word).or_else(|| unknown(&shown(&quoted), quoted.span())))
        }
        Ok(other) => Ok(unknown(&shown(&other), other.span())),
        Err(_) => {
            let bare = input.call(Ident::parse_any)?;
            let word = bare.to_string();
            if named(&word).is_some() {
                cx.error(bare.span(), format_args!("quote the word: `{key} = \"{word}\"`"));
                return Ok(named(&word));
            }
            Ok(unknown(&word, bare.span()))
        }
    }
}

/// Parses the list after `save =`.
fn field_paths(cx: &Ctxt, key: &str, input: ParseStream) -> syn::Result<Vec<FieldPath>> {
    if !input.peek(token::Bracket) {
        let start = input.span();
        let tokens = args::take_to_comma(input);
        let text = shown(tokens).replace('"', "");
        let message =
            format_args!("`{key}` takes a list of fields: `{key} = [{text}]`").to_string();
        return Err(syn::Error::new(start, message));
    }
    let list: ParseBuffer;
    let brackets = bracketed!(list in input);
    let mut paths: Vec<FieldPath> = Vec::new();
    let n_errors = cx.n_errors();
    while !list.is_empty() {
        match path_in_list(&list, &paths) {
            Ok(path) => paths.push(path),
            Err(error) => {
                cx.push(error);
                args::skip_to_comma(&list);
            }
        }
        list.parse::<Option<Token![,]>>()?;
    }
    if paths.is_empty() && cx.n_errors() == n_errors {
        let message = format_args!(
            "`{key} = []` names nothing: list the fields whose results are kept, as in `{key} = [attn.core]`, \
             or remove it"
        );
        return Err(syn::Error::new(brackets.span.join(), message));
    }
    Ok(paths)
}

fn path_in_list(list: ParseStream, before: &[FieldPath]) -> syn::Result<FieldPath> {
    if list.peek(LitStr) {
        let quoted: LitStr = list.parse()?;
        return Err(unquote(&quoted, &format!("save = [{}]", quoted.value())));
    }
    let first = list.call(Ident::parse_any).map_err(|error| {
        syn::Error::new(error.span(), "`save` lists fields by name: `save = [attn.core]`")
    })?;
    let path = FieldPath::parse_rest(first, list)?;
    if !list.is_empty() && !list.peek(Token![,]) {
        return Err(list.error("expected `,` before this"));
    }
    for other in before {
        if path.is_in(other) {
            let message = if path.dotted() == other.dotted() {
                format!("`{path}` is given twice in `save`: keep one")
            } else {
                format!("`{path}` is in `{other}`, which is already saved: keep one")
            };
            return Err(syn::Error::new(path.span(), message));
        }
        if other.is_in(&path) {
            let message =
                format!("`{other}` before this is in `{path}`, so it is saved twice: keep one");
            return Err(syn::Error::new(path.span(), message));
        }
    }
    Ok(path)
}

impl Shown for Grouping {
    fn shown(&self) -> String {
        match self {
            Grouping::Every(layers) => layers.to_string(),
            Grouping::Named(row) => format!("{:?}", row.name),
        }
    }
}

impl Shown for Vec<FieldPath> {
    fn shown(&self) -> String {
        let paths: Vec<String> = self.iter().map(FieldPath::dotted).collect();
        format!("[{}]", paths.join(", "))
    }
}
