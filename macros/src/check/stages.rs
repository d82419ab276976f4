//! The rules of `#[pipeline_stage]`.

use syn::ext::IdentExt;

use crate::diag::Ctxt;
use crate::model::{Field, Model};
use crate::tokens::shown;

/// Checks the pipeline stages of a model against every rule; returns true if they and their arguments are valid.
pub fn check(cx: &Ctxt, model: &Model) -> bool {
    let n_errors = cx.n_errors();
    checked_struct_is_concrete(cx, model);
    if model.fields.iter().any(|field| field.stage.is_some()) {
        model_is_concrete(cx, model);
        every_field_belongs_to_a_stage(cx, model);
        last_fields_follow_the_stages(cx, model);
    }
    let mut stages = model.fields.iter().filter_map(|field| field.stage.as_ref());
    let is_complete = !model.fields.iter().any(is_conditional);
    cx.n_errors() == n_errors && is_complete && stages.all(|stage| stage.is_valid)
}

/// Checks that a model with stages has no type parameters: boundaries are checked by their types.
fn model_is_concrete(cx: &Ctxt, model: &Model) {
    let generics = &model.item.generics;
    if generics.type_params().next().is_some() || generics.const_params().next().is_some() {
        cx.error_at(
            &generics.params,
            "a model with pipeline stages has no type parameters: write the types that it is trained with",
        );
    }
}

/// Checks the same for `#[pipeline_stage]` on the struct.
fn checked_struct_is_concrete(cx: &Ctxt, model: &Model) {
    let generics = &model.item.generics;
    let is_generic =
        generics.type_params().next().is_some() || generics.const_params().next().is_some();
    if let (true, Some(attr)) = (is_generic, &model.stage_check) {
        cx.error_at(
            attr,
            "`#[pipeline_stage]` checks the types of `forward`, which the type parameters leave open: remove it \
             here; the field of a stage is checked anyway",
        );
    }
}

/// Checks that every field belongs to a stage: `forward` runs the fields of the chain only.
fn every_field_belongs_to_a_stage(cx: &Ctxt, model: &Model) {
    if !model.fields.iter().any(is_stage) {
        return;
    }
    let name = &model.item.ident;
    let is_missing = |field: &&Field| field.stage.is_none() && !is_conditional(field);
    for field in model.fields.iter().filter(is_missing) {
        cx.in_field(&field.name, || {
            cx.error_at(
                &field.name,
                format_args!(
                    "belongs to no pipeline stage, but other fields of `{name}` do: put `#[pipeline_stage]` on it \
                     if it runs between its neighbors, `#[pipeline_stage(last)]` if only loss and logits use it, \
                     or move it into the model of a stage"
                ),
            );
        });
    }
}

/// Checks that fields with `last` follow the stages of the chain.
fn last_fields_follow_the_stages(cx: &Ctxt, model: &Model) {
    let last_fields = model.fields.iter().enumerate().filter_map(|(i, field)| match &field.stage {
        Some(stage) if stage.last => Some((i, field, stage)),
        _ => None,
    });
    let last_stage = model.fields.iter().rposition(is_stage);
    for (i, field, stage) in last_fields {
        let Some(last_stage) = last_stage else {
            cx.in_field(&field.name, || {
                cx.error_at(
                    &stage.attr,
                    "`#[pipeline_stage(last)]` alone makes no pipeline: put `#[pipeline_stage]` on the fields that \
                     `forward` runs",
                );
            });
            return;
        };
        if i < last_stage {
            let last_stage = model.fields[last_stage].name.unraw();
            cx.in_field(&field.name, || {
                cx.error_at(
                    &stage.attr,
                    format_args!(
                        "is used after all stages: declare it after `{last_stage}`, the last of them"
                    ),
                );
            });
        }
    }
}

/// Returns true if the attribute is in `cfg_attr`, which is reported elsewhere.
fn is_conditional(field: &Field) -> bool {
    let mut others = field.others.iter().filter(|attr| attr.path().is_ident("cfg_attr"));
    others.any(|attr| shown(attr).contains(", pipeline_stage"))
}

fn is_stage(field: &Field) -> bool {
    field.stage.as_ref().is_some_and(|stage| !stage.last)
}
