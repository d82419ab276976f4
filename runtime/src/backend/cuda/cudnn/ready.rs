//! Execution plans with the placement of their operands in memory.

use crate::backend::cuda::DriverError;

use super::graph::{Element, Operand, Tensor};
use super::lower::ALIGNMENT;
use super::plan::{Arguments, Plan};
use super::scratch::Division;

/// An execution plan with the placement of its operands.
pub(super) struct Ready {
    pub plan: Plan,
    pub workspace_at: usize,
    places: Vec<(Operand, Place)>,
    /// Total scratch memory, in bytes.
    pub bytes: usize,
}

/// Placement of an operand.
#[derive(Clone, Copy)]
pub(super) enum Place {
    /// At this offset in scratch memory, in bytes.
    Scratch { at: usize },
    /// At an address from the caller, with samples of this many bytes one after the other.
    Given { sample: usize },
}

impl Ready {
    pub fn new(plan: Plan, samples: usize) -> Ready {
        let mut division = Division::default();
        let workspace_at = division.part(plan.workspace());
        let mut places = Vec::new();
        for (id, operand) in plan.graph().operands() {
            let bytes = bytes(&plan.graph().tensors[id.0]);
            let place = match operand {
                Operand::RowSum | Operand::DQSum => Place::Scratch { at: division.part(bytes) },
                _ => Place::Given { sample: bytes / samples },
            };
            places.push((operand, place));
        }
        Ready { plan, workspace_at, places, bytes: division.total }
    }

    pub fn place(&self, operand: Operand) -> Place {
        let known = self.places.iter().find(|(own, _)| *own == operand);
        known.expect("every operand of the graph has a place").1
    }

    /// Returns an error if an operand is not aligned as the library requires.
    pub fn check(&self, arguments: &Arguments) -> Result<(), DriverError> {
        for (operand, _) in &self.places {
            let address = (arguments.operand)(*operand);
            if !address.is_multiple_of(ALIGNMENT) {
                return Err(DriverError::Library(format!(
                    "cuDNN takes operands at multiples of {ALIGNMENT} bytes, and {operand:?} is at {address:#x}"
                )));
            }
        }
        Ok(())
    }

    /// Returns true if every sample is aligned as the library requires if the first one is.
    pub fn can_be_part(&self) -> bool {
        self.places.iter().all(|(_, place)| match place {
            Place::Scratch { .. } => true,
            Place::Given { sample } => (*sample as u64).is_multiple_of(ALIGNMENT),
        })
    }
}

/// Returns the size of a tensor in device memory, in bytes.
fn bytes(tensor: &Tensor) -> usize {
    let elements: i64 = tensor.sizes.iter().product();
    let each = match tensor.element {
        Element::Bool => 1,
        Element::Bf16 => 2,
        Element::F32 | Element::I32 => 4,
    };
    elements as usize * each
}
