//! Bytes that a rank sends, against closed forms.

use super::case::{BATCH, Case, Style};
use meshwright_backend::DType;

/// Communication of forward and backward, in bytes: `t` positions of a rank, `q` and `kv` elements of a position of
/// queries and keys, `e` bytes of an element; gradients of keys and values travel in f32.
fn closed_form(case: &Case, ranks: usize, style: Style, e: usize) -> [u64; 2] {
    let t = BATCH * case.seq / ranks;
    let [q, kv, ..] = case.rows();
    let p = ranks;
    let forms = match style {
        Style::Ring => {
            let forward = (p - 1) * 2 * t * kv * e;
            [forward, forward + p * 2 * t * kv * 4]
        }
        Style::Gather => {
            let forward = (p - 1) * 2 * t * kv * e;
            [forward, forward + (p - 1) * 2 * t * kv * 4]
        }
        Style::Exchange(u) => {
            let (copies, ring) = ((u / case.kv_heads).max(1), p / u);
            let exchange = t * (2 * q + 2 * kv * copies) * e * (u - 1) / u;
            let forward = exchange + (ring - 1) * 2 * t * kv * copies * e;
            let gradients = if ring == 1 { 0 } else { ring * 2 * t * kv * copies * 4 };
            [forward, forward + gradients]
        }
    };
    forms.map(|bytes| bytes as u64)
}

#[test]
fn bytes_are_as_the_closed_forms() {
    let mut checked = 0;
    for (heads, kv_heads) in [(4, 4), (8, 2), (8, 1)] {
        let case = Case::causal(48, heads, kv_heads);
        for (ranks, dtype) in
            [2, 3, 4, 8].into_iter().flat_map(|p| [(p, DType::F32), (p, DType::Bf16)])
        {
            let exchanges = (2..=ranks).filter(|u| ranks % u == 0 && heads % u == 0);
            let styles = [Style::Ring, Style::Gather].into_iter();
            for style in styles.chain(exchanges.map(Style::Exchange)) {
                let expected = closed_form(&case, ranks, style, dtype.bytes());
                let sent = case.on_ranks_with(ranks, style, dtype, |comms| comms).bytes;
                assert_eq!(sent, vec![expected; ranks], "{style:?} on {ranks} ranks: {case:?}");
                checked += 1;
            }
        }
    }
    assert_eq!(checked, 82);
}
