//! Token ids without a header: the width follows from the setting, the record, the name, or the vocabulary and the ids.

use super::super::{DataError, TokensRecord};
use super::{Encoding, OpenedTokens, TokenLayout};

/// Fewest ids of a file whose width is read from ids that alternate with 0.
const MIN_ALTERNATING: usize = 64;

/// Determines the layout.
pub fn layout(file: &OpenedTokens<'_>) -> Result<TokenLayout, DataError> {
    let record = TokensRecord::beside(file.path)?;
    let encoding = encoding(file, record.as_ref())?;
    let len = file.len;
    let (name, is_stated) = (|| file.path.display().to_string(), record.is_some());
    if !len.is_multiple_of(encoding.width()) {
        return Err(DataError::Torn { name: name(), bytes: len, encoding });
    }
    let held = len / encoding.width();
    if let Some(record) = record.as_ref().filter(|record| record.tokens != held as u64) {
        return Err(file.error(format!(
            "it has {held} tokens, but its record {} states {}; tokenize the text again, or remove the record if it \
             belongs to another file",
            TokensRecord::path_beside(file.path).display(),
            record.tokens
        )));
    }
    let is_long = held >= MIN_ALTERNATING;
    if !is_stated && is_long && encoding.alternates_with_zero(file.head) {
        return Err(DataError::OtherWidth { name: name(), width: encoding.width() });
    }
    let tokenizer = record.map(|record| record.tokenizer);
    Ok(TokenLayout { tokenizer, ..TokenLayout::without_index(encoding, 0..len) })
}

/// Returns the encoding that the setting, the record or the name states, in this order; else the only one that the
/// vocabulary and the ids allow.
fn encoding(file: &OpenedTokens<'_>, record: Option<&TokensRecord>) -> Result<Encoding, DataError> {
    let recorded = record.and_then(|record| Encoding::of_dtype(&record.dtype));
    let stated = recorded.or(Encoding::of_name(file.path));
    if let (Some(given), Some(stated)) = (file.dtype, stated)
        && given != stated
    {
        let by = if recorded.is_some() { "record" } else { "name" };
        return Err(file.error(format!(
            "its {by} states {} ids, and --token-dtype {}; leave --token-dtype out",
            stated.dtype(),
            given.dtype()
        )));
    }
    if let Some(encoding) = file.dtype.or(stated) {
        return Ok(encoding);
    }
    if file.vocab > 1 << 16 {
        return Ok(Encoding::U32);
    }
    if !file.len.is_multiple_of(4) {
        return Ok(Encoding::U16);
    }
    // Ids of 32 bits below such a vocabulary have a zero in every second half, and no others do.
    let is_wide = Encoding::U16.alternates_with_zero(file.head);
    let is_zero = !is_wide && file.head.iter().all(|byte| *byte == 0);
    match (is_wide, file.len >= 4 * MIN_ALTERNATING) {
        (true, true) => Ok(Encoding::U32),
        (false, _) if !is_zero => Ok(Encoding::U16),
        _ if file.len == 0 => Ok(Encoding::U16),
        _ => Err(DataError::UnknownWidth { name: file.path.display().to_string() }),
    }
}
