//! Streams: the numbers of the rows of a task, by name.

use std::fmt;
use std::ops::Range;

/// A target that does not count in losses.
pub(super) const IGNORED: u32 = u32::MAX;

/// The streams of each row of a task: their names, sizes and kinds. All rows have the same sizes.
///
/// ```
/// use meshwright::data::RowStreams;
///
/// // A text of 128 token ids, and the number of its class.
/// let streams = RowStreams::new().ids("ids", &[128], 50_000).targets("label", &[], 4);
/// assert_eq!(streams.row_bytes(), 4 * (1 + 128 + 1));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct RowStreams {
    list: Vec<Stream>,
}

#[derive(Debug, Clone, PartialEq)]
struct Stream {
    name: &'static str,
    /// Sizes of one row.
    sizes: Vec<usize>,
    kind: StreamKind,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum StreamKind {
    /// Ids below a number.
    Ids(usize),
    /// Ids below a number, or [`Batch::IGNORED`](super::Batch::IGNORED).
    Targets(usize),
    Values,
}

/// The numbers of a stream, row after row.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamData {
    /// Ids and targets.
    Ids(Vec<u32>),
    /// Values.
    Values(Vec<f32>),
}

/// The numbers of some rows of a stream.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StreamRows<'a> {
    /// Ids and targets.
    Ids(&'a [u32]),
    /// Values.
    Values(&'a [f32]),
}

/// A row that a task writes. Targets begin as [`Batch::IGNORED`](super::Batch::IGNORED), values as 0, and ids have to
/// be written.
pub struct RowWriter<'a> {
    streams: &'a RowStreams,
    data: Vec<RowPart<'a>>,
    pub(super) is_trained: bool,
}

enum RowPart<'a> {
    Ids(&'a mut [u32]),
    Values(&'a mut [f32]),
}

impl Default for RowStreams {
    fn default() -> RowStreams {
        RowStreams::new()
    }
}

impl RowStreams {
    /// The stream that tells rows of data from those that fill up a batch: its target is 0, or ignored.
    #[doc(hidden)]
    pub const COUNTED: &'static str = "counted rows";

    /// Creates a list without streams.
    pub fn new() -> RowStreams {
        let (name, sizes) = (RowStreams::COUNTED, Vec::new());
        RowStreams { list: vec![Stream { name, sizes, kind: StreamKind::Targets(1) }] }
    }

    /// Adds a stream of ids below `below`, such as token ids. `sizes` are those of one row; none for a single id.
    ///
    /// # Panics
    /// If a stream has the name already.
    #[must_use]
    pub fn ids(self, name: &'static str, sizes: &[usize], below: usize) -> RowStreams {
        self.with(name, sizes, StreamKind::Ids(below))
    }

    /// Adds a stream of targets: ids below `below`, or [`Batch::IGNORED`](super::Batch::IGNORED), which count in no
    /// loss.
    ///
    /// # Panics
    /// If a stream has the name already.
    #[must_use]
    pub fn targets(self, name: &'static str, sizes: &[usize], below: usize) -> RowStreams {
        self.with(name, sizes, StreamKind::Targets(below))
    }

    /// Adds a stream of numbers, such as the pixels of an image.
    ///
    /// # Panics
    /// If a stream has the name already.
    #[must_use]
    pub fn values(self, name: &'static str, sizes: &[usize]) -> RowStreams {
        self.with(name, sizes, StreamKind::Values)
    }

    fn with(mut self, name: &'static str, sizes: &[usize], kind: StreamKind) -> RowStreams {
        let is_new = self.list.iter().all(|stream| stream.name != name);
        assert!(is_new, "two streams of a row are named `{name}`");
        self.list.push(Stream { name, sizes: sizes.to_vec(), kind });
        self
    }

    /// Returns the bytes of a row in the memory of the host.
    pub fn row_bytes(&self) -> usize {
        self.list.iter().map(|stream| 4 * stream.len()).sum()
    }

    /// Returns the sizes of a row of a stream, and its index.
    ///
    /// # Panics
    /// If there is no stream of this name.
    #[doc(hidden)]
    pub fn find(&self, name: &str) -> (usize, &[usize]) {
        let found = self.list.iter().position(|stream| stream.name == name);
        let index = found.unwrap_or_else(|| {
            let names = self.list.iter().skip(1).map(|stream| format!("`{}`", stream.name));
            let names: Vec<String> = names.collect();
            panic!("rows have no stream `{name}`; theirs are {}", names.join(", "))
        });
        (index, &self.list[index].sizes)
    }

    /// Returns rows that fill up a batch: ids and values are 0, and targets ignored.
    #[doc(hidden)]
    pub fn filling_rows(&self, rows: usize) -> Vec<StreamData> {
        let data = |stream: &Stream| {
            let len = rows * stream.len();
            match stream.kind {
                StreamKind::Ids(_) => StreamData::Ids(vec![0; len]),
                StreamKind::Targets(_) => StreamData::Ids(vec![IGNORED; len]),
                StreamKind::Values => StreamData::Values(vec![0.0; len]),
            }
        };
        self.list.iter().map(data).collect()
    }

    /// Returns some rows of the data of all streams.
    pub(super) fn rows<'a>(
        &self,
        data: &'a [StreamData],
        rows: Range<usize>,
    ) -> Vec<StreamRows<'a>> {
        let part = |(stream, data): (&Stream, &'a StreamData)| {
            let elements = rows.start * stream.len()..rows.end * stream.len();
            match data {
                StreamData::Ids(ids) => StreamRows::Ids(&ids[elements]),
                StreamData::Values(values) => StreamRows::Values(&values[elements]),
            }
        };
        self.list.iter().zip(data).map(part).collect()
    }

    /// Appends the bytes of a row of all streams.
    pub(super) fn add_bytes(&self, data: &[StreamData], row: usize, bytes: &mut Vec<u8>) {
        for rows in self.rows(data, row..row + 1) {
            match rows {
                StreamRows::Ids(ids) => bytes.extend(ids.iter().flat_map(|id| id.to_le_bytes())),
                StreamRows::Values(own) => {
                    bytes.extend(own.iter().flat_map(|value| value.to_le_bytes()));
                }
            }
        }
    }

    /// Calls `write` with a row of the data of all streams, and checks its ids.
    ///
    /// # Errors
    /// An error of `write`, an id that is not written, and one that is too large.
    pub(super) fn write_row(
        &self,
        data: &mut [StreamData],
        row: usize,
        write: impl FnOnce(&mut RowWriter<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        let data = self.list.iter().zip(data.iter_mut()).map(|(stream, data)| {
            let elements = row * stream.len()..(row + 1) * stream.len();
            match data {
                StreamData::Ids(ids) => {
                    let ids = &mut ids[elements];
                    // An id that is not written is found below.
                    ids.fill(IGNORED);
                    RowPart::Ids(ids)
                }
                StreamData::Values(values) => RowPart::Values(&mut values[elements]),
            }
        });
        let mut row = RowWriter { streams: self, data: data.collect(), is_trained: true };
        row.ids(RowStreams::COUNTED).fill(0);
        write(&mut row)?;
        self.list.iter().zip(&row.data).try_for_each(|(stream, part)| stream.check(part))
    }
}

impl Stream {
    /// Returns the elements of a row.
    fn len(&self) -> usize {
        self.sizes.iter().product()
    }

    fn check(&self, part: &RowPart<'_>) -> Result<(), String> {
        let name = self.name;
        let (ids, below, ignores) = match (part, self.kind) {
            (RowPart::Ids(ids), StreamKind::Ids(below)) => (ids, below, false),
            (RowPart::Ids(ids), StreamKind::Targets(below)) => (ids, below, true),
            (RowPart::Values(values), _) => {
                return match values.iter().find(|value| !value.is_finite()) {
                    Some(value) => Err(format!("`{name}` holds {value}")),
                    None => Ok(()),
                };
            }
            (RowPart::Ids(_), StreamKind::Values) => unreachable!("values are no ids"),
        };
        let is_wrong = |id: &&u32| match **id {
            IGNORED => !ignores,
            id => id as usize >= below,
        };
        match ids.iter().find(is_wrong) {
            Some(&IGNORED) => Err(format!("an id of `{name}` is not written")),
            Some(id) => Err(format!("`{name}` holds {id}, but its ids are below {below}")),
            None => Ok(()),
        }
    }
}

impl RowWriter<'_> {
    /// Returns true if the row is trained on, and false if it is one of a validation, whose examples stay as they are.
    pub fn is_trained(&self) -> bool {
        self.is_trained
    }

    /// Returns the ids of a stream of ids or targets, row-major.
    ///
    /// # Panics
    /// If there is no such stream.
    pub fn ids(&mut self, name: &str) -> &mut [u32] {
        let (index, _) = self.streams.find(name);
        match &mut self.data[index] {
            RowPart::Ids(ids) => ids,
            RowPart::Values(_) => panic!("the stream `{name}` has values, not ids"),
        }
    }

    /// Returns the values of a stream, row-major.
    ///
    /// # Panics
    /// If there is no such stream.
    pub fn values(&mut self, name: &str) -> &mut [f32] {
        let (index, _) = self.streams.find(name);
        match &mut self.data[index] {
            RowPart::Values(values) => values,
            RowPart::Ids(_) => panic!("the stream `{name}` has ids, not values"),
        }
    }
}

impl fmt::Debug for RowWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RowWriter").field(self.streams).finish()
    }
}

/// Describes the streams, as messages and fingerprints do: `ids [128] below 50000, label [] below 4`.
impl fmt::Display for RowStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Stream { name, sizes, kind }) in self.list.iter().skip(1).enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{name} {sizes:?}")?;
            match kind {
                StreamKind::Ids(below) => write!(f, " below {below}")?,
                StreamKind::Targets(below) => write!(f, " below {below} or ignored")?,
                StreamKind::Values => {}
            }
        }
        Ok(())
    }
}
