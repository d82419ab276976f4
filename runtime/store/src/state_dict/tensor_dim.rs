//! Dims of a tensor in a folder, and this rank's part of each.

/// A dim of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TensorDim {
    /// Elements of the whole tensor.
    pub size: usize,
    /// The first element that this rank holds.
    pub offset: usize,
    /// Elements that it holds.
    pub len: usize,
}

impl TensorDim {
    /// A dim that this rank holds whole.
    fn whole(size: usize) -> TensorDim {
        TensorDim { size, offset: 0, len: size }
    }
}

/// Writes dims as those of the sizes `shape`, in row-major order: each as one or several, also with dims of size 1.
///
/// # Errors
/// Sizes that are not those of the dims in groups, and several dims for one that this rank does not hold whole, as the
/// end of a sentence about the tensor.
pub(super) fn regrouped(dims: &[TensorDim], shape: &[usize]) -> Result<Vec<TensorDim>, String> {
    let other = || {
        let sizes: Vec<usize> = dims.iter().map(|dim| dim.size).collect();
        format!("has the shape {sizes:?}, which is not {shape:?} in other groups")
    };
    let (mut rest, mut written) = (shape, Vec::new());
    for dim in dims {
        let (mut product, mut count) = (1usize, 0);
        while product < dim.size && count < rest.len() {
            product = product.saturating_mul(rest[count]);
            count += 1;
        }
        let (group, behind) = rest.split_at(count);
        if product != dim.size {
            return Err(other());
        }
        rest = behind;
        // A part of several dims is one of the first, such as the channels of a convolution.
        let first = group.iter().position(|size| *size > 1);
        let inside: usize = group.iter().skip(first.map_or(0, |first| first + 1)).product();
        if !(dim.offset.is_multiple_of(inside) && dim.len.is_multiple_of(inside)) {
            return Err(format!("is split along a dim that is stored as {group:?}"));
        }
        let part = |(index, size): (usize, &usize)| {
            if Some(index) == first {
                TensorDim { size: *size, offset: dim.offset / inside, len: dim.len / inside }
            } else {
                TensorDim::whole(*size)
            }
        };
        written.extend(group.iter().enumerate().map(part));
    }
    if rest.iter().any(|size| *size > 1) {
        return Err(other());
    }
    written.extend(rest.iter().map(|size| TensorDim::whole(*size)));
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes(dims: &[TensorDim], shape: &[usize]) -> Result<[Vec<usize>; 2], String> {
        let written = regrouped(dims, shape)?;
        assert_eq!(written.iter().map(|dim| dim.size).collect::<Vec<_>>(), shape);
        let starts = written.iter().map(|dim| dim.offset).collect();
        Ok([starts, written.iter().map(|dim| dim.offset + dim.len).collect()])
    }

    #[test]
    fn dims_are_written_in_groups() {
        let whole = TensorDim::whole;
        let part = TensorDim { size: 32, offset: 8, len: 4 };
        for (dims, shape, from, to) in [
            (&[part, whole(48)][..], &[32, 3, 4, 4][..], vec![8, 0, 0, 0], vec![12, 3, 4, 4]),
            (&[whole(1), part], &[1, 1, 32], vec![0, 0, 8], vec![1, 1, 12]),
            (&[whole(10), part], &[1, 10, 32], vec![0, 0, 8], vec![1, 10, 12]),
            (&[part], &[32, 1], vec![8, 0], vec![12, 1]),
            (&[whole(1)], &[1, 1], vec![0, 0], vec![1, 1]),
            (&[whole(5), part], &[5, 16, 2], vec![0, 4, 0], vec![5, 6, 2]),
            (&[whole(5), part], &[5, 1, 8, 4], vec![0, 0, 2, 0], vec![5, 1, 3, 4]),
        ] {
            assert_eq!(shapes(dims, shape), Ok([from, to]), "{shape:?}");
        }
    }

    #[test]
    fn other_sizes_are_refused() {
        let (whole, part) = (TensorDim::whole, TensorDim { size: 32, offset: 8, len: 4 });
        for (dims, shape) in [
            (&[whole(6), whole(4)][..], &[4, 6][..]),
            (&[whole(6)], &[6, 2]),
            (&[whole(6)], &[5]),
            (&[whole(6), whole(2)], &[6]),
        ] {
            let text = shapes(dims, shape).unwrap_err();
            assert!(text.contains("in other groups"), "{text}");
        }
        let text = shapes(&[part], &[4, 8]).unwrap_err();
        assert_eq!(text, "is split along a dim that is stored as [4, 8]");
    }
}
