//! The rules of `#[forward]`.

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    GenericParam, Lifetime, PatType, ReceiverKind, ReturnType, Safety, Signature, Type,
    TypeImplTrait, TypeReference,
};

use crate::diag::Ctxt;
use crate::forward::{Forward, Types, inputs, shared_reference};
use crate::tokens::shown;

/// Checks a forward function against every rule.
pub fn check(cx: &Ctxt, forward: &Forward) {
    let signature = &forward.function.sig;
    forward_borrows_the_model(cx, signature);
    forward_takes_one_input_by_reference(cx, signature);
    forward_returns_something(cx, signature);
    forward_is_a_plain_function(cx, signature);
    forward_is_not_generic(cx, signature);
    if let Some(types) = &forward.types {
        in_and_out_are_owned(cx, types);
        in_and_out_are_named(cx, types);
    }
}

/// Checks that `forward` takes `&self`: one model serves many micro-batches.
fn forward_borrows_the_model(cx: &Ctxt, signature: &Signature) {
    let Some(receiver) = signature.receiver() else {
        cx.error_at(&signature.ident, "`forward` needs `&self` as its first parameter");
        return;
    };
    let message = match &receiver.kind {
        ReceiverKind::Reference(_, None, None) => return,
        // Reported by the rule on generics.
        ReceiverKind::Reference(_, Some(_), None)
            if signature.generics.lifetimes().next().is_some() =>
        {
            return;
        }
        ReceiverKind::Reference(_, _, Some(_)) => {
            "`forward` runs on a shared model: write `&self` (the optimizer changes parameters, not `forward`)"
        }
        ReceiverKind::Value => "`forward` is called many times on one model: write `&self`",
        _ => "write exactly `&self`",
    };
    cx.error_at(receiver, message);
}

/// Checks that `forward` has one input, passed by reference.
fn forward_takes_one_input_by_reference(cx: &Ctxt, signature: &Signature) {
    let params: Vec<&PatType> = inputs(signature).collect();
    let Some(first) = params.first() else {
        cx.error_at(
            &signature.ident,
            "`forward` takes one input by reference: `fn forward(&self, x: &In) -> Out`",
        );
        return;
    };
    if let Some(second) = params.get(1) {
        let names: Vec<_> = params.iter().map(|param| shown(&param.pat)).collect();
        let types: Vec<_> = params.iter().map(|param| shown(behind_reference(&param.ty))).collect();
        cx.error_at(
            second,
            format_args!(
                "`forward` takes one input; put several in a tuple: `({}): &({})`",
                names.join(", "),
                types.join(", ")
            ),
        );
    } else if shared_reference(&first.ty).is_none() {
        let (name, ty) = (shown(&first.pat), shown(behind_reference(&first.ty)));
        cx.error_at(
            &first.ty,
            format_args!("`forward` takes its input by shared reference: write `{name}: &{ty}`"),
        );
    }
}

fn behind_reference(ty: &Type) -> &Type {
    match ty {
        Type::Reference(reference) => &reference.elem,
        other => other,
    }
}

/// A module has an output, which is the input of the next one.
fn forward_returns_something(cx: &Ctxt, signature: &Signature) {
    if matches!(signature.output, ReturnType::Default) {
        cx.error_at(
            &signature.ident,
            "`forward` needs a return type: `fn forward(&self, x: &In) -> Out`",
        );
    }
}

/// Checks that `forward` is a plain function, neither `async` nor `unsafe`: the tape records it while it runs, on one
/// thread.
fn forward_is_a_plain_function(cx: &Ctxt, signature: &Signature) {
    let refuse = |word: &str, span: Span, why: &str| {
        cx.error(span, format_args!("`forward` cannot be `{word}`: {why}"));
    };
    if let Some(word) = &signature.asyncness {
        refuse(
            "async",
            word.span,
            "start collectives with their async forms and `.wait()` where needed",
        );
    }
    if let Some(word) = &signature.constness {
        refuse("const", word.span, "it runs on tensors, which exist at run time only");
    }
    if let Safety::Unsafe(word) = &signature.safety {
        refuse("unsafe", word.span, "the trainer calls it; put the unsafe block inside");
    }
    if let Some(abi) = &signature.abi {
        refuse("extern", abi.extern_token.span, "it is called from Rust only");
    }
}

/// A model has one input type and one output type; alternatives are type parameters of the model.
fn forward_is_not_generic(cx: &Ctxt, signature: &Signature) {
    let generics = &signature.generics;
    if let Some(first) = generics.params.first() {
        let fix = match first {
            GenericParam::Lifetime(_) => "remove the lifetimes",
            _ => "make it a parameter of the model and of this impl block",
        };
        cx.error_at(&generics.params, format_args!("`forward` cannot be generic: {fix}"));
    } else if let Some(clause) = &generics.where_clause {
        cx.error_at(clause, "`forward` cannot have a `where` clause: put it on the impl block");
    }
}

/// Checks that `In` and `Out` are owned: they become associated types, which cannot borrow from the call.
fn in_and_out_are_owned(cx: &Ctxt, types: &Types) {
    if let Some(span) = Finder::in_type(&types.output).borrow {
        cx.error(span, "`forward` must return an owned value, without `&` and lifetimes");
    }
    if let Some(span) = Finder::in_type(&types.input).borrow {
        cx.error(span, "behind its one `&`, the input of `forward` is owned: remove this borrow");
    }
}

/// Checks that `In` and `Out` are named types, as associated types require.
fn in_and_out_are_named(cx: &Ctxt, types: &Types) {
    for ty in [&types.input, &types.output] {
        if let Some(found) = Finder::in_type(ty).impl_trait {
            cx.error_at(
                found,
                "`forward` names its input and output types: write the type instead of `impl ..`",
            );
        }
    }
}

/// Finds parts of a type that an associated type cannot contain.
#[derive(Default)]
struct Finder<'a> {
    impl_trait: Option<&'a TypeImplTrait>,
    borrow: Option<Span>,
}

impl<'a> Finder<'a> {
    fn in_type(ty: &'a Type) -> Self {
        let mut finder = Self::default();
        finder.visit_type(ty);
        finder
    }
}

impl<'a> Visit<'a> for Finder<'a> {
    fn visit_type_impl_trait(&mut self, found: &'a TypeImplTrait) {
        self.impl_trait.get_or_insert(found);
    }

    fn visit_type_reference(&mut self, reference: &'a TypeReference) {
        if reference.lifetime.is_none() {
            self.borrow.get_or_insert(reference.and_token.span());
        }
        visit::visit_type_reference(self, reference);
    }

    fn visit_lifetime(&mut self, lifetime: &'a Lifetime) {
        if lifetime.ident == "_" {
            self.borrow.get_or_insert(lifetime.span());
        }
    }
}
