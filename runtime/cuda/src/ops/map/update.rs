//! Elementwise optimizer updates: each is one kernel, whose source is generated.

use std::borrow::Cow;
use std::fmt::Write;

use super::super::launch::{THREADS, address, covering, vectors};
use super::source::cpp_type;
use super::{Generated, Structure};
use crate::{GpuContext, KernelSource};
use meshwright_backend::{DType, UpdateExpr, UpdateNode, UpdateOperands, View, ViewMut};

/// Elements of a vector: 16 bytes of the parameters.
const VECTOR: usize = 4;

/// Maximum length of a kernel name in profiles.
const LONGEST_NAME: usize = 96;

/// See [`OptimizerOps::apply_update`](meshwright_backend::OptimizerOps::apply_update).
pub fn apply_update(gpu: &GpuContext, expr: &UpdateExpr, operands: UpdateOperands<'_>) {
    expr.check_operands(&operands);
    let UpdateOperands { param, gradient, states, copy } = &operands;
    let n = param.len() as u64;
    if n == 0 {
        return;
    }
    let copy_dtype = copy.as_ref().map(ViewMut::dtype);
    let kernel = Generated::new(gpu, Structure::of_update(expr, gradient.dtype(), copy_dtype));
    let written = [param].into_iter().chain(states).chain(copy).map(ViewMut::as_view);
    let views: Vec<View<'_>> = written.chain([*gradient]).collect();
    let [head, count] = vectors(&views, VECTOR);

    let mut params = kernel.params();
    params.push_param(format_args!("uint64_t n"), n);
    params.push_param(format_args!("uint64_t head"), head);
    params.push_param(format_args!("uint64_t vectors"), count);
    params.push_param(format_args!("float* param"), address(param.as_view()));
    params.push_param(
        format_args!("const {}* gradient", cpp_type(gradient.dtype())),
        address(*gradient),
    );
    for (index, state) in states.iter().enumerate() {
        params.push_param(format_args!("float* state{index}"), address(state.as_view()));
    }
    if let Some(copy) = copy {
        params
            .push_param(format_args!("{}* copy", cpp_type(copy.dtype())), address(copy.as_view()));
    }
    for (k, node) in expr.nodes.iter().enumerate() {
        if let UpdateNode::Constant(constant) = node {
            params.push_param(format_args!("float constant{k}"), *constant);
        }
    }
    kernel.launch_kernel(covering(gpu, n.div_ceil(VECTOR as u64)), params, |fields| {
        kernel_source(expr, gradient.dtype(), copy_dtype, fields)
    });
}

/// The kernel of an update, whose entry point has the name of the source. `fields` declares its parameters.
fn kernel_source(
    expr: &UpdateExpr,
    gradient: DType,
    copy: Option<DType>,
    fields: &str,
) -> KernelSource {
    let name = kernel_name(expr, gradient, copy);
    let states = 0..expr.states.len();
    let mut text = format!("struct Params {{\n{fields}}};\n\n");
    for (k, node) in expr.nodes.iter().enumerate() {
        if let UpdateNode::Call(function, ..) = node {
            let _ = writeln!(
                text,
                "__device__ inline float call{k}(float x, float y) {{\n{}\n}}\n",
                function.cuda
            );
        }
    }
    text += "template <int N>\n__device__ inline void element(const Params& p, uint64_t i) {\n";
    text += "    float param[N], gradient[N];\n    load_vector(p.param + i, param);\n";
    text += "    load_vector(p.gradient + i, gradient);\n";
    for state in states.clone() {
        let _ = writeln!(text, "    float state{state}[N];");
        let _ = writeln!(text, "    load_vector(p.state{state} + i, state{state});");
    }
    text += "#pragma unroll\n    for (int n = 0; n < N; n++) {\n";
    for (k, node) in expr.nodes.iter().enumerate() {
        let value = node_value(k, node);
        let _ = writeln!(text, "        [[maybe_unused]] float v{k} = {value};");
    }
    let _ = writeln!(text, "        param[n] = v{};", expr.param);
    for (state, node) in expr.states.iter().enumerate() {
        let _ = writeln!(text, "        state{state}[n] = v{node};");
    }
    text += "    }\n    store_vector(p.param + i, param);\n";
    for state in states {
        let _ = writeln!(text, "    store_vector(p.state{state} + i, state{state});");
    }
    if copy.is_some() {
        text += "    store_vector(p.copy + i, param);\n";
    }
    let _ = writeln!(
        text,
        "}}\n\nKERNEL_OF({THREADS}, {name})(Params p) {{\n    each_element<{VECTOR}>(\n        p.head, p.vectors, p.n, \
         [&](uint64_t i) {{ element<{VECTOR}>(p, i); }},\n        [&](uint64_t i) {{ element<1>(p, i); }});\n}}"
    );
    KernelSource { name: Cow::Owned(name), text: Cow::Owned(text) }
}

/// The value of node `k` for element `n` of a vector. Intrinsics keep the compiler from contracting operations.
fn node_value(k: usize, node: &UpdateNode) -> String {
    match node {
        UpdateNode::Param => "param[n]".to_owned(),
        UpdateNode::Gradient => "gradient[n]".to_owned(),
        UpdateNode::State(state) => format!("state{state}[n]"),
        UpdateNode::Constant(_) => format!("p.constant{k}"),
        UpdateNode::Neg(x) => format!("-v{x}"),
        UpdateNode::Abs(x) => format!("fabsf(v{x})"),
        UpdateNode::Sign(x) => format!("v{x} > 0.0f ? 1.0f : v{x} < 0.0f ? -1.0f : v{x}"),
        UpdateNode::Sqrt(x) => format!("__fsqrt_rn(v{x})"),
        UpdateNode::Add(a, b) => format!("__fadd_rn(v{a}, v{b})"),
        UpdateNode::Sub(a, b) => format!("__fsub_rn(v{a}, v{b})"),
        UpdateNode::Mul(a, b) => format!("__fmul_rn(v{a}, v{b})"),
        UpdateNode::Div(a, b) => format!("__fdiv_rn(v{a}, v{b})"),
        UpdateNode::Min(a, b) => format!("v{a} < v{b} || v{a} != v{a} ? v{a} : v{b}"),
        UpdateNode::Max(a, b) => format!("v{a} > v{b} || v{a} != v{a} ? v{a} : v{b}"),
        UpdateNode::Call(_, a, b) => format!("call{k}(v{a}, v{b})"),
    }
}

/// The expression in reverse Polish notation, but for operands that are not the last results.
fn kernel_name(expr: &UpdateExpr, gradient: DType, copy: Option<DType>) -> String {
    let mut name = "update".to_owned();
    for node in &expr.nodes {
        let _ = match node {
            UpdateNode::Param => write!(name, "_p"),
            UpdateNode::Gradient => write!(name, "_g"),
            UpdateNode::State(state) => write!(name, "_s{state}"),
            UpdateNode::Constant(_) => write!(name, "_c"),
            UpdateNode::Neg(_) => write!(name, "_neg"),
            UpdateNode::Abs(_) => write!(name, "_abs"),
            UpdateNode::Sign(_) => write!(name, "_sign"),
            UpdateNode::Sqrt(_) => write!(name, "_sqrt"),
            UpdateNode::Add(..) => write!(name, "_add"),
            UpdateNode::Sub(..) => write!(name, "_sub"),
            UpdateNode::Mul(..) => write!(name, "_mul"),
            UpdateNode::Div(..) => write!(name, "_div"),
            UpdateNode::Min(..) => write!(name, "_min"),
            UpdateNode::Max(..) => write!(name, "_max"),
            UpdateNode::Call(function, ..) => {
                let is_other = |letter: char| !letter.is_ascii_alphanumeric();
                write!(name, "_{}", function.name.replace(is_other, "_"))
            }
        };
    }
    name.truncate(LONGEST_NAME);
    let copy = copy.map_or("none", DType::name);
    format!("{name}_{}_{copy}", gradient.name())
}
