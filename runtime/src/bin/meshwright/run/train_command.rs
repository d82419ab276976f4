//! The command of a training program: the settings in it that concern its start.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use meshwright::data::is_remote;

use super::Failure;

/// A program with its arguments.
pub struct TrainCommand {
    words: Vec<OsString>,
    /// The settings of the file of `--config`, or the reason why they are not known.
    config: Result<toml::Table, String>,
}

impl TrainCommand {
    /// Creates the command of a program and its arguments.
    pub fn new(words: Vec<OsString>) -> TrainCommand {
        let path = value_in(&words, "config");
        let config = path.map_or(Ok(toml::Table::new()), |path| read_config(Path::new(&path)));
        TrainCommand { words, config }
    }

    /// Returns the program.
    pub fn program(&self) -> &OsStr {
        &self.words[0]
    }

    /// Returns the value of a flag of the trainer, or of its key in the file of `--config`.
    pub fn setting(&self, name: &str) -> Option<OsString> {
        let in_file = || {
            let config = self.config.as_ref().ok()?;
            let value = config.get(name).or_else(|| config.get(&name.replace('-', "_")))?;
            value.as_str().map(OsString::from)
        };
        value_in(&self.words, name).or_else(in_file)
    }

    /// Returns the folder of `--save`.
    pub fn save(&self) -> Option<PathBuf> {
        self.setting("save").map(PathBuf::from)
    }

    /// Returns the folder of `--save`, if it is on a file system.
    pub fn save_folder(&self) -> Option<PathBuf> {
        self.save().filter(|save| !is_remote(save))
    }

    /// Checks that the run can be continued after a failure.
    ///
    /// # Errors
    /// A run that saves nothing. Checkpoints in object storage are not looked for here, so the program has to.
    pub fn check_restarts(&self) -> Result<(), Failure> {
        match self.save() {
            None => Err(self.refuse_unsaved()),
            Some(save)
                if is_remote(&save) && self.setting("resume").is_none_or(|own| own != "auto") =>
            {
                let save = save.display();
                let message = format!(
                    "--max-restarts: {save} is in object storage, from which only --resume auto in the command \
                     continues; add it"
                );
                Err(message.into())
            }
            Some(_) => Ok(()),
        }
    }

    /// Returns true if the ranks of the program are GPUs.
    pub fn is_on_gpus(&self) -> bool {
        self.setting("device").is_some_and(|device| device == "cuda" || device == "gpu")
    }

    /// Returns the message for restarts of a run that saves nothing.
    fn refuse_unsaved(&self) -> Failure {
        let unread = self.config.as_ref().err().map(|reason| format!(" ({reason})"));
        let program = Path::new(self.program()).display();
        format!(
            "--max-restarts: needs --save DIR in the command, from which {program} continues{}",
            unread.unwrap_or_default()
        )
        .into()
    }

    /// Returns the words of the command for an attempt, which continues from the newest checkpoint of `--save` if
    /// `is_resumed`, and chooses the mesh `mesh` if there is one.
    pub fn words(&self, is_resumed: bool, mesh: Option<&str>) -> Vec<OsString> {
        let mut words = self.words.clone();
        if is_resumed {
            // New data have begun already.
            words.retain(|word| word != "--new-data");
            words = with_flag(&words, "resume", "auto");
        }
        match mesh {
            Some(mesh) => with_flag(&words, "mesh", mesh),
            None => words,
        }
    }
}

/// Returns the value of the last `--name VALUE` or `--name=VALUE`.
fn value_in(words: &[OsString], name: &str) -> Option<OsString> {
    let flag = format!("--{name}");
    words.iter().enumerate().skip(1).rev().find_map(|(index, word)| {
        if *word == *flag {
            return words.get(index + 1).cloned();
        }
        let value = word.as_bytes().strip_prefix(flag.as_bytes())?.strip_prefix(b"=")?;
        Some(OsString::from_vec(value.to_vec()))
    })
}

/// Replaces each `--name VALUE`, or adds it at the end.
fn with_flag(words: &[OsString], name: &str, value: &str) -> Vec<OsString> {
    let flag = format!("--{name}");
    let (mut changed, mut is_value) = (Vec::new(), false);
    for word in words {
        let is_joined = word.as_bytes().starts_with(format!("{flag}=").as_bytes());
        let is_flag = *word == *flag;
        if !is_value && !is_joined && !is_flag {
            changed.push(word.clone());
        }
        is_value = is_flag;
    }
    changed.extend([flag.into(), value.into()]);
    changed
}

fn read_config(path: &Path) -> Result<toml::Table, String> {
    let text = meshwright::read_text(path).map_err(|error| error.to_string());
    let table = text.and_then(|text| text.parse().map_err(|_| "it is not valid TOML".to_owned()));
    table.map_err(|reason| format!("cannot read --config {}: {reason}", path.display()))
}
