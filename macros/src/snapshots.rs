//! Snapshot tests: the expansion of every `tests/snapshots/*.rs` is committed as `*.expanded.rs` in the same folder.
//!
//! Run with `BLESS=1` to rewrite them. `tests/expansions.rs` compiles both.

use std::fs;
use std::path::Path;

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Attribute, Item, Meta};

use crate::entry;

#[test]
fn expansions_are_as_committed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots");
    let mut n_cases = 0;
    for entry in fs::read_dir(&folder).expect("the folder of snapshots") {
        let path = entry.expect("a file").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if !name.ends_with(".rs") || name.ends_with(".expanded.rs") {
            continue;
        }
        n_cases += 1;
        let source = fs::read_to_string(&path).expect("a readable case");
        let expanded = expand_file(&source);
        check_or_bless(&path.with_extension("expanded.rs"), &expanded);
    }
    assert!(n_cases >= 3, "the cases were not found");
}

/// Compares a committed file with the text that it should hold; with `BLESS=1` writes it instead.
pub fn check_or_bless(path: &Path, wanted: &str) {
    if std::env::var_os("BLESS").is_some() {
        fs::write(path, wanted).expect("the file is written");
        return;
    }
    let committed = fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == wanted,
        "{} is out of date; run the tests with BLESS=1 and look at the difference\n{wanted}",
        path.display()
    );
}

/// Expands our macros in a file, in place.
fn expand_file(source: &str) -> String {
    let file = syn::parse_file(source).expect("a case is valid Rust");
    let items: TokenStream = file.items.into_iter().map(expand_item).collect();
    let file = syn::parse2(items).expect("an expansion is valid Rust");
    prettyplease::unparse(&file)
}

fn expand_item(item: Item) -> TokenStream {
    match item {
        Item::Macro(call) if call.mac.path.is_ident("dims") => entry::dims(call.mac.tokens),
        Item::Struct(mut item) => match take(&mut item.attrs, "model") {
            Some(args) => entry::model(args, item.to_token_stream()),
            None => quote!(#item),
        },
        Item::Enum(mut item) => match take(&mut item.attrs, "model") {
            Some(args) => entry::model(args, item.to_token_stream()),
            None => quote!(#item),
        },
        Item::Impl(mut item) => match take(&mut item.attrs, "forward") {
            Some(args) => entry::forward(args, item.to_token_stream()),
            None => quote!(#item),
        },
        Item::Fn(mut item) => match take(&mut item.attrs, "mesh_test") {
            Some(args) => entry::mesh_test(args, item.to_token_stream()),
            None => quote!(#item),
        },
        other => quote!(#other),
    }
}

/// Removes an attribute and returns the tokens of its parentheses.
fn take(attrs: &mut Vec<Attribute>, name: &str) -> Option<TokenStream> {
    let i = attrs.iter().position(|attr| attr.path().is_ident(name))?;
    match attrs.remove(i).meta {
        Meta::List(list) => Some(list.tokens),
        _ => Some(TokenStream::new()),
    }
}
