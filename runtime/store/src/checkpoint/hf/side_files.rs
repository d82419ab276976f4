//! Files of a Hugging Face folder beside configuration and weights: the tokenizer, and the defaults of generation.

use std::path::Path;

use crate::checkpoint::{CheckpointError, files, lock, names};

/// The file that the library `tokenizers` reads.
const TOKENIZER: &str = "tokenizer.json";

/// Files of tokenizers of all kinds.
const TOKENIZER_FILES: [&str; 16] = [
    TOKENIZER,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "vocab.bpe",
    "encoder.json",
    "tokenizer.model",
    "tokenizer.model.v3",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tekken.json",
    "tiktoken.model",
    "chat_template.jinja",
];

/// Most bytes of a file.
const MAX_BYTES: u64 = 512 << 20;

/// The defaults of generation.
const GENERATION: &str = "generation_config.json";

/// Files that an export copies.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SideFiles {
    /// Name and content of each.
    pub(super) files: Vec<(String, Vec<u8>)>,
}

impl SideFiles {
    /// Reads the files of `folder`, if there is one, so that an export of its model is usable by itself. A `tokenizer`
    /// of another file replaces the folder's; `bytes` leaves it out.
    ///
    /// # Errors
    /// A file that cannot be read, or that stands for one that was not fetched.
    pub fn read(
        folder: Option<&Path>,
        tokenizer: Option<&Path>,
    ) -> Result<SideFiles, CheckpointError> {
        let own = folder.map_or(Vec::new(), SideFiles::tokenizer_names);
        let (mut names, mut files) = (Vec::new(), Vec::new());
        match tokenizer {
            None => names = own,
            // A pipe can be read only once, by the tokenizer.
            Some(path) if path == Path::new("bytes") || !path.is_file() => {}
            Some(path) => {
                let content = files::read(path, MAX_BYTES)?;
                let is_own = |folder: &Path| {
                    files::read(&folder.join(TOKENIZER), MAX_BYTES).is_ok_and(|own| own == content)
                };
                if folder.is_some_and(is_own) {
                    names = own;
                } else {
                    files.push((TOKENIZER.to_owned(), content));
                }
            }
        }
        if let Some(folder) = folder {
            names.push(GENERATION.to_owned());
            for name in names.into_iter().filter(|name| folder.join(name).is_file()) {
                let content = files::read(&folder.join(&name), MAX_BYTES)?;
                files.push((name, content));
            }
        }
        Ok(SideFiles { files })
    }

    /// Returns true for a name under which exports write a file, or have written one.
    pub fn is_name_of_export(name: &str) -> bool {
        let own = ["config.json", GENERATION, lock::EXPORT];
        own.contains(&name)
            || SideFiles::is_tokenizer_name(name)
            || [".safetensors", ".safetensors.index.json"].iter().any(|end| name.ends_with(end))
            || name.starts_with(names::TEMPORARY)
    }

    fn is_tokenizer_name(name: &str) -> bool {
        TOKENIZER_FILES.contains(&name) || name.ends_with(".tiktoken")
    }

    /// Returns the names of such files in `folder`.
    pub(super) fn names_in(folder: &Path) -> Vec<String> {
        let mut names = SideFiles::tokenizer_names(folder);
        names.extend(folder.join(GENERATION).is_file().then(|| GENERATION.to_owned()));
        names
    }

    /// Returns the names of the tokenizer files in `folder`.
    pub fn tokenizer_names(folder: &Path) -> Vec<String> {
        let found = files::file_names(folder).unwrap_or_default();
        let mut names: Vec<String> =
            found.into_iter().filter(|name| SideFiles::is_tokenizer_name(name)).collect();
        names.sort();
        names
    }
}
