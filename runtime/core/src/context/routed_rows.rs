//! The rows that a routing has brought to the experts of a rank.

/// The rows that a routing has brought to the experts of this rank. The [`Rank`](super::Rank) of a tensor with these
/// rows refers to them.
#[derive(Debug, PartialEq, Eq)]
pub struct RoutedRows {
    /// Number of the routing on this rank, from 1.
    pub(crate) routing: u64,
    /// Rows of each expert of this rank, in their order.
    pub(crate) of_expert: Vec<usize>,
}

impl RoutedRows {
    /// Returns the number of rows.
    pub(crate) fn count(&self) -> usize {
        self.of_expert.iter().sum()
    }
}
