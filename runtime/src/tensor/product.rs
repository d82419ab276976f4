//! Products of a tensor and a weight: computed when their numbers are needed, alone or with what is done to them first.
//!
//! A device adds a bias, and takes GELU of that, while it writes the result of a product, which saves passes over it. So
//! where a device can do that, a product waits until somebody needs its numbers. If that is an expression which begins
//! with `+ bias`, or with `(.. + bias).gelu_tanh()`, and nobody else reads the product, they are computed as one.

use std::rc::Rc;
use std::sync::Arc;

use crate::backend::{Buffer, DType, Expr, Gemm, GemmEpilogue, LeafGrad, Node, View};
use crate::comm::Site;
use crate::layout::AxisSet;

use super::contract::Exit;
use super::region::like;
use super::tape::{Gradients, NodeId};
use super::value::{InBackward, ParamUse, Ready, Saved, Value};
use super::{ParamRef, Rank};

/// A contraction of a tensor that has entered its region with a weight: `x[m, k] · weight[k, n]`.
pub(crate) struct Product {
    pub(super) x: Value,
    pub(super) weight: ParamRef,
    /// The axes over which the weight's gradient is partial.
    pub(super) gradient_axes: AxisSet,
    pub(super) m: usize,
    pub(super) k: usize,
    pub(super) n: usize,
    /// Whether the weight is stored as `[n, k]`.
    pub(super) transposed: bool,
    /// How the result leaves the region.
    pub(super) exit: Rc<Exit>,
    pub(super) site: Site,
}

/// A bias that is added to each row of a product, and whether GELU is taken of that.
pub(super) struct Biased<'a> {
    pub bias: &'a ParamRef,
    /// The axes over which the bias's gradient is partial.
    pub gradient_axes: AxisSet,
    pub gelu: bool,
}

impl Product {
    fn rank(&self) -> &Rank {
        self.x.rank()
    }

    /// Whether it pays to wait for what is done with the result: if it stays as it is, and the device has more than plain
    /// products.
    pub(super) fn may_wait(&self) -> bool {
        self.exit.stays() && self.rank().backend().has_epilogues()
    }

    /// Whether a bias of so many elements is one for each column.
    pub(super) fn fits(&self, bias: &ParamRef) -> bool {
        bias.local_len() == self.n
    }

    fn gemm(&self) -> Gemm {
        let Product { m, n, k, transposed, .. } = *self;
        Gemm { m, n, k, trans_a: false, trans_b: transposed, accumulate: false }
    }

    /// The product by itself, after it has left the region; with `recorded`, backward undoes it.
    pub(super) fn compute(&self, recorded: bool) -> Ready {
        let rank = self.rank();
        let input = self.x.settle();
        let values = self.weight.read(self.gradient_axes);
        let [data] = rank.regions().kept(self.weight.path(), || {
            let mut out = rank.alloc(self.m * self.n);
            let (x, weight) = (input.data.view(), values.view());
            rank.backend().gemm(&self.gemm(), x, weight, out.view_mut());
            [self.exit.forward(rank, out, &self.site)]
        });
        drop(values);
        let node = recorded.then(|| {
            let (undo, exit) = (Undo::new(self, input.node), Rc::clone(&self.exit));
            rank.tape().record(move |gradients, dy| {
                let dy = exit.backward(gradients.rank, dy);
                undo.run(gradients, &dy, None);
            })
        });
        Ready { data, node }
    }

    /// The product with a bias added, and GELU of that, by one kernel where the device has it; with `recorded`, backward
    /// undoes it.
    ///
    /// What is kept of it, for backward or by a region, is the sum that GELU is taken of.
    pub(super) fn compute_biased(&self, with: &Biased<'_>, recorded: bool) -> Ready {
        let rank = self.rank();
        let input = self.x.settle();
        let path = self.weight.path();
        let keeps = recorded || rank.regions().keeps(path);
        let (values, bias) =
            (self.weight.read(self.gradient_axes), with.bias.read(with.gradient_axes));
        let forward = |out: &mut Buffer, inside: Option<&mut Buffer>| {
            let (weight, bias) = (values.view(), bias.view());
            self.forward_biased(&input.data, (weight, bias), with.gelu, out, inside);
        };
        let room = || rank.alloc(self.m * self.n);
        // What GELU gives, if that is computed with the product.
        let mut activated = None;
        let sum = (keeps || !with.gelu).then(|| {
            let [sum] = rank.regions().kept(path, || {
                let mut sum = room();
                match with.gelu {
                    true => forward(activated.insert(room()), Some(&mut sum)),
                    false => forward(&mut sum, None),
                }
                [sum]
            });
            sum
        });
        let data = match &sum {
            Some(sum) if !with.gelu => Arc::clone(sum),
            sum => Arc::new(activated.unwrap_or_else(|| {
                let mut out = room();
                match sum {
                    // A region has kept it.
                    Some(sum) => rank.backend().map(&gelu(), &[sum.view()], out.view_mut()),
                    None => forward(&mut out, None),
                }
                out
            })),
        };
        drop((values, bias));
        let node = recorded.then(|| {
            let undo = Undo::new(self, input.node);
            let bias = ParamUse::new(with.bias, with.gradient_axes, InBackward::Ignores);
            let inside = sum.filter(|_| with.gelu);
            rank.tape().record(move |gradients, dy| {
                let dy = match inside {
                    Some(inside) => undo_gelu(gradients.rank, inside, dy),
                    None => dy,
                };
                undo.run(gradients, &dy, Some(bias));
            })
        });
        Ready { data, node }
    }

    /// Writes `x · weight + bias` to `out`, or with `gelu` what GELU gives, and what that is taken of to `inside`.
    fn forward_biased(
        &self,
        x: &Buffer,
        (weight, bias): (View<'_>, View<'_>),
        gelu: bool,
        out: &mut Buffer,
        mut inside: Option<&mut Buffer>,
    ) {
        let rank = self.rank();
        let (backend, gemm) = (rank.backend(), self.gemm());
        let ending = match gelu {
            true => {
                let inside = inside.as_mut().map(|inside| inside.view_mut());
                GemmEpilogue::BiasGelu { bias, pre_activation: inside }
            }
            false => GemmEpilogue::Bias(bias),
        };
        if backend.gemm_with_epilogue(&gemm, x.view(), weight, ending, out.view_mut()) {
            return;
        }
        let mut product = rank.alloc(self.m * self.n);
        backend.gemm(&gemm, x.view(), weight, product.view_mut());
        match inside {
            Some(inside) => {
                backend.map(&added(false), &[product.view(), bias], inside.view_mut());
                backend.map(&self::gelu(), &[inside.view()], out.view_mut());
            }
            None => backend.map(&added(gelu), &[product.view(), bias], out.view_mut()),
        }
    }
}

/// `x + bias`, or GELU of that.
fn added(gelu: bool) -> Expr {
    let mut nodes = vec![Node::Leaf(0), Node::Row(1), Node::Add(0, 1)];
    nodes.extend(gelu.then_some(Node::GeluTanh(2)));
    Expr { nodes }
}

/// GELU of the only leaf.
fn gelu() -> Expr {
    Expr { nodes: vec![Node::Leaf(0), Node::GeluTanh(0)] }
}

/// The gradient of what GELU was taken of. It takes both operands, which nobody needs after it.
fn undo_gelu(rank: &Rank, inside: Arc<Buffer>, dy: Arc<Buffer>) -> Arc<Buffer> {
    let mut gradient = like(&dy, dy.len());
    let target = LeafGrad { view: gradient.view_mut(), accumulate: false };
    rank.backend().map_backward(&gelu(), &[inside.view()], dy.view(), &mut [Some(target)]);
    Arc::new(gradient)
}

/// What it takes to undo a product.
struct Undo {
    saved: Saved,
    source: Option<NodeId>,
    weight: ParamUse,
    m: usize,
    k: usize,
    n: usize,
    transposed: bool,
}

impl Undo {
    fn new(product: &Product, source: Option<NodeId>) -> Undo {
        let Product { m, k, n, transposed, .. } = *product;
        let in_backward = if source.is_some() { InBackward::Reads } else { InBackward::Ignores };
        let weight = ParamUse::new(&product.weight, product.gradient_axes, in_backward);
        Undo { saved: product.x.save(), source, weight, m, k, n, transposed }
    }

    /// Passes the gradient `dy` of the product on, also to a bias that was added to it.
    fn run(self, gradients: &mut Gradients<'_>, dy: &Buffer, bias: Option<ParamUse>) {
        let rank = gradients.rank;
        let Undo { saved, source, weight, m, k, n, transposed } = self;
        saved.fetch(rank);
        if let Some(source) = source {
            gradients.accumulate(&source, m * k, |dx, accumulate| {
                let weight = weight.param().values();
                let product =
                    Gemm { m, n: k, k: n, trans_a: false, trans_b: !transposed, accumulate };
                rank.backend().gemm(&product, dy.view(), weight.view(), dx);
            });
        }
        let x = saved.take(rank);
        let mut sums = None;
        weight.finish(gradients, |mut dw, accumulate| {
            // The gradient is laid out as the weight: `xᵀ · dy`, or its transpose.
            let (rows, cols, a, b) = if transposed { (n, k, dy, &*x) } else { (k, n, &*x, dy) };
            let product =
                Gemm { m: rows, n: cols, k: m, trans_a: true, trans_b: false, accumulate };
            let (a, b) = (a.view(), b.view());
            if bias.is_some() && !transposed {
                let mut room = rank.scratch(DType::F32, n);
                let ending = GemmEpilogue::BiasGrad(room.view_mut());
                if rank.backend().gemm_with_epilogue(&product, a, b, ending, dw.reborrow()) {
                    sums = Some(room);
                    return;
                }
            }
            rank.backend().gemm(&product, a, b, dw);
        });
        if let Some(bias) = bias {
            let sums = sums.unwrap_or_else(|| sums_of_rows(rank, dy, n));
            bias.finish_with(gradients, &sums);
        }
    }
}

/// The gradient of a bias of `n` elements, from that of what it was added to.
fn sums_of_rows(rank: &Rank, dy: &Buffer, n: usize) -> Buffer {
    let mut sums = rank.scratch(DType::F32, n);
    let target = LeafGrad { view: sums.view_mut(), accumulate: false };
    // No derivative of a sum depends on a value: any numbers will do.
    let bias = rank.scratch(dy.dtype(), n);
    let leaves = [dy.view(), bias.view()];
    rank.backend().map_backward(&added(false), &leaves, dy.view(), &mut [None, Some(target)]);
    sums
}
