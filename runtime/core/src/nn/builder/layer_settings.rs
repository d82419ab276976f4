//! Settings of norms, rotary embeddings and dropout, which are those of the model unless a field has others.

use crate::rotary::RopeParameters;

use super::super::NormOptions;
use super::Builder;
use super::field_settings::setting_of;

impl Builder<'_> {
    /// Returns the options of the norm in this field. Numbers out of range are problems of the field.
    pub(in crate::nn) fn norm_options(&self) -> NormOptions {
        let sizes = self.sizes();
        let of_model = NormOptions { eps: sizes.norm_eps, offset: sizes.norm_offset };
        let path = self.path_without_indices();
        let Some((name, options)) = setting_of(sizes.norms(), &path) else { return of_model };
        self.state.used_settings.borrow_mut().norms.insert(name.to_owned());
        if !(options.eps.is_finite() && options.eps >= 0.0) {
            self.problem(format_args!(
                "the epsilon of its options is {}, and must be a finite number of at least 0",
                options.eps
            ));
        }
        *options
    }

    /// Returns the dropout rate of this field.
    pub(in crate::nn) fn dropout_rate(&self) -> f32 {
        let sizes = self.sizes();
        let path = self.path_without_indices();
        let Some((name, rate)) = setting_of(sizes.dropouts(), &path) else { return sizes.dropout };
        self.state.used_settings.borrow_mut().dropouts.insert(name.to_owned());
        *rate
    }

    /// Returns the rotary parameters of this field; `None`: it rotates nothing.
    pub(in crate::nn) fn rope_parameters(&self) -> Option<RopeParameters> {
        let sizes = self.sizes();
        let path = self.path_without_indices();
        if let Some((name, parameters)) = setting_of(sizes.ropes_of_fields(), &path) {
            self.state.used_settings.borrow_mut().ropes.insert(name.to_owned());
            return parameters.clone();
        }
        match sizes.ropes.as_slice() {
            [] => Some(sizes.rope.clone()),
            [of_all] => of_all.clone(),
            of_layers => {
                let layer = self.layer_index();
                if layer.is_none() {
                    self.problem(format_args!(
                        "the sizes have {} rotary embeddings for the layers of a stack, but this `Rope` is not in a \
                         `Stack`; set one, or another for this field by `Sizes::with_rope`",
                        of_layers.len()
                    ));
                }
                of_layers[layer.unwrap_or_default() % of_layers.len()].clone()
            }
        }
    }
}
