//! Files of a Hugging Face folder beside configuration and weights: the tokenizer, and the defaults of generation.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::checkpoint::{CheckpointError, files, lock, names};

/// The file that the library `tokenizers` reads.
const TOKENIZER: &str = "tokenizer.json";

/// The class of a tokenizer for `transformers`, and its special tokens.
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";

/// Files of tokenizers of all kinds.
const TOKENIZER_FILES: [&str; 17] = [
    TOKENIZER,
    TOKENIZER_CONFIG,
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
    "chat_template.json",
];

/// Most bytes of a file.
const MAX_BYTES: u64 = 512 << 20;

/// The defaults of generation.
const GENERATION: &str = "generation_config.json";

/// The preparation of images and of sound.
const PREPROCESSING: &str = "preprocessor_config.json";

/// Files that an export copies.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SideFiles {
    /// Name and content of each.
    pub(super) files: Vec<(String, Vec<u8>)>,
}

impl SideFiles {
    /// Reads the files of `folder`, if there is one, so that an export of its model is usable by itself. A `tokenizer`
    /// of another file replaces the folder's, with the files beside it if it is a `tokenizer.json`; `bytes` leaves it
    /// out.
    ///
    /// # Errors
    /// A file that cannot be read, or that stands for one that was not fetched.
    pub fn read(
        folder: Option<&Path>,
        tokenizer: Option<&Path>,
    ) -> Result<SideFiles, CheckpointError> {
        let mut side_files = SideFiles::default();
        let from = match tokenizer {
            None => folder,
            // A pipe can be read only once, by the tokenizer.
            Some(path) if path == Path::new("bytes") || !path.is_file() => None,
            Some(path) => {
                let content = files::read(path, MAX_BYTES)?;
                let is_own = |folder: &Path| {
                    files::read(&folder.join(TOKENIZER), MAX_BYTES).is_ok_and(|own| own == content)
                };
                if folder.is_some_and(is_own) {
                    folder
                } else {
                    side_files.files.push((TOKENIZER.to_owned(), content));
                    path.parent().filter(|_| path.ends_with(TOKENIZER))
                }
            }
        };
        if let Some(folder) = from {
            // The parent of a bare name is the empty path.
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            for name in SideFiles::tokenizer_names(folder) {
                side_files.add(folder, name)?;
            }
        }
        if let Some(folder) = folder {
            for name in [GENERATION, PREPROCESSING] {
                side_files.add(folder, name.to_owned())?;
            }
        }
        Ok(side_files)
    }

    /// Adds a file of `folder`, if it is there and not added.
    fn add(&mut self, folder: &Path, name: String) -> Result<(), CheckpointError> {
        let path = folder.join(&name);
        if path.is_file() && self.content(&name).is_none() {
            self.files.push((name, files::read(&path, MAX_BYTES)?));
        }
        Ok(())
    }

    /// Adds files that `transformers` needs to use the model of `config` as it was trained, if they are missing: the
    /// class of its tokenizer, which would be that of the family's first models otherwise, and the defaults of
    /// generation.
    pub(super) fn completed(mut self, config: &Value) -> SideFiles {
        let special = ["bos", "eos", "pad"].map(|name| {
            let id = config.get(format!("{name}_token_id")).cloned();
            (name, id.filter(|id| !id.is_null()))
        });
        let known = special.iter().filter_map(|(name, id)| Some((*name, id.clone()?)));
        if let Some(tokenizer) = self.content(TOKENIZER)
            && self.content(TOKENIZER_CONFIG).is_none()
        {
            let tokens = known.clone().filter_map(|(name, id)| {
                Some((format!("{name}_token"), added_token(tokenizer, &id)?))
            });
            let class = ("tokenizer_class".to_owned(), json!("PreTrainedTokenizerFast"));
            let keys = tokens.chain([class]).collect();
            self.push_json(TOKENIZER_CONFIG, keys);
        }
        if self.content(GENERATION).is_none() {
            let ids = known.map(|(name, id)| (format!("{name}_token_id"), id));
            let follows = ("_from_model_config".to_owned(), json!(true));
            self.push_json(GENERATION, ids.chain([follows]).collect());
        }
        self
    }

    fn content(&self, name: &str) -> Option<&[u8]> {
        let (_, content) = self.files.iter().find(|(own, _)| own == name)?;
        Some(content)
    }

    fn push_json(&mut self, name: &str, keys: Map<String, Value>) {
        let text = format!("{:#}\n", Value::Object(keys));
        self.files.push((name.to_owned(), text.into_bytes()));
    }

    /// Returns true for a name under which exports write a file, or have written one.
    pub fn is_name_of_export(name: &str) -> bool {
        ["config.json", lock::EXPORT].contains(&name)
            || SideFiles::is_side_file(name)
            || [".safetensors", ".safetensors.index.json"].iter().any(|end| name.ends_with(end))
            || name.starts_with(names::TEMPORARY)
    }

    /// Returns the names of such files in `folder`.
    pub(super) fn names_in(folder: &Path) -> Vec<String> {
        let mut names = SideFiles::tokenizer_names(folder);
        names.extend(folder.join(GENERATION).is_file().then(|| GENERATION.to_owned()));
        names
    }

    /// Returns the names of the tokenizer files in `folder`.
    pub fn tokenizer_names(folder: &Path) -> Vec<String> {
        let mut names = files::file_names(folder).unwrap_or_default();
        names.retain(|name| SideFiles::is_tokenizer(name));
        names.sort();
        names
    }

    /// Returns true for the name of a file of a tokenizer.
    pub fn is_tokenizer(name: &str) -> bool {
        TOKENIZER_FILES.contains(&name) || name.ends_with(".tiktoken") && !name.contains('/')
    }

    /// Returns true for the name of a file that an export copies.
    pub fn is_side_file(name: &str) -> bool {
        name == GENERATION || SideFiles::is_tokenizer(name)
    }
}

/// Returns the text of the added token `id` of a `tokenizer.json`, if it has one.
fn added_token(tokenizer: &[u8], id: &Value) -> Option<Value> {
    let tokenizer: Value = serde_json::from_slice(tokenizer).ok()?;
    let mut added = tokenizer["added_tokens"].as_array()?.iter();
    Some(added.find(|token| token["id"] == *id)?["content"].clone())
}
