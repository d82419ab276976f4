//! Sound of WAV files.

use super::log_mel::RATE;

/// Formats of samples.
const INTEGERS: u16 = 1;
const FLOATS: u16 = 3;
/// The format is at the beginning of an identifier of 16 bytes.
const EXTENSIBLE: u16 = 0xFFFE;

/// Reads the samples of a WAV file, in -1 to 1: mono sound at 16 kHz, of 16-bit integers or 32-bit floats, as a Whisper
/// takes it.
///
/// # Errors
/// Bytes that are no WAV file or end early, and sound of another rate, of several channels, or of other samples.
pub fn read_wav(bytes: &[u8]) -> Result<Vec<f32>, String> {
    let is_wav = bytes.len() >= 12 && bytes.starts_with(b"RIFF") && &bytes[8..12] == b"WAVE";
    if !is_wav {
        return Err("is no WAV file: it does not begin with RIFF and WAVE".to_owned());
    }
    let (mut rest, mut bits) = (&bytes[12..], None);
    while let Some((head, behind)) = rest.split_first_chunk::<8>() {
        let len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let content = behind.get(..len).ok_or_else(|| {
            let (name, left) = (String::from_utf8_lossy(&head[..4]), behind.len());
            format!("ends early: its part `{name}` has {len} bytes, but only {left} are there")
        })?;
        match &head[..4] {
            b"fmt " => bits = Some(bits_of_format(content)?),
            b"data" => {
                let bits = bits.ok_or("has samples before their format")?;
                return Ok(samples(content, bits));
            }
            _ => {}
        }
        // Parts begin at even bytes.
        rest = behind.get(len + len % 2..).unwrap_or_default();
    }
    Err("has no samples".to_owned())
}

/// Returns the bits of a sample in a supported format.
fn bits_of_format(content: &[u8]) -> Result<u16, String> {
    let number =
        |at: usize| content.get(at..at + 2).map(|two| u16::from_le_bytes([two[0], two[1]]));
    let rate =
        content.get(4..8).map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]));
    let (Some(format), Some(channels), Some(rate), Some(bits)) =
        (number(0), number(2), rate, number(14))
    else {
        return Err("has a format that ends early".to_owned());
    };
    if channels != 1 {
        return Err(format!(
            "has {channels} channels, but only mono sound is read; mix them before"
        ));
    }
    if rate as usize != RATE {
        return Err(format!(
            "has {rate} samples a second, but {RATE} are needed; resample it before"
        ));
    }
    let format = if format == EXTENSIBLE { number(24) } else { Some(format) };
    match (format, bits) {
        (Some(INTEGERS), 16) | (Some(FLOATS), 32) => Ok(bits),
        _ => Err(format!(
            "has samples of {bits} bits in format {}, but only 16-bit integers and 32-bit floats are read; \
             convert them before",
            format.unwrap_or(EXTENSIBLE)
        )),
    }
}

fn samples(content: &[u8], bits: u16) -> Vec<f32> {
    if bits == 16 {
        let samples = content.chunks_exact(2).map(|two| i16::from_le_bytes([two[0], two[1]]));
        return samples.map(|sample| f32::from(sample) / 32768.0).collect();
    }
    let samples = content.chunks_exact(4);
    samples.map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with a part of odd length before its samples.
    fn file(format: u16, channels: u16, rate: u32, bits: u16, samples: &[u8]) -> Vec<u8> {
        let part = |name: &[u8; 4], content: &[u8]| {
            let len = (content.len() as u32).to_le_bytes();
            [&name[..], &len, content, &[0][..content.len() % 2]].concat()
        };
        let head =
            [&format.to_le_bytes()[..], &channels.to_le_bytes(), &rate.to_le_bytes()].concat();
        let head = [&head[..], &[0; 6], &bits.to_le_bytes()].concat();
        let parts = [part(b"fmt ", &head), part(b"note", b"odd"), part(b"data", samples)].concat();
        [&b"RIFF"[..], &(4 + parts.len() as u32).to_le_bytes(), b"WAVE", &parts].concat()
    }

    #[test]
    fn integers_and_floats_are_read() {
        let integers = [0i16, 16384, -32768].map(i16::to_le_bytes).concat();
        let expected = Ok(vec![0.0, 0.5, -1.0]);
        assert_eq!(read_wav(&file(1, 1, 16000, 16, &integers)), expected);
        let floats = [0.0f32, 0.5, -1.0].map(f32::to_le_bytes).concat();
        assert_eq!(read_wav(&file(3, 1, 16000, 32, &floats)), expected);
    }

    #[test]
    fn other_files_are_refused() {
        let wav = file(1, 1, 16000, 16, &[0; 4]);
        for (bytes, expected) in [
            (file(1, 2, 16000, 16, &[0; 4]), "has 2 channels, but only mono"),
            (file(1, 1, 44100, 16, &[0; 4]), "has 44100 samples a second, but 16000"),
            (file(1, 1, 16000, 24, &[0; 3]), "has samples of 24 bits in format 1"),
            (file(7, 1, 16000, 8, &[0; 3]), "has samples of 8 bits in format 7"),
            (wav[..wav.len() - 1].to_vec(), "ends early: its part `data` has 4 bytes, but only 3"),
            (wav[..36].to_vec(), "has no samples"),
            (b"OggS".to_vec(), "is no WAV file"),
        ] {
            let text = read_wav(&bytes).unwrap_err();
            assert!(text.starts_with(expected), "{text}");
        }
        // Any end is an error or no more samples, and no panic.
        (0..wav.len()).for_each(|len| drop(read_wav(&wav[..len])));
    }
}
