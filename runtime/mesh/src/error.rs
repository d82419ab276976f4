//! Errors of the `--mesh` grammar.

use crate::AxisId;

/// An invalid `--mesh` value. Each message names the entry and the fix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MeshError {
    /// An empty entry between two commas, or an empty value.
    #[error(
        "entry {position} of `{text}` is empty; write it as axis=degree, for example `dp=2,tp=2`"
    )]
    EmptyEntry {
        /// The whole value.
        text: String,
        /// Position of the entry, counted from 1.
        position: usize,
    },
    /// An empty entry between two commas of an order of axes, or an empty value.
    #[error("entry {position} of `{text}` is empty; write the names of axes, for example `dp,tp`")]
    EmptyOrderEntry {
        /// The whole value.
        text: String,
        /// Position of the entry, counted from 1.
        position: usize,
    },
    /// An entry without `=`.
    #[error("entry `{entry}`: expected axis=degree, for example `dp=2`")]
    NoDegree {
        /// The entry.
        entry: String,
    },
    /// An unknown axis.
    #[error("entry `{entry}`: unknown axis `{key}`; {hint}")]
    UnknownAxis {
        /// The entry.
        entry: String,
        /// The unknown name.
        key: String,
        /// A suggestion: the nearest axis, or the list of axes.
        hint: String,
    },
    /// A degree that is not a number.
    #[error("entry `{entry}`: `{degree}` is not a number of ranks; write for example `{axis}=2`")]
    NotANumber {
        /// The entry.
        entry: String,
        /// The axis of the entry.
        axis: AxisId,
        /// The text in place of the number.
        degree: String,
    },
    /// A degree of zero.
    #[error("entry `{axis}=0`: a degree is at least 1; leave the axis out, or write `{axis}=1`")]
    Zero {
        /// The axis.
        axis: AxisId,
    },
    /// A duplicate axis.
    #[error("axis `{axis}` is given twice; keep one entry `{axis}=..`")]
    Duplicate {
        /// The axis.
        axis: AxisId,
    },
    /// An axis with several ranks that an order of axes leaves out.
    #[error("the mesh has {axis}={degree}, but the order does not name `{axis}`; add `{axis}`")]
    NotOrdered {
        /// The axis.
        axis: AxisId,
        /// The degree of the axis.
        degree: usize,
    },
    /// A duplicate axis in an order of axes.
    #[error("axis `{axis}` is given twice; name it once")]
    OrderedTwice {
        /// The axis.
        axis: AxisId,
    },
    /// A number of ranks that overflows `usize`.
    #[error("`{mesh}`: the product of the degrees overflows; use smaller degrees")]
    TooLarge {
        /// The mesh, in canonical form.
        mesh: String,
    },
}
