//! Configurations whose keys are named once, for reading, writing, the flags of a new model, and the book.

use std::borrow::Cow;

use serde_json::Value;

use crate::checkpoint::hf::{HfConfig, HfKeys, HfSettings, KeyResult, SizeFlag, TensorRole};

use super::{Family, LoadBalancing, ModelSizes, Outline, refuse_routers};

/// A configuration whose keys follow from one function: [`HfConfig`] and [`Family`] of a model are implemented by it.
///
/// `Default` is a configuration of the first family, whose fields [`keys`](Self::keys) sets.
pub trait ConfigKeys: Clone + Default {
    /// `model_type` of the folders of each family.
    const MODEL_TYPES: &'static [&'static str];

    /// Objects of `config.json` that describe parts of the model which are not supported, such as `vision_config`. A
    /// folder with one of them is refused.
    const OTHER_PARTS: &'static [&'static str] = &[];

    /// Returns a configuration of one of [`MODEL_TYPES`](Self::MODEL_TYPES), before its keys are read.
    fn new_of(model_type: &'static str) -> Self {
        let _ = model_type;
        Self::default()
    }

    /// Returns the `model_type` of this configuration.
    fn family(&self) -> &'static str {
        Self::MODEL_TYPES[0]
    }

    /// Returns the class of `transformers` that loads the model, if it has one.
    fn architecture(&self) -> Option<&'static str> {
        None
    }

    /// Names each key of `config.json` with the field that has its value. Keys that it does not name are refused when a
    /// folder is read.
    ///
    /// # Errors
    /// A size that is missing or of the wrong type, and any setting that is not implemented here, by name: ignoring it
    /// would change the results. There are none when a file is written: [`HfKeys::require`] checks values of files and
    /// flags.
    fn keys(&mut self, keys: &mut HfKeys<'_>) -> KeyResult;

    /// Returns what a tensor that a folder stores as `stored` is to the model.
    fn role_of<'a>(&self, stored: &'a str) -> TensorRole<'a> {
        TensorRole::Model(Cow::Borrowed(stored))
    }

    /// Returns true if a tensor of a folder may have this name, without a prefix that another program has added. By
    /// default, no prefix is known to be one.
    fn is_name(&self, stored: &str) -> bool {
        let _ = stored;
        true
    }

    /// Returns the beginnings of names of tensors that a folder may lack, such as those of a head for another task:
    /// they begin with new values, and a warning names them.
    fn new_tensors(&self) -> &'static [&'static str] {
        &[]
    }

    /// Makes the head a weight of its own, since a folder stores one that differs from the tensor it is tied to, and
    /// returns true; false if the family has no such models.
    fn untie_head(&mut self) -> bool {
        false
    }

    /// Sets how routers balance the loads of experts, and the weight of their z-loss. `None` leaves them as they are.
    ///
    /// # Errors
    /// A family without experts, and a way that it does not have, in a message that begins with the flag.
    fn balance(
        &mut self,
        balance: Option<LoadBalancing>,
        z_loss: Option<f64>,
    ) -> Result<(), String> {
        refuse_routers(self.family(), balance, z_loss)
    }
}

/// Returns the keys of a configuration with its values, and its sizes.
fn written<C: ConfigKeys>(config: &C) -> HfKeys<'static> {
    let mut keys = HfKeys::writing();
    let written = config.clone().keys(&mut keys);
    // `HfKeys::require` refuses values of files and flags only.
    written.expect("a configuration can be written");
    keys
}

impl<C: ConfigKeys> HfConfig for C {
    const MODEL_TYPE: &'static str = C::MODEL_TYPES[0];
    const MODEL_TYPES: &'static [&'static str] = C::MODEL_TYPES;
    const OTHER_PARTS: &'static [&'static str] = C::OTHER_PARTS;

    fn model_type(&self) -> &'static str {
        self.family()
    }

    fn from_settings(settings: &HfSettings<'_>) -> Result<Self, String> {
        Ok(C::of_type(C::MODEL_TYPES[0], settings)?.0)
    }

    fn of_type(
        model_type: &'static str,
        settings: &HfSettings<'_>,
    ) -> Result<(Self, Vec<String>), String> {
        let mut config = C::new_of(model_type);
        let mut pass = HfKeys::reading(settings);
        config.keys(&mut pass)?;
        Ok((config, pass.into_warnings()))
    }

    fn to_json(&self) -> Value {
        let mut keys = written(self).written();
        keys.insert("model_type".into(), self.family().into());
        keys.insert("torch_dtype".into(), "float32".into());
        if let Some(class) = self.architecture() {
            keys.insert("architectures".into(), Value::from(vec![class]));
        }
        Value::Object(keys)
    }

    fn layers(&self) -> (&'static str, usize) {
        let sizes = written(self).sizes;
        let layers = sizes.iter().find(|size| size.flag == SizeFlag::LAYERS);
        layers.map_or(("", 0), |size| (size.key, size.value))
    }

    fn new_tensors(&self) -> &'static [&'static str] {
        ConfigKeys::new_tensors(self)
    }

    fn tensor_role<'a>(&self, stored: &'a str) -> TensorRole<'a> {
        self.role_of(stored)
    }

    fn is_tensor_name(&self, stored: &str) -> bool {
        self.is_name(stored)
    }

    fn untie(&mut self) -> bool {
        self.untie_head()
    }
}

impl<C: ConfigKeys> Family for C {
    fn of_sizes(sizes: &ModelSizes, seq: usize) -> Result<Self, String> {
        C::new_model(C::MODEL_TYPES[0], sizes, seq)
    }

    fn new_model(model_type: &'static str, sizes: &ModelSizes, seq: usize) -> Result<Self, String> {
        let mut config = C::new_of(model_type);
        let mut keys = HfKeys::of_new(sizes, seq);
        config.keys(&mut keys)?;
        keys.refuse_other_flags(model_type)?;
        Ok(config)
    }

    fn outline(&self) -> Outline {
        let HfKeys { sizes, table, .. } = written(self);
        let find = |flag| sizes.iter().find(|size| size.flag == flag).map(|size| size.value);
        let heads = find(SizeFlag::HEADS).unwrap_or(1);
        // Of an encoder and a decoder there are two numbers.
        let layers = sizes.iter().filter(|size| size.flag == SizeFlag::LAYERS);
        let layers: usize = layers.map(|size| size.value).sum();
        Outline {
            layers: layers.max(1),
            hidden: find(SizeFlag::HIDDEN).unwrap_or(1),
            heads,
            kv_heads: find(SizeFlag::KV_HEADS).unwrap_or(heads),
            vocab: find(SizeFlag::VOCAB).unwrap_or(1),
            longest: table,
        }
    }

    fn known_keys(model_type: &'static str) -> Vec<(String, Option<&'static str>)> {
        written(&C::new_of(model_type)).into_named()
    }

    fn extend_positions(&mut self, seq: usize) -> Option<String> {
        let mut keys = HfKeys::extending(seq);
        // `HfKeys::require` refuses values of files and flags only.
        self.keys(&mut keys).expect("a configuration can be extended");
        keys.into_warnings().pop()
    }

    fn set_balancing(
        &mut self,
        balance: Option<LoadBalancing>,
        z_loss: Option<f64>,
    ) -> Result<(), String> {
        self.balance(balance, z_loss)
    }
}
