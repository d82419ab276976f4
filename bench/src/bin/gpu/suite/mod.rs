//! Tables of kernels at the sizes of training steps. Operands are random numbers: with zeros a GPU draws less power and
//! runs faster than in training.

mod attention;
mod elementwise;
mod epilogues;
mod limits;
mod loss;
mod matmul;
mod optimizer;
pub mod report;
mod sizes;

pub use limits::measured_report;
use report::Report;
pub use sizes::Sizes;

/// Driver options of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// Deterministic, as in training by default.
    Default,
    /// Nondeterministic algorithms, whose results differ in their last bits from run to run.
    Nondeterministic,
    /// The project's own attention kernels instead of cuDNN.
    OwnAttention,
}

/// A named group of rows.
pub struct Table {
    /// Name on the command line.
    pub name: &'static str,
    pub variant: Variant,
    pub rows: fn(&mut Report, &Sizes),
}

const fn table(name: &'static str, rows: fn(&mut Report, &Sizes)) -> Table {
    Table { name, variant: Variant::Default, rows }
}

/// All tables, in order.
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
