//! Tables that are read or written by one description of their keys.

use super::super::{Figure, Origin};
use super::quantity::Quantity;

/// A table that is read or written. Methods return the value of a key: a reader the one of the file, a writer the
/// `given` one, which it writes.
pub trait TableFormat: Sized {
    type Error;

    fn text(&mut self, key: &'static str, given: Option<&str>) -> Result<String, Self::Error>;
    fn optional_text(
        &mut self,
        key: &'static str,
        given: Option<&str>,
    ) -> Result<Option<String>, Self::Error>;
    fn numbers(
        &mut self,
        key: &'static str,
        quantity: Quantity,
        given: Option<Vec<f64>>,
    ) -> Result<Vec<f64>, Self::Error>;
    fn optional_count(
        &mut self,
        key: &'static str,
        given: Option<usize>,
    ) -> Result<Option<usize>, Self::Error>;
    fn count(&mut self, key: &'static str, given: Option<usize>) -> Result<usize, Self::Error>;
    fn figure(
        &mut self,
        key: &'static str,
        quantity: Quantity,
        given: Option<&Figure>,
    ) -> Result<Figure, Self::Error>;
    fn optional_figure(
        &mut self,
        key: &'static str,
        quantity: Quantity,
        given: Option<&Figure>,
    ) -> Result<Option<Figure>, Self::Error>;
    /// The origin of all numbers of the table that have no own one.
    fn origin(&mut self, given: Option<&Origin>) -> Result<Origin, Self::Error>;
    /// A table inside.
    fn table<V>(
        &mut self,
        key: &'static str,
        value: impl FnOnce(&mut Self) -> Result<V, Self::Error>,
    ) -> Result<V, Self::Error>;
    /// An array of tables, empty if the key is missing.
    fn tables<V>(
        &mut self,
        key: &'static str,
        given: Option<&[V]>,
        value: impl FnMut(&mut Self, Option<&V>) -> Result<V, Self::Error>,
    ) -> Result<Vec<V>, Self::Error>;
    /// Refuses the value of a key that was read.
    fn check(
        &self,
        key: &'static str,
        good: bool,
        fault: impl FnOnce() -> String,
    ) -> Result<(), Self::Error>;
}

/// The key `name` of a GPU or cluster.
pub fn name<T: TableFormat>(table: &mut T, given: Option<&str>) -> Result<String, T::Error> {
    let name = table.text("name", given)?;
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    table.check("name", !name.is_empty() && name.chars().all(is_allowed), || {
        format!("is `{name}`: use letters, digits, `-` and `_`")
    })?;
    Ok(name)
}
