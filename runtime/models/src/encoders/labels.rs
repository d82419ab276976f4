//! Labels of classifiers: `id2label`, `label2id`, `num_labels` and `problem_type`.

use serde_json::{Map, Value};

use meshwright_store::checkpoint::hf::{HfKeys, HfSettings, KeyResult};

/// Labels of a file that does not have any.
const DEFAULT: usize = 2;

/// Most labels of a classifier.
const MOST: usize = 1 << 20;

/// The kind of prediction of a classifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LabelKind {
    /// One of the labels.
    #[default]
    Class,
    /// A number, by a single output.
    Number,
}

/// The labels of a classifier.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassLabels {
    /// `id2label`: the name of each label.
    pub names: Vec<String>,
    /// `problem_type`: whether labels are classes, or a number.
    pub kind: LabelKind,
}

/// Two labels.
impl Default for ClassLabels {
    fn default() -> ClassLabels {
        ClassLabels::numbered(DEFAULT)
    }
}

impl ClassLabels {
    /// Returns `count` labels with the names of `transformers`; a single one is a number.
    pub fn numbered(count: usize) -> ClassLabels {
        let names = (0..count).map(|id| format!("LABEL_{id}")).collect();
        let kind = if count == 1 { LabelKind::Number } else { LabelKind::Class };
        ClassLabels { names, kind }
    }

    /// Returns labels of these names.
    pub fn named<N: Into<String>>(names: impl IntoIterator<Item = N>) -> ClassLabels {
        let names = names.into_iter().map(Into::into).collect();
        ClassLabels { names, kind: LabelKind::Class }
    }

    /// Returns the number of labels.
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// Returns the id of the label `name`.
    pub fn id_of(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|own| own == name)
    }

    /// Names the keys of labels.
    ///
    /// # Errors
    /// Labels whose numbers have gaps, or that differ between keys, and several labels of each text.
    pub fn keys(&mut self, keys: &mut HfKeys<'_>, numbers: bool) -> KeyResult {
        keys.list(&["num_labels", "problem_type"]);
        if let Some(settings) = keys.settings() {
            *self = read(settings, numbers)?;
        }
        if keys.is_new() {
            *self = ClassLabels::default();
        }
        let names = || self.names.iter().enumerate();
        let by_id = names().map(|(id, name)| (id.to_string(), Value::from(name.as_str())));
        let by_name = names().map(|(id, name)| (name.clone(), Value::from(id)));
        keys.write("id2label", Value::Object(by_id.collect()));
        keys.write("label2id", Value::Object(by_name.collect()));
        if numbers {
            let kind = match self.kind {
                LabelKind::Class => "single_label_classification",
                LabelKind::Number => "regression",
            };
            keys.write("problem_type", kind);
        }
        Ok(())
    }
}

/// Reads the labels of a file; `numbers` may be predicted, too.
fn read(settings: &HfSettings<'_>, numbers: bool) -> Result<ClassLabels, String> {
    let object = |key: &str| match settings.get(key) {
        None => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(other) => Err(format!("{key} must be an object, not {other}")),
    };
    let (by_id, by_name) = (object("id2label")?, object("label2id")?);
    let count = settings.count("num_labels")?;
    let named = by_id.map(names_of).transpose()?;
    let given = named.as_ref().map(Vec::len).or(count).unwrap_or(DEFAULT);
    if let Some(count) = count.filter(|count| *count != given) {
        return Err(format!("num_labels is {count}, but id2label has {given} labels"));
    }
    if given > MOST {
        return Err(format!("num_labels is {given}; at most {MOST} labels are supported"));
    }
    let mut labels = ClassLabels::numbered(given);
    labels.names = named.unwrap_or(labels.names);
    for (name, id) in by_name.into_iter().flatten() {
        let id = id.as_u64().and_then(|id| labels.names.get(id as usize));
        if id != Some(name) {
            return Err(format!("label2id[{name:?}] is not the label of this name in id2label"));
        }
    }
    let problem = settings.text("problem_type")?;
    labels.kind = match problem {
        None if numbers => labels.kind,
        None | Some("single_label_classification") => LabelKind::Class,
        Some("regression") if numbers => LabelKind::Number,
        Some(other) => {
            let known = if numbers { " or \"regression\"" } else { "" };
            return Err(format!(
                "problem_type is \"{other}\"; only \"single_label_classification\"{known} is supported"
            ));
        }
    };
    match labels.kind {
        LabelKind::Number if given != 1 => Err(format!(
            "problem_type is \"regression\" with {given} labels; only a single number is supported"
        )),
        LabelKind::Class if given == 1 => {
            Err("num_labels is 1: a classifier has at least two labels".into())
        }
        _ => Ok(labels),
    }
}

/// Returns the names of `id2label`, by their ids.
fn names_of(object: &Map<String, Value>) -> Result<Vec<String>, String> {
    let mut names = vec![None; object.len()];
    for (id, name) in object {
        let name = name.as_str().ok_or_else(|| format!("id2label[{id:?}] must be a text"))?;
        let place = id.parse::<usize>().ok().and_then(|id| names.get_mut(id));
        let place = place.filter(|place| place.is_none()).ok_or_else(|| {
            format!("id2label has {} labels, and {id:?} is not a number below", object.len())
        })?;
        *place = Some(name.to_owned());
    }
    let names: Vec<String> = names.into_iter().flatten().collect();
    let twice = (1..names.len()).find(|at| names[..*at].contains(&names[*at]));
    match twice {
        Some(at) => Err(format!("id2label has two labels {:?}", names[at])),
        None if names.is_empty() => Err("id2label has no labels".into()),
        None => Ok(names),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn labels(file: &Value) -> Result<ClassLabels, String> {
        read(&HfSettings::new(file.as_object().unwrap()), true)
    }

    #[test]
    fn labels_have_names_or_a_number() {
        assert_eq!(labels(&json!({})), Ok(ClassLabels::numbered(2)));
        assert_eq!(labels(&json!({ "num_labels": 3 })), Ok(ClassLabels::numbered(3)));
        let file = json!({ "id2label": { "1": "b", "0": "a" }, "label2id": { "a": 0, "b": 1 } });
        let named = labels(&file).unwrap();
        assert_eq!((named.clone(), named.id_of("b")), (ClassLabels::named(["a", "b"]), Some(1)));
        let one = json!({ "id2label": { "0": "score" } });
        assert_eq!(labels(&one).unwrap().kind, LabelKind::Number);
    }

    #[test]
    fn labels_that_do_not_fit_are_refused() {
        for (file, reason) in [
            (json!({ "id2label": [1] }), "id2label must be an object, not [1]"),
            (json!({ "id2label": {} }), "id2label has no labels"),
            (json!({ "id2label": { "0": 1 } }), "id2label[\"0\"] must be a text"),
            (
                json!({ "id2label": { "1": "a" } }),
                "id2label has 1 labels, and \"1\" is not a number below",
            ),
            (json!({ "id2label": { "0": "a", "1": "a" } }), "id2label has two labels \"a\""),
            (
                json!({ "id2label": { "0": "a", "1": "b" }, "num_labels": 3 }),
                "num_labels is 3, but id2label has 2 labels",
            ),
            (
                json!({ "id2label": { "0": "a", "1": "b" }, "label2id": { "a": 1 } }),
                "label2id[\"a\"] is not the label of this name in id2label",
            ),
            (
                json!({ "problem_type": "multi_label_classification" }),
                "problem_type is \"multi_label_classification\"; only \"single_label_classification\" or \
                 \"regression\" is supported",
            ),
            (
                json!({ "problem_type": "regression" }),
                "problem_type is \"regression\" with 2 labels; only a single number is supported",
            ),
            (
                json!({ "num_labels": 1, "problem_type": "single_label_classification" }),
                "num_labels is 1: a classifier has at least two labels",
            ),
        ] {
            assert_eq!(labels(&file), Err(reason.to_owned()), "{file}");
        }
    }
}
