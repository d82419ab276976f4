//! The macro that makes flags, values and the settings of a run from one table.

use serde::{Serialize, Serializer};

use crate::tensor::ZeroStage;

use super::flags::{Change, Flag, Kept};
use super::given_value::GivenMap;
use super::problems::Problems;
use super::setting_value::SettingType;

/// Declares the settings by group. Each has its help, its name with `_` for `-`, its type, its default (if absence has
/// no meaning of its own), the placeholder of its value in `--help` (unless it is a switch), its value if it is given
/// without one (if it may be), its place in a serialized [`Config`] and the treatment of a [`Change`] (if checkpoints
/// keep it), and its field in `Config`, unless a derived one follows from it.
macro_rules! settings {
    ($(group $group:ident { $(
        $help:literal
        $name:ident: $type:ty $(= $default:literal)? $(, $placeholder:literal)? $(, alone $alone:literal)?
            $(, at $path:literal $change:ident)? $(=> $(#[$serde:meta])? $field:ident)?;
    )+ })+
    derived { $(
        $(#[$meta:meta])+
        $derived:ident: $result:ty = $derive:expr;
    )+ }) => {
        /// Every flag, in the order of `--help`.
        pub const FLAGS: &[Flag] = &[$($(Flag {
            name: {
                const NAME: [u8; stringify!($name).len()] = dashed(stringify!($name));
                text_of(&NAME)
            },
            value: concat!("" $(, $placeholder)?),
            kind: <$type as SettingType>::KIND,
            default: concat!("" $(, $default)?),
            alone: concat!("" $(, $alone)?),
            group: $group,
            help: $help,
            kept: kept(&[$(($path, Change::$change))?]),
        }),+),+];

        /// The settings of a command line, its `--config` file and its checkpoint: each value is read, and their
        /// rules are not checked yet.
        #[derive(Debug, Clone)]
        pub struct RunSettings {
            $($(pub(in crate::train) $name: <$type as SettingType>::Value,)+)+
            /// The settings as given.
            pub(super) given: GivenMap,
            /// The problems of single values.
            pub(super) problems: Problems,
            /// The optimizers that `--optimizer` selects from.
            pub(super) optimizers: Optimizers,
            /// The sizes of a step that are chosen later.
            pub(super) chosen_later: AutoSizes,
            /// The rows that the program makes.
            pub(super) rows: Option<OwnRows>,
            /// The flags of the task, and the examples that the program makes.
            pub(in crate::train) task: Option<TaskInput>,
        }

        /// The checked settings of a run.
        ///
        /// Rules about the mesh or the contents of files (divisible dims, token ids) are checked when these are opened.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[serde(rename_all = "kebab-case")]
        #[non_exhaustive]
        pub struct Config {
            $($(#[$meta])+ pub $derived: $result,)+
            $($($(
                $(#[$serde])?
                #[doc = $help]
                pub $field: <$type as SettingType>::Value,
            )?)+)+
        }

        impl RunSettings {
            /// Reads each value; one that is invalid has its default, and is a problem.
            pub(super) fn of(given: GivenMap, optimizers: &Optimizers) -> RunSettings {
                let mut problems = Problems::new(&given);
                let mut flags = FLAGS.iter();
                RunSettings {
                    $($($name: read_next::<$type>(&given, &mut flags, &mut problems),)+)+
                    given,
                    problems,
                    optimizers: optimizers.clone(),
                    chosen_later: AutoSizes::default(),
                    rows: None,
                    task: None,
                }
            }

            /// Returns the settings of a run that fit all rules.
            pub(super) fn config(self) -> Config {
                Config {
                    $($derived: { let derive: fn(&RunSettings) -> $result = $derive; derive(&self) },)+
                    $($($($field: self.$name,)?)+)+
                }
            }
        }
    };
}

pub(super) use settings;

pub fn zero_stage_number<S: Serializer>(level: &ZeroStage, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u8(level.number())
}

pub fn as_text<S: Serializer>(value: &impl std::fmt::Display, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

pub fn as_optional_text<T: std::fmt::Display, S: Serializer>(
    value: &Option<T>,
    to: S,
) -> Result<S::Ok, S::Error> {
    value.as_ref().map(ToString::to_string).serialize(to)
}

/// Reads the value of the next flag of the table.
pub fn read_next<T: SettingType>(
    given: &GivenMap,
    flags: &mut impl Iterator<Item = &'static Flag>,
    problems: &mut Problems,
) -> T::Value {
    let flag = flags.next().expect("each setting has a flag");
    let read = given.get(flag.name).map(|given| T::read(&given.text));
    match read {
        Some(Ok(value)) => value,
        Some(Err(message)) => {
            problems.add(&[flag.name], message);
            T::absent(flag.default)
        }
        None => T::absent(flag.default),
    }
}

pub const fn kept(places: &[(&'static str, Change)]) -> Option<Kept> {
    match places {
        [(path, change)] => Some(Kept { path, change: *change }),
        _ => None,
    }
}

/// Returns the name of a field with dashes.
pub const fn dashed<const N: usize>(field: &str) -> [u8; N] {
    let mut name = [0; N];
    let mut index = 0;
    while index < N {
        let byte = field.as_bytes()[index];
        name[index] = if byte == b'_' { b'-' } else { byte };
        index += 1;
    }
    name
}

pub const fn text_of(name: &[u8]) -> &str {
    match std::str::from_utf8(name) {
        Ok(name) => name,
        Err(_) => panic!("names of fields are ASCII"),
    }
}
