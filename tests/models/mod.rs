//! Models besides the examples'. Each model with a sequence-parallel stream has a form with a whole one, which the build
//! script derives from its text.

pub mod gpt;
pub mod mixer;
pub mod operations;

/// The examples' Llama with a whole stream.
pub mod plain_llama {
    include!(concat!(env!("OUT_DIR"), "/plain_llama.rs"));
}

/// [`gpt`] with a whole stream.
pub mod plain_gpt {
    include!(concat!(env!("OUT_DIR"), "/plain_gpt.rs"));
}

/// [`mixer`] with a whole stream.
pub mod plain_mixer {
    include!(concat!(env!("OUT_DIR"), "/plain_mixer.rs"));
}
