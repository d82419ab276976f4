//! Measurements of collectives and matmuls, for the command-line tool and for tests.

mod bandwidth;
mod collective;
mod matmul_rate;

pub use bandwidth::{CollectiveTime, MEASURED_AXIS, even_size, measure_collective};
pub use collective::{COLLECTIVES, Collective};
pub use matmul_rate::{MatmulSize, measure_matmul};
