//! Paths of fields, split at the number of a layer, and layers that are alike.

use std::collections::BTreeSet;
use std::fmt;

/// A field whose path is split at the number of a layer: `blocks.`, 3, `.mlp.down`.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerField {
    pub before: String,
    pub layer: Option<usize>,
    pub after: String,
}

impl LayerField {
    pub fn new(path: &str) -> LayerField {
        let mut start = 0;
        for segment in path.split('.') {
            // The last segment may be followed by a purpose: `blocks.3 (gradient)`.
            let digits = segment.split(' ').next().unwrap_or_default();
            if let Ok(layer) = digits.parse() {
                let end = start + digits.len();
                let [before, after] = [&path[..start], &path[end..]].map(str::to_owned);
                return LayerField { before, layer: Some(layer), after };
            }
            start += segment.len() + 1;
        }
        LayerField { before: path.to_owned(), layer: None, after: String::new() }
    }

    /// Returns true if both differ by the number of the layer at most.
    pub fn is_like(&self, other: &LayerField) -> bool {
        self.layer.is_some() == other.layer.is_some()
            && (&self.before, &self.after) == (&other.before, &other.after)
    }

    /// Returns the part of the model that the field belongs to: a layer, or else the first field of its path. Checks
    /// and functions of the library belong to none.
    pub fn part(&self) -> Option<LayerField> {
        // Without the purpose of the call.
        let before = self.before.split(" (").next()?;
        if before.contains([' ', ':']) {
            return None;
        }
        let before = if self.layer.is_some() { before } else { before.split('.').next()? };
        let (before, layer, after) = (before.to_owned(), self.layer, String::new());
        Some(LayerField { before, layer, after })
    }
}

/// The same field of layers that are alike. It prints `blocks.0-7.mlp.down`.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerGroup {
    /// The field, of one layer.
    field: LayerField,
    /// The layers, in order; empty if the field is not of a layer.
    layers: BTreeSet<usize>,
}

impl LayerGroup {
    pub fn new(field: LayerField) -> LayerGroup {
        LayerGroup { layers: field.layer.into_iter().collect(), field }
    }

    /// Returns true if the fields of both differ by the number of the layer at most.
    pub fn is_like(&self, other: &LayerGroup) -> bool {
        self.field.is_like(&other.field)
    }

    /// Adds the layers of a group that is like this one.
    pub fn add(&mut self, other: &LayerGroup) {
        self.layers.extend(&other.layers);
    }

    /// Returns the number of layers, or 1.
    pub fn count(&self) -> usize {
        self.layers.len().max(1)
    }
}

impl fmt::Display for LayerGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LayerField { before, after, .. } = &self.field;
        write!(f, "{before}{}{after}", ranges(&self.layers))
    }
}

/// Returns numbers as ranges: `0-2,5`; nothing for none.
fn ranges(numbers: &BTreeSet<usize>) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, end)) if *end + 1 == *number => *end = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let text = |(start, end): &(usize, usize)| {
        if start == end { start.to_string() } else { format!("{start}-{end}") }
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_belong_to_layers_or_fields_of_the_model() {
        for (path, part) in [
            ("blocks.3.mlp.down.weight", Some("blocks.3")),
            ("blocks.3 (gradient)", Some("blocks.3")),
            ("start.embed.weight", Some("start")),
            ("head (parameters)", Some("head")),
            ("losses and checks", None),
            ("Gradients::norm", None),
        ] {
            let found = LayerField::new(path).part();
            assert_eq!(found, part.map(LayerField::new), "{path}");
        }
    }
}
