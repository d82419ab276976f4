//! Execution plans: building a plan for a graph, and executing it.

use cudarc::cudnn::sys::{
    cudnnBackendAttributeName_t::*,
    cudnnBackendDescriptorType_t::*,
    cudnnBackendHeurMode_t::{CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK},
};

use crate::backend::cuda::DriverError;

use super::descriptor::{Address, Descriptor, Setter};
use super::engines::{self, Configuration};
use super::graph::{Graph, Operand, Scalar};
use super::library::{Library, check, library};
use super::lower::Lowered;
use super::sizes::{Pass, Sizes};
use super::target::{Handle, Place, Target};

/// An execution plan of an operation graph.
#[derive(Debug)]
pub struct Plan {
    // Dropped in this order.
    descriptor: Descriptor,
    _parts: Parts,
    graph: Graph,
    workspace: usize,
}

/// Descriptors that the plan refers to.
struct Parts {
    _configuration: Configuration,
    _graph: Lowered,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Parts")
    }
}

/// Arguments of an execution.
pub struct Arguments<'a> {
    /// Returns the device address of an operand, a multiple of 16.
    pub operand: &'a dyn Fn(Operand) -> u64,
    /// Returns the value of a scalar.
    pub scalar: &'a dyn Fn(Scalar) -> f32,
    /// Device address of [`Plan::workspace`] bytes.
    pub workspace: u64,
}

impl Plan {
    /// Builds a plan for attention of these sizes; the error lists the reason of every engine that was tried.
    ///
    /// Takes about a second: the library generates and compiles a kernel.
    pub fn new(sizes: Sizes, pass: Pass, target: &Target) -> Result<Plan, DriverError> {
        let graph = pass.graph(sizes);
        let lowered = Lowered::new(&graph, &target.place)?;
        let library = library()?;
        let found = first_accepted(library, &lowered, pass, target).map_err(|refusals| {
            let why =
                if refusals.is_empty() { "it proposes none".into() } else { refusals.join("; ") };
            let version = library.version;
            DriverError::Library(format!(
                "cuDNN {version} has no engine for {pass}, {sizes}: {why}"
            ))
        })?;
        let (configuration, descriptor, workspace) = found;
        let parts = Parts { _configuration: configuration, _graph: lowered };
        Ok(Plan { descriptor, _parts: parts, graph, workspace })
    }

    /// Returns the size of the workspace, in bytes.
    pub fn workspace(&self) -> usize {
        self.workspace
    }

    /// Returns the operation graph.
    pub fn graph(&self) -> &Graph {
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
        handle: &mut Handle,
        arguments: &Arguments,
    ) -> Result<(), DriverError> {
        let (mut uids, mut addresses) = (Vec::new(), Vec::new());
        for (id, operand) in self.graph.operands() {
            uids.push(id.uid());
            addresses.push(Address((arguments.operand)(operand)));
        }
        let scalars: Vec<_> =
            self.graph.scalars().map(|(id, scalar)| (id, (arguments.scalar)(scalar))).collect();
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
        check(library, status, "cudnnBackendExecute", || "attention".into())
    }
}

/// Returns the first configuration that can be finalized, with its plan and workspace size; otherwise the reasons.
fn first_accepted(
    library: Library,
    lowered: &Lowered,
    pass: Pass,
    target: &Target,
) -> Result<(Configuration, Descriptor, usize), Vec<String>> {
    let named = engines::named(pass, target.capability, library.version);
    let named = named
        .into_iter()
        .map(|named| engines::configure(named, lowered, target).map(|one| vec![one]));
    let proposed = [CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK]
        .into_iter()
        .map(|mode| engines::proposed(mode, lowered, target));

    let mut refusals = Vec::new();
    for configurations in named.chain(proposed) {
        match configurations {
            Err(refusal) => refusals.push(refusal.to_string()),
            Ok(configurations) => {
                for configuration in configurations {
                    match finalize(&configuration, pass, &target.place) {
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
fn finalize(
    configuration: &Configuration,
    pass: Pass,
    place: &Place,
) -> Result<(Descriptor, usize), DriverError> {
    if pass.is_deterministic() && engines::says_nondeterministic(configuration)? {
        return Err(DriverError::Library("an engine is not deterministic".into()));
    }
    let setter = Setter::new(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?;
    if let Place::Here(handle) = place {
        setter.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, &[handle.raw()])?;
    }
    let engine = [&configuration.descriptor];
    setter.set_descriptors(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &engine)?;
    let plan = setter.finalize()?;
    let workspace = plan.integer(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)?;
    Ok((plan, workspace as usize))
}
