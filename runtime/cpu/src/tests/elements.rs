use super::{assert_close, assert_same_on_any_threads, on_every_backend, values, wide};
use meshwright_backend::ops::optim::AdamwArgs;
use meshwright_backend::{AdamGroup, AdamStep, Backend, BlockCopy, MiddleDim};

#[test]
fn sums_over_a_dim_follow_the_formula() {
    for [outer, n, inner] in [[1, 1, 1], [5, 300, 1], [1, 33, 5000], [3, 4, 7], [40, 17, 130]] {
        let (x, dy) = (values(outer * n * inner, 1), values(outer * inner, 2));
        let exact = wide(&x);
        let element = |o: usize, i: usize| -> f64 {
            0.5 * (0..n).map(|j| exact[(o * n + j) * inner + i]).sum::<f64>()
        };
        let expected: Vec<f64> =
            (0..outer * inner).map(|i| element(i / inner, i % inner)).collect();
        on_every_backend(|cpu| {
            let (mut y, mut dx) = (vec![f32::NAN; outer * inner], vec![f32::NAN; x.len()]);
            cpu.sum_dim(
                MiddleDim { outer, len: n, inner },
                (&x[..]).into(),
                (&mut y[..]).into(),
                0.5,
            );
            assert_close("sum_dim", &y, &expected, 1e-6);
            cpu.broadcast_dim(
                MiddleDim { outer, len: n, inner },
                (&dy[..]).into(),
                (&mut dx[..]).into(),
                0.5,
            );
            for (i, dx) in dx.iter().enumerate() {
                assert_eq!(*dx, 0.5 * dy[i / (n * inner) * inner + i % inner]);
            }
        });
    }
    assert_same_on_any_threads("sum_dim", |cpu| {
        let mut y = vec![0.0; 3 * 5001];
        let x = values(3 * 40 * 5001, 1);
        cpu.sum_dim(
            MiddleDim { outer: 3, len: 40, inner: 5001 },
            (&x[..]).into(),
            (&mut y[..]).into(),
            1.0,
        );
        y
    });
}

#[test]
fn blocks_are_copied_and_nothing_else() {
    on_every_backend(|cpu| {
        let src: Vec<u32> = (0..90_000).collect();
        let mut dst = vec![u32::MAX; 60_000];
        // Runs of 5 of every 9, to runs of 5 of every 6.
        cpu.copy_blocks(
            &BlockCopy {
                blocks: 9999,
                len: 5,
                src_start: 2,
                src_stride: 9,
                dst_start: 1,
                dst_stride: 6,
            },
            (&src[..]).into(),
            (&mut dst[..]).into(),
        );
        for (i, value) in dst.iter().enumerate() {
            let (block, at) = (i.div_ceil(6), (i + 5) % 6);
            let copied = (1..=9999).contains(&block) && at < 5;
            let expected = if copied { (2 + (block - 1) * 9 + at) as u32 } else { u32::MAX };
            assert_eq!(*value, expected, "element {i}");
        }
        let (one, mut two) = ([1.0f32, 2.0, 3.0], [0.0f32; 4]);
        cpu.copy_blocks(
            &BlockCopy {
                blocks: 1,
                len: 2,
                src_start: 1,
                src_stride: 0,
                dst_start: 2,
                dst_stride: 0,
            },
            (&one[..]).into(),
            (&mut two[..]).into(),
        );
        assert_eq!(two, [0.0, 0.0, 2.0, 3.0]);
    });
}

#[test]
fn plain_arithmetic() {
    on_every_backend(|cpu| {
        let (a, b) = (values(40_001, 1), values(40_001, 2));
        let mut x = a.clone();
        cpu.add_assign((&mut x[..]).into(), (&b[..]).into());
        cpu.scale((&mut x[..]).into(), -2.0);
        assert!((0..x.len()).all(|i| x[i] == -2.0 * (a[i] + b[i])));
        cpu.fill((&mut x[..]).into(), 0.25);
        assert!(x.iter().all(|x| *x == 0.25));
    });
}

#[test]
fn sums_of_squares_are_f64_and_show_nan() {
    let x = values(100_003, 1);
    let expected: f64 = wide(&x).iter().map(|x| x * x).sum();
    on_every_backend(|cpu| {
        let sum = cpu.sum_squares((&x[..]).into());
        assert!((sum / expected - 1.0).abs() < 1e-12);
        assert_eq!(cpu.sum_squares((&[0f32; 0][..]).into()), 0.0);
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for position in [0, 50_000, 100_002] {
                let mut x = x.clone();
                x[position] = bad;
                assert!(!cpu.sum_squares((&x[..]).into()).is_finite(), "{bad} at {position}");
            }
        }
    });
    let bits = |sum: f64| vec![f32::from_bits(sum.to_bits() as u32), sum as f32];
    assert_same_on_any_threads("sum_squares", |cpu| bits(cpu.sum_squares((&x[..]).into())));
}

#[test]
fn adamw_follows_its_definition() {
    let len = 20_001;
    let (p, g, m) = (values(len, 1), values(len, 2), values(len, 3));
    let v: Vec<f32> = values(len, 4).into_iter().map(f32::abs).collect();
    let step = AdamStep {
        beta1: 0.9,
        // Close to 1: its complement would lose digits in f32.
        beta2: 0.99999,
        eps: 1e-6,
        bias_correction1: 0.3,
        bias_correction2: 0.2,
        grad_scale: 0.5,
    };
    let group = |len, lr, weight_decay| AdamGroup { len, lr, weight_decay };
    let groups = [group(7_000, 0.01, 0.1), group(1, 0.02, 0.0), group(13_000, 0.005, 0.3)];
    let of_elements = groups.iter().flat_map(|group| std::iter::repeat_n(group, group.len));
    let widen = f64::from;
    let mut expected = [vec![], vec![], vec![]];
    for (i, group) in of_elements.enumerate() {
        let g = widen(g[i]) * widen(step.grad_scale);
        let (b1, b2) = (step.beta1, step.beta2);
        let m = b1 * widen(m[i]) + (1.0 - b1) * g;
        let v = b2 * widen(v[i]) + (1.0 - b2) * g * g;
        let root = (v / widen(step.bias_correction2)).sqrt() + widen(step.eps);
        let decayed = widen(p[i]) * (1.0 - widen(group.lr) * widen(group.weight_decay));
        let moved = decayed - widen(group.lr) * m / widen(step.bias_correction1) / root;
        for (list, value) in expected.iter_mut().zip([moved, m, v]) {
            list.push(value);
        }
    }
    on_every_backend(|cpu: &dyn Backend| {
        let (mut p, mut m, mut v) = (p.clone(), m.clone(), v.clone());
        let moments = ((&mut m[..]).into(), (&mut v[..]).into());
        cpu.adamw(
            &step,
            &groups,
            AdamwArgs {
                p: (&mut p[..]).into(),
                g: (&g[..]).into(),
                m: moments.0,
                v: moments.1,
                copy: None,
            },
        );
        for (name, (got, expected)) in ["p", "m", "v"].iter().zip([p, m, v].iter().zip(&expected)) {
            assert_close(name, got, expected, 1e-6);
        }
    });
}
