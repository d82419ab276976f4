use super::{assert_close, assert_same_on_any_threads, on_every_backend, values, wide};
use meshwright_backend::ops::rope::RopeArgs;
use meshwright_backend::{Backend, RopeLayout, RopeShape};

/// Whole heads and parts of them, even and odd, in both layouts.
fn shapes() -> impl Iterator<Item = RopeShape> {
    let layouts = [RopeLayout::HalfSplit, RopeLayout::Interleaved];
    layouts.into_iter().flat_map(|layout| {
        [(14, 14), (14, 6), (64, 64), (64, 16), (7, 4), (40, 2)].map(|(head_dim, rotary_dim)| {
            RopeShape { batch: 2, seq: 5, heads: 3, head_dim, rotary_dim, layout }
        })
    })
}

fn angle(s: &RopeShape, position: usize, pair: usize) -> f64 {
    position as f64 / 100f64.powf(2.0 * pair as f64 / s.rotary_dim as f64)
}

/// Cosines and sines, of angles that begin with position 1.
fn tables(s: &RopeShape) -> [Vec<f32>; 2] {
    let half = s.rotary_dim / 2;
    [f64::cos, f64::sin]
        .map(|f| (0..s.seq * half).map(|i| f(angle(s, 1 + i / half, i % half)) as f32).collect())
}

fn rotated(cpu: &dyn Backend, s: &RopeShape, x: &[f32], inverse: bool) -> Vec<f32> {
    let [cos, sin] = tables(s);
    let mut y = vec![f32::NAN; x.len()];
    let (cos, sin) = ((&cos[..]).into(), (&sin[..]).into());
    cpu.rope(s, RopeArgs { x: x.into(), cos, sin, inverse, y: (&mut y[..]).into() });
    y
}

#[test]
fn rope_rotates_pairs_by_position_and_back() {
    for s in shapes() {
        let half = s.rotary_dim / 2;
        let x = values(s.elements(), 1);
        let mut expected = wide(&x);
        for (head, rotated) in expected.chunks_exact_mut(s.head_dim).enumerate() {
            let position = 1 + head / s.heads % s.seq;
            for j in 0..half {
                let (first, second) = match s.layout {
                    RopeLayout::HalfSplit => (j, j + half),
                    RopeLayout::Interleaved => (2 * j, 2 * j + 1),
                };
                let (a, b, angle) = (rotated[first], rotated[second], angle(&s, position, j));
                rotated[first] = a * angle.cos() - b * angle.sin();
                rotated[second] = b * angle.cos() + a * angle.sin();
            }
        }
        on_every_backend(|cpu| {
            let turned = rotated(cpu, &s, &x, false);
            assert_close(&format!("{s:?}"), &turned, &expected, 1e-6);
            let back = rotated(cpu, &s, &turned, true);
            assert_close(&format!("{s:?}, back"), &back, &wide(&x), 1e-6);
        });
    }
}

#[test]
fn rope_is_the_same_on_any_number_of_threads() {
    for layout in [RopeLayout::HalfSplit, RopeLayout::Interleaved] {
        let s = RopeShape { batch: 3, seq: 70, heads: 4, head_dim: 24, rotary_dim: 16, layout };
        let x = values(s.elements(), 2);
        assert_same_on_any_threads("rope", |cpu| rotated(cpu, &s, &x, false));
    }
}
