//! Files of a run: data, checkpoints and Hugging Face folders; and what a model family states about itself.

pub mod checkpoint;
pub mod data;
pub mod family;
pub mod state_dict;

/// Items for the other crates of Meshwright. Not part of the API.
#[doc(hidden)]
pub mod __internal {
    pub use crate::checkpoint::hf::file_names::{CONFIG, INDEX, WEIGHTS};
    pub use crate::checkpoint::hf::model_type::{none_of, quoted, stated_model_type, with_article};
    pub use crate::checkpoint::hf::weight_files::files_of_index;
    pub use crate::data::lfs::{IS_LFS_POINTER, is_lfs_pointer};
    pub use crate::family::list::model_types;
    pub use crate::state_dict::replica_state::{kind_of_replica, replicas_in, without_replica};
    pub use crate::state_dict::snapshot::StateSnapshot;
    pub use crate::state_dict::training_state::{
        load_checkpoint, saved_elements, saved_kinds_of, state_kinds_in, training_tensors,
        with_shard_entries,
    };
}
