//! Lower bound of the memory that context parallelism adds to the attention of a layer.
//!
//! With `k + v` the elements of keys and values of a rank's tokens, `q` and `w` those of its queries and of the output of
//! attention, `h` the number of its log-sum-exps, `e` the bytes of an element, `p` ranks, and the `c` copies of keys and values
//! of an exchange of heads:
//!
//! | | kept | workspace of forward | of backward |
//! |---|---|---|---|
//! | ring of 2 | | `(k+v) e + max((k+v) e, 4 (w+h))` | `2 (k+v) e + 8 (k+v) + 4 q` |
//! | ring of more | | `2 (k+v) e + 4 (w+h)` | the same |
//! | gather | | `2 p (k+v) e` | `8 p (k+v) + 4 q` |
//! | exchange | `w e + (c-1) (k+v) e` | `2 (q + c (k+v)) e` | the same |
//!
//! While gradients of keys and values travel around a ring, those that were sent are freed as soon as the next rank has them;
//! they are not planned. A ring of ranks that exchange heads has keys and values `c` times.

use crate::nn::ContextAlgorithm;

/// Bytes of an f32.
pub const F32: f64 = 4.0;

/// One rank's operands of attention: elements of queries, keys with values, and output, and the number of log-sum-exps.
#[derive(Debug, Clone, Copy)]
pub struct AttentionElements {
    pub q: f64,
    pub kv: f64,
    pub out: f64,
    pub lse: f64,
}

/// Bytes that context parallelism adds to the attention of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ContextBytes {
    /// Kept from forward to backward.
    pub kept: f64,
    /// Of those, freed before the backward of attention begins.
    pub freed: f64,
    /// Workspace of forward or backward, whichever is more.
    pub workspace: f64,
    /// Activations and workspace of backward at their peak, with the gradient of the output, beside what is kept.
    pub in_backward: f64,
}

impl ContextBytes {
    /// Counts the attention of one of `ranks` ranks of `cp`, with `kv_heads` key-value heads and `element` bytes of an element.
    pub fn new(
        algorithm: ContextAlgorithm,
        ranks: usize,
        kv_heads: usize,
        element: f64,
        of: AttentionElements,
    ) -> ContextBytes {
        let AttentionElements { q, kv, out, .. } = of;
        let dout = element * out;
        match algorithm {
            ContextAlgorithm::Ring => {
                let [forward, backward] = ring(ranks, element, of);
                let workspace = forward.max(backward);
                ContextBytes { workspace, in_backward: dout + backward, ..ContextBytes::default() }
            }
            ContextAlgorithm::Gather => {
                let gathered = ranks as f64 * kv;
                let backward = 2.0 * F32 * gathered + F32 * q;
                let workspace = backward.max(2.0 * element * gathered);
                ContextBytes { workspace, in_backward: dout + backward, ..ContextBytes::default() }
            }
            ContextAlgorithm::Exchange(size) => {
                let copies = (size as f64 / kv_heads as f64).max(1.0);
                let exchanged = AttentionElements { kv: copies * kv, ..of };
                let [forward, backward] = ring(ranks / size, element, exchanged);
                let gradients = element * (q + exchanged.kv);
                let messages = 2.0 * gradients;
                // The output with all heads, an operand of the next layer, is kept beside that with some heads.
                let own_out = element * out;
                ContextBytes {
                    kept: own_out + element * (exchanged.kv - kv),
                    freed: own_out,
                    workspace: messages.max(forward).max(backward),
                    // The gradient of the output is there with all heads and with some.
                    in_backward: 2.0 * dout + backward.max(gradients + messages),
                }
            }
        }
    }
}

/// Returns the workspace of forward and of backward on a ring of `size` ranks.
fn ring(size: usize, element: f64, of: AttentionElements) -> [f64; 2] {
    let AttentionElements { q, kv, out, lse } = of;
    let (here, of_block) = (element * kv, F32 * (out + lse));
    let backward = 2.0 * here + F32 * (q + 2.0 * kv);
    match size {
        1 => [0.0, 0.0],
        // While the keys of the other rank are read, none are on their way.
        2 => [here + here.max(of_block), backward],
        _ => [2.0 * here + of_block, backward],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Multi-head attention in bf16 on tokens of 100 elements and 2 heads.
    const OF: AttentionElements = AttentionElements { q: 100.0, kv: 200.0, out: 100.0, lse: 2.0 };

    fn bytes(algorithm: ContextAlgorithm, ranks: usize) -> ContextBytes {
        ContextBytes::new(algorithm, ranks, 2, 2.0, OF)
    }

    #[test]
    fn workspace_of_a_ring_does_not_grow_with_it() {
        let two = bytes(ContextAlgorithm::Ring, 2);
        assert_eq!((two.kept, two.freed), (0.0, 0.0));
        assert_eq!((two.workspace, two.in_backward), (2800.0, 200.0 + 2800.0));
        assert_eq!(bytes(ContextAlgorithm::Ring, 8), two);
        // One key-value head of many query heads: the output of a block outweighs the gradients of keys and values.
        let grouped = AttentionElements { kv: 4.0, lse: 20.0, ..OF };
        let grouped = ContextBytes::new(ContextAlgorithm::Ring, 4, 1, 2.0, grouped);
        assert_eq!((grouped.workspace, grouped.in_backward), (496.0, 200.0 + 448.0));
    }

    #[test]
    fn gathered_bytes_grow_with_the_ranks() {
        let of = |ranks| bytes(ContextAlgorithm::Gather, ranks).workspace;
        assert_eq!((of(2), of(4)), (3600.0, 6800.0));
    }

    #[test]
    fn exchanged_operands_are_kept_and_sent() {
        let all = bytes(ContextAlgorithm::Exchange(2), 2);
        assert_eq!((all.kept, all.freed), (200.0, 200.0));
        assert_eq!((all.workspace, all.in_backward), (1200.0, 400.0 + 600.0 + 1200.0));
        // Two copies of keys and values for four ranks, and rings of two of them.
        let some = bytes(ContextAlgorithm::Exchange(4), 8);
        assert_eq!((some.kept, some.freed), (600.0, 200.0));
        let (messages, ring) = (2.0 * 2.0 * 500.0, 2.0 * 800.0 + 4.0 * 900.0);
        assert_eq!((some.workspace, some.in_backward), (ring, 400.0 + ring));
        assert!(ring > 1000.0 + messages);
    }
}
