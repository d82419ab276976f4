//! The chain of a model's fields, and the points at which it can be cut into stages.

use meshwright_core::nn::LayerCount;

/// Chain of a model: the fields that `forward` runs one after the other, and those that loss and logits use after them.
#[derive(Debug, Clone, PartialEq)]
pub struct ChainOutline {
    /// Name of the model's struct.
    pub model: String,
    /// Fields of the chain, in order.
    pub fields: Vec<FieldOutline>,
    /// Fields that only loss and logits use, on the last stage.
    pub last: Vec<FieldOutline>,
}

/// Field of a chain.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldOutline {
    /// Name of the field.
    pub name: String,
    /// The layers, if the field is a stack; the chain can be cut between any two of them.
    pub layers: Option<LayerCount>,
    /// Declared cost of the field, or of each of its layers; a layer of the first stack costs 1.
    pub cost: Option<f64>,
}

/// Stage-cut point: a layer of a stack, or a field of a chain without stacks, at which a stage can begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutPoint {
    /// Path of the layer or field: `blocks.5`.
    pub path: String,
    /// Index of the field in the chain.
    pub field: usize,
    /// Index of the layer in a stack.
    pub layer: Option<usize>,
}

impl ChainOutline {
    /// Returns the stage-cut points, in order: every layer of every stack, or every field of a chain without stacks.
    ///
    /// Other fields go with one of these: fields before the first stack with its first layer, fields after a stack with
    /// its last layer, and [`last`](Self::last) fields with the last point.
    pub fn cut_points(&self) -> Vec<CutPoint> {
        let points_of_field = |(field, outline): (usize, &FieldOutline)| {
            let name = &outline.name;
            let point = |layer: usize| {
                let path = format!("{name}.{layer}");
                CutPoint { path, field, layer: Some(layer) }
            };
            match &outline.layers {
                Some(layers) => (0..layers.count).map(point).collect(),
                None if self.has_stack() => Vec::new(),
                None => vec![CutPoint { path: name.clone(), field, layer: None }],
            }
        };
        self.fields.iter().enumerate().flat_map(points_of_field).collect()
    }

    /// Returns the number of stage-cut points.
    pub fn point_count(&self) -> usize {
        self.points_before(self.fields.len())
    }

    /// Returns the stage-cut point to which the first layer of a field, or the whole field, belongs.
    pub(super) fn point_of_field(&self, field: usize) -> usize {
        let before = self.points_before(field);
        let is_point = self.fields[field].layers.is_some() || !self.has_stack();
        if is_point { before } else { before.saturating_sub(1) }
    }

    /// Returns the stage-cut point to which the field or parameter at `path` belongs; `None` if it is not part of the
    /// chain.
    pub(super) fn point_of_path(&self, path: &str) -> Option<usize> {
        let (name, inside) = path.split_once('.').unwrap_or((path, ""));
        if self.last.iter().any(|last| last.name == name) {
            return self.point_count().checked_sub(1);
        }
        let field = self.fields.iter().position(|field| field.name == name)?;
        let first = self.point_of_field(field);
        let Some(layers) = &self.fields[field].layers else { return Some(first) };
        let layer: usize = inside.split('.').next()?.parse().ok()?;
        (layer < layers.count).then_some(first + layer)
    }

    /// Returns true if a field is a stack.
    pub(super) fn has_stack(&self) -> bool {
        self.fields.iter().any(|field| field.layers.is_some())
    }

    /// Describes the number of stage-cut points for messages: `` `blocks` has Layers = 6 ``.
    pub(super) fn describe_points(&self) -> String {
        let stacks =
            self.fields.iter().filter_map(|field| Some((&field.name, field.layers.as_ref()?)));
        match stacks.collect::<Vec<_>>().as_slice() {
            [] => format!("the chain of `{}` has length {}", self.model, self.fields.len()),
            [(name, layers)] => format!("`{name}` has {} = {}", layers.dim, layers.count),
            _ => format!("{} have {} layers", self.stack_names(), self.point_count()),
        }
    }

    /// Formats the names of the stacks, or that of the model without stacks.
    pub(super) fn stack_names(&self) -> String {
        let stacks = self.fields.iter().filter(|field| field.layers.is_some());
        let names: Vec<String> = stacks.map(|field| format!("`{}`", field.name)).collect();
        match names.as_slice() {
            [] => format!("`{}`", self.model),
            names => names.join(" and "),
        }
    }

    /// Counts the stage-cut points of the fields before `field`.
    fn points_before(&self, field: usize) -> usize {
        let alone = usize::from(!self.has_stack());
        let points =
            |field: &FieldOutline| field.layers.as_ref().map_or(alone, |layers| layers.count);
        self.fields[..field].iter().map(points).sum()
    }
}
