//! Text inside of gzip and Zstandard, decompressed while it is read.

use std::io::{self, BufRead, BufReader, ErrorKind, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::FrameDecoderError;
use ruzstd::decoding::errors::ReadFrameHeaderError::SkipFrame;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use meshwright_store::data::{DataError, DataFormat, DataInput, FileProblem};

use super::{Consumed, TokenizeError, problem, without_flag};

type Compressed = BufReader<Box<dyn Read>>;

/// Opens the content of a compressed file.
///
/// # Errors
/// Damaged content, and content that is no text: archives, compressed again, and token ids, which are mapped.
pub fn open(input: DataInput, consumed: &Consumed) -> Result<DataInput, TokenizeError> {
    let (path, is_gzip) = (input.path().to_owned(), *input.format() == DataFormat::Gzip);
    let (kind, unpack) = if is_gzip { ("gzip", "gzip -dk") } else { ("Zstandard", "zstd -d") };
    let unpack = format!("{unpack} {}", path.display());
    let reader: Compressed = BufReader::new(consumed.count_reader(input.into_reader()));
    let stream: Box<dyn Read> = if is_gzip {
        Box::new(Explained { decoder: MultiGzDecoder::new(reader), kind })
    } else {
        let frames = Frames { reader, decoder: FrameDecoder::new(), is_inside: false };
        Box::new(Explained { decoder: frames, kind })
    };
    let inner = match DataInput::of_stream(&path.with_extension(""), None, stream) {
        Err(DataError::Io { source, .. }) => {
            return Err(without_flag(DataError::Io { path, source }));
        }
        Err(DataError::File(FileProblem { problem: inside, .. })) => {
            return Err(problem(&path, format!("inside of {kind}, {inside} (after {unpack})")));
        }
        other => other.map_err(without_flag)?,
    };
    match inner.format() {
        DataFormat::Gzip | DataFormat::Zstd => {
            Err(problem(&path, format!("it is compressed twice; unpack it first: {unpack}")))
        }
        format if format.is_tokens() => {
            let reason = "token ids are mapped, and cannot be compressed; unpack them first";
            Err(problem(&path, format!("{reason}: {unpack}")))
        }
        _ => Ok(inner.named(&path)),
    }
}

/// A decoder whose errors state the fix.
struct Explained<R> {
    decoder: R,
    kind: &'static str,
}

impl<R: Read> Read for Explained<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.decoder.read(buffer).map_err(|error| {
            if error.raw_os_error().is_some() {
                return error;
            }
            let state = if is_cut_off(&error) {
                "truncated, or followed by something else".to_owned()
            } else {
                format!("damaged ({error})")
            };
            let reason = format!("its {} content is {state}; get the file again", self.kind);
            io::Error::new(ErrorKind::InvalidData, reason)
        })
    }
}

/// Returns true if the data end too early.
fn is_cut_off(error: &io::Error) -> bool {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<io::Error>()
            && error.kind() == ErrorKind::UnexpectedEof
        {
            return true;
        }
        next = error.source();
    }
    error.get_ref().is_some_and(|inner| inner.to_string().contains("failed to fill whole buffer"))
}

/// The frames of a Zstandard file, one after the other.
struct Frames {
    reader: Compressed,
    decoder: FrameDecoder,
    is_inside: bool,
}

impl Read for Frames {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.is_inside && !self.begin_frame()? {
                return Ok(0);
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.reader, one).map_err(io::Error::other)?;
            }
            match self.decoder.read(buffer)? {
                0 if !buffer.is_empty() => self.end_frame()?,
                count => return Ok(count),
            }
        }
    }
}

impl Frames {
    /// Begins the next frame, and skips those that hold no data; returns false at the end of the file.
    fn begin_frame(&mut self) -> io::Result<bool> {
        while !self.reader.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.reader) {
                Ok(()) => {
                    self.is_inside = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(SkipFrame { length, .. })) => {
                    let mut skipped = self.reader.by_ref().take(length.into());
                    if io::copy(&mut skipped, &mut io::sink())? < length.into() {
                        return Err(ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(false)
    }

    /// Compares the checksum of a frame.
    fn end_frame(&mut self) -> io::Result<()> {
        self.is_inside = false;
        let stated = self.decoder.get_checksum_from_data();
        if stated.is_some() && stated != self.decoder.get_calculated_checksum() {
            return Err(io::Error::other("its checksum differs"));
        }
        Ok(())
    }
}
