//! Names of axes in the grammars of `--mesh` and `--mesh-order`.

use crate::AxisId;

use super::MeshError;

/// Parses the name of an axis in an entry.
pub(super) fn parse_axis(entry: &str, key: &str) -> Result<AxisId, MeshError> {
    let axis = AxisId::ALL.into_iter().find(|axis| axis.name() == key);
    axis.ok_or_else(|| MeshError::UnknownAxis {
        entry: entry.into(),
        key: key.into(),
        hint: spelling_hint(key),
    })
}

/// Returns "did you mean `tp`?" if one axis is close to `key`, else the list of axes.
fn spelling_hint(key: &str) -> String {
    let key = key.to_ascii_lowercase();
    // Prefers the axis with the same first letter if two are equally close.
    let distance = |axis: AxisId| {
        let name = axis.name();
        (strsim::damerau_levenshtein(name, &key), name.chars().next() != key.chars().next())
    };
    let nearest = AxisId::ALL.into_iter().min_by_key(|axis| distance(*axis));
    let nearest = nearest.filter(|axis| distance(*axis).0 <= 1);
    match nearest {
        Some(axis) => format!("did you mean `{axis}`?"),
        None => {
            let names = AxisId::ALL.map(AxisId::name);
            format!("the axes are {}", names.join(", "))
        }
    }
}
