//! The `--mesh` grammar.

use std::str::FromStr;

use crate::AxisId;

use super::axis_name::parse_axis;
use super::{MeshError, MeshShape};

impl FromStr for MeshShape {
    type Err = MeshError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.trim() == "1" {
            return Ok(MeshShape::SINGLE);
        }
        let entries = text.split(',').enumerate().map(|(idx, entry)| {
            let entry = entry.trim();
            if entry.is_empty() {
                return Err(MeshError::EmptyEntry { text: text.into(), position: idx + 1 });
            }
            parse_entry(entry)
        });
        MeshShape::new(entries.collect::<Result<Vec<_>, _>>()?)
    }
}

fn parse_entry(entry: &str) -> Result<(AxisId, usize), MeshError> {
    let (key, degree) =
        entry.split_once('=').ok_or_else(|| MeshError::NoDegree { entry: entry.into() })?;
    let (key, degree) = (key.trim(), degree.trim());
    let axis = parse_axis(entry, key)?;
    if !degree.is_empty() && degree.bytes().all(|byte| byte.is_ascii_digit()) {
        // Only digits: a parse error is an overflow.
        let degree = degree.parse().map_err(|_| MeshError::TooLarge { mesh: entry.to_string() })?;
        return Ok((axis, degree));
    }
    Err(MeshError::NotANumber { entry: entry.into(), axis, degree: degree.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_parse_in_any_order_and_print_outermost_first() {
        for (text, canonical, ranks) in [
            ("dp=2,tp=2", "dp=2,tp=2", 4),
            (" tp = 4 , pp=2", "pp=2,tp=4", 8),
            ("cp=3,ep=2,fsdp=5,dp=1", "fsdp=5,ep=2,cp=3", 30),
            ("tp=1", "1", 1),
            ("1", "1", 1),
        ] {
            let shape: MeshShape = text.parse().unwrap();
            assert_eq!(shape.to_string(), canonical);
            assert_eq!(shape.world_size(), ranks);
            assert_eq!(canonical.parse::<MeshShape>().unwrap(), shape);
        }
    }

    #[test]
    fn a_bad_mesh_names_the_entry_and_the_fix() {
        for (text, message) in [
            (
                "dp=2,,tp=2",
                "entry 2 of `dp=2,,tp=2` is empty; write it as axis=degree, for example `dp=2,tp=2`",
            ),
            ("", "entry 1 of `` is empty; write it as axis=degree, for example `dp=2,tp=2`"),
            ("dp", "entry `dp`: expected axis=degree, for example `dp=2`"),
            ("dpp=2", "entry `dpp=2`: unknown axis `dpp`; did you mean `dp`?"),
            ("fdsp=2", "entry `fdsp=2`: unknown axis `fdsp`; did you mean `fsdp`?"),
            ("TP=2", "entry `TP=2`: unknown axis `TP`; did you mean `tp`?"),
            (
                "zebra=2",
                "entry `zebra=2`: unknown axis `zebra`; the axes are pp, dp, fsdp, ep, cp, tp",
            ),
            ("dp=two", "entry `dp=two`: `two` is not a number of ranks; write for example `dp=2`"),
            ("dp=-1", "entry `dp=-1`: `-1` is not a number of ranks; write for example `dp=2`"),
            ("dp=", "entry `dp=`: `` is not a number of ranks; write for example `dp=2`"),
            ("tp=0", "entry `tp=0`: a degree is at least 1; leave the axis out, or write `tp=1`"),
            ("tp=2,tp=2", "axis `tp` is given twice; keep one entry `tp=..`"),
        ] {
            assert_eq!(text.parse::<MeshShape>().unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn a_mesh_too_large_to_count_is_refused() {
        for text in ["dp=99999999999999999999999", "dp=4294967296,tp=4294967296"] {
            let error = text.parse::<MeshShape>().unwrap_err().to_string();
            assert!(error.contains("overflows"), "{error}");
        }
    }
}
