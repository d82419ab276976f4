//! GPUs.

mod backend;
mod choices;
pub mod cudnn;
mod driver;
mod gpu;
mod kernels;
mod memory;
pub mod native;
mod ops;
mod profile;
mod recording;
mod staging;
pub mod trial;

pub use backend::CudaBackend;
pub use choices::{AttentionChoice, Choices, Origin, ProductChoice};
pub use driver::*;
pub use gpu::Gpu;
pub use kernels::attention::{PLAIN as PLAIN_ATTENTION, Tiles as AttentionTiles};
pub use kernels::{COMMON, SOURCES};
pub use profile::{PROFILE_VARIABLE, Profile, ProfiledDriver};
