//! Code generation for elementwise expressions. The C++ source depends on their structure alone: sizes, addresses and
//! constants are parameters, so that few kernels are compiled.
//!
//! Operations between nodes are intrinsics, each rounded on its own: the compiler would contract a multiplication with
//! the addition after it, so a value would depend on the expression that it is fused into.

use std::borrow::Cow;
use std::fmt::Write;

use super::nodes::{loads, write_gradients, write_values};
use super::structure::RequestedGradient;
use super::sum_form::SumForm;
use crate::KernelSource;
use crate::kernels::MAP;
use crate::ops::launch::THREADS;
use meshwright_backend::{DType, Expr, Node, UnaryFunction};

/// Maximum length of a kernel name.
const LONGEST_NAME: usize = 96;

/// The template of a forward kernel.
const EACH_ELEMENT: &str = "    each_element<WIDE<T>>(
        p.head, p.vectors, p.n, [&](uint64_t i) { element<WIDE<T>>(p, i); }, [&](uint64_t i) { element<1>(p, i); });
";

/// The template of a backward kernel that writes gradients element by element.
const EACH_GRADIENT: &str = "    each_element<WIDE<T>>(
        p.head, p.vectors, p.n,
        [&](uint64_t i) {
            Sums<WIDE<T>> none;
            Element<WIDE<T>>(p, i).finish(p, i, none);
        },
        [&](uint64_t i) {
            Sums<1> none;
            Element<1>(p, i).finish(p, i, none);
        });
";

/// The template of a backward kernel that sums over rows of `[p.rows, p.cols]`: a thread sums N columns of one of
/// `p.parts` parts.
const ROWS: &str = "
template <int N>
__device__ inline void columns(const Params& p) {
    uint64_t vectors = p.cols / N;
    for (uint64_t q = thread_index(); q < p.parts * vectors; q += thread_count()) {
        uint64_t part = quotient(q, vectors), col = (q - part * vectors) * N;
        uint64_t first = part * p.part_rows, last = first + p.part_rows;
        if (last > p.rows) last = p.rows;
        Sums<N> sums = {};
        uint64_t row = first;
        // The loads of two rows come before the first store, which later loads are not moved ahead of.
        for (; row + 1 < last; row += 2) {
            uint64_t i = row * p.cols + col, j = i + p.cols;
            Element<N> one(p, i), other(p, j);
            one.finish(p, i, sums);
            other.finish(p, j, sums);
        }
        if (row < last) {
            uint64_t i = row * p.cols + col;
            Element<N>(p, i).finish(p, i, sums);
        }
        sums.store(p, part * p.cols + col);
    }
}
";

/// The template of a backward kernel that sums over the dims along which leaves are repeated, if the innermost dim is
/// kept: a thread sums the repeats of N neighboring elements, or a part of them.
const REPEATED_ROWS: &str = "
template <int N>
__device__ inline void repeated_sums(const Params& p) {
    uint64_t vectors = p.repeats.leaf_len / N;
    for (uint64_t t = thread_index(); t < p.repeats.parts * vectors; t += thread_count()) {
        uint64_t part = quotient(t, vectors), leaf;
        uint64_t first = p.repeats.first_element((t - part * vectors) * N, leaf), end = p.repeats.part_end(part);
        Sums<N> sums = {};
        for (uint64_t m = part * p.repeats.part_len; m < end; m++) {
            uint64_t i = first + p.repeats.repeat(m);
            Element<N>(p, i).finish(p, i, sums);
        }
        sums.store(p, part * p.repeats.leaf_len + leaf);
    }
}
";

/// The template of the same if the innermost dim repeats the leaves: `p.lanes` threads of a warp sum the repeats of one
/// element, or a part of them. All lanes of a warp take part in its reductions.
const REPEATED_LANES: &str = "
template <int N>
__device__ inline void repeated_sums(const Params& p) {
    uint64_t groups = 32 / p.lanes, total = p.repeats.parts * p.repeats.leaf_len;
    uint32_t lane = threadIdx.x % p.lanes;
    for (uint64_t t = thread_index() / 32 * groups; t < total; t += thread_count() / 32 * groups) {
        uint64_t own = t + threadIdx.x % 32 / p.lanes, part = quotient(own, p.repeats.leaf_len), leaf = 0;
        Sums<N> sums = {};
        if (own < total) {
            uint64_t first = p.repeats.first_element(own - part * p.repeats.leaf_len, leaf);
            uint64_t end = p.repeats.part_end(part);
            for (uint64_t m = part * p.repeats.part_len + lane * N; m < end; m += p.lanes * N) {
                uint64_t i = first + p.repeats.repeat(m);
                Element<N>(p, i).finish(p, i, sums);
            }
        }
        sums.reduce(p.lanes);
        if (own < total && lane == 0) sums.first().store(p, part * p.repeats.leaf_len + leaf);
    }
}
";

const REPEATED: &str = "    if (p.wide) repeated_sums<WIDE<T>>(p);
    else repeated_sums<1>(p);
";

const COLUMNS: &str = "    if (p.wide) columns<WIDE<T>>(p);
    else columns<1>(p);
";

/// Returns the C++ name of a floating-point type.
pub(super) fn cpp_type(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float",
        DType::Bf16 => "bf16",
        DType::U32 | DType::F64 => panic!("kernels compute on f32 and bf16, not on {dtype}"),
    }
}

/// Returns the source of the kernel that evaluates `expr`; its entry point has the name of the source. `fields`
/// declares its parameters.
pub(super) fn forward(expr: &Expr, dtype: DType, fields: &str) -> KernelSource {
    let name = name("map", expr, dtype, "");
    let last = expr.nodes.len() - 1;
    let mut text = source_head(expr, dtype, fields);
    text += "template <int N>\n__device__ inline void element(const Params& p, uint64_t i) {\n";
    for (k, load) in loads(expr) {
        let _ = writeln!(text, "    float x{k}[N];\n    {load}");
    }
    text += "    float y[N];\n#pragma unroll\n    for (int n = 0; n < N; n++) {\n";
    write_values(&mut text, expr);
    let _ =
        writeln!(text, "        y[n] = v{last};\n    }}\n    store_vector(p.out + i, y);\n}}\n");
    let _ = writeln!(text, "KERNEL_OF({THREADS}, {name})(Params p) {{\n{EACH_ELEMENT}}}");
    KernelSource { name: Cow::Owned(name), text: Cow::Owned(text) }
}

/// Returns the source of the kernel that computes the gradients of the leaves of `expr`, as [`forward`]; `form` is that
/// of sums over the dims along which leaves are repeated.
pub(super) fn backward(
    expr: &Expr,
    dtype: DType,
    requested: &[RequestedGradient],
    form: Option<SumForm>,
    fields: &str,
) -> KernelSource {
    let kinds = requested.iter().map(|requested| match requested {
        RequestedGradient::No => 'n',
        RequestedGradient::Each => 'e',
        RequestedGradient::RowSum => 'r',
        RequestedGradient::RepeatedSum => 's',
    });
    let name = name("map_backward", expr, dtype, &format!("_{}", kinds.collect::<String>()));
    let leaves_as = |kinds: &[RequestedGradient]| {
        let leaves = requested.iter().enumerate().filter(|(_, kind)| kinds.contains(kind));
        leaves.map(|(leaf, _)| leaf).collect::<Vec<_>>()
    };
    let each = leaves_as(&[RequestedGradient::Each]);
    let sums = leaves_as(&[RequestedGradient::RowSum, RequestedGradient::RepeatedSum]);

    let mut text = source_head(expr, dtype, fields);
    write_sums(&mut text, &sums, form);
    write_element(&mut text, expr, requested, &each);
    let body = match form {
        Some(SumForm { in_lanes, .. }) => {
            text += if in_lanes { REPEATED_LANES } else { REPEATED_ROWS };
            REPEATED
        }
        None if sums.is_empty() => EACH_GRADIENT,
        None => {
            text += ROWS;
            COLUMNS
        }
    };
    let _ = writeln!(text, "\nKERNEL_OF({THREADS}, {name})(Params p) {{\n{body}}}");
    KernelSource { name: Cow::Owned(name), text: Cow::Owned(text) }
}

/// Writes the class of the sums of one thread: of the gradients of these leaves, for N columns.
fn write_sums(text: &mut String, leaves: &[usize], form: Option<SumForm>) {
    *text += "template <int N>\nstruct Sums {\n";
    for leaf in leaves {
        let _ = writeln!(text, "    float d{leaf}[N];");
    }
    if !leaves.is_empty() {
        *text += "    __device__ void store(const Params& p, uint64_t at) const {\n";
        for leaf in leaves {
            let _ = writeln!(text, "        store_vector(p.sums{leaf} + at, d{leaf});");
        }
        *text += "    }\n";
    }
    if form.is_some_and(|form| form.in_lanes) {
        *text += "    __device__ void reduce(int lanes) {\n";
        for leaf in leaves {
            let _ = writeln!(text, "        for (int n = 1; n < N; n++) d{leaf}[0] += d{leaf}[n];");
            let _ = writeln!(text, "        d{leaf}[0] = warp_reduce(d{leaf}[0], Sum(), lanes);");
        }
        *text += "    }\n    __device__ Sums<1> first() const {\n        return {";
        for leaf in leaves {
            let _ = write!(text, "{{d{leaf}[0]}}, ");
        }
        *text += "};\n    }\n";
    }
    *text += "};\n\n";
}

/// Returns the text before the functions of a kernel: the header, the functions in `expr`, and the parameters.
fn source_head(expr: &Expr, dtype: DType, fields: &str) -> String {
    let mut functions = Vec::new();
    for node in &expr.nodes {
        if let Node::Apply(function, _) = node
            && !functions.contains(function)
        {
            functions.push(*function);
        }
    }
    let functions: String = functions.into_iter().map(UnaryFunction::cuda).collect();
    let element = cpp_type(dtype);
    format!("{MAP}{functions}\ntypedef {element} T;\n\nstruct Params {{\n{fields}}};\n\n")
}

/// Returns a name: the expression in reverse Polish notation, with references to operands that are not the last
/// results.
fn name(prefix: &str, expr: &Expr, dtype: DType, suffix: &str) -> String {
    let mut name = prefix.to_string();
    for node in &expr.nodes {
        let _ = match node {
            Node::Leaf(leaf) => write!(name, "_x{leaf}"),
            Node::Row(leaf) => write!(name, "_row{leaf}"),
            Node::Along(leaf, _) => write!(name, "_along{leaf}"),
            Node::Position(_) => write!(name, "_position"),
            Node::Max(..) => write!(name, "_max"),
            Node::Min(..) => write!(name, "_min"),
            Node::Compare(comparison, ..) => write!(name, "_{}", comparison.name()),
            Node::Select(..) => write!(name, "_select"),
            Node::Pow(..) => write!(name, "_pow"),
            Node::Constant(_) => write!(name, "_constant"),
            Node::Add(..) => write!(name, "_add"),
            Node::Sub(..) => write!(name, "_sub"),
            Node::Mul(..) => write!(name, "_mul"),
            Node::Div(..) => write!(name, "_div"),
            Node::Scale(..) => write!(name, "_scale"),
            Node::Offset(..) => write!(name, "_offset"),
            Node::Clamp(..) => write!(name, "_clamp"),
            Node::Apply(function, _) => write!(name, "_{}", function.name()),
            Node::Dropout(..) => write!(name, "_dropout"),
        };
    }
    name.truncate(LONGEST_NAME);
    name + suffix + "_" + dtype.name()
}

/// Writes the class of a vector of elements in a backward kernel: its constructor loads the operands, before any of the
/// stores of `finish`. `each` lists the leaves whose gradients are written.
fn write_element(text: &mut String, expr: &Expr, requested: &[RequestedGradient], each: &[usize]) {
    *text += "template <int N>\nstruct Element {\n    float g[N];\n";
    for (k, _) in loads(expr) {
        let _ = writeln!(text, "    float x{k}[N];");
    }
    for leaf in each {
        let _ = writeln!(text, "    float d{leaf}[N];");
    }
    *text += "\n    __device__ Element(const Params& p, uint64_t i) {\n";
    for (_, load) in loads(expr) {
        let _ = writeln!(text, "        {load}");
    }
    *text += "        load_vector(p.grad + i, g);\n";
    for leaf in each {
        let _ = writeln!(text, "        if (p.add{leaf}) load_vector(p.grad{leaf} + i, d{leaf});");
    }
    *text += "    }\n\n    __device__ void finish(const Params& p, uint64_t i, Sums<N>& sums) {\n";
    *text += "#pragma unroll\n        for (int n = 0; n < N; n++) {\n";
    write_values(text, expr);
    write_gradients(text, expr, requested);
    *text += "        }\n";
    for leaf in each {
        let _ = writeln!(text, "        store_vector(p.grad{leaf} + i, d{leaf});");
    }
    *text += "    }\n};\n";
}
