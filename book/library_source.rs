//! Parts of the library's source: doc comments, and code as text.

use quote::ToTokens;
use syn::parse::{Parse, ParseStream};
use syn::{
    Attribute, Expr, ExprLit, GenericParam, Generics, Ident, ItemImpl, Lit, Meta, Token, Type,
    UseTree, Visibility,
};

/// The functions in the body of the macro `elementwise`.
pub struct Elementwise(pub Vec<(Ident, Docs)>);

impl Parse for Elementwise {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut functions = Vec::new();
        while !input.is_empty() {
            let docs = Docs::of(&Attribute::parse_outer(input)?);
            let name: Ident = input.parse()?;
            input.parse::<Token![=>]>()?;
            input.parse::<Ident>()?;
            input.parse::<Token![;]>()?;
            functions.push((name, docs));
        }
        Ok(Elementwise(functions))
    }
}

/// Parts of a doc comment.
pub struct Docs {
    pub first_sentence: String,
    /// The paragraph that begins with `Shape:`.
    pub shape: Option<String>,
}

impl Docs {
    pub fn of(attributes: &[Attribute]) -> Docs {
        let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
            Meta::NameValue(meta) if meta.path.is_ident("doc") => match &meta.value {
                Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
                _ => None,
            },
            _ => None,
        });
        let lines: Vec<String> = lines.map(|text| text.trim().to_owned()).collect();
        let paragraphs: Vec<String> =
            lines.split(String::is_empty).map(|lines| lines.join(" ")).collect();
        let shape = paragraphs.iter().find_map(|text| text.strip_prefix("Shape: "));
        let shape = shape.map(|text| table_cell(text.trim_end_matches('.')));
        let first = paragraphs.first().map_or("", String::as_str);
        let begins = |c: char| c.is_uppercase() || c == '`' || c == '[';
        let end = first.match_indices(". ").find(|(at, _)| first[at + 2..].starts_with(begins));
        let first = end.map_or(first, |(at, _)| &first[..at]);
        Docs { first_sentence: table_cell(first.trim_end_matches(['.', ':'])), shape }
    }
}

/// Names that a `use` re-exports.
pub fn add_names(tree: &UseTree, names: &mut Vec<String>) {
    match tree {
        UseTree::Path(path) => add_names(&path.tree, names),
        UseTree::Group(group) => group.items.iter().for_each(|tree| add_names(tree, names)),
        UseTree::Name(name) => names.push(name.ident.to_string()),
        UseTree::Rename(_) | UseTree::Glob(_) => panic!("`nn::layers` lists names"),
    }
}

/// Returns the type parameters that a program writes: annotations write the style.
pub fn parameters(generics: &Generics) -> String {
    let with_default = |name: &Ident, default: Option<String>| match default {
        Some(default) => format!("{name} = {default}"),
        None => name.to_string(),
    };
    let name = |param: &GenericParam| match param {
        GenericParam::Type(param) if param.ident != "Style" => Some(with_default(
            &param.ident,
            param.default.as_ref().map(|(_, default)| code(default)),
        )),
        GenericParam::Const(param) => {
            let default = param.default.as_ref().map(|(_, default)| code(default));
            Some(with_default(&param.ident, default))
        }
        _ => None,
    };
    let params: Vec<String> = generics.params.iter().filter_map(name).collect();
    if params.is_empty() { String::new() } else { format!("<{}>", params.join(", ")) }
}

/// Returns the name of the type that has the impl.
pub fn self_type(item: &ItemImpl) -> String {
    match &*item.self_ty {
        Type::Path(path) => path.path.segments.last().unwrap().ident.to_string(),
        _ => String::new(),
    }
}

pub fn implements_build(item: &ItemImpl) -> bool {
    item.trait_.as_ref().is_some_and(|(path, ..)| code(path).ends_with("Build"))
}

pub fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

pub fn is_hidden(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| code(attribute).contains("(hidden)"))
}

/// Returns the code of a part of a source, spaced as in rustfmt for types and paths.
pub fn code(tokens: impl ToTokens) -> String {
    let mut text = tokens.to_token_stream().to_string();
    for mark in ["::", "<", "(", "[", "&"] {
        text = text.replace(&format!("{mark} "), mark);
    }
    for mark in ["::", "<", ">", ")", "]", ",", "(", "["] {
        text = text.replace(&format!(" {mark}"), mark);
    }
    text
}

/// Returns a sentence of a doc comment without links, for a cell of a table.
pub fn table_cell(text: &str) -> String {
    let mut cell = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        let (before, name) = before.rsplit_once('[').expect("a link begins");
        cell.extend([before, name]);
        rest = after.split_once(')').expect("a link ends").1;
    }
    (cell + rest).replace("[`", "`").replace("`]", "`").replace('|', "\\|")
}
