//! The fields that get adapters, and those that are trained beside them.

use super::super::LoraOptions;
use super::Builder;
use super::declare::BuildState;
use super::field_settings::{ends_with, without_indices};

impl<'a> Builder<'a> {
    /// Returns the options of the adapter of the linear layer in this field, if it has one.
    pub(in crate::nn) fn adapter_options(&self) -> Option<&'a LoraOptions> {
        let lora = self.state.sizes.lora.as_ref()?;
        let path = without_indices(&self.path);
        let mut fields = self.state.adapter_fields.borrow_mut();
        let targets = lora.targets.iter().filter(|target| ends_with(&path, target));
        let used: Vec<String> = targets.cloned().collect();
        fields.linear.insert(path);
        let is_target = !used.is_empty() && lora.rank > 0;
        fields.used.extend(used);
        is_target.then_some(lora)
    }

    /// Returns true if the options of adapters name the field at `path` as one that is trained, too.
    pub(super) fn is_trained_beside_adapters(&self, path: &str) -> bool {
        let Some(lora) = &self.state.sizes.lora else { return false };
        let path = without_indices(path);
        lora.train.iter().any(|field| ends_with(&path, field))
    }
}

impl BuildState<'_> {
    /// Returns the problems of adapters of fields that the model does not have, or that have none.
    pub(super) fn adapter_problems(&self) -> Vec<String> {
        let Some(LoraOptions { rank, targets, train, .. }) = &self.sizes.lora else {
            return Vec::new();
        };
        let fields = self.adapter_fields.borrow();
        let linear = fields.linear.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let has_field = |name: &String| {
            let models = self.fields.borrow();
            let mut paths = models.iter().flat_map(|(model, fields)| {
                fields.iter().map(move |field| without_indices(&format!("{model}.{field}")))
            });
            paths.any(|path| ends_with(&path, name))
        };
        let mut problems = Vec::new();
        if *rank == 0 {
            problems.push("adapters of rank 0 have no parameters: their rank is at least 1".into());
        }
        if targets.is_empty() {
            problems.push(format!(
                "the adapters have no targets: name fields; linear fields are {linear}"
            ));
        }
        for target in targets.iter().filter(|target| !fields.used.contains(*target)) {
            let reason = if has_field(target) {
                "its field is not a `Linear` or an `Affine`"
            } else {
                "the model has no such field"
            };
            problems.push(format!(
                "an adapter of `{target}` applies to nothing: {reason}; linear fields are {linear}"
            ));
        }
        for field in train.iter().filter(|field| !has_field(field)) {
            problems.push(format!(
                "`{field}`, which is to be trained beside adapters, is no field of the model"
            ));
        }
        problems
    }
}
