//! The rows of the attributes about the parameters inside a field.

use super::rows::{AttributeRow, KeyRow, Least, Value};

/// The attribute `#[frozen]`.
pub const FROZEN: AttributeRow = AttributeRow {
    name: "frozen",
    on: "field",
    meaning: "the parameters inside the field are not trained: they have no gradient and no optimizer state, and are \
              part of neither norm nor average; checkpoints and exports hold them",
    keys: &[],
};

/// The attribute `#[init(..)]`.
pub const INIT: AttributeRow = AttributeRow {
    name: "init",
    on: "field",
    meaning: "sets the initial values of the parameters inside the field, in place of those of their layers; \
              `Sizes::with_init` sets them from a configuration",
    keys: &[
        KeyRow {
            name: "zeros",
            value: Value::Initial { variant: Some("Zeros"), number: None },
            meaning: "all zeros",
        },
        KeyRow {
            name: "ones",
            value: Value::Initial { variant: Some("Ones"), number: None },
            meaning: "all ones",
        },
        KeyRow {
            name: "constant",
            value: Value::Initial { variant: Some("Constant"), number: Some(Least::Any) },
            meaning: "all the same number",
        },
        KeyRow {
            name: "normal",
            value: Value::Initial {
                variant: Some("Normal"),
                number: Some(Least::Zero("a standard deviation")),
            },
            meaning: "normally distributed around zero with this standard deviation",
        },
        KeyRow {
            name: "uniform",
            value: Value::Initial {
                variant: Some("Uniform"),
                number: Some(Least::Zero("a bound")),
            },
            meaning: "uniformly distributed between the negative of this number and the number",
        },
        KeyRow {
            name: "scaled",
            value: Value::Initial { variant: None, number: None },
            meaning: "normally distributed with the standard deviation `Sizes::init_std / sqrt(2 Layers)`, for the \
                      last weights of the two branches of a residual layer",
        },
        KeyRow {
            name: "bias = zeros",
            value: Value::OfParameter,
            meaning: "initial values of the parameters of this name only",
        },
    ],
};

/// The attribute `#[shared]`.
pub const SHARED: AttributeRow = AttributeRow {
    name: "shared",
    on: "field",
    meaning: "all layers of the `Stack` around the field use the parameters of the first layer that has it",
    keys: &[],
};
