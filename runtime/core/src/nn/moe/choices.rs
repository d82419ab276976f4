//! Token permutation: the top-k experts of each token, and the order of these choices by expert.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use crate::layout::AxisSet;
use crate::tensor::{Extent, Rank};
use meshwright_backend::ops::routing::GroupByExpertArgs;
use meshwright_backend::{Buffer, Category, DType, RoutingShape};
use meshwright_comm::Site;

use super::exchange::Exchange;

/// The top-k experts of each token, and the order of these choices by expert.
pub(super) struct Choices {
    /// The rank, which refers to the micro-batch of the tokens.
    pub rank: Rank,
    /// Extents of the tokens.
    pub tokens: Vec<Extent>,
    pub shape: RoutingShape,
    /// Number of the routing on this rank.
    pub routing: u64,
    /// Choices of each expert by the tokens of this rank.
    pub counts: Vec<u32>,
    /// The choice at each position, in the order of experts.
    pub order: Arc<Buffer>,
    /// The position of each choice.
    pub positions: Arc<Buffer>,
    pub site: Site,
    /// Exchanges with the ranks that have other experts, by the axes that experts are split over.
    exchanges: RefCell<Vec<(AxisSet, Rc<Exchange>)>>,
}

impl Choices {
    /// Groups the `choices` of tokens by expert. The host waits for the numbers of rows.
    pub fn new(
        rank: &Rank,
        tokens: Vec<Extent>,
        (shape, experts): (RoutingShape, usize),
        choices: &Buffer,
        site: &Site,
    ) -> Choices {
        let alloc = |len| rank.allocator().alloc(DType::U32, len, Category::Activations);
        let [mut order, mut positions] = [(); 2].map(|()| alloc(shape.choices()));
        let mut counts = rank.alloc_scratch(DType::U32, experts);
        rank.backend().group_by_expert(GroupByExpertArgs {
            choices: choices.view(),
            counts: counts.view_mut(),
            order: order.view_mut(),
            positions: positions.view_mut(),
        });
        let mut counts = counts.view().to_vec();
        if rank.backend().is_dry_run() {
            counts = even_counts(shape.choices(), experts);
        }
        // A recomputation that chose other experts would have other rows than the forward pass.
        rank.segments().note_numbers(&counts);
        Choices {
            rank: rank.clone(),
            tokens,
            shape,
            routing: rank.session_state::<RoutingCount>().next_routing(),
            counts,
            order: Arc::new(order),
            positions: Arc::new(positions),
            site: site.clone(),
            exchanges: RefCell::default(),
        }
    }

    /// Returns the exchange between ranks whose experts are split over `axes`. The first call is one all-gather of the
    /// numbers of rows over these axes, if they have several ranks.
    #[track_caller]
    pub fn exchange(&self, axes: AxisSet) -> Rc<Exchange> {
        if let Some((_, exchange)) =
            self.exchanges.borrow().iter().find(|(known, _)| *known == axes)
        {
            return Rc::clone(exchange);
        }
        let rows = (self.routing, &self.counts[..]);
        let exchange = Rc::new(Exchange::new(&self.rank, rows, axes, &self.site));
        self.exchanges.borrow_mut().push((axes, Rc::clone(&exchange)));
        exchange
    }
}

/// Number of routings of a rank so far.
#[derive(Default)]
struct RoutingCount(Cell<u64>);

impl RoutingCount {
    /// Returns the number of a new routing: no other has it.
    fn next_routing(&self) -> u64 {
        self.0.set(self.0.get() + 1);
        self.0.get()
    }
}

/// Returns the choices of each expert in a dry run, equally many, as no numbers are known.
fn even_counts(choices: usize, experts: usize) -> Vec<u32> {
    (0..experts)
        .map(|expert| ((expert + 1) * choices / experts - expert * choices / experts) as u32)
        .collect()
}
