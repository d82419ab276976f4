//! The order of the axes in rank numbers, and the `--mesh-order` grammar.

use std::fmt;
use std::str::FromStr;

use crate::{AxisId, AxisSet};

use super::MeshError;
use super::axis_name::parse_axis;

/// The axes of a mesh from outermost to innermost: ranks that differ along the innermost axis only are neighbors, which
/// share the fastest links.
///
/// Its text form is a list: `pp,dp,tp`. Axes that are not named have degree 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AxisOrder {
    /// The named axes, then the others.
    axes: [AxisId; AxisId::ALL.len()],
    named: AxisSet,
}

impl AxisOrder {
    /// The order of [`AxisId::ALL`].
    pub const DEFAULT: AxisOrder = AxisOrder { axes: AxisId::ALL, named: AxisSet::ALL };

    /// Creates an order of these axes.
    ///
    /// # Errors
    /// On a duplicate axis.
    pub fn new(axes: impl IntoIterator<Item = AxisId>) -> Result<AxisOrder, MeshError> {
        let mut order = Vec::new();
        let mut named = AxisSet::NONE;
        for axis in axes {
            if named.contains(axis) {
                return Err(MeshError::OrderedTwice { axis });
            }
            named = named.union(AxisSet::of(axis));
            order.push(axis);
        }
        order.extend(AxisSet::ALL.difference(named).iter());
        Ok(AxisOrder { axes: std::array::from_fn(|i| order[i]), named })
    }

    /// Returns true if the order names `axis`.
    pub const fn names(&self, axis: AxisId) -> bool {
        self.named.contains(axis)
    }

    /// Iterates over all axes, outermost first.
    pub fn outermost_first(self) -> impl DoubleEndedIterator<Item = AxisId> {
        self.axes.into_iter()
    }

    /// Iterates over all axes, innermost first.
    pub fn innermost_first(self) -> impl Iterator<Item = AxisId> {
        self.outermost_first().rev()
    }
}

impl FromStr for AxisOrder {
    type Err = MeshError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let entries = text.split(',').enumerate().map(|(idx, entry)| {
            let entry = entry.trim();
            if entry.is_empty() {
                return Err(MeshError::EmptyOrderEntry { text: text.into(), position: idx + 1 });
            }
            parse_axis(entry, entry)
        });
        AxisOrder::new(entries.collect::<Result<Vec<_>, _>>()?)
    }
}

/// Prints the named axes, outermost first, in the `--mesh-order` grammar.
impl fmt::Display for AxisOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> =
            self.outermost_first().filter(|axis| self.names(*axis)).map(AxisId::name).collect();
        f.write_str(&names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MeshShape;

    #[test]
    fn orders_parse_and_print() {
        for text in ["tp,dp", "pp,dp,fsdp,ep,cp,tp", "cp"] {
            assert_eq!(text.parse::<AxisOrder>().unwrap().to_string(), text);
        }
        let order: AxisOrder = " tp , dp".parse().unwrap();
        let all: Vec<_> = order.outermost_first().collect();
        assert_eq!(all, [AxisId::Tp, AxisId::Dp, AxisId::Pp, AxisId::Fsdp, AxisId::Ep, AxisId::Cp]);
        assert!(order.innermost_first().eq(all.into_iter().rev()));
    }

    #[test]
    fn a_bad_order_names_the_entry_and_the_fix() {
        for (text, message) in [
            (
                "dp,,tp",
                "entry 2 of `dp,,tp` is empty; write the names of axes, for example `dp,tp`",
            ),
            ("dp,tpp", "entry `tpp`: unknown axis `tpp`; did you mean `tp`?"),
            ("dp,dp", "axis `dp` is given twice; name it once"),
        ] {
            assert_eq!(text.parse::<AxisOrder>().unwrap_err().to_string(), message);
        }
        let mesh: MeshShape = "dp=2,tp=2".parse().unwrap();
        let error = mesh.with_order("tp".parse().unwrap()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the mesh has dp=2, but the order does not name `dp`; add `dp`"
        );
    }
}
