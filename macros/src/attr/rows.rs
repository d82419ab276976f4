//! The rows of the table of attributes.

#![cfg_attr(not(test), expect(dead_code, reason = "some sentences are for the reference only"))]

/// An attribute of this crate.
pub struct AttributeRow {
    /// The name: `name` in `#[name(..)]`.
    pub name: &'static str,
    /// Items that the attribute applies to.
    pub on: &'static str,
    /// A sentence for the reference.
    pub meaning: &'static str,
    /// The keys in its parentheses.
    pub keys: &'static [KeyRow],
}

/// `key` or `key = value` in an attribute's parentheses.
pub struct KeyRow {
    /// The name before `=`.
    pub name: &'static str,
    /// The kind of value after `=`.
    pub value: Value,
    /// A sentence for the reference.
    pub meaning: &'static str,
}

/// The kind of value that a key takes.
#[derive(Clone, Copy)]
pub enum Value {
    /// `tp = "col"`: a sharding style over a mesh axis.
    Style { axis: &'static str, styles: &'static [StyleRow] },
    /// `scatter = Seq`: a dim.
    Dim,
    /// `embed.tokens`: fields of the struct. The key itself is the value.
    FieldPath,
    /// `when = "tie_word_embeddings"`: a key of the model's configuration.
    ConfigKey,
    /// `every = 2`, `every = "sqrt"`: a number of layers, or a word.
    Layers { words: &'static [GroupingRow] },
    /// `fold = [cp, tp]`: mesh axes.
    Axes,
    /// `save = [attn.core, mlp.down]`: fields of a layer.
    FieldPaths,
    /// `cost = 1.5`: a number above 0.
    Cost,
    /// `meshes = ["dp=2", "tp=2"]`: meshes in quotes.
    Meshes,
    /// `normal(0.02)`: initial values, the variant of the runtime's type, and what their number may be.
    Initial { variant: Option<&'static str>, number: Option<Least> },
    /// `bias = zeros`: initial values of a parameter. The key stands for its name.
    OfParameter,
    /// A flag without a value.
    Flag,
    /// `crate = some::path`.
    Crate,
    /// A mesh axis that is not set by an attribute; the text names the place where it is set.
    Elsewhere(&'static str),
}

/// The least number of initial values.
#[derive(Clone, Copy)]
pub enum Least {
    /// Zero; the number is named in messages.
    Zero(&'static str),
    /// None: any number.
    Any,
}

/// A named grouping of layers.
pub struct GroupingRow {
    /// The word in quotes.
    pub name: &'static str,
    /// The variant of the runtime's type.
    pub runtime: &'static str,
    /// A sentence for the reference.
    pub meaning: &'static str,
}

/// A sharding style of a layer along an axis.
pub struct StyleRow {
    /// The word in quotes.
    pub name: &'static str,
    /// The type of the runtime.
    pub runtime: &'static str,
    /// True if the layer's result is reduced over the axis, so that `scatter` applies.
    pub sums: bool,
    /// A sentence for the reference.
    pub meaning: &'static str,
}

/// An axis that `dims!` accepts after `@`.
pub struct AxisRow {
    /// The word after `@`.
    pub name: &'static str,
    /// The type of the runtime.
    pub home: &'static str,
    /// A sentence for the reference.
    pub meaning: &'static str,
}
