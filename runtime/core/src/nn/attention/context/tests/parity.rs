//! Every style on any number of ranks computes the attention of one rank.

use super::case::{BATCH, Case, Results, Style, largest_difference};
use meshwright_backend::{Band, DType};

/// Returns every style on `ranks` ranks with `heads` heads.
fn styles(ranks: usize, heads: usize) -> Vec<Style> {
    let divides = |size: &usize| ranks.is_multiple_of(*size) && heads.is_multiple_of(*size);
    let exchanges = (2..=ranks).filter(divides).map(Style::Exchange);
    [Style::Ring, Style::Gather].into_iter().chain(exchanges).collect()
}

/// Compares all styles on 2, 3, 4 and 8 ranks, with as many key/value heads as query heads, fewer, and one.
fn check_all_styles(of: impl Fn(usize, usize) -> Case) {
    let mut exchanges = 0;
    for (heads, kv_heads) in [(4, 4), (8, 2), (8, 1)] {
        let case = of(heads, kv_heads);
        let expected = case.reference();
        for ranks in [2, 3, 4, 8] {
            for style in styles(ranks, heads) {
                check(&case, ranks, style, &expected);
                exchanges += usize::from(matches!(style, Style::Exchange(_)));
            }
        }
    }
    assert!(exchanges > 8, "styles go together with these heads");
}

fn check(case: &Case, ranks: usize, style: Style, expected: &Results<f64>) {
    let results = case.on_ranks(ranks, style);
    let names = ["out", "dq", "dk", "dv", "dsinks", "dbias"];
    // Far from all valid positions, biases of -41 are all that queries see: rounding a score of that size to f32
    // changes its weight by up to 2e-6 of it.
    let tolerance = if case.padding.is_some() && case.has_bias { 2e-6 } else { 1e-6 };
    for (name, (actual, expected)) in names.iter().zip(results.arrays.iter().zip(expected)) {
        let largest = expected.iter().fold(1.0, |a: f64, b| a.max(b.abs()));
        let difference = largest_difference(actual, expected);
        assert!(
            difference <= tolerance * largest,
            "{name} of {style:?} on {ranks} ranks differs by {difference:e} of {largest}: {case:?}"
        );
    }
}

fn with_documents(case: Case, documents: [&[usize]; BATCH]) -> Case {
    Case { documents: Some(documents.map(<[usize]>::to_vec)), ..case }
}

#[test]
fn causal_attention() {
    check_all_styles(|heads, kv_heads| Case::causal(48, heads, kv_heads));
}

#[test]
fn bidirectional_attention() {
    let band = Band::ALL;
    check_all_styles(|heads, kv_heads| Case { band, ..Case::causal(48, heads, kv_heads) });
}

/// Windows of less than a chunk, more than one, and to both sides.
#[test]
fn windows() {
    for (before, after) in [(0, 0), (2, 0), (9, 0), (30, 0), (5, 11)] {
        let band = Band { offset: 0, before: Some(before), after: Some(after) };
        check_all_styles(|heads, kv_heads| Case { band, ..Case::causal(48, heads, kv_heads) });
    }
}

/// Documents that end between borders of chunks, on them, and at the end of the row; also of one token.
#[test]
fn documents() {
    let packings: [[&[usize]; BATCH]; 4] = [
        [&[1, 5, 17, 25], &[17, 1, 1, 5, 24]],
        [&[12, 12, 24], &[3, 3, 6, 36]],
        [&[48], &[47, 1]],
        [&[1; 48], &[6; 8]],
    ];
    for packing in packings {
        check_all_styles(|heads, kv_heads| {
            with_documents(Case::causal(48, heads, kv_heads), packing)
        });
    }
}

#[test]
fn documents_with_windows() {
    for (before, after) in [(Some(4), Some(0)), (Some(20), Some(3)), (None, None)] {
        let band = Band { offset: 0, before, after };
        check_all_styles(|heads, kv_heads| {
            let case = Case { band, ..Case::causal(48, heads, kv_heads) };
            with_documents(case, [&[1, 5, 17, 25], &[24, 24]])
        });
    }
}

/// Sinks take part in the softmax of each query once, and have the gradient of all positions; also where windows,
/// documents and biases make several blocks of a hop.
#[test]
fn sinks() {
    let window = Band { before: Some(9), ..Band::CAUSAL };
    for (band, has_bias) in
        [(Band::CAUSAL, false), (Band::ALL, false), (window, false), (window, true)]
    {
        check_all_styles(|heads, kv_heads| {
            let case = Case::causal(48, heads, kv_heads);
            Case { band, has_bias, has_sinks: true, ..case }
        });
    }
    check_all_styles(|heads, kv_heads| {
        let case = Case { has_sinks: true, ..Case::causal(48, heads, kv_heads) };
        with_documents(case, [&[1, 5, 17, 25], &[24, 24]])
    });
}

/// Biases and their gradients follow the distances of positions. Chunks of a rank are not next to each other in
/// position. Some blocks have only distances beyond the last bias.
#[test]
fn biases() {
    let window = Band { offset: 0, before: Some(20), after: Some(3) };
    let all = [Band::CAUSAL, Band::ALL, window];
    for (band, bias_distance) in all.into_iter().flat_map(|band| [(band, 47), (band, 5)]) {
        check_all_styles(|heads, kv_heads| {
            let case = Case::causal(48, heads, kv_heads);
            Case { band, has_bias: true, bias_distance, ..case }
        });
    }
    check_all_styles(|heads, kv_heads| {
        let case = Case { has_bias: true, has_sinks: true, ..Case::causal(48, heads, kv_heads) };
        with_documents(case, [&[1, 5, 17, 25], &[24, 24]])
    });
}

/// Valid positions that begin and end anywhere; without sinks, some queries see nothing.
#[test]
fn padding() {
    let masks = [(Band::ALL, false), (Band::CAUSAL, false), (Band::CAUSAL, true)];
    for ((band, has_sinks), has_bias) in
        masks.into_iter().flat_map(|mask| [(mask, false), (mask, true)])
    {
        for padding in [[0..48, 0..17], [5..30, 40..41], [0..0, 12..36]] {
            check_all_styles(|heads, kv_heads| {
                let case = Case::causal(48, heads, kv_heads);
                Case { band, has_sinks, has_bias, padding: Some(padding.clone()), ..case }
            });
        }
    }
}

/// Heads that do not divide evenly among ranks: some read the key/value heads of two.
#[test]
fn query_heads_of_a_rank_read_any_key_heads() {
    for (heads, kv_heads) in [(12, 4), (6, 2), (12, 3)] {
        let case = Case::causal(48, heads, kv_heads);
        let expected = case.reference();
        for ranks in [2, 3, 4, 6] {
            for style in styles(ranks, heads) {
                check(&case, ranks, style, &expected);
            }
        }
    }
}

/// Chunks of more than one tile of the kernels, and values of another size than keys.
#[test]
fn long_chunks_and_other_value_sizes() {
    let case = Case { head_dim: 16, value_dim: 24, ..Case::causal(1152, 2, 1) };
    let documents = with_documents(case.clone(), [&[400, 752], &[1, 1151]]);
    for case in [case, documents] {
        let expected = case.reference();
        for style in [Style::Ring, Style::Gather, Style::Exchange(2)] {
            check(&case, 4, style, &expected);
        }
    }
}

/// Rounding grows with the number of ranks by less than a factor of two over that of one rank.
#[test]
fn bf16_errors_are_like_those_of_one_rank() {
    let case = Case::causal(96, 4, 2);
    let exact = case.reference();
    let errors = |ranks: usize, style: Style| {
        let results = case.on_ranks_with(ranks, style, DType::Bf16, |comms| comms);
        let difference =
            |(actual, expected): (&Vec<f32>, &Vec<f64>)| largest_difference(actual, expected);
        results.arrays.iter().zip(&exact).map(difference).collect::<Vec<_>>()
    };
    let of_one_rank = errors(1, Style::Ring);
    for style in [Style::Ring, Style::Gather, Style::Exchange(2), Style::Exchange(4)] {
        for (error, of_one_rank) in errors(8, style).iter().zip(&of_one_rank) {
            assert!(*error <= 2.0 * of_one_rank, "{style:?}: {error:e} {of_one_rank:e}");
        }
    }
}
