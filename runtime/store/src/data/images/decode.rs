//! Decoding of JPEG and PNG files.

use std::io::Cursor;

use png::{ColorType, Decoder, Transformations};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use super::RgbImage;

/// Most pixels of an image.
const MAX_PIXELS: usize = 1 << 28;

impl RgbImage {
    /// Decodes a JPEG or PNG file. Gray and palette images become RGB, and transparency is left out.
    ///
    /// # Errors
    /// Bytes of another kind, a damaged or very large image, and a program that is built without the feature `images`.
    pub fn decode(bytes: &[u8]) -> Result<RgbImage, String> {
        if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
            decode_png(bytes).map_err(|reason| format!("the PNG image cannot be decoded: {reason}"))
        } else if bytes.starts_with(b"\xff\xd8\xff") {
            decode_jpeg(bytes)
                .map_err(|reason| format!("the JPEG image cannot be decoded: {reason}"))
        } else if bytes.is_empty() {
            Err("the image is empty".to_owned())
        } else {
            Err("the image is neither a JPEG nor a PNG file; convert it".to_owned())
        }
    }
}

fn decode_png(bytes: &[u8]) -> Result<RgbImage, String> {
    let mut decoder = Decoder::new(Cursor::new(bytes));
    // Palettes and fewer bits become 8 bits, and of 16 bits the upper 8 are kept.
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    let mut reader = decoder.read_info().map_err(|error| error.to_string())?;
    let (width, height) = (reader.info().width as usize, reader.info().height as usize);
    check_pixels(width, height)?;
    let mut values = vec![0; reader.output_buffer_size().ok_or("it is too large")?];
    let info = reader.next_frame(&mut values).map_err(|error| error.to_string())?;
    values.truncate(info.buffer_size());
    let pixels = match info.color_type {
        ColorType::Rgb => values,
        ColorType::Rgba => {
            values.as_chunks::<4>().0.iter().flat_map(|[r, g, b, _]| [*r, *g, *b]).collect()
        }
        ColorType::Grayscale => values.iter().flat_map(|gray| [*gray; 3]).collect(),
        ColorType::GrayscaleAlpha => {
            values.as_chunks::<2>().0.iter().flat_map(|[gray, _]| [*gray; 3]).collect()
        }
        ColorType::Indexed => return Err("its palette cannot be read".to_owned()),
    };
    of_pixels(width, height, pixels)
}

fn decode_jpeg(bytes: &[u8]) -> Result<RgbImage, String> {
    let options = DecoderOptions::default().jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(|error| format!("{error:?}"))?;
    let (width, height) = decoder.dimensions().ok_or("it has no size")?;
    check_pixels(width, height)?;
    let pixels = decoder.decode().map_err(|error| format!("{error:?}"))?;
    of_pixels(width, height, pixels)
}

/// Refuses sizes that would take gigabytes.
fn check_pixels(width: usize, height: usize) -> Result<(), String> {
    match width.checked_mul(height) {
        Some(0) => Err("it has no pixels".to_owned()),
        Some(pixels) if pixels <= MAX_PIXELS => Ok(()),
        _ => Err(format!("it has {width} by {height} pixels, and at most {MAX_PIXELS} are read")),
    }
}

fn of_pixels(width: usize, height: usize, pixels: Vec<u8>) -> Result<RgbImage, String> {
    let expected = 3 * width * height;
    if pixels.len() != expected {
        return Err(format!("it has {} values, not {expected}", pixels.len()));
    }
    Ok(RgbImage::new(width, height, pixels))
}
