//! Labels of examples, by number or by name.

use clap::Args;

use crate::data::{Example, Field};
use crate::models::encoders::ClassLabels;

/// The labels of a model whose configuration has others.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct GivenLabels {
    /// Labels of the model by name, or their number; by default those of its configuration
    #[arg(long, value_name = "NAME,..|N", value_delimiter = ',')]
    pub labels: Option<Vec<String>>,
}

impl GivenLabels {
    /// Sets the labels that are given.
    ///
    /// # Errors
    /// Fewer than two labels, and one that is given twice.
    pub fn set(&self, labels: &mut ClassLabels) -> Result<(), String> {
        let Some(given) = &self.labels else { return Ok(()) };
        let new = match &given[..] {
            [one] => match one.parse() {
                Ok(count) if (2..=MOST).contains(&count) => ClassLabels::numbered(count),
                _ => {
                    return Err(format!(
                        "--labels: {one:?} is neither several names nor a number of labels from 2 to {MOST}"
                    ));
                }
            },
            names => ClassLabels::named(names.iter().cloned()),
        };
        let is_named = given.len() > 1;
        let twice = (1..new.count()).find(|at| new.names[..*at].contains(&new.names[*at]));
        if let Some(at) = twice.filter(|_| is_named) {
            return Err(format!("--labels: {:?} is given twice", new.names[at]));
        }
        // Labels of the same number keep their names.
        if is_named || labels.count() != new.count() {
            *labels = new;
        }
        Ok(())
    }
}

/// Most labels of a model.
const MOST: usize = 1 << 20;

/// Returns the number of the label in `field`.
///
/// # Errors
/// A label that does not exist, with those that do, and a value that is neither a number nor a text.
pub fn label_of(labels: &ClassLabels, name: &str, field: &Field) -> Result<u32, String> {
    let count = labels.count();
    match field {
        Field::Integer(id) => {
            let id = usize::try_from(*id).ok().filter(|id| *id < count);
            let id = id.ok_or_else(|| {
                format!(
                    "`{name}` is {}, but the model has {count} labels: 0 to {}",
                    shown(field),
                    count - 1
                )
            })?;
            Ok(id as u32)
        }
        Field::Text(text) => match labels.id_of(text) {
            Some(id) => Ok(id as u32),
            None => {
                /// Most labels in a message.
                const SHOWN: usize = 10;
                let names = labels.names.iter().take(SHOWN).map(|name| format!("{name:?}"));
                let names = names.collect::<Vec<_>>().join(", ");
                let more = if count > SHOWN { ", .." } else { "" };
                Err(format!("`{name}` is {text:?}, but the labels of the model are {names}{more}"))
            }
        },
        other => Err(format!(
            "`{name}` is {}, but has to be the number or the name of a label",
            other.kind()
        )),
    }
}

/// Returns the number of the label of an example.
///
/// # Errors
/// As [`label_of`], and a field that the example does not have.
pub fn label(labels: &ClassLabels, name: &str, example: &Example) -> Result<u32, String> {
    label_of(labels, name, example.field(name)?)
}

fn shown(field: &Field) -> String {
    match field {
        Field::Integer(number) => number.to_string(),
        other => other.kind().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_given_by_name_or_number() {
        let set = |given: &[&str]| {
            let given = given.iter().map(|name| (*name).to_owned()).collect();
            let mut labels = ClassLabels::named(["good", "bad"]);
            GivenLabels { labels: Some(given) }.set(&mut labels).map(|()| labels)
        };
        assert_eq!(set(&["a", "b", "c"]), Ok(ClassLabels::named(["a", "b", "c"])));
        assert_eq!(set(&["3"]), Ok(ClassLabels::numbered(3)));
        assert_eq!(set(&["2"]), Ok(ClassLabels::named(["good", "bad"])));
        assert_eq!(set(&["a", "b", "a"]), Err("--labels: \"a\" is given twice".to_owned()));
        assert!(set(&["1"]).is_err() && set(&["a"]).is_err());
    }

    #[test]
    fn labels_have_numbers_and_names() {
        let labels = ClassLabels::named(["good", "bad"]);
        let of = |field: Field| label_of(&labels, "label", &field);
        assert_eq!(of(Field::Integer(1)), Ok(1));
        assert_eq!(of(Field::Text("good".into())), Ok(0));
        for (field, reason) in [
            (Field::Integer(2), "`label` is 2, but the model has 2 labels: 0 to 1"),
            (Field::Integer(-1), "`label` is -1, but the model has 2 labels: 0 to 1"),
            (
                Field::Text("ugly".into()),
                "`label` is \"ugly\", but the labels of the model are \"good\", \"bad\"",
            ),
            (
                Field::Number(0.5),
                "`label` is a number, but has to be the number or the name of a label",
            ),
        ] {
            assert_eq!(of(field), Err(reason.to_owned()));
        }
    }
}
