//! Table of all attributes, keys and values that the macros support.
//!
//! The parser, its suggestions and the book's attribute reference are derived from it.

pub use super::param_rows::{FROZEN, INIT, SHARED};
pub use super::rows::{AttributeRow, AxisRow, GroupingRow, KeyRow, Least, StyleRow, Value};

const TP_STYLES: &[StyleRow] = &[
    StyleRow {
        name: "col",
        runtime: "Col",
        sums: false,
        meaning: "splits the output dim; the input must be whole, the output is split",
    },
    StyleRow {
        name: "row",
        runtime: "Row",
        sums: true,
        meaning: "splits the input dim; the input must be split, the partial sums are reduced over the axis",
    },
    StyleRow {
        name: "vocab",
        runtime: "VocabSplit",
        sums: true,
        meaning: "splits the vocabulary; the partial results are reduced over the axis",
    },
];

const CP_STYLES: &[StyleRow] = &[
    StyleRow {
        name: "ring",
        runtime: "Ring",
        sums: false,
        meaning: "keys and values travel around a ring of ranks, overlapped with the attention to the keys of the \
                  previous hop",
    },
    StyleRow {
        name: "ulysses",
        runtime: "Ulysses",
        sums: false,
        meaning: "ranks exchange positions for heads by all-to-all; the number of heads must be divisible by the ranks",
    },
    StyleRow {
        name: "gather",
        runtime: "GatheredKeys",
        sums: false,
        meaning: "each rank gathers the keys and values of all ranks",
    },
    StyleRow {
        name: "hybrid",
        runtime: "Hybrid",
        sums: false,
        meaning: "ulysses among neighbors, and a ring among the ranks that have the same heads",
    },
];

const EP_STYLES: &[StyleRow] = &[StyleRow {
    name: "experts",
    runtime: "ByExpert",
    sums: false,
    meaning: "the ranks have different experts; rows are brought to them by `routing.dispatch(x, Ep)`",
}];

const CRATE: KeyRow = KeyRow {
    name: "crate",
    value: Value::Crate,
    meaning: "the path of the `meshwright` crate, if another crate re-exports it",
};

/// The attribute `#[model]`.
pub const MODEL: AttributeRow = AttributeRow {
    name: "model",
    on: "struct with named fields",
    meaning: "makes the struct a model: its fields are sharded, built and described as annotated",
    keys: &[CRATE],
};

/// The attribute `#[forward]`.
pub const FORWARD: AttributeRow = AttributeRow {
    name: "forward",
    on: "inherent `impl` block",
    meaning: "makes the block's `fn forward(&self, x: &In) -> Out` the model's forward function; without a body, it \
              runs the fields with `#[pipeline_stage]`",
    keys: &[CRATE],
};

/// The attribute `#[sharded(..)]`.
pub const SHARDED: AttributeRow = AttributeRow {
    name: "sharded",
    on: "field, struct (`fsdp` alone)",
    meaning: "shards the field over the mesh",
    keys: &[
        KeyRow {
            name: "tp",
            value: Value::Style { axis: "Tp", styles: TP_STYLES },
            meaning: "tensor parallelism",
        },
        KeyRow {
            name: "scatter",
            value: Value::Dim,
            meaning: "reduce-scatter the result of a `row` or `vocab` layer along this dim (sequence parallelism) \
                      instead of an all-reduce",
        },
        KeyRow {
            name: "fsdp",
            value: Value::Flag,
            meaning: "the parameters of the field form an FSDP unit: they are unsharded, reduced and updated together; \
                      on a struct: for every field of that type. By default each element of a `Stack` is a unit, and \
                      each field of the root model",
        },
        KeyRow {
            name: "cp",
            value: Value::Style { axis: "Cp", styles: CP_STYLES },
            meaning: "context parallelism, for an attention over a sequence declared `@ cp`",
        },
        KeyRow {
            name: "ep",
            value: Value::Style { axis: "Ep", styles: EP_STYLES },
            meaning: "expert parallelism",
        },
        KeyRow {
            name: "fold",
            value: Value::Axes,
            meaning: "also splits the experts of an `ep` layer over these axes, whose ranks have other tokens: `cp`, \
                      and `tp` for a stream that is split by `Split<Seq, Tp>`",
        },
        KeyRow {
            name: "dp",
            value: Value::Elsewhere("data parallelism needs no attribute: set `--mesh dp=N`"),
            meaning: "",
        },
        KeyRow {
            name: "pp",
            value: Value::Elsewhere(
                "put `#[pipeline_stage]` on the fields of the model; `--mesh pp=N` sets the number of pipeline ranks",
            ),
            meaning: "",
        },
    ],
};

/// The attribute `#[tied(..)]`.
pub const TIED: AttributeRow = AttributeRow {
    name: "tied",
    on: "field",
    meaning: "shares the weight of an earlier field: one parameter, two uses, one reduction",
    keys: &[
        KeyRow {
            name: "field.path",
            value: Value::FieldPath,
            meaning: "the weight to share, as a path from a field of this struct that is declared before this one",
        },
        KeyRow {
            name: "when",
            value: Value::ConfigKey,
            meaning: "tie only if this key of the model's configuration is true",
        },
    ],
};

/// The attribute `#[recompute(..)]`.
pub const RECOMPUTE: AttributeRow = AttributeRow {
    name: "recompute",
    on: "field",
    meaning: "activation checkpointing: saves only the input of the field for backward, which recomputes the rest; for \
              a `Stack`: the input of each layer",
    keys: &[
        KeyRow {
            name: "every",
            value: Value::Layers { words: GROUPINGS },
            meaning: "recomputes this many consecutive layers of a `Stack` together, and saves only the input of the \
                      first",
        },
        KeyRow {
            name: "save",
            value: Value::FieldPaths,
            meaning: "also saves the results of these fields of the model (for a `Stack`: of each layer), which are \
                      expensive to recompute or small",
        },
        KeyRow {
            name: "offload",
            value: Value::Flag,
            meaning: "offloads the saved tensors to host memory until backward needs them",
        },
    ],
};

/// The attribute `#[pipeline_stage]`.
pub const PIPELINE_STAGE: AttributeRow = AttributeRow {
    name: "pipeline_stage",
    on: "field, struct (without arguments)",
    meaning: "pipeline parallelism: the fields with it are what `forward` runs, in order, and may be on different \
              ranks; a `Stack` can be cut between any two layers. On a struct: checks that its input and output can \
              cross between stages",
    keys: &[
        KeyRow {
            name: "last",
            value: Value::Flag,
            meaning: "the field is used after all stages, by loss and logits only",
        },
        KeyRow {
            name: "cost",
            value: Value::Cost,
            meaning: "the field, or each layer of a `Stack`, costs as much as this many layers of the first `Stack`",
        },
    ],
};

const GROUPINGS: &[GroupingRow] = &[GroupingRow {
    name: "sqrt",
    runtime: "Sqrt",
    meaning: "recomputes `ceil(sqrt(L))` of `L` layers together",
}];

/// The attribute `#[mesh_test]`.
pub const MESH_TEST: AttributeRow = AttributeRow {
    name: "mesh_test",
    on: "function",
    meaning: "makes `fn name(rank: &Rank) -> Result<Observed>` a test that it observes the same numbers on every \
              mesh as on one rank; without meshes on `dp=2`, `fsdp=2`, `tp=2` and `fsdp=2,tp=2`",
    keys: &[
        KeyRow {
            name: "meshes",
            value: Value::Meshes,
            meaning: "the meshes that are compared with one rank",
        },
        CRATE,
    ],
};

/// The meshes of a test that names none: those on which every model runs.
pub const DEFAULT_MESHES: [&str; 4] = ["dp=2", "fsdp=2", "tp=2", "fsdp=2,tp=2"];

/// The axes of a mesh.
pub const MESH_AXES: [&str; 6] = ["pp", "dp", "fsdp", "ep", "cp", "tp"];

/// All attributes, in the order of the reference.
pub const ATTRIBUTES: &[AttributeRow] =
    &[MODEL, FORWARD, SHARDED, TIED, SHARED, FROZEN, INIT, RECOMPUTE, PIPELINE_STAGE, MESH_TEST];

/// The axes after `@` in `dims!`.
pub const AXES: &[AxisRow] = &[
    AxisRow {
        name: "data",
        home: "Data",
        meaning: "every data axis: `dp`, `fsdp` and `ep` together",
    },
    AxisRow { name: "dp", home: "Dp", meaning: "data parallelism with replicated parameters" },
    AxisRow { name: "fsdp", home: "Fsdp", meaning: "data parallelism with sharded parameters" },
    AxisRow { name: "ep", home: "Ep", meaning: "expert parallelism" },
    AxisRow { name: "cp", home: "Cp", meaning: "context parallelism" },
];

/// The attributes of fields.
pub fn field_attributes() -> impl Iterator<Item = &'static AttributeRow> {
    ATTRIBUTES.iter().filter(|row| row.on.starts_with("field"))
}
