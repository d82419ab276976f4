use super::{assert_close, assert_same_on_any_threads, on_every_backend, values, wide};
use meshwright_backend::Backend;
use meshwright_backend::ops::loss::{CrossEntropyArgs, CrossEntropyGradArgs, ExpSumArgs};

fn logits(rows: usize, cols: usize) -> Vec<f32> {
    values(rows * cols, 1).into_iter().map(|x| 20.0 * x).collect()
}

fn softmax_reference(cols: usize, x: &[f32]) -> Vec<f64> {
    let rows = x.chunks_exact(cols).map(wide);
    let softmax = |row: Vec<f64>| {
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = row.iter().map(|x| (x - max).exp()).sum();
        row.into_iter().map(move |x| (x - max).exp() / total)
    };
    rows.flat_map(softmax).collect()
}

const SIZES: [(usize, usize); 4] = [(1, 1), (9, 7), (3, 64), (40, 1003)];

#[test]
fn softmax_and_its_gradient_follow_the_formula() {
    for (rows, cols) in SIZES {
        let (x, dy) = (logits(rows, cols), values(rows * cols, 2));
        let expected = softmax_reference(cols, &x);
        let mut gradient = Vec::new();
        for (y, dy) in expected.chunks_exact(cols).zip(wide(&dy).chunks_exact(cols)) {
            let dot: f64 = y.iter().zip(dy).map(|(y, dy)| y * dy).sum();
            gradient.extend(y.iter().zip(dy).map(|(y, dy)| y * (dy - dot)));
        }
        on_every_backend(|cpu| {
            let [mut y, mut dx] = [(); 2].map(|()| vec![f32::NAN; rows * cols]);
            cpu.softmax(cols, (&x[..]).into(), (&mut y[..]).into());
            assert_close("softmax", &y, &expected, 1e-6);
            let (y, dy) = ((&y[..]).into(), (&dy[..]).into());
            cpu.softmax_backward(cols, y, dy, (&mut dx[..]).into());
            assert_close("softmax gradient", &dx, &gradient, 1e-6);
        });
    }
}

/// `[max, sum_exp, target_logit, gradient]`, for the columns `first..` of a larger vocabulary.
fn pieces(
    cpu: &dyn Backend,
    x: &[f32],
    targets: &[u32],
    first: usize,
    scale: &[f32],
) -> [Vec<f32>; 4] {
    let rows = targets.len();
    let cols = x.len() / rows;
    let [mut max, mut sum, mut target] = [(); 3].map(|()| vec![f32::NAN; rows]);
    let mut gradient = x.to_vec();
    cpu.row_max(cols, x.into(), (&mut max[..]).into());
    let (sum_out, target_out) = ((&mut sum[..]).into(), (&mut target[..]).into());
    cpu.exp_sum(ExpSumArgs {
        cols,
        logits: x.into(),
        max: (&max[..]).into(),
        targets: targets.into(),
        first_col: first,
        sum_exp: sum_out,
        target_logit: target_out,
    });
    cpu.cross_entropy_grad(CrossEntropyGradArgs {
        cols,
        logits: (&mut gradient[..]).into(),
        max: (&max[..]).into(),
        sum_exp: (&sum[..]).into(),
        targets: targets.into(),
        first_col: first,
        row_scale: scale.into(),
    });
    [max, sum, target, gradient]
}

#[test]
fn the_pieces_of_cross_entropy_follow_the_formula() {
    const FIRST: usize = 10;
    for (rows, cols) in SIZES {
        let x = logits(rows, cols);
        // Some before, some inside and some after the columns.
        let targets: Vec<u32> = (0..rows as u32).map(|i| i * 31 % (cols as u32 + 20)).collect();
        let scale = values(rows, 5);
        let mut expected = softmax_reference(cols, &x);
        for (row, gradient) in expected.chunks_exact_mut(cols).enumerate() {
            for (col, g) in gradient.iter_mut().enumerate() {
                let hit = col + FIRST == targets[row] as usize;
                *g = (*g - f64::from(u8::from(hit))) * f64::from(scale[row]);
            }
        }
        on_every_backend(|cpu| {
            let [max, sum, target, gradient] = pieces(cpu, &x, &targets, FIRST, &scale);
            for (row, x) in x.chunks_exact(cols).enumerate() {
                let largest = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                assert_eq!(max[row], largest);
                let total: f64 = x.iter().map(|x| f64::from(x - largest).exp()).sum();
                assert!((f64::from(sum[row]) / total - 1.0).abs() < 1e-6);
                let local = (targets[row] as usize).checked_sub(FIRST).filter(|t| *t < cols);
                assert_eq!(target[row], local.map_or(0.0, |t| x[t]));
            }
            assert_close("gradient", &gradient, &expected, 1e-6);
        });
    }
}

#[test]
fn rows_one_after_the_other_give_the_same_bits() {
    const FIRST: usize = 10;
    for (rows, cols) in SIZES {
        let x = logits(rows, cols);
        let targets: Vec<u32> = (0..rows as u32).map(|i| i * 31 % (cols as u32 + 20)).collect();
        let mut scale = values(rows, 5);
        scale[rows / 2] = 0.0;
        on_every_backend(|cpu| {
            let expected = pieces(cpu, &x, &targets, FIRST, &scale);
            let [mut max, mut sum, mut target] = [(); 3].map(|()| vec![f32::NAN; rows]);
            let mut gradient = x.clone();
            cpu.cross_entropy(CrossEntropyArgs {
                cols,
                logits: (&mut gradient[..]).into(),
                targets: (&targets[..]).into(),
                first_col: FIRST,
                row_scale: (&scale[..]).into(),
                max: (&mut max[..]).into(),
                sum_exp: (&mut sum[..]).into(),
                target_logit: (&mut target[..]).into(),
            });
            assert_eq!([max, sum, target, gradient], expected, "{rows}x{cols}");
        });
    }
}

#[test]
fn a_masked_row_has_no_gradient_even_of_nan() {
    on_every_backend(|cpu| {
        let x = [f32::NAN, 1.0, f32::INFINITY, 1.0, 2.0, 3.0];
        let [_, _, _, gradient] = pieces(cpu, &x, &[1, 1], 0, &[0.0, 1.0]);
        assert_eq!(gradient[..3], [0.0; 3]);
        assert!(gradient[3..].iter().all(|g| g.is_finite() && *g != 0.0));
    });
}

#[test]
fn nan_reaches_every_result_of_its_row() {
    for position in [0, 3, 63, 64, 130] {
        let mut x = vec![1.0; 2 * 131];
        x[position] = f32::NAN;
        on_every_backend(|cpu| {
            let [max, sum, ..] = pieces(cpu, &x, &[0, 0], 0, &[1.0, 1.0]);
            assert!(max[0].is_nan() && sum[0].is_nan(), "NaN at {position}");
            assert!(max[1] == 1.0 && sum[1] == 131.0);
            let mut y = vec![0.0; x.len()];
            cpu.softmax(131, (&x[..]).into(), (&mut y[..]).into());
            assert!(y[..131].iter().all(|y| y.is_nan()) && y[131..].iter().all(|y| y.is_finite()));
        });
    }
}

#[test]
fn embedding_gathers_and_sums_local_rows() {
    const COLS: usize = 5;
    let (table, dout) = (values(4 * COLS, 1), values(6 * COLS, 2));
    // Rows 10..14 are here.
    let tokens = [13u32, 9, 10, 13, 14, u32::MAX];
    on_every_backend(|cpu| {
        let mut out = [f32::NAN; 6 * COLS];
        let tokens = (&tokens[..]).into();
        cpu.embedding(tokens, (&table[..]).into(), 10, (&mut out[..]).into());
        let row = |i: usize| &out[i * COLS..][..COLS];
        assert_eq!([row(0), row(2), row(3)], [&table[15..], &table[..5], &table[15..]]);
        assert!([1, 4, 5].iter().all(|i| row(*i) == [0.0; COLS]));
        let mut dtable = [1.0; 4 * COLS];
        cpu.embedding_backward(tokens, None, 10, (&dout[..]).into(), (&mut dtable[..]).into());
        for col in 0..COLS {
            assert_eq!(dtable[col], 1.0 + dout[2 * COLS + col]);
            assert_eq!(dtable[COLS + col], 1.0);
            assert_eq!(dtable[3 * COLS + col], 1.0 + dout[col] + dout[3 * COLS + col]);
        }
        // Look-ups of the padding count for nothing; that of a row elsewhere changes nothing.
        for padding in [13, 9] {
            let mut padded = [1.0; 4 * COLS];
            let (dout, out) = ((&dout[..]).into(), (&mut padded[..]).into());
            cpu.embedding_backward(tokens, Some(padding), 10, dout, out);
            assert_eq!(padded[..3 * COLS], dtable[..3 * COLS]);
            let kept = if padding == 13 { [1.0; COLS].as_slice() } else { &dtable[3 * COLS..] };
            assert_eq!(&padded[3 * COLS..], kept);
        }
    });
}

#[test]
fn embedding_gradients_do_not_depend_on_threads() {
    let tokens: Vec<u32> = (0..3000).map(|i| i * i % 500).collect();
    let dout = values(3000 * 100, 1);
    assert_same_on_any_threads("embedding", |cpu| {
        let mut dtable = vec![0.0; 500 * 100];
        let tokens = (&tokens[..]).into();
        cpu.embedding_backward(tokens, None, 0, (&dout[..]).into(), (&mut dtable[..]).into());
        dtable
    });
}
