//! `#[pipeline_stage]`.

use proc_macro2::Span;
use syn::parse::ParseStream;
use syn::{Attribute, Expr, ExprLit, Lit, Meta};

use super::args::{self, Args, Given, Once, Shown};
use super::table::{self, Value};
use crate::diag::Ctxt;
use crate::tokens::{ends, shown};

/// `#[pipeline_stage(last, cost = 1.5)]`.
pub struct PipelineStage {
    /// The attribute, for underlining.
    pub attr: Attribute,
    /// True if the field is used after all stages.
    pub last: bool,
    /// The cost of the field, or of each layer of a stack, relative to a layer of the first stack.
    pub cost: Option<f64>,
    /// False if the arguments have errors.
    pub is_valid: bool,
}

impl PipelineStage {
    /// Parses the attribute. Invalid arguments are reported and ignored.
    pub fn parse(cx: &Ctxt, attr: &Attribute) -> Self {
        let n_errors = cx.n_errors();
        let mut last = Once::default();
        let mut cost = Once::default();
        let args = match attr.meta {
            Meta::Path(_) => None,
            _ => Args::of(cx, &table::PIPELINE_STAGE, attr, "last"),
        };
        if let Some(args) = args {
            args.each(|args, key, input| {
                let Some(row) = args.row(&key) else { return args::skip(input) };
                if let Value::Cost = row.value {
                    args::equals(row, &key, input, "1.5")?;
                    if let Some(found) = positive_number(cx, row.name, input)? {
                        cost.set(args, key, found);
                    }
                } else {
                    args::alone(row, &key, input)?;
                    last.set(args, key, Given);
                }
                Ok(())
            });
        }
        Self {
            attr: attr.clone(),
            last: last.value.is_some(),
            cost: cost.value.map(|cost| cost.value),
            is_valid: cx.n_errors() == n_errors,
        }
    }
}

/// Parses the number after `cost =`. One that is not positive is reported.
fn positive_number(cx: &Ctxt, key: &str, input: ParseStream) -> syn::Result<Option<f64>> {
    let refuse = |text: &str, span: Span| {
        cx.error(
            span,
            format_args!(
                "`{key} = {text}` is not a cost: write a number above 0, where a layer of the first `Stack` costs 1"
            ),
        );
        None
    };
    let value: Expr = input.parse()?;
    let text = shown(&value).replace(" - ", "-");
    let (start, _) = ends(&value);
    let number = match &value {
        Expr::Lit(ExprLit { lit: Lit::Float(number), .. }) => number.base10_parse().ok(),
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => number.base10_parse().ok(),
        _ => None,
    };
    let is_cost = |number: &f64| number.is_finite() && *number > 0.0;
    Ok(number.filter(is_cost).or_else(|| refuse(&text, start)))
}

impl Shown for f64 {
    fn shown(&self) -> String {
        self.to_string()
    }
}
