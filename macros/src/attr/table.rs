//! Every word the macros understand, in one table.
//!
//! Parsing, suggestions and the book's attribute reference are all made from it.

#![cfg_attr(not(test), expect(dead_code, reason = "some sentences are for the reference only"))]

/// One attribute of ours.
pub struct AttributeRow {
    /// The word in `#[word(..)]`.
    pub name: &'static str,
    /// What it may stand on.
    pub on: &'static str,
    /// A sentence for the reference.
    pub meaning: &'static str,
    /// Whether this version has it.
    pub since: Since,
    /// What may stand in its parentheses.
    pub keys: &'static [KeyRow],
}

/// `key` or `key = value` in an attribute's parentheses.
pub struct KeyRow {
    /// The word before `=`.
    pub name: &'static str,
    /// What stands after it.
    pub value: Value,
    /// A sentence for the reference.
    pub meaning: &'static str,
}

/// Whether a word can be used already.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// It works.
    Now,
    /// It is a word of a later version, and refused as such.
    Later,
}

/// What a key is given.
#[derive(Clone, Copy)]
pub enum Value {
    /// `tp = "col"`: how the layer is cut along a mesh axis.
    Style { axis: &'static str, styles: &'static [StyleRow] },
    /// `scatter = Seq`: a dim.
    Dim,
    /// `embed.tokens`: fields of the struct. The key itself is the value.
    FieldPath,
    /// `when = "tie_word_embeddings"`: a key of the model's configuration.
    ConfigKey,
    /// `every = 2`, `every = "sqrt"`: a number of layers, or a word.
    Layers { words: &'static [GroupingRow] },
    /// `save = [attn.core, mlp.down]`: fields of a layer.
    FieldPaths,
    /// A word that says something by itself.
    Flag,
    /// `crate = some::path`.
    Crate,
    /// A word of a later version; what it will do.
    Later(&'static str),
    /// An axis of the mesh that is not an attribute's business; where it is set instead.
    Elsewhere(&'static str),
}

/// A way to group layers that has a name.
pub struct GroupingRow {
    /// The word in quotes.
    pub name: &'static str,
    /// The variant of the runtime's type that stands for it.
    pub runtime: &'static str,
    /// A sentence for the reference.
    pub meaning: &'static str,
}

/// How a layer is cut along an axis.
pub struct StyleRow {
    /// The word in quotes.
    pub name: &'static str,
    /// The type of the runtime that stands for it.
    pub runtime: &'static str,
    /// Whether the layer ends in a sum over the axis, which `scatter` can end scattered.
    pub sums: bool,
    /// A sentence for the reference.
    pub meaning: &'static str,
}

/// An axis that `dims!` accepts after `@`.
pub struct AxisRow {
    /// The word after `@`.
    pub name: &'static str,
    /// The runtime's type for it.
    pub home: &'static str,
    /// A sentence for the reference.
    pub meaning: &'static str,
}

const TP_STYLES: &[StyleRow] = &[
    StyleRow {
        name: "col",
        runtime: "Col",
        sums: false,
        meaning: "cuts the output dim; the input must be whole, the output leaves split",
    },
    StyleRow {
        name: "row",
        runtime: "Row",
        sums: true,
        meaning: "cuts the input dim; the input must be split, the outputs are summed over the axis",
    },
    StyleRow {
        name: "vocab",
        runtime: "VocabSplit",
        sums: true,
        meaning: "cuts the vocabulary; what the ranks find is summed over the axis",
    },
];

const CRATE: KeyRow = KeyRow {
    name: "crate",
    value: Value::Crate,
    meaning: "the path of the `meshwright` crate, if another crate re-exports it",
};

/// `#[model]`.
pub const MODEL: AttributeRow = AttributeRow {
    name: "model",
    on: "struct with named fields",
    meaning: "makes the struct a model: shards its fields, builds it, describes it",
    since: Since::Now,
    keys: &[CRATE],
};

/// `#[forward]`.
pub const FORWARD: AttributeRow = AttributeRow {
    name: "forward",
    on: "inherent `impl` block",
    meaning: "makes the block's `fn forward(&self, x: &In) -> Out` the model's forward function",
    since: Since::Now,
    keys: &[CRATE],
};

/// `#[sharded(..)]`.
pub const SHARDED: AttributeRow = AttributeRow {
    name: "sharded",
    on: "field, struct (`fsdp` alone)",
    meaning: "says how the field is sharded over the mesh",
    since: Since::Now,
    keys: &[
        KeyRow {
            name: "tp",
            value: Value::Style { axis: "Tp", styles: TP_STYLES },
            meaning: "tensor parallelism",
        },
        KeyRow {
            name: "scatter",
            value: Value::Dim,
            meaning: "end the sum of a `row` or `vocab` layer split along this dim (sequence parallelism) instead of whole",
        },
        KeyRow {
            name: "fsdp",
            value: Value::Flag,
            meaning: "the parameters of the field are a unit of their own: gathered, reduced and updated together; on a struct: of every field with it as its type. By default each element of a `Stack` is a unit, and each field of the whole model",
        },
        KeyRow { name: "cp", value: Value::Later("context-parallel attention"), meaning: "" },
        KeyRow { name: "ep", value: Value::Later("expert parallelism"), meaning: "" },
        KeyRow {
            name: "dp",
            value: Value::Elsewhere("data parallelism needs no attribute: set `--mesh dp=N`"),
            meaning: "",
        },
        KeyRow {
            name: "pp",
            value: Value::Elsewhere(
                "pipeline stages are cut by their own attribute, which is not in this version yet",
            ),
            meaning: "",
        },
    ],
};

/// `#[tied(..)]`.
pub const TIED: AttributeRow = AttributeRow {
    name: "tied",
    on: "field",
    meaning: "uses the weight of an earlier field: one parameter, two uses, one reduction",
    since: Since::Now,
    keys: &[
        KeyRow {
            name: "field.path",
            value: Value::FieldPath,
            meaning: "the weight to share, from this struct's fields on; the first field must be declared before this one",
        },
        KeyRow {
            name: "when",
            value: Value::ConfigKey,
            meaning: "tie only if this key of the model's configuration is true",
        },
    ],
};

/// `#[recompute(..)]`.
pub const RECOMPUTE: AttributeRow = AttributeRow {
    name: "recompute",
    on: "field",
    meaning: "keeps only what enters the field for the backward pass, which computes the rest once more; of a `Stack`: what enters each layer",
    since: Since::Now,
    keys: &[
        KeyRow {
            name: "every",
            value: Value::Layers { words: GROUPINGS },
            meaning: "that many consecutive layers of a `Stack` are recomputed together, and only what enters the first of them is kept",
        },
        KeyRow {
            name: "save",
            value: Value::FieldPaths,
            meaning: "keeps the results of these fields of the model (of a `Stack`: of each layer), too, as they are long to compute or small",
        },
        KeyRow {
            name: "offload",
            value: Value::Flag,
            meaning: "moves what is kept to host memory until backward needs it",
        },
    ],
};

const GROUPINGS: &[GroupingRow] = &[GroupingRow {
    name: "sqrt",
    runtime: "Sqrt",
    meaning: "of `L` layers, each `ceil(sqrt(L))` are recomputed together",
}];

const fn later(name: &'static str, meaning: &'static str) -> AttributeRow {
    AttributeRow { name, on: "field", meaning, since: Since::Later, keys: &[] }
}

/// Every attribute, in the order of the reference.
pub const ATTRIBUTES: &[AttributeRow] = &[
    MODEL,
    FORWARD,
    SHARDED,
    TIED,
    RECOMPUTE,
    later("pipeline_stage", "cutting the model into pipeline stages"),
];

/// The axes after `@` in `dims!`.
pub const AXES: &[AxisRow] = &[
    AxisRow {
        name: "data",
        home: "Data",
        meaning: "every data axis: `dp`, `fsdp` and `ep` together",
    },
    AxisRow { name: "dp", home: "Dp", meaning: "data parallelism with replicated parameters" },
    AxisRow { name: "fsdp", home: "Fsdp", meaning: "data parallelism with sharded parameters" },
    AxisRow { name: "ep", home: "Ep", meaning: "experts" },
    AxisRow { name: "cp", home: "Cp", meaning: "context parallelism" },
];

/// The attributes that stand on fields.
pub fn field_attributes() -> impl Iterator<Item = &'static AttributeRow> {
    ATTRIBUTES.iter().filter(|row| row.on.starts_with("field"))
}
