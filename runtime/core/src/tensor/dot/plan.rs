//! Plans of products: a batched matmul, and copies of operands whose strides are none.

use meshwright_backend::{BatchLoop, BatchedGemm, CopyDim, Gemm, StridedCopy};

/// One dim of a product: its size, and the distance of neighbors in each of `a`, `b` and `c` that has the dim.
#[derive(Debug, Clone, Copy)]
pub(super) struct Loop {
    pub(super) size: usize,
    pub(super) strides: [Option<usize>; 3],
}

impl Loop {
    /// Returns the dim with its operands in other roles.
    pub(super) fn with_roles(self, roles: [usize; 3]) -> Loop {
        Loop { strides: roles.map(|role| self.strides[role]), ..self }
    }
}

/// The kernels of a product.
#[derive(Debug)]
pub(super) struct Plan {
    /// The matmuls; `None` if no products are added up, so that the result is zero.
    pub(super) product: Option<BatchedGemm>,
    /// True if `a` and `b` change places, because the result is stored transposed.
    pub(super) is_transposed: bool,
    /// Copies before the matmuls, to a contiguous copy of an operand, or after them, to the result.
    pub(super) copies: [Option<StridedCopy>; 3],
}

/// The dims of a product by the operands that have them.
struct Loops {
    batch: Vec<Loop>,
    m: Vec<Loop>,
    n: Vec<Loop>,
    k: Vec<Loop>,
}

/// Dims of one operand that are one index of its matrices: size, and distance of neighbors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Index {
    size: usize,
    stride: usize,
}

impl Plan {
    /// Plans a product of these dims, in the order of the result.
    pub(super) fn new(loops: impl IntoIterator<Item = Loop>) -> Plan {
        let mut loops = Loops::new(loops);
        let is_empty = |loops: &[Loop]| loops.iter().any(|each| each.size == 0);
        if [&loops.batch, &loops.m, &loops.n, &loops.k].into_iter().any(|each| is_empty(each)) {
            return Plan { product: None, is_transposed: false, copies: [None; 3] };
        }
        let mut copies = [None; 3];
        for (operand, copy) in copies.iter_mut().enumerate() {
            if !loops.is_matrix(operand) {
                *copy = Some(loops.make_contiguous(operand));
            }
        }
        for (operand, copy) in copies.iter_mut().enumerate() {
            let is_scattered =
                loops.batch_loops().len() > 2 && index_of(&loops.batch, operand).is_none();
            if is_scattered && copy.is_none() {
                *copy = Some(loops.make_contiguous(operand));
            }
        }
        // The kernel reads the result only to add to it.
        copies[2] = copies[2].map(|copy| copy.reversed());
        let is_transposed = loops.is_transposed_result();
        if is_transposed {
            loops.transpose();
        }
        Plan { product: Some(loops.product()), is_transposed, copies }
    }
}

impl Loops {
    fn new(loops: impl IntoIterator<Item = Loop>) -> Loops {
        let mut sorted = Loops { batch: Vec::new(), m: Vec::new(), n: Vec::new(), k: Vec::new() };
        for each in loops.into_iter().filter(|each| each.size != 1) {
            match each.strides.map(|stride| stride.is_some()) {
                [true, true, true] => sorted.batch.push(each),
                [true, false, true] => sorted.m.push(each),
                [false, true, true] => sorted.n.push(each),
                [true, true, false] => sorted.k.push(each),
                _ => unreachable!(
                    "each dim of a product is one of two operands, or of the result and one of them"
                ),
            }
        }
        sorted
    }

    /// Returns the dims of the rows and of the columns of an operand, as the formula writes them.
    fn sides(&self, operand: usize) -> [&Vec<Loop>; 2] {
        [[&self.m, &self.k], [&self.k, &self.n], [&self.m, &self.n]][operand]
    }

    /// Returns rows and columns of an operand as one index each, if they are.
    fn matrix(&self, operand: usize) -> Option<[Index; 2]> {
        let [rows, cols] = self.sides(operand).map(|side| index_of(side, operand));
        Some([rows?, cols?])
    }

    /// Returns true if the matrices of an operand have contiguous rows, or contiguous columns.
    fn is_matrix(&self, operand: usize) -> bool {
        self.matrix(operand)
            .is_some_and(|sides| sides.iter().any(|side| side.size == 1 || side.stride == 1))
    }

    /// Makes an operand contiguous, matrix by matrix, and returns the copy. The dim whose neighbors are closest stays
    /// the innermost one.
    fn make_contiguous(&mut self, operand: usize) -> StridedCopy {
        let closest = |loops: &[Loop]| {
            loops.iter().filter_map(|each| each.strides[operand]).min().unwrap_or(usize::MAX)
        };
        let [rows, cols] = self.sides(operand).map(|side| closest(side));
        let Loops { batch, m, n, k } = self;
        let [first, second] = match operand {
            0 => [m, k],
            1 => [k, n],
            _ => [m, n],
        };
        let (outer, inner) = if rows < cols { (second, first) } else { (first, second) };
        let (mut place, mut dims) = (1, Vec::new());
        for each in batch.iter_mut().chain(outer).chain(inner).rev() {
            if let Some(stride) = &mut each.strides[operand] {
                dims.push(CopyDim { size: each.size, src: *stride, dst: place });
                *stride = place;
                place *= each.size;
            }
        }
        StridedCopy::new(dims)
    }

    /// Returns the loops over the batch, as few as they are for all operands together.
    fn batch_loops(&self) -> Vec<BatchLoop> {
        let mut merged: Vec<BatchLoop> = Vec::new();
        for each in &self.batch {
            let next = BatchLoop {
                count: each.size,
                strides: each.strides.map(|stride| stride.unwrap_or(0)),
            };
            match merged.last_mut() {
                Some(outer) if outer.strides == next.strides.map(|stride| stride * next.count) => {
                    *outer = BatchLoop { count: outer.count * next.count, ..next };
                }
                _ => merged.push(next),
            }
        }
        merged
    }

    fn is_transposed_result(&self) -> bool {
        let [_, cols] = self.matrix(2).expect("the operands of a plan are matrices");
        cols.size > 1 && cols.stride != 1
    }

    /// Computes the transpose of the result: `a` and `b` change places.
    fn transpose(&mut self) {
        std::mem::swap(&mut self.m, &mut self.n);
        for loops in [&mut self.batch, &mut self.m, &mut self.n, &mut self.k] {
            loops.iter_mut().for_each(|each| each.strides.swap(0, 1));
        }
    }

    fn product(&self) -> BatchedGemm {
        let [a, b, c] =
            [0, 1, 2].map(|operand| self.matrix(operand).expect("each operand is a matrix by now"));
        let [trans_a, trans_b] = [a, b].map(|[_, cols]| cols.size > 1 && cols.stride != 1);
        // The row length, if there is only one row.
        let lead = |[rows, cols]: [Index; 2], is_transposed: bool| {
            let [rows, cols] = if is_transposed { [cols, rows] } else { [rows, cols] };
            if rows.size > 1 { rows.stride } else { cols.size }
        };
        let batch = self.batch_loops();
        let one = BatchLoop::ONE;
        BatchedGemm {
            gemm: Gemm {
                m: c[0].size,
                n: c[1].size,
                k: a[1].size,
                trans_a,
                trans_b,
                accumulate: false,
            },
            lead: [lead(a, trans_a), lead(b, trans_b), lead(c, false)],
            batch: match batch[..] {
                [] => [one, one],
                [only] => [one, only],
                [outer, inner] => [outer, inner],
                _ => unreachable!("a plan has two loops over the batch at most"),
            },
        }
    }
}

/// Returns several dims of an operand as one index, if their elements are equally far apart.
fn index_of(loops: &[Loop], operand: usize) -> Option<Index> {
    let mut dims = loops.iter().map(|each| (each.size, each.strides[operand].unwrap_or(0)));
    let Some((mut size, mut stride)) = dims.next() else {
        return Some(Index { size: 1, stride: 1 });
    };
    for (next, next_stride) in dims {
        if stride != next * next_stride {
            return None;
        }
        (size, stride) = (size * next, next_stride);
    }
    Some(Index { size, stride })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loops of sizes, with the strides of contiguous operands whose dims are letters.
    fn loops(sizes: &[(char, usize)], operands: [&str; 3], order: &str) -> Vec<Loop> {
        let size =
            |dim: char| sizes.iter().find(|(name, _)| *name == dim).expect("a size for each dim").1;
        let stride = |operand: &str, dim: char| {
            let at = operand.find(dim)?;
            Some(operand[at + 1..].chars().map(size).product())
        };
        let each =
            |dim| Loop { size: size(dim), strides: operands.map(|operand| stride(operand, dim)) };
        order.chars().map(each).collect()
    }

    const SIZES: [(char, usize); 6] = [('b', 2), ('h', 3), ('s', 5), ('t', 7), ('d', 4), ('e', 6)];

    /// Attention by hand, its backward, and linear layers need no copy.
    #[test]
    fn strided_matmuls_are_not_copied() {
        for (operands, order) in [
            (["bshd", "bthd", "bhst"], "bhstd"),
            (["bhst", "bthd", "bhsd"], "bhsdt"),
            (["bshd", "btd", "bsht"], "bshtd"),
            (["bsd", "ed", "bse"], "bsed"),
            (["bsd", "bse", "de"], "debs"),
        ] {
            for roles in [[0, 1, 2], [2, 1, 0], [2, 0, 1]] {
                let each = loops(&SIZES, operands, order);
                let plan = Plan::new(each.iter().map(|each| each.with_roles(roles)));
                assert_eq!(plan.copies, [None; 3], "{operands:?} {roles:?}");
                let product = plan.product.expect("there are products");
                let mut lens = roles.map(|role| operands[role].chars().map(size).product());
                if plan.is_transposed {
                    lens.swap(0, 1);
                }
                product.check(lens);
            }
        }
    }

    fn size(dim: char) -> usize {
        SIZES.iter().find(|(name, _)| *name == dim).expect("a size for each dim").1
    }

    /// Every product of these forms follows the formula, whatever is copied.
    #[test]
    fn plans_follow_the_formula() {
        for (operands, order) in [
            (["bshd", "bthd", "bhst"], "bhstd"),
            (["dbsh", "thbd", "bhst"], "bhstd"),
            (["sbd", "dtb", "bst"], "bstd"),
            (["bsde", "tedb", "bst"], "bstde"),
            (["shd", "thd", "st"], "sthd"),
            (["hsd", "dth", "st"], "sthd"),
            (["d", "d", ""], "d"),
            (["bd", "d", "b"], "bd"),
            (["d", "bd", "b"], "bd"),
            (["db", "dt", "bt"], "btd"),
            (["bhd", "hbd", "bh"], "bhd"),
            (["b", "t", "bt"], "bt"),
        ] {
            for roles in [[0, 1, 2], [2, 1, 0], [2, 0, 1]] {
                check(&loops(&SIZES, operands, order), operands, roles);
            }
        }
    }

    fn check(loops: &[Loop], operands: [&str; 3], roles: [usize; 3]) {
        let loops: Vec<Loop> = loops.iter().map(|each| each.with_roles(roles)).collect();
        let lens = roles.map(|role| operands[role].chars().map(size).product::<usize>());
        let values =
            |len: usize, seed: usize| (0..len).map(|i| ((i * 7 + seed) % 11) as i64 - 5).collect();
        let (a, b): (Vec<i64>, Vec<i64>) = (values(lens[0], 1), values(lens[1], 4));
        let mut expected = vec![0; lens[2]];
        let total: usize = loops.iter().map(|each| each.size).product();
        for flat in 0..total {
            let (mut rest, mut at) = (flat, [0; 3]);
            for each in loops.iter().rev() {
                let along = rest % each.size;
                rest /= each.size;
                (0..3)
                    .for_each(|operand| at[operand] += along * each.strides[operand].unwrap_or(0));
            }
            expected[at[2]] += a[at[0]] * b[at[1]];
        }
        let plan = Plan::new(loops);
        let product = plan.product.expect("there are products");
        let [a, b] = [(a, plan.copies[0]), (b, plan.copies[1])].map(|(data, copy)| match copy {
            Some(copy) => copied(&copy, &data, copy.elements()),
            None => data,
        });
        let (a, b) = if plan.is_transposed { (b, a) } else { (a, b) };
        let result_len = plan.copies[2].map_or(lens[2], |copy| copy.elements());
        product.check([a.len(), b.len(), result_len]);
        let mut c = vec![0; result_len];
        run(&product, &a, &b, &mut c);
        let c = plan.copies[2].map_or(c.clone(), |copy| copied(&copy, &c, lens[2]));
        assert_eq!(c, expected, "{operands:?} {roles:?} {product:?}");
    }

    fn copied(copy: &StridedCopy, src: &[i64], len: usize) -> Vec<i64> {
        let mut dst = vec![0; len];
        for flat in 0..copy.elements() {
            let (mut rest, mut from, mut to) = (flat, copy.src_start, copy.dst_start);
            for dim in copy.dims().iter().rev() {
                let along = rest % dim.size;
                rest /= dim.size;
                (from, to) = (from + along * dim.src, to + along * dim.dst);
            }
            dst[to] = src[from];
        }
        dst
    }

    fn run(g: &BatchedGemm, a: &[i64], b: &[i64], c: &mut [i64]) {
        let Gemm { m, n, k, trans_a, trans_b, .. } = g.gemm;
        let [outer, inner] = g.batch;
        for (i, j) in (0..outer.count).flat_map(|i| (0..inner.count).map(move |j| (i, j))) {
            let start = |operand: usize| i * outer.strides[operand] + j * inner.strides[operand];
            let at = |operand: usize, row: usize, col: usize, is_transposed: bool| {
                let (row, col) = if is_transposed { (col, row) } else { (row, col) };
                start(operand) + row * g.lead[operand] + col
            };
            for (row, col) in (0..m).flat_map(|row| (0..n).map(move |col| (row, col))) {
                c[at(2, row, col, false)] += (0..k)
                    .map(|p| a[at(0, row, p, trans_a)] * b[at(1, p, col, trans_b)])
                    .sum::<i64>();
            }
        }
    }
}
