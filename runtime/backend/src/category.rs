//! Categories of memory, for its accounting.

/// The purpose of a buffer; peaks are reported per category.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Category {
    /// Model parameters.
    Parameters,
    /// Gradients of parameters.
    Gradients,
    /// Optimizer state.
    Optimizer,
    /// Values that are saved for backward, and gradients of values in backward.
    Activations,
    /// Buffers of communication: staging of collectives, and at higher ZeRO stages the gathered parameters of an FSDP
    /// unit and its gradient before the reduction.
    Communication,
    /// Scratch of one kernel.
    Workspace,
    /// Data in host memory: activations that are offloaded until backward, and the copy of the training state that is
    /// being saved.
    Offloaded,
}

impl Category {
    /// Every category, in the order of reports.
    pub const ALL: [Category; 7] = [
        Category::Parameters,
        Category::Gradients,
        Category::Optimizer,
        Category::Activations,
        Category::Communication,
        Category::Workspace,
        Category::Offloaded,
    ];

    /// Returns the name used in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Category::Parameters => "parameters",
            Category::Gradients => "gradients",
            Category::Optimizer => "optimizer",
            Category::Activations => "activations",
            Category::Communication => "communication",
            Category::Workspace => "workspace",
            Category::Offloaded => "offloaded",
        }
    }
}
