//! Keys of each kind, with the fields that have their values.

use serde_json::Value;

use meshwright_core::rotary::{RopeParameters, RopeScaling};

use super::{HfKeys, KeyResult, KnownSize, Pass};
use crate::checkpoint::hf::{HfSettings, SizeFlag, read_rope, write_rope};

/// The longest sequence that a model was made for, which runs may exceed.
const MAX_POSITIONS: &str = "max_position_embeddings";

/// Most layers of a model.
const MAX_LAYERS: usize = 10_000;

impl HfKeys<'_> {
    /// Names a field of any kind. `read` returns its value in a `config.json`, or that of an absent key; a new model
    /// has `of_new`.
    ///
    /// # Errors
    /// The errors of `read`.
    pub fn field<T: Clone + Into<Value>>(
        &mut self,
        key: &str,
        field: &mut T,
        of_new: T,
        read: impl FnOnce(&HfSettings<'_>) -> Result<T, String>,
    ) -> KeyResult {
        self.name(key, None);
        match &mut self.pass {
            Pass::Read(settings) => *field = read(settings)?,
            Pass::New { .. } => *field = of_new,
            Pass::Write(keys) => drop(keys.insert(key.to_owned(), field.clone().into())),
            Pass::Extend { .. } => {}
        }
        Ok(())
    }

    /// Names a size of every model, which a file has to have.
    ///
    /// # Errors
    /// A key that is missing, or not a whole number of at least 1.
    pub fn size(&mut self, flag: SizeFlag, key: &'static str, field: &mut usize) -> KeyResult {
        self.size_or_new(flag, key, field, 1)
    }

    /// Names a size that a file has to have, and that is `of_new` in a new model without the flag.
    ///
    /// # Errors
    /// As [`size`](Self::size).
    pub fn size_or_new(
        &mut self,
        flag: SizeFlag,
        key: &'static str,
        field: &mut usize,
        of_new: usize,
    ) -> KeyResult {
        let of_new = self.given(flag).unwrap_or(of_new);
        self.field(key, field, of_new, |settings| settings.required(key))?;
        self.add_size(KnownSize { flag, key, value: *field })
    }

    /// Names a size that is `default` in a file without the key and in a new model without the flag.
    ///
    /// # Errors
    /// A value that is not a whole number of at least 1.
    pub fn size_or(
        &mut self,
        flag: SizeFlag,
        key: &'static str,
        field: &mut usize,
        default: usize,
    ) -> KeyResult {
        let of_new = self.given(flag).unwrap_or(default);
        let read = |settings: &HfSettings<'_>| Ok(settings.count(key)?.unwrap_or(default));
        self.field(key, field, of_new, read)?;
        self.add_size(KnownSize { flag, key, value: *field })
    }

    /// Adds a size of the model.
    ///
    /// # Errors
    /// Too many layers.
    fn add_size(&mut self, size: KnownSize) -> KeyResult {
        let KnownSize { flag, key, value } = size;
        // Settings by layer are listed before any weight is looked at.
        self.require(flag != SizeFlag::LAYERS || value <= MAX_LAYERS, || {
            let given = if self.is_new() { flag.name() } else { key };
            format!("{given} is {value}; at most {MAX_LAYERS} layers are supported")
        })?;
        self.name(key, Some(flag.name()));
        self.sizes.push(size);
        Ok(())
    }

    /// Names a whole number of at least 1 without a flag.
    ///
    /// # Errors
    /// As [`size_or`](Self::size_or).
    pub fn count(&mut self, key: &str, field: &mut usize, default: usize) -> KeyResult {
        self.field(key, field, default, |settings| Ok(settings.count(key)?.unwrap_or(default)))
    }

    /// Names a number of at least 0.
    ///
    /// # Errors
    /// Another value.
    pub fn number(&mut self, key: &str, field: &mut f64, default: f64) -> KeyResult {
        self.field(key, field, default, |settings| Ok(settings.number(key)?.unwrap_or(default)))
    }

    /// Names a number of at least 0 that a model may do without: a `null` in the file. An absent key is `default`.
    ///
    /// # Errors
    /// Another value.
    pub fn optional_number(
        &mut self,
        key: &str,
        field: &mut Option<f64>,
        default: Option<f64>,
    ) -> KeyResult {
        self.field(key, field, default, |settings| {
            Ok(settings.number(key)?.or(default.filter(|_| !settings.has(key))))
        })
    }

    /// Names a whole number of at least 1 that a model may do without, as in
    /// [`optional_number`](Self::optional_number).
    ///
    /// # Errors
    /// Another value.
    pub fn optional_count(
        &mut self,
        key: &str,
        field: &mut Option<usize>,
        default: Option<usize>,
    ) -> KeyResult {
        self.field(key, field, default, |settings| {
            Ok(settings.count(key)?.or(default.filter(|_| !settings.has(key))))
        })
    }

    /// Names a switch.
    ///
    /// # Errors
    /// A value that is neither true nor false.
    pub fn switch(&mut self, key: &str, field: &mut bool, default: bool) -> KeyResult {
        self.field(key, field, default, |settings| Ok(settings.switch(key)?.unwrap_or(default)))
    }

    /// Names `tie_word_embeddings`: one weight for embedding and head, which is `default` in a file without the key. A
    /// new model has one if `--tied` is given.
    ///
    /// # Errors
    /// As [`switch`](Self::switch).
    pub fn tied(&mut self, field: &mut bool, default: bool) -> KeyResult {
        let key = "tie_word_embeddings";
        let of_new = match &self.pass {
            Pass::New { sizes, .. } => sizes.tied,
            _ => default,
        };
        self.takes_tied = true;
        self.name(key, Some("--tied"));
        self.field(key, field, of_new, |settings| Ok(settings.switch(key)?.unwrap_or(default)))
    }

    /// Names `tie_word_embeddings` of a family whose head always is the embedding; `--tied` may be given, too.
    ///
    /// # Errors
    /// A file in which it is false.
    pub fn always_tied(&mut self) -> KeyResult {
        let key = "tie_word_embeddings";
        self.takes_tied = true;
        self.write(key, true);
        self.only_switch(key, true)
    }

    /// Names `bos_token_id` or `eos_token_id`, whose value is kept as it is in the file.
    ///
    /// # Errors
    /// None at present; the type is that of its neighbors.
    pub fn token(&mut self, key: &str, field: &mut Value) -> KeyResult {
        let read =
            |settings: &HfSettings<'_>| Ok(settings.get(key).cloned().unwrap_or(Value::Null));
        self.field(key, field, Value::Null, read)
    }

    /// Names `pad_token_id`: the row of an embedding of `vocab` rows that look-ups do not train. As in PyTorch, a
    /// negative one counts rows from the end. A file without the key has row `default`, and a new model none.
    ///
    /// # Errors
    /// An id that the embedding does not have.
    pub fn padding(
        &mut self,
        field: &mut Option<usize>,
        vocab: usize,
        default: Option<usize>,
    ) -> KeyResult {
        let key = "pad_token_id";
        self.field(key, field, None, |settings| match settings.get(key) {
            Some(id) => padding_row(id, vocab).map(Some),
            None => Ok(default.filter(|row| !settings.has(key) && *row < vocab)),
        })
    }

    /// Names the rows of a table of positions, which bounds the length of sequences. A new model has `--seq` of them.
    ///
    /// # Errors
    /// As [`size_or`](Self::size_or).
    pub fn position_table(&mut self, key: &str, field: &mut usize, default: usize) -> KeyResult {
        self.positions(key, field, default)?;
        self.table = Some(*field);
        Ok(())
    }

    /// Names `max_position_embeddings`: the longest sequence that a model was made for. Runs may have longer ones.
    ///
    /// # Errors
    /// As [`size_or`](Self::size_or).
    pub fn max_positions(&mut self, field: &mut usize, default: usize) -> KeyResult {
        if let Pass::Extend { seq } = self.pass
            && seq > *field
        {
            let made_for = std::mem::replace(field, seq);
            self.warnings.push(format!(
                "{seq} tokens are more than the {made_for} positions for which the model was made ({MAX_POSITIONS}); \
                 --export-hf writes {seq}"
            ));
        }
        self.positions(MAX_POSITIONS, field, default)
    }

    fn positions(&mut self, key: &str, field: &mut usize, default: usize) -> KeyResult {
        let of_new = match self.pass {
            Pass::New { seq, .. } => seq,
            _ => default,
        };
        self.name(key, Some("--seq"));
        self.field(key, field, of_new, |settings| Ok(settings.count(key)?.unwrap_or(default)))
    }

    /// Names the rotary parameters of heads of `head_dim`, in both forms that [`read_rope`] reads, with the base
    /// `theta` in a file without one and in a new model. Named after [`max_positions`](Self::max_positions).
    ///
    /// # Errors
    /// As [`read_rope`].
    pub fn rope(
        &mut self,
        field: &mut RopeParameters,
        theta: f64,
        head_dim: usize,
        max_positions: usize,
    ) -> KeyResult {
        for key in ["rope_parameters", "rope_scaling", "rope_theta"] {
            self.name(key, None);
        }
        match &mut self.pass {
            Pass::Read(settings) => *field = read_rope(settings, theta, head_dim, max_positions)?,
            Pass::New { .. } => *field = RopeParameters::with_theta(theta),
            Pass::Write(keys) => {
                write_rope(field, keys);
                // Frequencies depend on the length that the model was made for.
                if let RopeScaling::Dynamic { trained_positions, .. } = field.scaling {
                    keys.insert(MAX_POSITIONS.to_owned(), trained_positions.into());
                }
            }
            Pass::Extend { .. } => {
                if let RopeScaling::Dynamic { .. } = field.scaling {
                    self.warnings.clear();
                }
            }
        }
        Ok(())
    }

    /// Names a text that has to be one of `known`, such as the activation; the first one is written.
    ///
    /// # Errors
    /// Another text. The key may be absent.
    pub fn only(&mut self, key: &str, known: &[&str]) -> KeyResult {
        self.write(key, known[0]);
        self.settings().map_or(Ok(()), |settings| settings.expect_text(key, known))
    }

    /// Names a switch that has to be `wanted`; it is not written.
    ///
    /// # Errors
    /// The other value. The key may be absent.
    pub fn only_switch(&mut self, key: &str, wanted: bool) -> KeyResult {
        self.name(key, None);
        match self.settings().map(|settings| settings.switch(key)).transpose()?.flatten() {
            Some(found) if found != wanted => {
                Err(format!("{key} is {found}; only {wanted} is supported"))
            }
            _ => Ok(()),
        }
    }

    /// Names a rate that has to be 0, such as that of dropout or of noise; it is not written.
    ///
    /// # Errors
    /// A rate above 0.
    pub fn no_rate(&mut self, key: &str) -> KeyResult {
        self.name(key, None);
        match self.settings().map(|settings| settings.number(key)).transpose()?.flatten() {
            Some(rate) if rate > 0.0 => Err(format!("{key} is {rate}; only 0 is supported")),
            _ => Ok(()),
        }
    }

    /// Names keys that change nothing here, whatever their values are.
    pub fn ignore(&mut self, keys: &[&str]) {
        if let Some(settings) = self.settings() {
            settings.ignore(keys);
        }
    }
}

/// Returns the row of a `pad_token_id`.
fn padding_row(id: &Value, vocab: usize) -> Result<usize, String> {
    let row = id.as_i64().map(|id| if id < 0 { id + vocab as i64 } else { id });
    let row = row.and_then(|row| usize::try_from(row).ok()).filter(|row| *row < vocab);
    row.ok_or_else(|| {
        format!(
            "pad_token_id is {id}, but the embedding has {vocab} rows; correct it, or set it to null if nothing is \
             padded"
        )
    })
}
