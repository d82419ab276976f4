//! Optimizer steps whose state is bf16: widened, updated in f32, and rounded stochastically.

use half::bf16;

use super::{AdamKernel, check_copy, update_with_momentum};
use crate::float::{Float, convert};
use crate::simd::dispatch;
use crate::state_rounding::{RandomWords, bits_of, round_to, store_state};
use crate::workers::{Rows, Workers};
use meshwright_backend::ops::optim::{AdamwArgs, SgdArgs};
use meshwright_backend::{SgdStep, StateRounding, ViewMut};

/// Elements that are widened together.
const BLOCK: usize = 512;

/// Updates elements of one group and one parameter.
pub(super) fn adamw<G: Float, C: Float>(
    workers: &Workers,
    adam: &AdamKernel,
    args: AdamwArgs,
    rounding: StateRounding,
) {
    let AdamwArgs { mut p, g, mut m, mut v, mut copy, .. } = args;
    let (p, g, m, v) = (p.typed(), g.typed::<G>(), m.typed(), v.typed());
    let copy = copy.as_mut().map(ViewMut::typed::<C>);
    let len = p.len();
    check_copy(&copy, len);
    let state = (Rows(m, 1), Rows(v, 1));
    let outputs = (Rows(p, 1), state, copy.map(|copy| Rows(copy, 1)));
    workers.rows(len, 4, outputs, |range, (p, (m, v), copy)| {
        let copy = copy.map(|copy| copy.0);
        adamw_range(adam, rounding.part(range.clone()), p.0, &g[range], m.0, v.0, copy);
    });
}

dispatch! {
    fn adamw_range<const FMA: bool, G: Float, C: Float>(
        adam: &AdamKernel,
        rounding: StateRounding,
        p: &mut [f32],
        g: &[G],
        m: &mut [bf16],
        v: &mut [bf16],
        copy: Option<&mut [C]>,
    ) {
        let mut copy = copy;
        let mut random = RandomWords::new(rounding, 0);
        while let Some(range) = random.advance() {
            let (p, g) = (&mut p[range.clone()], &g[range.clone()]);
            let (m, v) = (&mut m[range.clone()], &mut v[range.clone()]);
            let len = p.len();
            let (words, g, m, v) = (&random.words()[..len], &g[..len], &mut m[..len], &mut v[..len]);
            for i in 0..len {
                let (mut first, mut second) = (m[i].widen_to_f32(), v[i].widen_to_f32());
                adam.element::<FMA>(&mut p[i], g[i].widen_to_f32(), &mut first, &mut second);
                m[i] = round_to(first, bits_of(words[i], 0));
                v[i] = round_to(second, bits_of(words[i], 1));
            }
            if let Some(copy) = &mut copy {
                convert(p, &mut copy[range]);
            }
        }
    }
}

/// Updates elements of one parameter with momentum.
pub(super) fn sgd<G: Float, C: Float>(
    workers: &Workers,
    step: &SgdStep,
    args: SgdArgs,
    rounding: StateRounding,
) {
    let SgdArgs { mut p, g, mut momentum, mut copy, .. } = args;
    let Some(momentum) = momentum.as_mut().map(ViewMut::typed) else { return };
    let (p, g) = (p.typed(), g.typed::<G>());
    let copy = copy.as_mut().map(ViewMut::typed::<C>);
    let len = p.len();
    check_copy(&copy, len);
    let outputs = (Rows(p, 1), Rows(momentum, 1), copy.map(|copy| Rows(copy, 1)));
    workers.rows(len, 3, outputs, |range, (p, momentum, copy)| {
        let copy = copy.map(|copy| copy.0);
        sgd_range(step, rounding.part(range.clone()), p.0, &g[range], momentum.0, copy);
    });
}

dispatch! {
    fn sgd_range<const FMA: bool, G: Float, C: Float>(
        step: &SgdStep,
        rounding: StateRounding,
        p: &mut [f32],
        g: &[G],
        momentum: &mut [bf16],
        copy: Option<&mut [C]>,
    ) {
        let mut copy = copy;
        let mut random = RandomWords::new(rounding, 0);
        while let Some(range) = random.advance() {
            let (p, g) = (&mut p[range.clone()], &g[range.clone()]);
            let momentum = &mut momentum[range.clone()];
            let len = p.len();
            let (words, g, momentum) = (&random.words()[..len], &g[..len], &mut momentum[..len]);
            for i in 0..len {
                let mut sum = momentum[i].widen_to_f32();
                update_with_momentum::<FMA>(step, &mut p[i], g[i].widen_to_f32(), &mut sum);
                momentum[i] = round_to(sum, bits_of(words[i], 0));
            }
            if let Some(copy) = &mut copy {
                convert(p, &mut copy[range]);
            }
        }
    }
}

/// Rounds `x`, or its sum with `out`, into `out`.
pub(super) fn round_state<T: Float>(
    workers: &Workers,
    state: usize,
    x: &[T],
    accumulate: bool,
    out: &mut [bf16],
    rounding: &[StateRounding],
) {
    workers.rows(x.len(), 2, Rows(out, 1), |range, out| {
        round_range(state, range.start, &x[range], accumulate, out.0, rounding);
    });
}

dispatch! {
    // Elements from `first` on of all those that `rounding` covers.
    fn round_range<const FMA: bool, T: Float>(
        state: usize,
        first: usize,
        x: &[T],
        accumulate: bool,
        out: &mut [bf16],
        rounding: &[StateRounding],
    ) {
        let mut sums = [0.0; BLOCK];
        for (x, (index, out)) in x.chunks(BLOCK).zip(out.chunks_mut(BLOCK).enumerate()) {
            let sums = &mut sums[..x.len()];
            convert(x, sums);
            if accumulate {
                for (sum, out) in sums.iter_mut().zip(out.iter()) {
                    *sum += out.widen_to_f32();
                }
            }
            let start = first + index * BLOCK;
            store_state(rounding, start..start + x.len(), state, sums, out);
        }
    }
}
