//! The all-to-all of rows between ranks that have different experts.

use std::rc::Rc;
use std::sync::Arc;

use crate::layout::AxisSet;
use crate::tensor::{Rank, RoutedRows, alloc_like, fail};
use meshwright_backend::ops::routing::DispatchTokensArgs;
use meshwright_backend::{Buffer, Category, RoutingShape};
use meshwright_comm::{Blocks, Communicator, Site};

/// The exchange of the rows of one routing between ranks whose experts are split over some axes.
///
/// A rank sends its rows in the order of experts, so the rows for a member of the group are consecutive. It receives
/// them by the member that has sent them, and reorders them by expert.
pub(super) struct Exchange {
    group: Arc<Communicator>,
    site: Site,
    /// Rows that this rank sends to each member, and receives from it.
    send: Vec<usize>,
    receive: Vec<usize>,
    /// The received row at each position of the order by expert, and the inverse; `None` if both orders are the same.
    order: Option<[Arc<Buffer>; 2]>,
    /// The rows of each expert of this rank.
    pub rows: Rc<RoutedRows>,
}

impl Exchange {
    /// Creates the exchange of routing number `routing`, by gathering the numbers of rows of all members. This rank has
    /// `counts` rows for each expert.
    #[track_caller]
    pub fn new(
        rank: &Rank,
        (routing, counts): (u64, &[u32]),
        axes: AxisSet,
        site: &Site,
    ) -> Exchange {
        let group = rank.group(axes);
        let (members, experts) = (group.size(), counts.len());
        assert!(
            experts.is_multiple_of(members),
            "`{}` routes tokens to {experts} experts, which do not divide among the {members} ranks of {axes}",
            site.field()
        );
        let mut all = vec![0u32; members * experts];
        if members == 1 {
            all.copy_from_slice(counts);
        } else {
            let blocks = Blocks::even(1, experts, members);
            group
                .all_gather(site, counts.into(), all.as_mut_slice().into(), &blocks)
                .unwrap_or_else(|error| fail(error));
        }
        if rank.backend().is_dry_run() {
            // It gathers nothing that is larger than its small buffers.
            all.chunks_mut(experts).for_each(|row| row.copy_from_slice(counts));
        }
        let share = experts / members;
        let sum = |counts: &[u32]| counts.iter().map(|count| *count as usize).sum::<usize>();
        let own = group.rank() * share..(group.rank() + 1) * share;
        let received: Vec<&[u32]> =
            all.chunks(experts).map(|counts| &counts[own.clone()]).collect();
        let of_expert = |expert| received.iter().map(|counts| counts[expert] as usize).sum();
        let rows = RoutedRows { routing, of_expert: (0..share).map(of_expert).collect() };
        let order = (members > 1 && share > 1).then(|| {
            let (order, inverse) = order_by_expert(&received);
            [order, inverse]
                .map(|order| Arc::new(rank.allocator().copy_of(&order, Category::Activations)))
        });
        Exchange {
            site: site.clone(),
            send: counts.chunks(share).map(sum).collect(),
            receive: received.iter().map(|counts| sum(counts)).collect(),
            group,
            order,
            rows: Rc::new(rows),
        }
    }

    /// Returns true if no other rank takes part.
    pub fn is_local(&self) -> bool {
        self.group.size() == 1
    }

    /// Sends rows of `cols` elements to their experts; returns the rows of the experts of this rank, in their order.
    #[track_caller]
    pub fn to_experts(&self, rank: &Rank, rows: Buffer, cols: usize) -> Buffer {
        if self.is_local() {
            return rows;
        }
        let received = self.all_to_all(&rows, [&self.send, &self.receive], cols);
        drop(rows);
        match &self.order {
            Some([order, _]) => self.reordered(rank, &received, order, cols),
            None => received,
        }
    }

    /// Sends the rows of the experts of this rank back; returns the rows of its tokens, in the order that they were
    /// sent in.
    #[track_caller]
    pub fn to_tokens(&self, rank: &Rank, rows: Arc<Buffer>, cols: usize) -> Arc<Buffer> {
        if self.is_local() {
            return rows;
        }
        let directions = [&self.receive, &self.send];
        let returned = match &self.order {
            Some([_, inverse]) => {
                let rows = self.reordered(rank, &rows, inverse, cols);
                self.all_to_all(&rows, directions, cols)
            }
            None => self.all_to_all(&rows, directions, cols),
        };
        Arc::new(returned)
    }

    #[track_caller]
    fn all_to_all(&self, rows: &Buffer, [send, receive]: [&Vec<usize>; 2], cols: usize) -> Buffer {
        let elements = |rows: &Vec<usize>| rows.iter().map(|rows| rows * cols).collect::<Vec<_>>();
        let (send, receive) = (elements(send), elements(receive));
        let mut received = alloc_like(rows, receive.iter().sum());
        self.group
            .all_to_all(&self.site, rows.view(), received.view_mut(), &send, &receive)
            .unwrap_or_else(|error| fail(error));
        received
    }

    fn reordered(&self, rank: &Rank, rows: &Buffer, order: &Buffer, cols: usize) -> Buffer {
        let mut out = alloc_like(rows, rows.len());
        let shape = RoutingShape { tokens: order.len(), top_k: 1 };
        debug_assert_eq!(rows.len(), order.len() * cols);
        rank.backend().dispatch_tokens(
            shape,
            DispatchTokensArgs {
                x: rows.view(),
                order: order.view(),
                weights: None,
                out: out.view_mut(),
            },
        );
        out
    }
}

/// Returns the received row at each position of the order by expert, and the inverse. `received` has the rows of each
/// expert by the member that has sent them, which come in the order of members.
fn order_by_expert(received: &[&[u32]]) -> (Vec<u32>, Vec<u32>) {
    let mut start = 0;
    let starts: Vec<Vec<u32>> = received
        .iter()
        .map(|counts| {
            let of_expert = |count: &u32| {
                start += count;
                start - count
            };
            counts.iter().map(of_expert).collect()
        })
        .collect();
    let experts = 0..received.first().map_or(0, |counts| counts.len());
    let order: Vec<u32> = experts
        .flat_map(|expert| {
            let runs = received.iter().zip(&starts);
            runs.flat_map(move |(counts, starts)| starts[expert]..starts[expert] + counts[expert])
        })
        .collect();
    let mut inverse = vec![0; order.len()];
    for (position, row) in order.iter().enumerate() {
        inverse[*row as usize] = position as u32;
    }
    (order, inverse)
}

#[cfg(test)]
mod tests {
    use super::order_by_expert;

    #[test]
    fn rows_of_an_expert_are_in_the_order_of_members() {
        // Member 0 sends rows 0 to 2, the last one for expert 1; member 1 rows 3 to 6; member 2 none.
        let received: [&[u32]; 3] = [&[2, 1, 0], &[1, 0, 3], &[0, 0, 0]];
        let (order, inverse) = order_by_expert(&received);
        assert_eq!(order, [0, 1, 3, 2, 4, 5, 6]);
        assert_eq!(inverse, [0, 1, 3, 2, 4, 5, 6]);
        let (order, inverse) = order_by_expert(&[&[0, 2], &[1, 0], &[2, 1]]);
        assert_eq!(order, [2, 3, 4, 0, 1, 5]);
        assert_eq!(inverse, [3, 4, 0, 1, 2, 5]);
        assert_eq!(order_by_expert(&[&[0, 0], &[0, 0]]), (vec![], vec![]));
    }
}
