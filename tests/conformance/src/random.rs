//! Counter-based random numbers.

use meshwright_backend::{BlockIndex, DType};

use crate::{FLOATS, Target};

fn normal(target: &Target, dtype: DType, key: u64, index: &BlockIndex) -> Vec<f32> {
    let mut out = target.blank(dtype, index.len());
    target.backend().fill_normal(key, 2.0, index, out.view_mut());
    out.numbers()
}

fn uniform(target: &Target, dtype: DType, key: u64, index: &BlockIndex) -> Vec<f32> {
    let mut out = target.blank(dtype, index.len());
    target.backend().fill_uniform(key, 2.0, index, out.view_mut());
    out.numbers()
}

/// Uniformly distributed numbers have the moments of their distribution, and stay inside the bound.
pub fn uniform_distribution(target: &Target) {
    let n = 400_000;
    let x = uniform(target, DType::F32, 5, &BlockIndex::whole(&[n]));
    assert!(x.iter().all(|x| x.abs() <= 2.0));
    let moment =
        |power: i32| x.iter().map(|x| f64::from(*x / 2.0).powi(power)).sum::<f64>() / n as f64;
    for (power, expected) in [(1, 0.0), (2, 1.0 / 3.0), (3, 0.0), (4, 1.0 / 5.0)] {
        assert!((moment(power) - expected).abs() < 0.005, "moment {power}");
    }
    for tenth in 0..10 {
        let least = -2.0 + 0.4 * tenth as f32;
        let count = x.iter().filter(|x| (least..least + 0.4).contains(*x)).count();
        assert!((count as f64 / n as f64 - 0.1).abs() < 0.002, "{count} from {least}");
    }
    let neighbors = x.windows(2).map(|w| f64::from(w[0] * w[1])).sum::<f64>() / n as f64;
    assert!(neighbors.abs() < 0.01, "neighbors are correlated: {neighbors}");
}

/// Deviates have the moments and the tails of a normal distribution, and are independent of their neighbors.
pub fn distribution(target: &Target) {
    let n = 400_000;
    let x = normal(target, DType::F32, 5, &BlockIndex::whole(&[n]));
    let moment =
        |power: i32| x.iter().map(|x| f64::from(*x / 2.0).powi(power)).sum::<f64>() / n as f64;
    for (power, expected, tolerance) in
        [(1, 0.0, 0.01), (2, 1.0, 0.02), (3, 0.0, 0.05), (4, 3.0, 0.1)]
    {
        assert!((moment(power) - expected).abs() < tolerance, "moment {power}");
    }
    for (sigmas, expected) in [(1.0, 0.317_31), (2.0, 0.045_5), (3.0, 0.0027)] {
        let beyond = x.iter().filter(|x| (**x / 2.0).abs() > sigmas).count() as f64 / n as f64;
        let tolerance = 4.0 * (expected / n as f64).sqrt();
        assert!((beyond - expected).abs() < tolerance, "{beyond} beyond {sigmas} sigmas");
    }
    let neighbors = x.windows(2).map(|w| f64::from(w[0] * w[1])).sum::<f64>() / n as f64;
    assert!(neighbors.abs() < 0.04, "neighbors are correlated: {neighbors}");
}

/// Streams of neighboring keys differ.
pub fn keys(target: &Target) {
    let index = BlockIndex::whole(&[1000]);
    let one = normal(target, DType::F32, 1, &index);
    for key in [0, 2, 1 << 32, 1u64.wrapping_add(0x9e37_79b9_7f4a_7c15)] {
        let other = normal(target, DType::F32, key, &index);
        let same = one.iter().filter(|x| other.contains(x)).count();
        assert!(same < 10, "{same} deviates of keys 1 and {key} are the same");
    }
}

/// Returns the halves of a tensor along each dim, and its first and last third together.
pub(crate) fn parts(global: &[usize]) -> Vec<BlockIndex> {
    let mut parts = Vec::new();
    for dim in 0..global.len() {
        let mut half = BlockIndex::whole(global);
        half.local[dim] /= 2;
        for offset in [0, half.local[dim], half.local[dim].saturating_sub(1)] {
            half.offset[dim] = offset;
            parts.push(half.clone());
        }
        let mut thirds = BlockIndex::whole(global);
        let third = global[dim] / 3;
        (thirds.local[dim], thirds.gap_at[dim]) = (2 * third, third);
        thirds.gap[dim] = global[dim] - 2 * third;
        parts.push(thirds);
    }
    parts
}

/// A block has the values of the whole tensor, in either dtype.
pub fn blocks(target: &Target) {
    for global in [&[0, 4][..], &[4, 30, 26], &[100, 73]] {
        let whole = normal(target, DType::F32, 9, &BlockIndex::whole(global));
        let whole_uniform = uniform(target, DType::F32, 9, &BlockIndex::whole(global));
        // Of one range of indices each: no others are drawn.
        let parts = parts(global).into_iter().filter(|part| part.gap.iter().all(|gap| *gap == 0));
        for index in parts.chain([BlockIndex::whole(global)]) {
            let of = |whole: &[f32]| -> Vec<f32> {
                (0..index.len()).map(|i| whole[index.global_index(i) as usize]).collect()
            };
            let (expected, expected_uniform) = (of(&whole), of(&whole_uniform));
            for dtype in FLOATS {
                let mut out = target.blank(dtype, index.len());
                target.backend().fill_normal(9, 2.0, &index, out.view_mut());
                target.check_exactly(&format!("{index:?}"), &out, &expected);
                target.backend().fill_uniform(9, 2.0, &index, out.view_mut());
                target.check_exactly(&format!("uniform {index:?}"), &out, &expected_uniform);
            }
        }
    }
}

/// Blocks with indices beyond 32 bits have the values of their elements alone; the empty block has none.
pub fn large_indices(target: &Target) {
    let global = vec![1 << 20, 1 << 18];
    let index = BlockIndex::one_range(vec![5, 90], global.clone(), vec![(1 << 20) - 5, 1 << 17]);
    for key in [0, 5, 0xdead_beef_0123_4567] {
        let block = normal(target, DType::F32, key, &index);
        for element in [0, 1, 89, 90, 449] {
            let offset = vec![index.offset[0] + element / 90, index.offset[1] + element % 90];
            let alone = BlockIndex::one_range(vec![1, 1], global.clone(), offset);
            assert_eq!(normal(target, DType::F32, key, &alone), [block[element]], "key {key}");
        }
    }
    assert_eq!(normal(target, DType::F32, 1, &BlockIndex::whole(&[])).len(), 1);
}
