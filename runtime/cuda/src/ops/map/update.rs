//! Elementwise optimizer updates: each is one kernel, whose source is generated.

use std::borrow::Cow;
use std::fmt::Write;
use std::ops::Range;

use super::super::launch::{THREADS, address, covering, vectors};
use super::super::state_rounding::RoundingParams;
use super::source::cpp_type;
use super::{Generated, Structure};
use crate::kernels::STATE_ROUNDING;
use crate::{GpuContext, KernelSource};
use meshwright_backend::{
    DType, StateRounding, UpdateExpr, UpdateNode, UpdateOperands, View, ViewMut,
};

/// Elements of a vector: 16 bytes of the parameters.
const VECTOR: usize = 4;

/// Maximum length of a kernel name in profiles.
const LONGEST_NAME: usize = 96;

/// See [`OptimizerOps::apply_update`](meshwright_backend::OptimizerOps::apply_update).
pub fn apply_update(gpu: &GpuContext, expr: &UpdateExpr, operands: UpdateOperands<'_>) {
    expr.check_operands(&operands);
    let UpdateOperands { param, gradient, states, rounding, copy } = &operands;
    let views = UpdateViews {
        param: param.as_view(),
        gradient: *gradient,
        states: states.iter().map(ViewMut::as_view).collect(),
        copy: copy.as_ref().map(ViewMut::as_view),
    };
    if rounding.is_empty() {
        launch_update(gpu, expr, &views, None);
    }
    let mut start = 0;
    for part in *rounding {
        launch_update(gpu, expr, &views.slice(start..start + part.len), Some(part));
        start += part.len;
    }
}

/// Views of the operands of an update.
struct UpdateViews<'a> {
    param: View<'a>,
    gradient: View<'a>,
    states: Vec<View<'a>>,
    copy: Option<View<'a>>,
}

impl<'a> UpdateViews<'a> {
    fn slice(&self, range: Range<usize>) -> UpdateViews<'a> {
        let part = |view: &View<'a>| view.slice(range.clone());
        UpdateViews {
            param: part(&self.param),
            gradient: part(&self.gradient),
            states: self.states.iter().map(part).collect(),
            copy: self.copy.as_ref().map(part),
        }
    }

    /// Returns the dtype of the states; f32 if there are none.
    fn state_dtype(&self) -> DType {
        self.states.first().map_or(DType::F32, |state| state.dtype())
    }
}

/// Launches the kernel of an update, with the rounding of its states if they are bf16.
fn launch_update(
    gpu: &GpuContext,
    expr: &UpdateExpr,
    operands: &UpdateViews<'_>,
    rounding: Option<&StateRounding>,
) {
    let UpdateViews { param, gradient, states, copy } = operands;
    let n = param.len() as u64;
    if n == 0 {
        return;
    }
    let copy_dtype = copy.map(|copy| copy.dtype());
    let dtypes = [gradient.dtype(), operands.state_dtype()];
    let kernel = Generated::new(gpu, Structure::of_update(expr, dtypes, copy_dtype));
    let views: Vec<View<'_>> =
        [param, gradient].into_iter().chain(states).chain(copy).copied().collect();
    let [head, count] = vectors(&views, VECTOR);

    let mut params = kernel.params();
    params.push_param(format_args!("uint64_t n"), n);
    params.push_param(format_args!("uint64_t head"), head);
    params.push_param(format_args!("uint64_t vectors"), count);
    params.push_param(format_args!("float* param"), address(*param));
    params.push_param(
        format_args!("const {}* gradient", cpp_type(gradient.dtype())),
        address(*gradient),
    );
    for (index, state) in states.iter().enumerate() {
        let declaration = format_args!("{}* state{index}", cpp_type(state.dtype()));
        params.push_param(declaration, address(*state));
    }
    if let Some(copy) = copy {
        params.push_param(format_args!("{}* copy", cpp_type(copy.dtype())), address(*copy));
    }
    if let Some(rounding) = rounding {
        params.push_param(format_args!("StateRounding rounding"), RoundingParams::new(rounding, 0));
    }
    for (k, node) in expr.nodes.iter().enumerate() {
        if let UpdateNode::Constant(constant) = node {
            params.push_param(format_args!("float constant{k}"), *constant);
        }
    }
    kernel.launch_kernel(covering(gpu, n.div_ceil(VECTOR as u64)), params, |fields| {
        kernel_source(expr, dtypes, copy_dtype, fields)
    });
}

/// The kernel of an update, whose entry point has the name of the source, for the dtypes of the gradient and of the
/// states. `fields` declares its parameters.
fn kernel_source(
    expr: &UpdateExpr,
    dtypes: [DType; 2],
    copy: Option<DType>,
    fields: &str,
) -> KernelSource {
    let name = kernel_name(expr, dtypes, copy);
    let is_rounded = dtypes[1] == DType::Bf16;
    let states = 0..expr.states.len();
    let header = if is_rounded { STATE_ROUNDING } else { "" };
    let mut text = format!("{header}struct Params {{\n{fields}}};\n\n");
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
    for even in states.clone().step_by(2).filter(|_| is_rounded) {
        let odd = if even + 1 < states.end { &format!(", state{}", even + 1) } else { "" };
        let _ = writeln!(text, "    p.rounding.round(i, {}, state{even}{odd});", even / 2);
    }
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
fn kernel_name(expr: &UpdateExpr, [gradient, state]: [DType; 2], copy: Option<DType>) -> String {
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
    let rounded = if state == DType::Bf16 { "_rounded" } else { "" };
    format!("{name}_{}_{copy}{rounded}", gradient.name())
}
