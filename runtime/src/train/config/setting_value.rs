//! The types of settings: how each is read from text, and what it is called in messages.

use std::ffi::OsStr;
use std::fmt;
use std::num::IntErrorKind;
use std::path::PathBuf;
use std::str::FromStr;

use crate::backend::Bytes;
use crate::data::Order;
use crate::mesh::{AxisOrder, MeshError, MeshShape};
use crate::nn::{ContextStyle, RecomputeOverride};
use crate::pipeline::StageCut;
use crate::tensor::ZeroStage;

use super::flags::{Flag, FlagKind};
use super::{Decay, DeviceChoice, Precision, ScheduleSource, TimeLimit};

/// Largest upper bound that messages name together with the lower bound.
const MAX_NAMED_BOUND: u64 = 9;

/// A type of settings.
pub trait SettingValue: Sized {
    /// The kind of the flag.
    const KIND: FlagKind;

    /// Reads a value from trimmed text.
    ///
    /// # Errors
    /// The problem, to be put after the name of the flag.
    fn parse(text: &str) -> Result<Self, String>;

    /// Reads a value as given.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    fn read(text: &OsStr) -> Result<Self, String> {
        match text.to_str() {
            Some(text) => Self::parse(text.trim()),
            None => Err(format!("{} is not valid UTF-8", text.to_string_lossy())),
        }
    }

    /// Returns the value of a flag that is not given, from the default in the table.
    fn absent(default: &str) -> Self {
        Self::parse(default).expect("defaults are valid")
    }
}

/// A setting whose absence has a meaning of its own.
impl<T: SettingValue> SettingValue for Option<T> {
    const KIND: FlagKind = T::KIND;

    fn parse(text: &str) -> Result<Self, String> {
        T::parse(text).map(Some)
    }

    fn read(text: &OsStr) -> Result<Self, String> {
        T::read(text).map(Some)
    }

    fn absent(_: &str) -> Self {
        None
    }
}

impl SettingValue for bool {
    const KIND: FlagKind = FlagKind::Switch;

    fn parse(text: &str) -> Result<bool, String> {
        Ok(text == "true")
    }
}

impl SettingValue for PathBuf {
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
#[derive(Debug, Clone, Copy)]
pub struct Count<const MIN: u64, const MAX: u64>(pub u64);

/// A whole number that may be zero.
pub type Natural = Count<0, { u32::MAX as u64 }>;
/// A whole number of at least one.
pub type Positive = Count<1, { u32::MAX as u64 }>;
/// Any whole number of 64 bits.
pub type Seed = Count<0, { u64::MAX }>;

impl<const MIN: u64, const MAX: u64> Count<MIN, MAX> {
    /// Returns the number as a size.
    pub fn size(self) -> usize {
        self.0 as usize
    }
}

impl<const MIN: u64, const MAX: u64> SettingValue for Count<MIN, MAX> {
    const KIND: FlagKind = FlagKind::Count;

    fn parse(text: &str) -> Result<Self, String> {
        let is_too_large = match text.parse::<u64>() {
            Ok(number) if (MIN..=MAX).contains(&number) => return Ok(Count(number)),
            Ok(number) => number > MAX,
            Err(error) => *error.kind() == IntErrorKind::PosOverflow,
        };
        let wanted = match MIN {
            _ if MAX <= MAX_NAMED_BOUND => format!("a whole number from {MIN} to {MAX}"),
            _ if is_too_large => format!("at most {MAX}"),
            0 => "a whole number".to_owned(),
            min => format!("a whole number of at least {min}"),
        };
        Err(refuse(&wanted, text))
    }
}

impl SettingValue for ZeroStage {
    const KIND: FlagKind = FlagKind::Count;

    fn parse(text: &str) -> Result<ZeroStage, String> {
        Count::<0, 3>::parse(text).map(|stage| ZeroStage::ALL[stage.size()])
    }
}

/// Implements settings that [`refuse`] names by what they must be.
macro_rules! wanted_values {
    ($($type:ty: $kind:expr, $wanted:literal, $parse:expr;)+) => {$(
        impl SettingValue for $type {
            const KIND: FlagKind = $kind;

            fn parse(text: &str) -> Result<$type, String> {
                let parse: fn(&str) -> Option<$type> = $parse;
                parse(text).ok_or_else(|| refuse($wanted, text))
            }
        }
    )+};
}

/// A finite number of at least zero.
#[derive(Debug, Clone, Copy)]
pub struct Number(pub f64);

/// A number in [0, 1).
#[derive(Debug, Clone, Copy)]
pub struct Fraction(pub f64);

/// Two numbers in [0, 1), parsed from `0.9,0.95`.
#[derive(Debug, Clone, Copy)]
pub struct Pair(pub f64, pub f64);

wanted_values! {
    Number: FlagKind::Number, "a number of at least 0", number;
    Fraction: FlagKind::Number, "a number of at least 0 and below 1", fraction;
    Pair: FlagKind::Pair, "two numbers in [0, 1) separated by a comma", |text| {
        let (first, second) = text.split_once(',')?;
        Some(Pair(fraction(first.trim())?.0, fraction(second.trim())?.0))
    };
    Bytes: FlagKind::Bytes, "a number of bytes such as 2GB or 512MiB", |text| {
        text.parse().ok().filter(|bytes: &Bytes| bytes.0 >= 1.0)
    };
    TimeLimit: FlagKind::Text, "a time such as 3h50m, 90s or 2d", |text| text.parse().ok();
}

fn number(text: &str) -> Option<Number> {
    text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0).map(Number)
}

fn fraction(text: &str) -> Option<Fraction> {
    text.parse().ok().filter(|number| (0.0..1.0).contains(number)).map(Fraction)
}

/// Implements settings that are one of some words.
macro_rules! words {
    ($($type:ty { $($word:literal => $value:path),+ })+) => {$(
        impl SettingValue for $type {
            const KIND: FlagKind = FlagKind::Choice(&[$($word),+]);

            fn parse(text: &str) -> Result<$type, String> {
                match text {
                    $($word => Ok($value),)+
                    _ => Err(refuse_word(text, &[$($word),+])),
                }
            }
        }
    )+};
}

words! {
    DeviceChoice { "cpu" => DeviceChoice::Cpu, "cuda" => DeviceChoice::Cuda }
    Precision { "f32" => Precision::F32, "bf16" => Precision::Bf16 }
    Order { "sequential" => Order::Sequential, "shuffled" => Order::Shuffled }
    Decay { "constant" => Decay::Constant, "cosine" => Decay::Cosine, "wsd" => Decay::Wsd }
}

/// The name of an optimizer, which may be one that the program registers.
#[derive(Debug, Clone)]
pub struct OptimizerName(pub String);

impl SettingValue for OptimizerName {
    const KIND: FlagKind = FlagKind::Choice(&["adamw", "sgd", "muon"]);

    fn parse(text: &str) -> Result<OptimizerName, String> {
        Ok(OptimizerName(text.to_owned()))
    }
}

/// Implements settings by [`FromStr`], whose errors state the problem.
macro_rules! parsed_values {
    ($($type:ty),+) => {$(
        impl SettingValue for $type {
            const KIND: FlagKind = FlagKind::Text;

            fn parse(text: &str) -> Result<$type, String> {
                text.parse().map_err(|error: <$type as FromStr>::Err| error.to_string())
            }
        }
    )+};
}

parsed_values!(
    MeshSetting,
    AxisOrder,
    ScheduleSource,
    StageCut,
    RecomputeOverride,
    ContextStyle,
    KeyList,
    Balance
);

/// `--mesh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeshSetting {
    /// A mesh that is chosen for this number of ranks; `None` for as many as there are GPUs.
    Auto(Option<usize>),
    /// The degrees of the axes.
    Shape(MeshShape),
}

impl FromStr for MeshSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<MeshSetting, String> {
        let Some(rest) = text.strip_prefix("auto") else {
            return text
                .parse()
                .map(MeshSetting::Shape)
                .map_err(|error: MeshError| error.to_string());
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
            MeshSetting::Shape(shape) => shape.fmt(f),
        }
    }
}

/// Keys separated by commas.
#[derive(Debug, Clone)]
pub struct KeyList(pub Vec<String>);

impl FromStr for KeyList {
    type Err = String;

    fn from_str(text: &str) -> Result<KeyList, String> {
        let keys: Vec<String> = text.split(',').map(|key| key.trim().to_owned()).collect();
        if keys.iter().any(String::is_empty) {
            return Err(format!("`{text}` has a key without a name; write for example `a,b`"));
        }
        Ok(KeyList(keys))
    }
}

/// Weight of the load-balancing loss; 0 for `none`.
#[derive(Debug, Clone, Copy)]
pub struct Balance(pub f64);

impl FromStr for Balance {
    type Err = String;

    fn from_str(text: &str) -> Result<Balance, String> {
        let (kind, weight) = text.split_once('=').unwrap_or((text, ""));
        match (kind.trim(), number(weight.trim())) {
            ("none", None) if !text.contains('=') => Ok(Balance(0.0)),
            ("batch", Some(Number(weight))) => Ok(Balance(weight)),
            ("batch", None) => {
                Err(format!("`{text}` has no weight of at least 0; write for example batch=0.01"))
            }
            _ => Err(format!("`{text}` is not known; use none or batch=X")),
        }
    }
}

fn refuse(wanted: &str, text: &str) -> String {
    format!("must be {wanted}, not `{text}`")
}

/// Returns the problem with a word that is none of `words`, with a suggestion.
pub fn refuse_word(text: &str, words: &[&str]) -> String {
    let near = Flag::nearest(text, words.iter().copied());
    let hint = near.map_or(String::new(), |near| format!("; did you mean {near}?"));
    format!("must be one of {}, not `{text}`{hint}", words.join(", "))
}
