//! Tests of the macros' own diagnostics against `tests/mistakes/*.txt`: items, with the underline and message below
//! each line. Run with `BLESS=1` to rewrite the messages.

use std::fs;
use std::path::Path;

use proc_macro2::TokenStream;

use crate::attr::table;
use crate::diag::Ctxt;
use crate::entry;
use crate::snapshots::check_or_bless;

#[test]
fn in_dims() {
    check("dims", crate::dims::dims);
}

#[test]
fn in_model() {
    check("model", |cx, item| entry::model_code(cx, TokenStream::new(), item));
}

#[test]
fn in_derive() {
    check("derive", entry::derive_model_code);
}

#[test]
fn derived_model_gets_stand_ins() {
    let derived = |item: &str| entry::derive_model(item.parse().expect("tokens")).to_string();
    let code = derived("struct M<T: Dim, const N: usize> where T: Clone { a: Stack<T, N> }");
    for part in ["Build", "Model", "Recompute"] {
        assert!(code.contains(&format!("{part} for M < T , N > where T : Clone")), "{code}");
    }
    assert!(!code.contains("struct M"), "{code}");
    assert!(!derived("#[model] struct M { a: L }").contains("impl"));
}

#[test]
fn attributes_of_fields_are_declared() {
    let names: Vec<&str> = table::field_attributes().map(|row| row.name).collect();
    let derive = format!("attributes({})", names.join(", "));
    let macros = format!("of_model! {{ {} }}", names.join(" "));
    for declared in [derive, macros] {
        assert!(include_str!("lib.rs").contains(&declared), "{declared}");
    }
}

#[test]
fn in_forward() {
    check("forward", |cx, item| entry::forward_code(cx, TokenStream::new(), item));
}

#[test]
fn in_arguments() {
    check("arguments", |cx, args| {
        let item = "impl M { fn forward(&self, x: &X) -> Y { y } }".parse().expect("tokens");
        entry::forward_code(cx, args, item)
    });
}

#[test]
fn in_mesh_test() {
    check("mesh_test", |cx, item| entry::mesh_test_code(cx, TokenStream::new(), item));
}

#[test]
fn in_arguments_of_mesh_test() {
    check("mesh_test_arguments", |cx, args| {
        let item =
            "fn loop_of_mine(rank: &Rank) -> Result<Observed> { x }".parse().expect("tokens");
        entry::mesh_test_code(cx, args, item)
    });
}

fn check(file: &str, expand: impl Fn(&Ctxt, TokenStream) -> TokenStream) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/mistakes/{file}.txt"));
    let committed = fs::read_to_string(&path).expect("the cases");
    let cases: Vec<String> = committed.split("\n\n").map(|case| annotated(case, &expand)).collect();
    check_or_bless(&path, &(cases.join("\n\n") + "\n"));
}

/// Returns a case annotated with its current messages.
fn annotated(case: &str, expand: &impl Fn(&Ctxt, TokenStream) -> TokenStream) -> String {
    let is_source = |line: &&str| !line.trim_start().starts_with('^');
    let lines: Vec<&str> = case.trim_end().lines().filter(is_source).collect();
    let cx = Ctxt::new();
    let code = expand(&cx, lines.join("\n").parse().expect("a case is made of tokens"));
    let left = syn::parse2::<syn::File>(code);
    assert!(left.is_ok(), "this does not leave valid Rust: {case}\n{:?}", left.err());
    let errors = cx.take();
    let mut text = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        text.push(line.to_string());
        for error in &errors {
            let (start, end) = (error.span().start(), error.span().end());
            if start.line == i + 1 {
                let last = if end.line == start.line { end.column } else { line.len() };
                let underline = "^".repeat((last - start.column).max(1));
                text.push(format!("{:start$}{underline} {error}", "", start = start.column));
            }
        }
    }
    text.join("\n")
}
