//! The kernels, as the backend calls them: each function checks its operands, chooses sizes and launches.

pub mod attention;
pub mod combine;
pub mod elements;
pub mod embedding;
mod launch;
pub mod loss;
pub mod map;
pub mod norm;
pub mod optim;
mod partials;
pub mod random;
pub mod reduce;
pub mod rope;
pub mod routing;
pub mod row_parts;
mod rows;
pub mod softmax;
mod sort;
mod strided;
