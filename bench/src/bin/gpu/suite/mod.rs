//! Tables of kernels, at the sizes of training steps. Operands are random numbers: on zeros a GPU draws less power, and runs
//! faster than it would.

mod attention;
mod elementwise;
mod epilogues;
mod limits;
mod loss;
mod matmul;
mod optimizer;
pub mod report;
mod sizes;

use report::Report;
pub use sizes::Sizes;

/// The driver that a table is measured with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// As trainings use it: the same bits in every run.
    Default,
    /// With algorithms whose results differ in their last bits from run to run.
    Nondeterministic,
    /// With our own attention kernels instead of cuDNN's.
    OwnAttention,
}

/// Rows that belong together.
pub struct Table {
    /// The name on the command line.
    pub name: &'static str,
    pub variant: Variant,
    pub rows: fn(&mut Report, &Sizes),
}

const fn table(name: &'static str, rows: fn(&mut Report, &Sizes)) -> Table {
    Table { name, variant: Variant::Default, rows }
}

/// All tables, in their order.
pub const TABLES: [Table; 10] = [
    table("limits", limits::rows),
    table("matmul", matmul::rows),
    Table { variant: Variant::Nondeterministic, ..table("matmul-nondeterministic", matmul::rows) },
    table("epilogues", epilogues::rows),
    table("attention", attention::rows),
    Table {
        variant: Variant::Nondeterministic,
        ..table("attention-nondeterministic", attention::rows)
    },
    Table { variant: Variant::OwnAttention, ..table("attention-own", attention::rows) },
    table("elementwise", elementwise::rows),
    table("loss", loss::rows),
    table("optimizer", optimizer::rows),
];
