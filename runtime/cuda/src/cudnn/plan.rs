//! Execution plans: the choice of an engine for an operation graph, and execution.

use cudarc::cudnn::sys::{
    cudnnBackendAttributeName_t::*,
    cudnnBackendAttributeType_t::CUDNN_TYPE_NUMERICAL_NOTE,
    cudnnBackendDescriptorType_t::*,
    cudnnBackendHeurMode_t::{self, CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK},
    cudnnBackendKnobType_t,
    cudnnBackendNumericalNote_t::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
};

use crate::DriverError;
use crate::native::Version;

use super::attention_graph::AttentionPass;
use super::attention_sizes::CudnnAttentionSizes;
use super::descriptor::{Address, Descriptor, Setter};
use super::graph::{ElementType, GraphOperand, GraphScalar, OperationGraph};
use super::library::{CudnnHandle, Library, check_status, library};
use super::lower::LoweredGraph;
use super::target::{PlanTarget, TargetDevice};

/// An execution plan of an operation graph.
#[derive(Debug)]
pub struct ExecutionPlan {
    // Dropped in this order.
    descriptor: Descriptor,
    _parts: PlanParts,
    graph: OperationGraph,
    workspace: usize,
}

/// Descriptors that the plan refers to.
struct PlanParts {
    _configuration: EngineConfig,
    _graph: LoweredGraph,
}

impl std::fmt::Debug for PlanParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PlanParts")
    }
}

/// Arguments of an execution.
pub struct PlanArguments<'a> {
    /// Returns the device address of an operand, a multiple of 16.
    pub operand: &'a dyn Fn(GraphOperand) -> u64,
    /// Returns the value of a scalar; an integer if it is one.
    pub scalar: &'a dyn Fn(GraphScalar) -> f32,
    /// Device address of [`ExecutionPlan::workspace`] bytes.
    pub workspace: u64,
}

impl ExecutionPlan {
    /// Builds a plan for attention of these sizes; the error lists the reason of every engine that was tried.
    ///
    /// The call lasts about a second: the library generates and compiles a kernel.
    pub fn new(
        sizes: CudnnAttentionSizes,
        pass: AttentionPass,
        target: &PlanTarget,
    ) -> Result<ExecutionPlan, DriverError> {
        let graph = pass.graph(sizes);
        let lowered = LoweredGraph::new(&graph, &target.device)?;
        let library = library()?;
        let found = find_supported_engine(library, &lowered, pass, target).map_err(|refusals| {
            let why =
                if refusals.is_empty() { "it proposes none".into() } else { refusals.join("; ") };
            let version = library.version;
            DriverError::Library(format!(
                "cuDNN {version} has no engine for {pass}, {sizes}: {why}"
            ))
        })?;
        let (configuration, descriptor, workspace) = found;
        let parts = PlanParts { _configuration: configuration, _graph: lowered };
        Ok(ExecutionPlan { descriptor, _parts: parts, graph, workspace })
    }

    /// Returns the size of the workspace, in bytes.
    pub fn workspace(&self) -> usize {
        self.workspace
    }

    /// Returns the operation graph.
    pub fn graph(&self) -> &OperationGraph {
        &self.graph
    }

    /// Returns the names of the kernels, which identify their architecture and tiles.
    pub fn kernels(&self) -> Result<Vec<String>, DriverError> {
        let json = self.descriptor.text(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION)?;
        let names = json.split("\"kernelName\":\"").skip(1);
        Ok(names.filter_map(|rest| rest.split('"').next()).map(String::from).collect())
    }

    /// Submits the plan to the stream of `handle`.
    ///
    /// # Safety
    /// The addresses are in memory of the device of `handle` that is large enough; no other work uses the outputs, the
    /// workspace or scratch tensors until the stream has finished the execution.
    pub unsafe fn execute(
        &self,
        handle: &mut CudnnHandle,
        arguments: &PlanArguments,
    ) -> Result<(), DriverError> {
        let (mut uids, mut addresses) = (Vec::new(), Vec::new());
        for (id, operand) in self.graph.operands() {
            uids.push(id.uid());
            addresses.push(Address((arguments.operand)(operand)));
        }
        let bits = |scalar: GraphScalar| match (scalar.element(), (arguments.scalar)(scalar)) {
            (ElementType::I32, integer) => (integer as i32).cast_unsigned(),
            (_, number) => number.to_bits(),
        };
        let scalars: Vec<_> = self.graph.scalars().map(|(id, scalar)| (id, bits(scalar))).collect();
        for (id, value) in &scalars {
            uids.push(id.uid());
            addresses.push(Address(std::ptr::from_ref(value) as u64));
        }
        let setter = Setter::new(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?;
        setter.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &uids)?;
        setter.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &addresses)?;
        setter.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &[Address(arguments.workspace)])?;
        let pack = setter.finalize()?;
        let library = handle.library();
        // SAFETY: the library reads the scalars before it returns, and the caller promises the rest.
        let status = unsafe {
            (library.cudnnBackendExecute)(handle.raw(), self.descriptor.raw(), pack.raw())
        };
        check_status(library, status, "cudnnBackendExecute", || "attention".into())
    }
}

/// Returns the first configuration that can be finalized, with its plan and workspace size; otherwise the reasons.
fn find_supported_engine(
    library: Library,
    lowered: &LoweredGraph,
    pass: AttentionPass,
    target: &PlanTarget,
) -> Result<(EngineConfig, Descriptor, usize), Vec<String>> {
    let preferred = preferred_engine(pass, target.capability, library.version);
    let preferred = preferred
        .into_iter()
        .map(|preferred| configure_engine(preferred, lowered, target).map(|one| vec![one]));
    let heuristic_configs = [CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK]
        .into_iter()
        .map(|mode| heuristic_configs(mode, lowered, target));

    let mut refusals = Vec::new();
    for configurations in preferred.chain(heuristic_configs) {
        match configurations {
            Err(refusal) => refusals.push(refusal.to_string()),
            Ok(configurations) => {
                for configuration in configurations {
                    match finalize_plan(&configuration, pass, &target.device) {
                        Err(refusal) => refusals.push(refusal.to_string()),
                        Ok((plan, workspace)) => return Ok((configuration, plan, workspace)),
                    }
                }
            }
        }
    }
    refusals.dedup();
    Err(refusals)
}

/// Returns the plan of a configuration and its workspace size.
fn finalize_plan(
    configuration: &EngineConfig,
    pass: AttentionPass,
    device: &TargetDevice,
) -> Result<(Descriptor, usize), DriverError> {
    if pass.is_deterministic() && is_nondeterministic(configuration)? {
        return Err(DriverError::Library("an engine is not deterministic".into()));
    }
    let setter = Setter::new(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?;
    if let TargetDevice::Present(handle) = device {
        setter.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, &[handle.raw()])?;
    }
    let engine = [&configuration.descriptor];
    setter.set_descriptors(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &engine)?;
    let plan = setter.finalize()?;
    let workspace = plan.integer(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)?;
    Ok((plan, workspace as usize))
}

/// Maximum number of configurations requested from the heuristics.
const MOST: usize = 8;

/// An engine configuration with the descriptors that it refers to.
pub(super) struct EngineConfig {
    pub descriptor: Descriptor,
    _knobs: Vec<Descriptor>,
    _engine: Option<Descriptor>,
}

/// An engine that the heuristics do not propose although it is the best one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PreferredEngine {
    engine: i64,
    knobs: &'static [(cudnnBackendKnobType_t, i64)],
}

/// Returns the engine to prefer over the heuristics' proposals, if one is known.
///
/// On Blackwell, versions 9.18 to 9.22 have a deterministic backward kernel for that architecture in engine 5 with two
/// stages, but propose the Ampere kernel, which stores all score gradients.
pub(super) fn preferred_engine(
    pass: AttentionPass,
    capability: (u32, u32),
    version: Version,
) -> Option<PreferredEngine> {
    use cudnnBackendKnobType_t::{CUDNN_KNOB_TYPE_KERNEL_CFG, CUDNN_KNOB_TYPE_STAGES};
    let versions = Version::new(9, 18, 0)..Version::new(9, 23, 0);
    let known = versions.contains(&version) && capability.0 == 10;
    (pass == AttentionPass::Backward { deterministic: true } && known).then_some(PreferredEngine {
        engine: 5,
        knobs: &[(CUDNN_KNOB_TYPE_KERNEL_CFG, 31), (CUDNN_KNOB_TYPE_STAGES, 2)],
    })
}

/// Returns the configuration of a preferred engine; an error if it does not support the graph.
pub(super) fn configure_engine(
    preferred: PreferredEngine,
    graph: &LoweredGraph,
    target: &PlanTarget,
) -> Result<EngineConfig, DriverError> {
    let setter = Setter::new(CUDNN_BACKEND_ENGINE_DESCRIPTOR)?;
    setter.set_descriptors(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, &[graph.graph()])?;
    setter.set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, &[preferred.engine])?;
    if let TargetDevice::Described(properties) = &target.device {
        setter.set_descriptors(CUDNN_ATTR_ENGINE_DEVICEPROP, &[&properties.0])?;
    }
    let engine = setter.finalize()?;

    let mut knobs = Vec::new();
    for &(knob, value) in preferred.knobs {
        let setter = Setter::new(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR)?;
        setter.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, &[knob])?;
        setter.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, &[value])?;
        knobs.push(setter.finalize()?);
    }

    let setter = Setter::new(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)?;
    setter.set_descriptors(CUDNN_ATTR_ENGINECFG_ENGINE, &[&engine])?;
    let all: Vec<_> = knobs.iter().collect();
    setter.set_descriptors(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, &all)?;
    let descriptor = setter.finalize()?;
    Ok(EngineConfig { descriptor, _knobs: knobs, _engine: Some(engine) })
}

/// Returns the heuristics' proposals, best first.
pub(super) fn heuristic_configs(
    mode: cudnnBackendHeurMode_t,
    graph: &LoweredGraph,
    target: &PlanTarget,
) -> Result<Vec<EngineConfig>, DriverError> {
    let setter = Setter::new(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?;
    setter.set_descriptors(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &[graph.graph()])?;
    setter.set(CUDNN_ATTR_ENGINEHEUR_MODE, &[mode])?;
    if let TargetDevice::Described(properties) = &target.device {
        setter.set_descriptors(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, &[&properties.0])?;
    }
    let heuristics = setter.finalize()?;
    let kind = CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
    let found = heuristics.descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, kind, MOST)?;
    let plain = |descriptor| EngineConfig { descriptor, _knobs: Vec::new(), _engine: None };
    Ok(found.into_iter().map(plain).collect())
}

/// Returns true if the engine of a configuration reports that its results may differ from run to run.
pub(super) fn is_nondeterministic(configuration: &EngineConfig) -> Result<bool, DriverError> {
    let kind = CUDNN_BACKEND_ENGINE_DESCRIPTOR;
    let engines = configuration.descriptor.descriptors(CUDNN_ATTR_ENGINECFG_ENGINE, kind, 1)?;
    for engine in engines {
        let notes =
            engine.enumeration(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE)?;
        if notes.contains(&(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC as u32)) {
            return Ok(true);
        }
    }
    Ok(false)
}
