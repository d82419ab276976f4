//! Positions that go through the fields of an encoder-decoder.

/// Returns the positions of a row that go through the field at `path`, and of an attention queries and keys, with
/// `source` positions in the encoder and `target` ones in the decoder.
pub fn stack_positions(path: &str, [source, target]: [usize; 2]) -> [usize; 2] {
    let is_of_memory = path.contains(".cross.k.") || path.contains(".cross.v.");
    let is_of_encoder = ["front.", "encoder.", "bridge."].iter().any(|part| path.starts_with(part));
    if is_of_memory || is_of_encoder {
        [source; 2]
    } else if path.contains(".cross.core") {
        [target, source]
    } else {
        [target; 2]
    }
}
