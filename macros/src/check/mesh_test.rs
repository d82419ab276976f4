//! The rules of `#[mesh_test]`.

use syn::spanned::Spanned;
use syn::{FnArg, ReturnType, Safety};

use crate::diag::Ctxt;
use crate::forward::shared_reference;
use crate::mesh_test::MeshTest;

/// The signature that the function needs.
const SIGNATURE: &str = "fn name(rank: &Rank) -> Result<Observed>";

/// Checks a test against every rule.
pub fn check(cx: &Ctxt, test: &MeshTest) {
    let signature = &test.function.sig;
    it_takes_a_rank(cx, test);
    if matches!(signature.output, ReturnType::Default) {
        let message = format!("a mesh test returns what it has observed: `{SIGNATURE}`");
        cx.error_at(&signature.ident, message);
    }
    it_is_a_plain_function(cx, test);
    it_is_the_only_test(cx, test);
}

/// Checks that the function has one parameter: it runs on each rank of each mesh.
fn it_takes_a_rank(cx: &Ctxt, test: &MeshTest) {
    let signature = &test.function.sig;
    let message =
        format!("a mesh test takes the rank that it runs on, and nothing else: `{SIGNATURE}`");
    let mut inputs = signature.inputs.iter();
    match inputs.next() {
        None => cx.error_at(&signature.ident, &message),
        Some(FnArg::Typed(rank)) if shared_reference(&rank.ty).is_some() => {}
        Some(other) => cx.error_at(other, &message),
    }
    if let Some(second) = inputs.next() {
        cx.error_at(second, &message);
    }
}

/// Checks that the function can be called with a rank alone.
fn it_is_a_plain_function(cx: &Ctxt, test: &MeshTest) {
    let signature = &test.function.sig;
    let words = [
        signature.asyncness.as_ref().map(|word| ("async", word.span)),
        signature.constness.as_ref().map(|word| ("const", word.span)),
        match &signature.safety {
            Safety::Unsafe(word) => Some(("unsafe", word.span)),
            _ => None,
        },
        signature.abi.as_ref().map(|abi| ("extern", abi.extern_token.span)),
    ];
    for (word, span) in words.into_iter().flatten() {
        cx.error(span, format_args!("a mesh test cannot be `{word}`: remove the word"));
    }
    if !signature.generics.params.is_empty() {
        let message = "a mesh test cannot be generic: call a generic function in it";
        cx.error_at(&signature.generics.params, message);
    } else if let Some(clause) = &signature.generics.where_clause {
        cx.error_at(clause, "a mesh test cannot have a `where` clause: remove it");
    }
}

/// Checks that no other attribute makes the function a test, which would be called without a rank.
fn it_is_the_only_test(cx: &Ctxt, test: &MeshTest) {
    let is_test = |path: &syn::Path| path.segments.last().is_some_and(|last| last.ident == "test");
    for attr in test.function.attrs.iter().filter(|attr| is_test(attr.path())) {
        cx.error(attr.span(), "`#[mesh_test]` makes the function a test: remove this attribute");
    }
}
