//! Classification of images.

use crate::data::{
    Example, Field, ImagePreprocessing, RgbImage, RowStreams, RowWriter, file_bytes,
};
use crate::models::vit::{self, Images, Stream, Vit, VitConfig, cut_patches};
use crate::tensor::{Loss, Targets};
use crate::train::console::warn_once;
use crate::train::{Rows, Task, TaskSetup};

use super::ImageFlags;

/// Names of the streams of a row.
const PIXELS: &str = "pixels";
const LABEL: &str = "label";

/// The field with the name of the folder of an image.
const CLASS: &str = "class";

/// Prediction of the class of each image by a ViT.
///
/// Examples have an image, as bytes or as the path of a file, and its label: the number of the class, or its name in
/// `id2label`. Images are prepared by the `preprocessor_config.json` of the model; without one, they are resized to its
/// `image_size`, with values of -1 to 1.
pub struct ImageClassification {
    config: VitConfig,
    steps: ImagePreprocessing,
    flags: ImageFlags,
}

impl Task for ImageClassification {
    type Model = Vit;
    type Extra = Targets<(vit::Batch,)>;
    type Over = (vit::Batch,);
    type Flags = ImageFlags;
    const NAME: &'static str = "image-classification";

    fn open(setup: &TaskSetup<'_, VitConfig, ImageFlags>) -> Result<Self, String> {
        let (config, flags) = (setup.family().clone(), setup.flags().clone());
        let VitConfig { image_size: size, channels, .. } = config;
        if channels != 3 {
            return Err(format!(
                "num_channels is {channels}, but images have 3: red, green and blue; train a model of 3 channels"
            ));
        }
        let of_folder = setup.model_folder().map(ImagePreprocessing::of_folder).transpose()?;
        if let (Some(folder), Some(None)) = (setup.model_folder(), &of_folder) {
            warn_once(&format!(
                "--init-from: {} has no preprocessor_config.json: images are resized to {size} by {size} pixels, with \
                 values of -1 to 1",
                folder.display()
            ));
        }
        let steps = of_folder.flatten().unwrap_or_else(|| ImagePreprocessing::of_size(size));
        match steps.output_size() {
            Some((width, height)) if (width, height) != (size, size) => Err(format!(
                "preprocessor_config.json makes images of {width} by {height} pixels, but image_size of config.json is \
                 {size}; correct one of them"
            )),
            None if flags.crops() => Err(format!(
                "--crop-area: preprocessor_config.json states no size of images; give it \"size\": {{\"height\": \
                 {size}, \"width\": {size}}}"
            )),
            _ => Ok(ImageClassification { config, steps, flags }),
        }
    }

    fn streams(&self) -> RowStreams {
        let sizes = [self.config.patches(), self.config.pixels()];
        RowStreams::new().values(PIXELS, &sizes).targets(LABEL, &[], self.config.classes)
    }

    fn row(&self, example: &Example, key: u64, row: &mut RowWriter<'_>) -> Result<(), String> {
        let (bytes, name) = file_bytes(example, &self.flags.image)?;
        let named = |reason: String| format!("{name}: {reason}");
        let image = RgbImage::decode(&bytes).map_err(named)?;
        let view = if row.is_trained() {
            self.flags.view().of(&image, &self.steps, key)
        } else {
            self.steps.view(&image)
        };
        let view = view.map_err(named)?;
        let (width, height, size) = (view.width(), view.height(), self.config.image_size);
        if (width, height) != (size, size) {
            return Err(named(format!(
                "the image has {width} by {height} pixels, but the model takes {size} by {size}; let \
                 preprocessor_config.json resize images (do_resize, size)"
            )));
        }
        let mut values = vec![0.0; view.pixels().len()];
        self.steps.write(&view, &mut values);
        cut_patches(&self.config, &values, row.values(PIXELS));
        row.ids(LABEL).fill(self.label(example)?);
        Ok(())
    }

    fn input(&self, rows: &Rows<'_>) -> (Images, Self::Extra) {
        (rows.tensor(PIXELS), rows.tokens(LABEL))
    }

    fn loss(&self, model: &Vit, output: &Stream, labels: &Self::Extra) -> Loss<Self::Over> {
        model.classifier.loss(output, labels)
    }
}

impl ImageClassification {
    /// Returns true if classes have no names: none in `id2label`, or those that `transformers` gives by default.
    fn numbers_labels(&self) -> bool {
        let named = |(id, label): (usize, &String)| *label == format!("LABEL_{id}");
        self.config.labels.iter().enumerate().all(named)
    }

    /// Returns the number of the class of an example.
    fn label(&self, example: &Example) -> Result<u32, String> {
        let VitConfig { classes, labels, .. } = &self.config;
        // A folder of classes has their names, and numbers by the order of the names.
        let is_named = self.flags.label == LABEL && example.get(CLASS).is_some();
        let name = if is_named && !self.numbers_labels() { CLASS } else { &*self.flags.label };
        let found = match example.field(name)? {
            Field::Integer(label) => usize::try_from(*label).ok().filter(|label| label < classes),
            Field::Text(text) => labels.iter().position(|label| label == text),
            other => {
                return Err(format!(
                    "`{name}` is {}, but has to be the number or the name of a class",
                    other.kind()
                ));
            }
        };
        found.map(|label| label as u32).ok_or_else(|| match example.field(name) {
            Ok(Field::Text(text)) => {
                format!("`{name}` is \"{text}\", which is none of the classes in id2label")
            }
            Ok(Field::Integer(label)) => format!(
                "`{name}` is {label}, but the model has {classes} classes (num_labels): 0 to {}",
                classes - 1
            ),
            _ => unreachable!("other fields are refused above"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_labeled_by_the_names_of_the_model() {
        let task = |labels: &[&str]| ImageClassification {
            config: VitConfig {
                classes: labels.len(),
                labels: labels.iter().map(|label| (*label).to_owned()).collect(),
                ..VitConfig::default()
            },
            steps: ImagePreprocessing::of_size(8),
            flags: ImageFlags {
                image: "image".to_owned(),
                label: LABEL.to_owned(),
                mirrors: false,
                crop_area: None,
            },
        };
        let of_folder = |class: &str, label| {
            let fields = [(LABEL, Field::Integer(label)), (CLASS, Field::Text(class.to_owned()))];
            Example::new(fields.map(|(name, field)| (name.to_owned(), field)))
        };
        let named = task(&["dog", "cat"]);
        assert_eq!(named.label(&of_folder("cat", 0)), Ok(1));
        let unknown = named.label(&of_folder("fox", 0)).unwrap_err();
        assert_eq!(unknown, "`class` is \"fox\", which is none of the classes in id2label");
        let numbered = task(&["LABEL_0", "LABEL_1"]);
        assert_eq!(numbered.label(&of_folder("cat", 0)), Ok(0));
        // An example without a folder has its own label.
        let own = Example::new([(LABEL.to_owned(), Field::Text("cat".to_owned()))]);
        assert_eq!(named.label(&own), Ok(1));
    }
}
