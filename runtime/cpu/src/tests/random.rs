use super::{CpuBackend, assert_same_on_any_threads, on_every_backend};
use meshwright_backend::{Backend, BlockIndex};

fn normal(cpu: &dyn Backend, key: u64, index: &BlockIndex) -> Vec<f32> {
    let mut out = vec![f32::NAN; index.len()];
    cpu.fill_normal(key, 2.0, index, (&mut out[..]).into());
    out
}

#[test]
fn deviates_have_the_moments_and_tails_of_a_normal() {
    let n = 400_000;
    on_every_backend(|cpu| {
        let x = normal(cpu, 5, &BlockIndex::whole(&[n]));
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
    });
}

#[test]
fn streams_of_neighboring_keys_differ() {
    let cpu = CpuBackend::new(1).expect("one thread starts nothing");
    let index = BlockIndex::whole(&[1000]);
    let one = normal(&cpu, 1, &index);
    for key in [0, 2, 1 << 32, 1u64.wrapping_add(0x9e37_79b9_7f4a_7c15)] {
        let other = normal(&cpu, key, &index);
        let same = one.iter().filter(|x| other.contains(x)).count();
        assert!(same < 10, "{same} deviates of keys 1 and {key} are the same");
    }
}

#[test]
fn a_block_has_the_values_of_the_whole_tensor() {
    let global = [4, 30, 26];
    let reference = normal(&CpuBackend::new(1).expect("starts"), 9, &BlockIndex::whole(&global));
    on_every_backend(|cpu| {
        assert_eq!(normal(cpu, 9, &BlockIndex::whole(&global)), reference);
        for dim in 0..3 {
            let mut index = BlockIndex::whole(&global);
            index.local[dim] /= 2;
            for half in 0..2 {
                index.offset[dim] = half * index.local[dim];
                for (i, x) in normal(cpu, 9, &index).iter().enumerate() {
                    let expected = reference[index.global_index(i) as usize];
                    assert_eq!(*x, expected, "dim {dim}, half {half}, element {i}");
                }
            }
        }
    });
    assert_same_on_any_threads("normal", |cpu| normal(cpu, 3, &BlockIndex::whole(&[300, 1000])));
}
