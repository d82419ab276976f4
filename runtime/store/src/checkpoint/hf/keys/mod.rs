//! The keys of a configuration, each named once: read from `config.json`, written to it, and set from flags.

mod fields;

use serde_json::{Map, Value};

use super::{HfSettings, ModelSizes, SizeFlag};

/// Success, or the problem as a sentence that begins with the key or the flag.
pub type KeyResult = Result<(), String>;

/// A pass over the keys of a configuration: [`ConfigKeys::keys`](crate::family::ConfigKeys::keys) names each key with
/// the field that has its value.
///
/// One function serves four passes. Reading a `config.json` sets the fields from its keys, or to the default of an
/// absent key; a new model sets them from the flags; writing takes the fields as they are; and a run with longer
/// sequences raises the longest one. Defaults are those of `transformers`.
pub struct HfKeys<'a> {
    pass: Pass<'a>,
    /// The sizes of the model, in the order of the calls.
    pub(crate) sizes: Vec<KnownSize>,
    /// Rows of a table of positions, which no sequence exceeds.
    pub(crate) table: Option<usize>,
    takes_tied: bool,
    /// The keys that were named, with the flags that set them for a new model.
    named: Vec<(String, Option<&'static str>)>,
    warnings: Vec<String>,
}

/// A size that a flag sets for a new model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownSize {
    pub flag: SizeFlag,
    pub key: &'static str,
    pub value: usize,
}

enum Pass<'a> {
    Read(&'a HfSettings<'a>),
    Write(Map<String, Value>),
    New { sizes: &'a ModelSizes, seq: usize },
    Extend { seq: usize },
}

impl<'a> HfKeys<'a> {
    pub(crate) fn reading(settings: &'a HfSettings<'a>) -> HfKeys<'a> {
        HfKeys::of_pass(Pass::Read(settings))
    }

    pub(crate) fn writing() -> HfKeys<'a> {
        HfKeys::of_pass(Pass::Write(Map::new()))
    }

    pub(crate) fn of_new(sizes: &'a ModelSizes, seq: usize) -> HfKeys<'a> {
        HfKeys::of_pass(Pass::New { sizes, seq })
    }

    pub(crate) fn extending(seq: usize) -> HfKeys<'a> {
        HfKeys::of_pass(Pass::Extend { seq })
    }

    fn of_pass(pass: Pass<'a>) -> HfKeys<'a> {
        let (sizes, named, warnings) = (Vec::new(), Vec::new(), Vec::new());
        HfKeys { pass, sizes, table: None, takes_tied: false, named, warnings }
    }

    /// Returns the keys of a `config.json` that is read, for what the methods do not cover.
    pub fn settings(&self) -> Option<&'a HfSettings<'a>> {
        match self.pass {
            Pass::Read(settings) => Some(settings),
            _ => None,
        }
    }

    /// Lists keys that [`settings`](Self::settings) reads, for the table of keys in the book.
    pub fn list(&mut self, keys: &[&str]) {
        keys.iter().for_each(|key| self.name(key, None));
    }

    /// Returns true if the fields are set from flags.
    pub fn is_new(&self) -> bool {
        matches!(self.pass, Pass::New { .. })
    }

    /// Writes a key, if a `config.json` is written.
    pub fn write(&mut self, key: &str, value: impl Into<Value>) {
        self.name(key, None);
        if let Pass::Write(keys) = &mut self.pass {
            keys.insert(key.to_owned(), value.into());
        }
    }

    /// Warns of a part of the file that training leaves out, if a `config.json` is read.
    pub fn warn(&mut self, warning: impl Into<String>) {
        if self.settings().is_some() {
            self.warnings.push(warning.into());
        }
    }

    /// Refuses values of a file, or sizes of flags, that do not fit together.
    ///
    /// # Errors
    /// The `reason`, unless `is_met`.
    pub fn require(&self, is_met: bool, reason: impl FnOnce() -> String) -> KeyResult {
        let is_checked = matches!(self.pass, Pass::Read(_) | Pass::New { .. });
        if is_met || !is_checked { Ok(()) } else { Err(reason()) }
    }

    /// Names the keys of the object `key`, such as the configuration of a part of the model.
    ///
    /// # Errors
    /// A file without the object, and the errors of `name_keys`, after the name of the object.
    pub fn within(
        &mut self,
        key: &str,
        name_keys: impl FnOnce(&mut HfKeys<'_>) -> KeyResult,
    ) -> KeyResult {
        let in_object = |problem: String| format!("{key}.{problem}");
        self.name(key, None);
        match &mut self.pass {
            Pass::Read(settings) => {
                let object = settings.object(key)?.ok_or_else(|| format!("{key} is missing"))?;
                let mut inner = HfKeys::reading(&object);
                name_keys(&mut inner).map_err(in_object)?;
                self.warnings.extend(inner.warnings.into_iter().map(in_object));
            }
            Pass::Write(keys) => {
                let mut inner = HfKeys::writing();
                name_keys(&mut inner)?;
                self.sizes.append(&mut inner.sizes);
                self.table = self.table.or(inner.table);
                let named = std::mem::take(&mut inner.named);
                keys.insert(key.to_owned(), Value::Object(inner.written()));
                for (inner_key, flag) in named {
                    self.name(&inner_key, flag);
                }
            }
            // Flags have no objects.
            Pass::New { .. } | Pass::Extend { .. } => name_keys(self)?,
        }
        Ok(())
    }

    /// Adds a key to those that were named.
    fn name(&mut self, key: &str, flag: Option<&'static str>) {
        match self.named.iter_mut().find(|(named, _)| named == key) {
            Some((_, known)) => *known = known.or(flag),
            None => self.named.push((key.to_owned(), flag)),
        }
    }

    fn given(&self, flag: SizeFlag) -> Option<usize> {
        match &self.pass {
            Pass::New { sizes, .. } => flag.given(sizes),
            _ => None,
        }
    }

    /// Returns the keys that were written.
    pub(crate) fn written(self) -> Map<String, Value> {
        match self.pass {
            Pass::Write(keys) => keys,
            _ => Map::new(),
        }
    }

    pub(crate) fn into_named(self) -> Vec<(String, Option<&'static str>)> {
        self.named
    }

    pub(crate) fn into_warnings(self) -> Vec<String> {
        self.warnings
    }

    /// Refuses flags of sizes that no key of a new `model_type` has taken.
    pub(crate) fn refuse_other_flags(&self, model_type: &str) -> KeyResult {
        let Pass::New { sizes, .. } = &self.pass else { return Ok(()) };
        let taken: Vec<SizeFlag> = self.sizes.iter().map(|known| known.flag).collect();
        SizeFlag::refuse_others(sizes, &taken, self.takes_tied, model_type)
    }
}
