//! Ranges of visible keys: computed and uploaded once for all layers, forward and backward.

use super::case::{Case, Style};
use crate::backend::DType;

/// Counts the blocks of each rank after one application and its backward, and after those of another layer.
fn computed_blocks(case: &Case, ranks: usize, style: Style) -> Vec<[usize; 2]> {
    let operands = case.operands();
    case.on_each_rank(
        ranks,
        DType::F32,
        |comms| comms,
        |call| {
            let rows = call.visible.expect("the case has documents");
            [(); 2].map(|()| {
                case.on_rank(call, style, &operands);
                rows.computed_blocks()
            })
        },
    )
}

#[test]
fn key_ranges_are_computed_once_for_all_layers() {
    let documents = Some([vec![20, 28], vec![5, 43]]);
    for ranks in [2, 4] {
        let without_bias = Case { documents: documents.clone(), ..Case::causal(48, 4, 2) };
        let with_bias = Case { has_bias: true, ..without_bias.clone() };
        // One call for each hop, or with a bias one for each pair of chunks that are not apart: three of the rank's own chunks,
        // two of those of each other rank.
        for (case, style, expected) in [
            (&without_bias, Style::Ring, ranks),
            (&with_bias, Style::Ring, 3 + 2 * (ranks - 1)),
            (&without_bias, Style::Gather, 1),
            (&with_bias, Style::Gather, 2),
        ] {
            let computed = computed_blocks(case, ranks, style);
            assert_eq!(computed, vec![[expected; 2]; ranks], "{style:?} {case:?}");
        }
    }
}
