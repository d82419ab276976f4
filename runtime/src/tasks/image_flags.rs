//! Flags of tasks on images.

use clap::error::{Error, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use crate::data::TrainingView;

/// Fields of examples, and random changes of the images that are trained on.
#[derive(Debug, Clone, PartialEq)]
pub struct ImageFlags {
    /// `--image-field`: the field of the image; by default `image`.
    pub image: String,
    /// `--label-field`: the field of the label; by default `label`.
    pub label: String,
    /// `--mirror`: left and right of half of the images are exchanged.
    pub mirrors: bool,
    /// `--crop-area`: a part of each image is cut out, of this part of its area at least.
    pub crop_area: Option<f64>,
}

impl ImageFlags {
    /// Returns true if parts of images are cut out.
    pub(super) fn crops(&self) -> bool {
        self.crop_area.is_some()
    }

    /// Returns the random changes.
    pub(super) fn view(&self) -> TrainingView {
        TrainingView { area: self.crop_area.map(|area| (area, 1.0)), mirrors: self.mirrors }
    }
}

impl Args for ImageFlags {
    fn augment_args(command: Command) -> Command {
        let field = |id: &'static str, default: &'static str, help: &'static str| {
            Arg::new(id).long(id).value_name("NAME").default_value(default).help(help)
        };
        command
            .arg(field("image-field", "image", "Field of examples with the image"))
            .arg(field("label-field", "label", "Field of examples with the label"))
            .arg(
                Arg::new("mirror")
                    .long("mirror")
                    .action(ArgAction::SetTrue)
                    .help("Exchange left and right of half of the images that are trained on"),
            )
            .arg(
                Arg::new("crop-area")
                    .long("crop-area")
                    .value_name("PART")
                    .value_parser(clap::value_parser!(f64))
                    .help("Cut a random part out of each image that is trained on, of this part of its area or more"),
            )
    }

    fn augment_args_for_update(command: Command) -> Command {
        ImageFlags::augment_args(command)
    }
}

impl FromArgMatches for ImageFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ImageFlags, Error> {
        let text = |id: &str| matches.get_one::<String>(id).cloned().unwrap_or_default();
        let crop_area = matches.get_one::<f64>("crop-area").copied();
        if let Some(area) = crop_area.filter(|area| !(*area > 0.0 && *area <= 1.0)) {
            let message = format!(
                "--crop-area: {area} is no part of an area; give a number above 0 and at most 1\n"
            );
            return Err(Error::raw(ErrorKind::ValueValidation, message));
        }
        let (image, label) = (text("image-field"), text("label-field"));
        Ok(ImageFlags { image, label, mirrors: matches.get_flag("mirror"), crop_area })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = ImageFlags::from_arg_matches(matches)?;
        Ok(())
    }
}
