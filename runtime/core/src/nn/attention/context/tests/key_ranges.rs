//! Ranges of visible keys: computed and uploaded once for all layers, forward and backward.

use super::case::{Case, Style};
use meshwright_backend::DType;

/// Counts the blocks of each rank after one application and its backward, and after another layer's.
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
        // One call for each hop. With a bias there is one for each pair of chunks that are not apart, and none for
        // pairs that are hidden, so their number depends on the rank.
        for (case, style, expected) in [
            (&without_bias, Style::Ring, Some(ranks)),
            (&with_bias, Style::Ring, None),
            (&without_bias, Style::Gather, Some(1)),
            (&with_bias, Style::Gather, None),
        ] {
            for [first, both] in computed_blocks(case, ranks, style) {
                assert!(first > 0, "{style:?} {case:?}");
                assert_eq!(both, first, "another layer reads the same: {style:?} {case:?}");
                assert_eq!(first, expected.unwrap_or(first), "{style:?} {case:?}");
            }
        }
    }
}
