//! Routing of tokens to experts on a simulated device.

mod support;

use meshwright::backend::DType;
use meshwright::backend::cuda::routing;
use support::{FLOATS, assert_close, assert_same, devices, epsilon, numbers_below, values};

/// Columns of the `k` largest, NaN before all numbers, and the lower of equal ones first.
fn largest(row: &[f32], k: usize) -> Vec<u32> {
    let mut cols: Vec<u32> = (0..row.len() as u32).collect();
    cols.sort_by(|a, b| {
        let [x, y] = [a, b].map(|col| row[*col as usize]);
        let by_number = y.partial_cmp(&x).unwrap_or_else(|| y.is_nan().cmp(&x.is_nan()));
        by_number.then(a.cmp(b))
    });
    cols.truncate(k);
    cols
}

#[test]
fn the_largest_scores_are_found_with_ties_to_the_lower_expert() {
    for device in devices() {
        for dtype in FLOATS {
            for (tokens, experts, k) in
                [(0, 4, 2), (1, 1, 1), (37, 8, 2), (9, 64, 8), (5, 33, 3), (3, 300, 8), (4, 8, 8)]
            {
                // Few different numbers, so that many are equal.
                let mut scores: Vec<f32> = values(tokens * experts, 1);
                scores.iter_mut().for_each(|x| *x = (*x * 4.0).round() / 4.0);
                for (special, x) in [f32::NAN, -0.0, 0.0, f32::NEG_INFINITY, f32::INFINITY]
                    .into_iter()
                    .zip(scores.iter_mut().step_by(7))
                {
                    *x = special;
                }
                let mut found = device.blank(DType::F32, tokens * k);
                let mut choices = device.put(&vec![u32::MAX; tokens * k]);
                routing::top_k(
                    device.gpu(),
                    experts,
                    k,
                    device.floats(dtype, &scores).view(),
                    found.view_mut(),
                    choices.view_mut(),
                );
                let rows = scores.chunks_exact(experts);
                let expected: Vec<u32> = rows.clone().flat_map(|row| largest(row, k)).collect();
                assert_eq!(choices.get::<u32>(), expected, "{k} of {experts}, {dtype}");
                let of_row = |(row, cols): (&[f32], &[u32])| -> Vec<f32> {
                    cols.iter().map(|col| row[*col as usize]).collect()
                };
                let numbers: Vec<f32> =
                    rows.zip(expected.chunks_exact(k)).flat_map(of_row).collect();
                assert_same("scores", &found.numbers(), &numbers);
            }
        }
    }
}

/// Counts, order and places of choices.
fn groups(choices: &[u32], experts: usize) -> [Vec<u32>; 3] {
    let of = |expert: usize| {
        choices.iter().enumerate().filter(move |(_, c)| (**c as usize).min(experts) == expert)
    };
    let counts = (0..experts).map(|expert| of(expert).count() as u32).collect();
    let order: Vec<u32> =
        (0..=experts).flat_map(|expert| of(expert).map(|(i, _)| i as u32)).collect();
    let mut places = vec![0; choices.len()];
    for (place, choice) in order.iter().enumerate() {
        places[*choice as usize] = place as u32;
    }
    [counts, order, places]
}

#[test]
fn choices_are_grouped_by_expert_in_the_order_of_tokens() {
    for device in devices() {
        for (n, experts) in [(0, 3), (1, 1), (70, 8), (5000, 60), (2048, 256), (900, 1000)] {
            // Some of an expert that there is not.
            let choices = numbers_below(experts as u32 + 2, n, 3);
            let [mut counts, mut order, mut places] =
                [experts, n, n].map(|len| device.put(&vec![u32::MAX; len]));
            routing::group(
                device.gpu(),
                device.put(&choices).view(),
                counts.view_mut(),
                order.view_mut(),
                places.view_mut(),
            );
            let got = [counts, order, places].map(|operand| operand.get::<u32>());
            assert_eq!(got, groups(&choices, experts), "{n} choices of {experts} experts");
        }
    }
}

/// Tokens, choices of each, columns, and how many of the places there are.
const SIZES: [(usize, usize, usize, usize); 5] =
    [(0, 2, 4, 0), (1, 1, 1, 1), (30, 2, 24, 60), (9, 8, 5, 50), (17, 3, 264, 40)];

#[test]
fn rows_go_to_experts_and_back_with_their_weights() {
    for device in devices() {
        for dtype in FLOATS {
            for (tokens, k, cols, rows) in SIZES {
                let [_, order, places] = groups(&numbers_below(5, tokens * k, 1), 5);
                let [x, y] = [(tokens, 2), (rows, 3)]
                    .map(|(n, seed)| device.floats(dtype, &values(n * cols, seed)));
                let weights = values(tokens * k, 4);
                let weight = device.put(&weights);
                let [order_here, places_here] =
                    [&order[..rows], &places[..]].map(|choices| device.put(choices));
                for with_weights in [false, true] {
                    let weight = with_weights.then(|| weight.view());
                    let weight_of =
                        |choice: usize| if with_weights { weights[choice] } else { 1.0 };

                    let mut out = device.blank(dtype, rows * cols);
                    let view = (x.view(), order_here.view());
                    routing::to_experts(
                        device.gpu(),
                        k,
                        view.0,
                        view.1,
                        weight,
                        tokens,
                        out.view_mut(),
                    );
                    let numbers = x.numbers();
                    let expected: Vec<f32> = order[..rows]
                        .iter()
                        .map(|choice| *choice as usize)
                        .flat_map(|choice| {
                            let row = &numbers[choice / k * cols..][..cols];
                            row.iter().map(move |x| weight_of(choice) * x)
                        })
                        .collect();
                    let rounded = device.floats(dtype, &expected).numbers();
                    assert_same("to experts", &out.numbers(), &rounded);

                    let mut out = device.blank(dtype, tokens * cols);
                    routing::to_tokens(
                        device.gpu(),
                        k,
                        y.view(),
                        places_here.view(),
                        weight,
                        tokens,
                        out.view_mut(),
                    );
                    let numbers = y.numbers();
                    let mut expected = vec![0.0; tokens * cols];
                    for (choice, place) in places.iter().enumerate() {
                        let sum = &mut expected[choice / k * cols..][..cols];
                        if let Some(row) =
                            numbers.get(*place as usize * cols..).filter(|row| row.len() >= cols)
                        {
                            sum.iter_mut().zip(row).for_each(|(s, x)| *s += weight_of(choice) * x);
                        }
                    }
                    let tolerance = epsilon(dtype);
                    assert_close("to tokens", &out.numbers(), &expected, tolerance, 1e-6);
                }
            }
        }
    }
}

#[test]
fn gradients_of_weights_are_dot_products() {
    for device in devices() {
        for dtype in FLOATS {
            for (tokens, k, cols, rows) in SIZES {
                let [.., places] = groups(&numbers_below(5, tokens * k, 1), 5);
                let [dy, x] = [(tokens, 2), (rows, 3)]
                    .map(|(n, seed)| device.floats(dtype, &values(n * cols, seed)));
                let mut dweights = device.blank(DType::F32, tokens * k);
                routing::weight_gradients(
                    device.gpu(),
                    k,
                    x.view(),
                    device.put(&places).view(),
                    dy.view(),
                    tokens,
                    dweights.view_mut(),
                );
                let (dy, x) = (dy.numbers(), x.numbers());
                let dot = |(choice, place): (usize, &u32)| -> f32 {
                    if *place as usize >= rows {
                        return 0.0;
                    }
                    let x = &x[*place as usize * cols..][..cols];
                    dy[choice / k * cols..].iter().zip(x).map(|(dy, x)| dy * x).sum()
                };
                let expected: Vec<f32> = places.iter().enumerate().map(dot).collect();
                assert_close("weights", &dweights.numbers(), &expected, 1e-5, 1e-5);
            }
        }
    }
}
