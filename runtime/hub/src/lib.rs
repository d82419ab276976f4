//! Models of the Hugging Face hub, fetched to its cache, which other programs share.

use std::fmt;
use std::io::{Error as IoError, ErrorKind};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use hf_hub::api::RepoInfo;
use hf_hub::api::sync::{ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Cache, Repo, RepoType};

use meshwright_store::__internal::{CONFIG, INDEX, WEIGHTS, files_of_index};
use meshwright_store::checkpoint::CheckpointError;
use meshwright_store::checkpoint::hf::SideFiles;

/// Beginning of the names of models.
const SCHEME: &str = "hf://";

/// Time after which a hub that does not answer is given up.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Tries of a file whose download breaks off; each continues the last one.
const RETRIES: usize = 5;

/// The name of a model: `hf://owner/name`, or `hf://owner/name@revision`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubModel {
    /// Owner and name.
    id: String,
    revision: String,
}

impl FromStr for HubModel {
    type Err = String;

    fn from_str(text: &str) -> Result<HubModel, String> {
        let model = text.strip_prefix(SCHEME).unwrap_or(text);
        let (id, revision) = model.split_once('@').unwrap_or((model, "main"));
        let is_word = |part: &str| {
            let is_known = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            !part.is_empty() && !part.starts_with('.') && part.chars().all(is_known)
        };
        // A few old models have no owner.
        let is_id = id.split('/').all(is_word) && id.split('/').count() <= 2;
        if !is_id || !revision.split('/').all(is_word) {
            return Err(format!(
                "{text}: is not a model of the hub; write {SCHEME}OWNER/NAME, or {SCHEME}OWNER/NAME@REVISION"
            ));
        }
        Ok(HubModel { id: id.to_owned(), revision: revision.to_owned() })
    }
}

impl fmt::Display for HubModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.id)?;
        if self.revision == "main" { Ok(()) } else { write!(f, "@{}", self.revision) }
    }
}

/// A hub and its cache on this machine.
#[derive(Debug, Clone)]
pub struct Hub {
    /// The address of the hub.
    pub endpoint: String,
    /// The folder of the cache.
    pub cache: PathBuf,
    /// Identifies the user to the hub.
    pub token: Option<String>,
    /// Set if only the cache is used.
    pub is_offline: bool,
}

impl Hub {
    /// Returns the hub of the environment, by the variables of the Python library `huggingface_hub`: `HF_ENDPOINT`,
    /// `HF_HUB_CACHE`, `HF_HOME`, `HF_TOKEN` and `HF_HUB_OFFLINE`.
    ///
    /// # Errors
    /// A cache without a place.
    pub fn from_env() -> Result<Hub, CheckpointError> {
        let of_env = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let home = || {
            let in_user = |home: PathBuf| home.join(".cache/huggingface");
            of_env("HF_HOME").map(PathBuf::from).or_else(|| std::env::home_dir().map(in_user))
        };
        let cache = of_env("HF_HUB_CACHE").map(PathBuf::from);
        let Some(cache) = cache.or_else(|| Some(home()?.join("hub"))) else {
            let reason = "there is no home folder for the hub's cache; set HF_HOME to a folder";
            return Err(refuse("HF_HOME", reason));
        };
        let cache = std::path::absolute(&cache).map_err(|source| CheckpointError::Io {
            action: "find the hub's cache",
            path: cache,
            source,
        })?;
        let is_offline = of_env("HF_HUB_OFFLINE").is_some_and(|value| value != "0");
        Ok(Hub {
            endpoint: of_env("HF_ENDPOINT").unwrap_or("https://huggingface.co".to_owned()),
            token: of_env("HF_TOKEN").or_else(|| Cache::new(cache.clone()).token()),
            cache,
            is_offline,
        })
    }

    /// Returns the model, with its revision, whose snapshot in the cache is or holds `path`.
    pub fn model_at(&self, path: &Path) -> Option<HubModel> {
        let inside = std::path::absolute(path).ok()?.strip_prefix(&self.cache).ok()?.to_owned();
        let mut parts = inside.iter().map(|part| part.to_str());
        let id = parts.next()??.strip_prefix("models--")?.replacen("--", "/", 1);
        parts.next()?.filter(|part| *part == "snapshots")?;
        format!("{id}@{}", parts.next()??).parse().ok()
    }

    /// Asks the hub for the files of `model`. A hub that is not reached does not matter if the cache has the revision.
    ///
    /// # Errors
    /// A model or revision that the hub does not have, and a hub that cannot be reached.
    pub fn open(&self, model: &HubModel) -> Result<HubSnapshot, CheckpointError> {
        let cache = Cache::new(self.cache.clone());
        let own = |revision: &str| {
            Repo::with_revision(model.id.clone(), RepoType::Model, revision.to_owned())
        };
        let cached = cache.repo(own(&model.revision));
        let path = |commit: &str| cached.pointer_path(commit);
        // A commit never changes, and a branch may be newer on the hub.
        let pinned = is_commit(&model.revision).then(|| model.revision.clone());
        let reference = cached.pointer_path("").with_file_name("refs").join(&model.revision);
        let of_branch = || std::fs::read_to_string(reference).ok();
        let known = pinned.clone().or_else(of_branch).filter(|commit| path(commit).is_dir());
        let builder = ApiBuilder::from_cache(cache.clone())
            .with_endpoint(self.endpoint.clone())
            .with_token(self.token.clone())
            .with_retries(RETRIES);
        let describe = |error| self.describe(error, model);
        let api = builder.build().map_err(describe)?;
        let snapshot = |commit: String, names: Vec<String>| HubSnapshot {
            hub: self.clone(),
            model: HubModel { revision: commit.clone(), ..model.clone() },
            names,
            folder: path(&commit),
            repo: api.repo(own(&commit)),
        };
        let of_cache = |commit: &str| snapshot(commit.to_owned(), Vec::new());
        let listed = if self.is_offline {
            let reason = "HF_HUB_OFFLINE is set, and the cache does not have it; name a folder that was \
                          downloaded before";
            Err(ApiError::IoError(IoError::new(ErrorKind::NotConnected, reason)))
        } else {
            ask(&api.repo(own(&model.revision)))
        };
        match (listed, known) {
            (Ok(RepoInfo { siblings, sha }), _) if is_commit(&sha) => {
                cached.create_ref(&sha).map_err(ApiError::IoError).map_err(describe)?;
                Ok(snapshot(sha, siblings.into_iter().map(|file| file.rfilename).collect()))
            }
            (Ok(_), _) => {
                let reason = "answers, but not as a Hugging Face hub (HF_ENDPOINT)";
                Err(refuse(model, format!("{} {reason}", self.endpoint)))
            }
            (Err(error), Some(commit)) if status_of(&error).is_none() => Ok(of_cache(&commit)),
            (Err(error), _) => Err(describe(error)),
        }
    }

    /// Returns an error about a model: one of the input, or one of the network, which may be temporary.
    fn describe(&self, error: ApiError, model: &HubModel) -> CheckpointError {
        match status_of(&error) {
            Some(401 | 403) => {
                let reason = "has no such model, or refuses it; check the name; for a model with terms, accept them on \
                              its page and name your token in HF_TOKEN";
                refuse(model, format!("{} {reason}", self.endpoint))
            }
            Some(404) => {
                refuse(model, format!("{} has no such model, revision or file", self.endpoint))
            }
            _ => {
                let source = match error {
                    ApiError::IoError(error) => error,
                    error => IoError::new(
                        ErrorKind::ConnectionAborted,
                        format!(
                            "{error} ({}); without a connection, name a folder that was downloaded before",
                            self.endpoint
                        ),
                    ),
                };
                CheckpointError::Io { action: "fetch", path: model.to_string().into(), source }
            }
        }
    }
}

/// A revision of a model, whose files are fetched on demand.
#[derive(Debug)]
pub struct HubSnapshot {
    hub: Hub,
    model: HubModel,
    /// Names of its files; none if only the cache is used.
    names: Vec<String>,
    folder: PathBuf,
    repo: ApiRepo,
}

impl HubSnapshot {
    /// Returns the model with its revision.
    pub fn model(&self) -> &HubModel {
        &self.model
    }

    /// Fetches the configuration, and returns the folder, in which the weights may be missing.
    ///
    /// # Errors
    /// A file that cannot be fetched.
    pub fn fetch_config(&self) -> Result<&Path, CheckpointError> {
        self.fetch_if(|name| name == CONFIG)
    }

    /// Fetches the files of the tokenizer, and returns the folder.
    ///
    /// # Errors
    /// A file that cannot be fetched.
    pub fn fetch_tokenizer(&self) -> Result<&Path, CheckpointError> {
        self.fetch_if(SideFiles::is_tokenizer)
    }

    /// Fetches all that an import of the model reads, and returns the folder.
    ///
    /// # Errors
    /// A file that cannot be fetched, and a model without weights in safetensors.
    pub fn fetch_model(&self) -> Result<&Path, CheckpointError> {
        let has = |name: &str| self.names.iter().any(|own| own == name);
        if !self.names.is_empty() && !has(WEIGHTS) && !has(INDEX) {
            let reason = format!(
                "it has no weights in safetensors, but {}; use a revision or a copy of it that has them",
                self.names.join(", ")
            );
            return Err(refuse(&self.model, reason));
        }
        self.fetch_if(|name| {
            let is_index = name == INDEX && !has(WEIGHTS);
            SideFiles::is_side_file(name) || name == CONFIG || name == WEIGHTS || is_index
        })?;
        let index = self.folder.join(INDEX);
        if has(INDEX) && !has(WEIGHTS) {
            for name in files_of_index(&index)? {
                self.fetch(&name)?;
            }
        }
        Ok(&self.folder)
    }

    fn fetch_if(&self, is_wanted: impl Fn(&str) -> bool) -> Result<&Path, CheckpointError> {
        let mut wanted = self.names.iter().filter(|name| is_wanted(name));
        wanted.try_for_each(|name| self.fetch(name))?;
        Ok(&self.folder)
    }

    /// Fetches a file, unless the cache has it.
    fn fetch(&self, name: &str) -> Result<(), CheckpointError> {
        loop {
            match self.repo.get(name) {
                Ok(_) => return Ok(()),
                // Another process fetches it.
                Err(ApiError::LockAcquisition(_)) => {}
                Err(error) => return Err(self.hub.describe(error, &self.model)),
            }
        }
    }
}

fn refuse(model: impl fmt::Display, reason: impl Into<String>) -> CheckpointError {
    CheckpointError::Settings { path: model.to_string().into(), reason: reason.into() }
}

/// Asks the hub for the files of a model.
fn ask(repo: &ApiRepo) -> Result<RepoInfo, ApiError> {
    let request = repo.info_request().config().timeout_global(Some(TIME_LIMIT)).build();
    let mut answer = request.call().map_err(Box::new)?;
    Ok(answer.body_mut().read_json().map_err(Box::new)?)
}

/// Returns the status with which a hub has refused a request.
fn status_of(error: &ApiError) -> Option<u16> {
    match error {
        ApiError::RequestError(error) => match **error {
            ureq::Error::StatusCode(status @ 400..500) => Some(status),
            _ => None,
        },
        ApiError::TooManyRetries(error) => status_of(error),
        _ => None,
    }
}

fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.bytes().all(|c| c.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests;
