//! Numbers of operands as types.

/// A number of operands, as a type: operations have arrays of that many inputs and parameters.
pub trait Arity: 'static {
    /// An array with one element per operand.
    type Array<T>: AsRef<[T]> + IntoIterator<Item = T>;

    /// Creates an array from the results of `element` for each index.
    fn from_fn<T>(element: impl FnMut(usize) -> T) -> Self::Array<T>;

    /// Returns the array of `map` of a reference to each element.
    fn map_ref<'a, T: 'a, U>(
        array: &'a Self::Array<T>,
        map: impl FnMut(&'a T) -> U,
    ) -> Self::Array<U>;

    /// Returns the array of `map` of a mutable reference to each element.
    fn map_mut<'a, T: 'a, U>(
        array: &'a mut Self::Array<T>,
        map: impl FnMut(&'a mut T) -> U,
    ) -> Self::Array<U>;
}

/// `N` operands.
#[derive(Debug)]
pub struct Count<const N: usize>;

impl<const N: usize> Arity for Count<N> {
    type Array<T> = [T; N];

    fn from_fn<T>(element: impl FnMut(usize) -> T) -> [T; N] {
        std::array::from_fn(element)
    }

    fn map_ref<'a, T: 'a, U>(array: &'a [T; N], map: impl FnMut(&'a T) -> U) -> [U; N] {
        array.each_ref().map(map)
    }

    fn map_mut<'a, T: 'a, U>(array: &'a mut [T; N], map: impl FnMut(&'a mut T) -> U) -> [U; N] {
        array.each_mut().map(map)
    }
}
