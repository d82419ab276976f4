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

/// Place of a field, or of a layer, in a chain that is cut into stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChainPlace {
    /// Before the first stack: on the first stage, which may have no layer then.
    Front,
    /// Part of a stage-cut point: at it, or after it and before the next one.
    Point(usize),
    /// After the last stack, or only used by loss and logits: on the last stage.
    Back,
}

impl ChainOutline {
    /// Returns the stage-cut points, in order: every layer of every stack, or every field of a chain without stacks.
    ///
    /// Other fields go with one of these: fields before the first stack with the first stage, fields between two stacks
    /// with the layer before them, and fields after the last stack, as well as [`last`](Self::last) fields, with the
    /// last stage.
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

    /// Returns the place of the first layer of a field, or of the whole field.
    pub(super) fn place_of_field(&self, field: usize) -> ChainPlace {
        let is_stack = |field: &FieldOutline| field.layers.is_some();
        let before = self.points_before(field);
        if is_stack(&self.fields[field]) || !self.has_stack() {
            ChainPlace::Point(before)
        } else if !self.fields[..field].iter().any(is_stack) {
            ChainPlace::Front
        } else if !self.fields[field..].iter().any(is_stack) {
            ChainPlace::Back
        } else {
            ChainPlace::Point(before.saturating_sub(1))
        }
    }

    /// Returns the place of the field or parameter at `path`; `None` if it is not part of the chain.
    pub(super) fn place_of_path(&self, path: &str) -> Option<ChainPlace> {
        let (name, inside) = path.split_once('.').unwrap_or((path, ""));
        if self.last.iter().any(|last| last.name == name) {
            return Some(ChainPlace::Back);
        }
        let field = self.fields.iter().position(|field| field.name == name)?;
        let place = self.place_of_field(field);
        let (ChainPlace::Point(first), Some(layers)) = (place, &self.fields[field].layers) else {
            return Some(place);
        };
        let layer: usize = inside.split('.').next()?.parse().ok()?;
        (layer < layers.count).then_some(ChainPlace::Point(first + layer))
    }

    /// Returns true if the first stage can do without a layer: it has the fields before the first stack.
    pub(super) fn has_front(&self) -> bool {
        (0..self.fields.len()).any(|field| self.place_of_field(field) == ChainPlace::Front)
    }

    /// Returns true if the last stage can do without a layer: it has the fields after the last stack.
    pub(super) fn has_back(&self) -> bool {
        (0..self.fields.len()).any(|field| self.place_of_field(field) == ChainPlace::Back)
    }

    /// Returns the largest number of stages.
    pub(super) fn most_stages(&self) -> usize {
        match self.point_count() {
            0 => 0,
            points => points + usize::from(self.has_front()) + usize::from(self.has_back()),
        }
    }

    /// Names the stages that need no layer, for messages: `, except the first and the last`.
    pub(super) fn describe_exceptions(&self) -> &'static str {
        match (self.has_front(), self.has_back()) {
            (true, true) => ", except the first and the last",
            (true, false) => ", except the first",
            (false, true) => ", except the last",
            (false, false) => "",
        }
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
