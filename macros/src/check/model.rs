//! The rules of `#[model]`.

use syn::ext::IdentExt;
use syn::{Ident, ItemStruct, Type, WherePredicate};

use crate::attr::table;
use crate::diag::{Ctxt, nearest, one_of};
use crate::model::{Field, Model};
use crate::tokens::shown;

/// Checks a model against every rule. Invalid ties and recomputations are dropped, so that rustc does not report them
/// again.
pub fn check(cx: &Ctxt, model: &mut Model) {
    model_owns_its_parameters(cx, model);
    let (mut broken_ties, mut not_recomputed) = (Vec::new(), Vec::new());
    for (i, field) in model.fields.iter().enumerate() {
        attributes_are_not_conditional(cx, field);
        scatter_ends_a_sum(cx, field);
        unit_has_parameters(cx, field);
        tied_field_has_no_parameters(cx, field);
        if let Err(error) = type_parameter_can_be_recomputed(&model.item, field) {
            cx.push(error);
            not_recomputed.push(i);
        }
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
    for i in not_recomputed {
        model.fields[i].recompute = None;
    }
    model.stages_are_valid = super::stages::check(cx, model);
}

/// Checks that a model has no lifetime parameter: it owns its parameters for the whole run.
fn model_owns_its_parameters(cx: &Ctxt, model: &Model) {
    for lifetime in model.item.generics.lifetimes() {
        let name = &lifetime.lifetime;
        cx.error_at(
            lifetime,
            format_args!(
                "a model owns its parameters: remove the lifetime `{name}`, and own the borrowed values"
            ),
        );
    }
}

/// Checks that no attribute of this crate is inside `cfg_attr`, which is not resolved yet when `#[model]` runs.
fn attributes_are_not_conditional(cx: &Ctxt, field: &Field) {
    for attr in field.others.iter().filter(|attr| attr.path().is_ident("cfg_attr")) {
        let text = shown(attr);
        let mut ours = table::field_attributes().map(|row| row.name);
        if let Some(name) = ours.find(|name| text.contains(&format!(", {name}"))) {
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

/// Checks that `scatter` is on a layer that ends in a reduction.
fn scatter_ends_a_sum(cx: &Ctxt, field: &Field) {
    for cut in field.sharded.iter().flat_map(|sharded| &sharded.cuts) {
        let (Some(scatter), style) = (&cut.scatter, cut.style.value) else { continue };
        if style.sums {
            continue;
        }
        cx.error(
            scatter.key.span(),
            format_args!(
                "`scatter` requires `row` or `vocab`, which end in a sum; a `{}` layer leaves its output split: remove \
                 `scatter` from `{}`",
                style.name, field.name
            ),
        );
    }
}

/// Checks that a field with `fsdp` has parameters of its own: a tied weight belongs to the FSDP unit that declares it.
fn unit_has_parameters(cx: &Ctxt, field: &Field) {
    let fsdp = field.sharded.as_ref().and_then(|sharded| sharded.fsdp.as_ref());
    let (Some(fsdp), Some(tied)) = (fsdp, &field.tied) else { return };
    if tied.when.is_none() {
        let (name, owner) = (&field.name, &tied.path);
        cx.error(
            fsdp.span(),
            format_args!(
                "`{name}` has no parameters of its own: its weight belongs to `{owner}` and to the unit of `{owner}`; \
                 remove `fsdp` from `{name}`, or put it on `{}`",
                owner.first()
            ),
        );
    }
}

/// Checks that a field that is always tied has no attributes of parameters of its own.
fn tied_field_has_no_parameters(cx: &Ctxt, field: &Field) {
    let Some(tied) = &field.tied else { return };
    let (name, owner) = (&field.name, &tied.path);
    if let Some(shared) = &field.shared {
        cx.error_at(
            shared,
            format_args!(
                "`{name}` has the weight of `{owner}`, and cannot share another one among the layers of a stack: \
                 remove `#[shared]` or `#[tied(..)]`"
            ),
        );
    }
    if let (Some(init), None) = (&field.init, &tied.when) {
        cx.error_at(
            &init.attr,
            format_args!(
                "`{name}` has no parameters of its own: it begins as `{owner}`; remove `#[init(..)]`, or put it on \
                 `{}`",
                owner.first()
            ),
        );
    }
}

/// Checks that a type parameter with `#[recompute]` has a bound, without which each mention of the model would be an
/// error. The bound may be another trait with the supertrait `Recompute`.
fn type_parameter_can_be_recomputed(item: &ItemStruct, field: &Field) -> syn::Result<()> {
    let Some(recompute) = &field.recompute else { return Ok(()) };
    let mut params = item.generics.type_params();
    let Some(param) = params.find(|param| is_named(&field.ty, &param.ident)) else {
        return Ok(());
    };
    let mut predicates = item.generics.where_clause.iter().flat_map(|clause| &clause.predicates);
    let is_bounded = predicates.any(|predicate| match predicate {
        WherePredicate::Type(predicate) => is_named(&predicate.bounded_ty, &param.ident),
        _ => false,
    });
    if is_bounded || !param.bounds.is_empty() {
        return Ok(());
    }
    let (name, bound) = (&param.ident, recompute.bound());
    Err(syn::Error::new_spanned(
        &field.ty,
        format_args!(
            "`{name}` may be a layer that cannot be recomputed: declare `{name}: meshwright::nn::{bound}`"
        ),
    ))
}

/// Returns true if a type is the parameter `name`.
fn is_named(ty: &Type, name: &Ident) -> bool {
    matches!(ty, Type::Path(path) if path.qself.is_none() && path.path.is_ident(name))
}

/// Checks that a field is tied to an earlier field of the same struct, whose weight exists.
fn tie_points_to_an_earlier_field(fields: &[Field], i: usize) -> syn::Result<()> {
    let (field, Some(tied)) = (&fields[i], &fields[i].tied) else { return Ok(()) };
    let (name, target) = (field.name.unraw(), tied.path.first().unraw());
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
    Err(syn::Error::new(tied.path.span(), message))
}

/// A weight has one owner. Tying to a field that is tied itself would make the second tie conditional on
/// the first one's `when`.
fn tie_is_no_chain(fields: &[Field], field: &Field) -> syn::Result<()> {
    let Some(tied) = &field.tied else { return Ok(()) };
    let [target] = tied.path.fields() else { return Ok(()) };
    let Some(Field { tied: Some(tied), .. }) = fields.iter().find(|other| other.name == *target)
    else {
        return Ok(());
    };
    let (name, owner) = (&field.name, &tied.path);
    Err(syn::Error::new(
        target.span(),
        format_args!("`{target}` is tied to `{owner}` itself: tie `{name}` to `{owner}` too"),
    ))
}
