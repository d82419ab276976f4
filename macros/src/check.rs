//! The rules. One function for each, the rule stated above it.
//!
//! A rule looks at one item only. What depends on other items (whether a type is a layer, whether a
//! shape fits) is a trait bound in the expansion, judged by rustc.

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    GenericParam, Lifetime, PatType, ReceiverKind, ReturnType, Safety, Signature, Type,
    TypeImplTrait, TypeReference,
};

use crate::attr::Tied;
use crate::diag::{Ctxt, nearest, one_of};
use crate::model::{Field, Forward, Model, Types, inputs, shared_reference};
use crate::tokens::shown;

/// Checks a model against every rule. Ties that lead nowhere are dropped, so that rustc does not report
/// them once more.
pub fn model(cx: &Ctxt, model: &mut Model) {
    model_owns_its_parameters(cx, model);
    let mut broken_ties = Vec::new();
    for (i, field) in model.fields.iter().enumerate() {
        attributes_are_not_conditional(cx, field);
        scatter_ends_a_sum(cx, field);
        let tie = tie_points_to_an_earlier_field(&model.fields, i)
            .and_then(|()| tie_is_no_chain(&model.fields, field));
        if let Err(error) = tie {
            cx.push(error);
            broken_ties.push(i);
        }
    }
    for i in broken_ties {
        model.fields[i].tied = None;
    }
}

/// Checks a forward function against every rule.
pub fn forward(cx: &Ctxt, forward: &Forward) {
    let signature = &forward.function().sig;
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

/// A model lives as long as the training run and owns its parameters, so it borrows nothing.
fn model_owns_its_parameters(cx: &Ctxt, model: &Model) {
    for lifetime in model.item.generics.lifetimes() {
        let name = &lifetime.lifetime;
        cx.error_at(
            lifetime,
            format_args!(
                "a model owns its parameters: remove the lifetime `{name}`, and own what it borrows"
            ),
        );
    }
}

/// `#[model]` sees attributes before `cfg_attr` is resolved, so it would miss ours in there.
fn attributes_are_not_conditional(cx: &Ctxt, field: &Field) {
    for attr in field.others.iter().filter(|attr| attr.path().is_ident("cfg_attr")) {
        let text = shown(attr);
        if let Some(name) =
            ["sharded", "tied"].into_iter().find(|name| text.contains(&format!("{name}(")))
        {
            let field = &field.name;
            cx.error_at(
                attr,
                format_args!(
                    "`{name}` in `cfg_attr` is not seen by `#[model]`: write the field `{field}` twice, once \
                     for each `#[cfg(..)]`"
                ),
            );
        }
    }
}

/// `scatter` says where the sum at the end of a layer goes. A layer without a sum has nothing to scatter.
fn scatter_ends_a_sum(cx: &Ctxt, field: &Field) {
    let Some(sharded) = &field.sharded else { return };
    let (Some(scatter), style) = (&sharded.scatter, sharded.style.value) else { return };
    if !style.sums {
        cx.error(
            scatter.key.span(),
            format_args!(
                "`scatter` goes with `row` or `vocab`, which end in a sum; a `{}` layer leaves its output \
                 split: remove `scatter` from `{}`",
                style.name, field.name
            ),
        );
    }
}

/// A field is tied to a field of the same struct that is built before it, so that its weight exists.
fn tie_points_to_an_earlier_field(fields: &[Field], i: usize) -> syn::Result<()> {
    let (field, Some(tied)) = (&fields[i], &fields[i].tied) else { return Ok(()) };
    let (name, target) = (field.name.unraw(), tied.path[0].unraw());
    let later = || fields[i + 1..].iter().any(|other| other.name.unraw() == target);
    if fields[..i].iter().any(|other| other.name.unraw() == target) {
        return Ok(());
    }
    let message = if name == target {
        format!("`{name}` cannot be tied to itself: name the earlier field whose weight it shares")
    } else if later() {
        format!(
            "`{name}` is tied to `{target}`, which is declared after it: declare `{target}` first, or put \
             `#[tied({name}..)]` on `{target}` instead"
        )
    } else {
        let earlier: Vec<String> =
            fields[..i].iter().map(|other| other.name.unraw().to_string()).collect();
        let earlier = || earlier.iter().map(String::as_str);
        match nearest(&target.to_string(), earlier()) {
            Some(close) => format!("no field `{target}` before `{name}`; did you mean `{close}`?"),
            None if i == 0 => {
                format!("no field `{target}` before `{name}`, which is the first field")
            }
            None => format!("no field `{target}` before `{name}`: expected {}", one_of(earlier())),
        }
    };
    Err(syn::Error::new(tied.path[0].span(), message))
}

/// A weight has one owner. Tying to a field that is tied itself would make the second tie conditional on
/// the first one's `when`.
fn tie_is_no_chain(fields: &[Field], field: &Field) -> syn::Result<()> {
    let Some(Tied { path, .. }) = &field.tied else { return Ok(()) };
    let [target] = path.as_slice() else { return Ok(()) };
    let Some(Field { tied: Some(tied), .. }) = fields.iter().find(|other| other.name == *target)
    else {
        return Ok(());
    };
    let (name, owner) = (&field.name, tied.dotted_path());
    Err(syn::Error::new(
        target.span(),
        format_args!("`{target}` is tied to `{owner}` itself: tie `{name}` to `{owner}` too"),
    ))
}

/// One model serves many micro-batches, so `forward` borrows it shared.
fn forward_borrows_the_model(cx: &Ctxt, signature: &Signature) {
    let Some(receiver) = signature.receiver() else {
        cx.error_at(&signature.ident, "`forward` needs `&self` as its first parameter");
        return;
    };
    let message = match &receiver.kind {
        ReceiverKind::Reference(_, None, None) => return,
        // Reported as generic.
        ReceiverKind::Reference(_, Some(_), None)
            if signature.generics.lifetimes().next().is_some() =>
        {
            return;
        }
        ReceiverKind::Reference(_, _, Some(_)) => {
            "`forward` runs on a shared model: write `&self` (the optimizer changes parameters, not `forward`)"
        }
        ReceiverKind::Value => "`forward` runs again and again on one model: write `&self`",
        _ => "write `&self`, in just this form",
    };
    cx.error_at(receiver, message);
}

/// What flows between modules is one value, borrowed by those who use it.
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

/// A module's output feeds the next one.
fn forward_returns_something(cx: &Ctxt, signature: &Signature) {
    if matches!(signature.output, ReturnType::Default) {
        cx.error_at(
            &signature.ident,
            "`forward` has to say what it returns: `fn forward(&self, x: &In) -> Out`",
        );
    }
}

/// The tape records `forward` as it runs, from beginning to end on one thread: no `async`, nothing the
/// caller has to promise.
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

/// `In` and `Out` become associated types, which cannot borrow from the call.
fn in_and_out_are_owned(cx: &Ctxt, types: &Types) {
    if let Some(span) = Finder::in_type(&types.output).borrow {
        cx.error(
            span,
            "`forward` returns what it made: return an owned value, without `&` and lifetimes",
        );
    }
    if let Some(span) = Finder::in_type(&types.input).borrow {
        cx.error(span, "behind its one `&`, the input of `forward` is owned: remove this borrow");
    }
}

/// Associated types have names.
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

/// Finds what an associated type cannot hold.
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
