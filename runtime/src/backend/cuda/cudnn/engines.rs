//! Engines of an operation graph: the library's proposals and the order in which they are tried.

use cudarc::cudnn::sys::{
    cudnnBackendAttributeName_t::*, cudnnBackendAttributeType_t::CUDNN_TYPE_NUMERICAL_NOTE,
    cudnnBackendDescriptorType_t::*, cudnnBackendHeurMode_t, cudnnBackendKnobType_t,
    cudnnBackendNumericalNote_t::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
};

use crate::backend::cuda::DriverError;
use crate::backend::cuda::native::Version;

use super::descriptor::{Descriptor, Setter};
use super::lower::Lowered;
use super::sizes::Pass;
use super::target::{Place, Target};

/// Maximum number of configurations requested from the heuristics.
const MOST: usize = 8;

/// An engine configuration with the descriptors that it refers to.
pub(super) struct Configuration {
    pub descriptor: Descriptor,
    _knobs: Vec<Descriptor>,
    _engine: Option<Descriptor>,
}

/// An engine that the heuristics do not propose although it is the best one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Named {
    engine: i64,
    knobs: &'static [(cudnnBackendKnobType_t, i64)],
}

/// Returns the engine to prefer over the heuristics' proposals, if one is known.
///
/// On Blackwell, versions 9.18 to 9.22 have a deterministic backward kernel for that architecture in engine 5 with two
/// stages, but propose the Ampere kernel, which stores all score gradients.
pub(super) fn named(pass: Pass, capability: (u32, u32), version: Version) -> Option<Named> {
    use cudnnBackendKnobType_t::{CUDNN_KNOB_TYPE_KERNEL_CFG, CUDNN_KNOB_TYPE_STAGES};
    let versions = Version::new(9, 18, 0)..Version::new(9, 23, 0);
    let known = versions.contains(&version) && capability.0 == 10;
    (pass == Pass::Backward { deterministic: true } && known).then_some(Named {
        engine: 5,
        knobs: &[(CUDNN_KNOB_TYPE_KERNEL_CFG, 31), (CUDNN_KNOB_TYPE_STAGES, 2)],
    })
}

/// Returns the configuration of a preferred engine; an error if it does not support the graph.
pub(super) fn configure(
    named: Named,
    graph: &Lowered,
    target: &Target,
) -> Result<Configuration, DriverError> {
    let setter = Setter::new(CUDNN_BACKEND_ENGINE_DESCRIPTOR)?;
    setter.set_descriptors(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, &[graph.graph()])?;
    setter.set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, &[named.engine])?;
    if let Place::Elsewhere(properties) = &target.place {
        setter.set_descriptors(CUDNN_ATTR_ENGINE_DEVICEPROP, &[&properties.0])?;
    }
    let engine = setter.finalize()?;

    let mut knobs = Vec::new();
    for &(knob, value) in named.knobs {
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
    Ok(Configuration { descriptor, _knobs: knobs, _engine: Some(engine) })
}

/// Returns the heuristics' proposals, best first.
pub(super) fn proposed(
    mode: cudnnBackendHeurMode_t,
    graph: &Lowered,
    target: &Target,
) -> Result<Vec<Configuration>, DriverError> {
    let setter = Setter::new(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?;
    setter.set_descriptors(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &[graph.graph()])?;
    setter.set(CUDNN_ATTR_ENGINEHEUR_MODE, &[mode])?;
    if let Place::Elsewhere(properties) = &target.place {
        setter.set_descriptors(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, &[&properties.0])?;
    }
    let heuristics = setter.finalize()?;
    let kind = CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
    let found = heuristics.descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, kind, MOST)?;
    let plain = |descriptor| Configuration { descriptor, _knobs: Vec::new(), _engine: None };
    Ok(found.into_iter().map(plain).collect())
}

/// Returns true if the engine of a configuration reports that its results may differ from run to run.
pub(super) fn says_nondeterministic(configuration: &Configuration) -> Result<bool, DriverError> {
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
