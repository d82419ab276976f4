//! The types of settings: how each is read from text, and what it must be.

use std::ffi::OsStr;
use std::fmt;
use std::num::IntErrorKind;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use crate::backend::Bytes;
use crate::checkpoint::StoredDtype;
use crate::data::{Encoding, Order};
use crate::mesh::{AxisOrder, MeshError, MeshShape};
use crate::nn::{ContextStyle, RecomputeOverride};
use crate::pipeline::StageCut;
use crate::tensor::{Checks, ZeroStage};
use meshwright_sim::cluster::{Catalog, Cluster, SizedCluster};

use super::fixed_degrees::FixedDegrees;
use super::flags::{Flag, FlagKind};
use super::{Decay, DeviceChoice, LoadBalancing, OnNan, Precision, ScheduleSource, TimeLimit};

/// Largest upper bound that messages name together with the lower bound.
const MAX_NAMED_BOUND: u64 = 9;

/// A type of settings. Its values are of [`Value`](Self::Value), and it may refuse some of them.
pub trait SettingType {
    /// The values.
    type Value;

    /// The kind of the flag.
    const KIND: FlagKind;

    /// Reads a value from trimmed text.
    ///
    /// # Errors
    /// The problem, to be put after the name of the flag.
    fn parse(text: &str) -> Result<Self::Value, String>;

    /// Reads a value as given.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    fn read(text: &OsStr) -> Result<Self::Value, String> {
        match text.to_str() {
            Some(text) => Self::parse(text.trim()),
            None => Err(format!("{} is not valid UTF-8", text.to_string_lossy())),
        }
    }

    /// Returns the value of a flag that is not given, from the default in the table.
    fn absent(default: &str) -> Self::Value {
        Self::parse(default).expect("defaults are valid")
    }
}

/// A setting whose absence has a meaning of its own.
impl<T: SettingType> SettingType for Option<T> {
    type Value = Option<T::Value>;

    const KIND: FlagKind = T::KIND;

    fn parse(text: &str) -> Result<Option<T::Value>, String> {
        T::parse(text).map(Some)
    }

    fn read(text: &OsStr) -> Result<Option<T::Value>, String> {
        T::read(text).map(Some)
    }

    fn absent(_: &str) -> Option<T::Value> {
        None
    }
}

impl SettingType for PathBuf {
    type Value = PathBuf;

    const KIND: FlagKind = FlagKind::Path;

    fn parse(text: &str) -> Result<PathBuf, String> {
        PathBuf::read(OsStr::new(text))
    }

    fn read(text: &OsStr) -> Result<PathBuf, String> {
        let is_empty = text.is_empty();
        if is_empty { Err("needs a path, but the value is empty".into()) } else { Ok(text.into()) }
    }
}

/// A whole number from `MIN` to `MAX`. The upper bound also keeps products of two sizes from overflowing.
pub struct WholeNumber<const MIN: u64, const MAX: u64>;

/// A whole number that may be zero.
pub type Natural = WholeNumber<0, { u32::MAX as u64 }>;
/// A whole number of at least one.
pub type Positive = WholeNumber<1, { u32::MAX as u64 }>;
/// Any whole number of 64 bits.
pub type Seed = WholeNumber<0, { u64::MAX }>;

impl<const MIN: u64, const MAX: u64> SettingType for WholeNumber<MIN, MAX> {
    type Value = u64;

    const KIND: FlagKind = FlagKind::Count;

    fn parse(text: &str) -> Result<u64, String> {
        let is_too_large = match text.parse() {
            Ok(number) if (MIN..=MAX).contains(&number) => return Ok(number),
            Ok(number) => number > MAX,
            Err(error) => *error.kind() == IntErrorKind::PosOverflow,
        };
        let wanted = match MIN {
            _ if MAX <= MAX_NAMED_BOUND => format!("a whole number from {MIN} to {MAX}"),
            _ if is_too_large => format!("at most {MAX}"),
            0 => "a whole number".to_owned(),
            min => format!("a whole number of at least {min}"),
        };
        Err(format!("must be {wanted}, not `{text}`"))
    }
}

/// A positive number that counts things in memory.
pub struct Size;

impl SettingType for Size {
    type Value = usize;

    const KIND: FlagKind = FlagKind::Count;

    fn parse(text: &str) -> Result<usize, String> {
        Positive::parse(text).map(|size| size as usize)
    }
}

/// The word for a number that the memory plan chooses.
pub const AUTO: &str = "auto";

/// The sizes of a step that are to be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AutoSizes {
    /// `--batch auto`.
    pub batch: bool,
    /// `--micro-batches auto`.
    pub micro_batches: bool,
}

/// A positive number, or `auto`, which stands for 1 until it is chosen.
pub struct AutoSize;

impl SettingType for AutoSize {
    type Value = usize;

    const KIND: FlagKind = FlagKind::CountOrAuto;

    fn parse(text: &str) -> Result<usize, String> {
        if text == AUTO { Ok(1) } else { Size::parse(text) }
    }
}

impl SettingType for ZeroStage {
    type Value = ZeroStage;

    const KIND: FlagKind = FlagKind::Count;

    fn parse(text: &str) -> Result<ZeroStage, String> {
        WholeNumber::<0, 3>::parse(text).map(|stage| ZeroStage::ALL[stage as usize])
    }
}

/// A finite number of at least zero.
pub struct Number;
/// A number in [0, 1).
pub struct Fraction;
/// A number in (0, 1).
pub struct OpenFraction;
/// Two numbers in [0, 1), written as `0.9,0.95`.
pub struct Pair;
/// The name of an optimizer, which may be one that the program registers.
pub struct OptimizerName;
/// A key of an object.
pub struct Key;
/// `model_type` of a family.
pub struct FamilyName;
/// Keys separated by commas.
pub struct KeyList;
/// A number of tokens, possibly with a suffix: `15.6T`.
pub struct TokenCount;
/// Weight of a loss: a number of at least zero that f32 holds.
pub struct Weight;

/// Implements types by a function that reads a value, or states the problem.
macro_rules! setting_types {
    ($($type:ty: $value:ty, $kind:ident $(($words:expr))?, $parse:expr;)+) => {$(
        impl SettingType for $type {
            type Value = $value;

            const KIND: FlagKind = FlagKind::$kind $(($words))?;

            fn parse(text: &str) -> Result<$value, String> {
                let parse: fn(&str) -> Result<$value, String> = $parse;
                parse(text)
            }
        }
    )+};
}

setting_types! {
    bool: bool, Switch, |text| Ok(text == "true");
    Number: f64, Number, |text| wanted("a number of at least 0", text, number);
    Weight: f64, Number, |text| {
        wanted("a number of at least 0", text, number).and_then(|weight| in_f32(text, weight))
    };
    Fraction: f64, Number, |text| wanted("a number of at least 0 and below 1", text, fraction);
    OpenFraction: f64, Number, |text| wanted("a number above 0 and below 1", text, |text| {
        fraction(text).filter(|part| *part > 0.0)
    });
    Pair: (f64, f64), Pair, |text| wanted("two numbers in [0, 1) separated by a comma", text, |text| {
        let (first, second) = text.split_once(',')?;
        Some((fraction(first.trim())?, fraction(second.trim())?))
    });
    Bytes: usize, Bytes, |text| wanted("a number of bytes such as 2GB or 512MiB", text, |text| {
        text.parse().ok().filter(|bytes: &Bytes| bytes.0 >= 1.0).map(|bytes| bytes.0 as usize)
    });
    TimeLimit: TimeLimit, Text, |text| {
        wanted("a time such as 3h50m, 90s or 2d", text, |text| text.parse().ok())
    };
    SizedCluster: SizedCluster, Text, |text| {
        SizedCluster::parse(text, &Catalog::new()).map_err(|error| error.to_string())
    };
    Cluster: Arc<Cluster>, Text, |text| {
        Catalog::new().cluster(text).map_err(|error| error.to_string())
    };
    TokenCount: f64, Text, |text| wanted("a number of tokens such as 300B or 15.6T", text, |text| {
        let scales = [("K", 1e3), ("M", 1e6), ("B", 1e9), ("G", 1e9), ("T", 1e12)];
        let scaled = |(suffix, scale): (&str, f64)| {
            number(text.to_uppercase().strip_suffix(suffix)?).map(|number| number * scale)
        };
        number(text).or_else(|| scales.into_iter().find_map(scaled)).filter(|tokens| *tokens >= 1.0)
    });
    FixedDegrees: FixedDegrees, Text, parsed;
    OptimizerName: String, Choice(&["adamw", "sgd", "muon"]), |text| Ok(text.to_owned());
    MeshSetting: MeshSetting, Text, parsed;
    AxisOrder: AxisOrder, Text, parsed;
    ScheduleSource: ScheduleSource, Text, parsed;
    StageCut: StageCut, Text, parsed;
    RecomputeOverride: RecomputeOverride, Text, parsed;
    DeviceChoice: DeviceChoice, Choice(&["cpu", "cuda"]), |text| match text {
        "gpu" => Ok(DeviceChoice::Cuda),
        _ => word(text, &[("cpu", DeviceChoice::Cpu), ("cuda", DeviceChoice::Cuda)]),
    };
    ContextStyle: ContextStyle, Text, parsed;
    Key: String, Text, |text| {
        if text.is_empty() { Err("needs a key, but the value is empty".into()) } else { Ok(text.to_owned()) }
    };
    FamilyName: String, Text, |text| match text {
        "" => Err("needs the name of a family, but the value is empty".into()),
        name => Ok(name.to_owned()),
    };
    KeyList: Vec<String>, Text, |text| {
        let keys: Vec<String> = text.split(',').map(|key| key.trim().to_owned()).collect();
        if keys.iter().any(String::is_empty) {
            return Err(format!("`{text}` has a key without a name; write for example `a,b`"));
        }
        Ok(keys)
    };
    LoadBalancing: LoadBalancing, Text, parsed;
    OnNan: OnNan, Text, parsed;
}

/// Implements types whose values are words.
macro_rules! words {
    ($($type:ty { $($word:literal => $value:path),+ })+) => {
        setting_types! {
            $($type: $type, Choice(&[$($word),+]), |text| word(text, &[$(($word, $value)),+]);)+
        }
    };
}

words! {
    Checks { "off" => Checks::Off, "first" => Checks::FirstStep, "every" => Checks::EveryStep }
    Precision { "f32" => Precision::F32, "bf16" => Precision::Bf16 }
    StoredDtype { "f32" => StoredDtype::F32, "bf16" => StoredDtype::Bf16, "f16" => StoredDtype::F16 }
    Encoding { "u16" => Encoding::U16, "u32" => Encoding::U32 }
    Order { "sequential" => Order::Sequential, "shuffled" => Order::Shuffled }
    OutputForm { "text" => OutputForm::Text, "json" => OutputForm::Json }
    Decay { "constant" => Decay::Constant, "cosine" => Decay::Cosine, "wsd" => Decay::Wsd }
}

/// `--out`: the form of a printed report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputForm {
    /// Lines for a terminal.
    Text,
    /// One JSON object.
    Json,
}

/// `--mesh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeshSetting {
    /// A mesh that is chosen for this number of ranks; `None` for as many as there are GPUs.
    Auto(Option<usize>),
    /// The degrees of the axes.
    Axes(MeshShape),
}

impl FromStr for MeshSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<MeshSetting, String> {
        let Some(rest) = text.strip_prefix("auto") else {
            let shape = text.parse().map(MeshSetting::Axes);
            return shape.map_err(|error: MeshError| error.to_string());
        };
        match rest.trim().strip_prefix('=').map(|ranks| ranks.trim().parse()) {
            None if rest.is_empty() => Ok(MeshSetting::Auto(None)),
            Some(Ok(ranks @ 1..)) => Ok(MeshSetting::Auto(Some(ranks))),
            _ => Err(format!("`{text}` is not a number of ranks; write for example `auto=8`")),
        }
    }
}

impl fmt::Display for MeshSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MeshSetting::Auto(None) => f.write_str("auto"),
            MeshSetting::Auto(Some(ranks)) => write!(f, "auto={ranks}"),
            MeshSetting::Axes(shape) => shape.fmt(f),
        }
    }
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0)
}

/// Checks that a number is within the range of f32, in which ranks compute with it.
fn in_f32(text: &str, number: f64) -> Result<f64, String> {
    if number <= f64::from(f32::MAX) { Ok(number) } else { Err(format!("`{text}` is too large")) }
}

fn fraction(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number| (0.0..1.0).contains(number))
}

/// Reads a value, or states what it must be.
fn wanted<T>(wanted: &str, text: &str, read: fn(&str) -> Option<T>) -> Result<T, String> {
    read(text).ok_or_else(|| format!("must be {wanted}, not `{text}`"))
}

/// Reads a value whose errors state the problem.
fn parsed<T: FromStr<Err: fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// Returns the value of a word, or the problem, with a suggestion.
pub fn word<T: Copy>(text: &str, known: &[(&str, T)]) -> Result<T, String> {
    if let Some((_, value)) = known.iter().find(|(word, _)| *word == text) {
        return Ok(*value);
    }
    let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
    let near = Flag::nearest(text, words.iter().copied());
    let hint = near.map_or(String::new(), |near| format!("; did you mean {near}?"));
    Err(format!("must be one of {}, not `{text}`{hint}", words.join(", ")))
}
