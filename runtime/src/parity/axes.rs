//! The axes of a mesh along which it differs from one rank.

use crate::layout::{AxisId, AxisSet};
use crate::mesh::MeshShape;

/// Describes along which axes a mesh differs from one rank. `differs` compares a mesh of fewer of its axes, and returns
/// `None` if that mesh does not run.
pub(super) fn describe_axes(
    mesh: &MeshShape,
    mut differs: impl FnMut(&MeshShape) -> Option<bool>,
) -> String {
    let axes: Vec<AxisId> = AxisId::ALL.into_iter().filter(|axis| mesh.degree(*axis) > 1).collect();
    let listed = |axes: &[AxisId], between: &str| -> String {
        axes.iter().map(ToString::to_string).collect::<Vec<_>>().join(between)
    };
    if axes.len() == 1 {
        return format!("along {}", listed(&axes, ""));
    }
    let of_axis = |axis: &AxisId| differs(&mesh.with_axes(AxisSet::of(*axis)));
    let alone: Vec<Option<bool>> = axes.iter().map(of_axis).collect();
    let those = |outcome: bool| -> Vec<AxisId> {
        let found = axes.iter().zip(&alone).filter(|(_, found)| **found == Some(outcome));
        found.map(|(axis, _)| *axis).collect()
    };
    let agree = match &those(false)[..] {
        [] => String::new(),
        [one] => format!(" ({one} alone agrees)"),
        several => format!(" ({} alone agree)", listed(several, ", ")),
    };
    let guilty = those(true);
    if !guilty.is_empty() {
        return format!("along {}{agree}", listed(&guilty, ", and along "));
    }
    let pair =
        AxisId::ALL.into_iter().enumerate().filter(|_| axes.len() > 2).find_map(|(first, one)| {
            let others = AxisId::ALL[first + 1..].iter();
            let pairs = others.map(|other| [one, *other]);
            let mut pairs = pairs.filter(|pair| pair.iter().all(|axis| axes.contains(axis)));
            pairs.find(|[one, other]| {
                let both = AxisSet::of(*one).union(AxisSet::of(*other));
                differs(&mesh.with_axes(both)) == Some(true)
            })
        });
    let together = pair.map_or_else(|| listed(&axes, " and "), |pair| listed(&pair, " and "));
    format!("along {together} together{agree}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewest_axes_are_named() {
        let describe = |mesh: &str, guilty: &[&str]| {
            let parse = |text: &str| text.parse::<MeshShape>().unwrap();
            let guilty: Vec<MeshShape> = guilty.iter().map(|mesh| parse(mesh)).collect();
            describe_axes(&parse(mesh), |part| match part.degree(AxisId::Cp) {
                1 => Some(guilty.contains(part)),
                _ => None,
            })
        };
        assert_eq!(describe("tp=2", &[]), "along tp");
        assert_eq!(describe("dp=2,tp=4", &["tp=4"]), "along tp (dp alone agrees)");
        assert_eq!(describe("dp=2,tp=4", &["tp=4", "dp=2"]), "along dp, and along tp");
        assert_eq!(describe("dp=2,tp=4", &[]), "along dp and tp together (dp, tp alone agree)");
        assert_eq!(
            describe("dp=2,fsdp=2,tp=4", &["fsdp=2,tp=4"]),
            "along fsdp and tp together (dp, fsdp, tp alone agree)"
        );
        // A mesh that does not run says nothing.
        assert_eq!(describe("cp=2,tp=2", &["tp=2"]), "along tp");
    }
}
