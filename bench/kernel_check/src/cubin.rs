//! Parser of kernel attributes in machine code.

/// Returns the maximum threads per block that kernel `name` declares (`__launch_bounds__`), if any.
///
/// Machine code is an ELF file. Each kernel has a section `.nv.info.NAME` of attributes: a byte of format, a byte of
/// kind, two bytes of value or length, and in one format a payload of that length.
pub fn max_threads(cubin: &[u8], name: &str) -> Option<u32> {
    /// Attribute format with a payload.
    const LONG: u8 = 0x04;
    /// Attribute kind of the maximum block size along x, y and z.
    const MAX_THREADS: u8 = 0x05;

    let mut rest = section(cubin, &format!(".nv.info.{name}"))?;
    while let Some((head, after)) = rest.split_at_checked(4) {
        let length = if head[0] == LONG { usize::from(u16_at(head, 2)?) } else { 0 };
        let (value, next) = after.split_at_checked(length)?;
        if head[..2] == [LONG, MAX_THREADS] {
            return Some(u32_at(value, 0)? * u32_at(value, 4)? * u32_at(value, 8)?);
        }
        rest = next;
    }
    None
}

/// Returns the contents of a section of a 64-bit little-endian ELF file.
fn section<'a>(file: &'a [u8], name: &str) -> Option<&'a [u8]> {
    if !file.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, size) = (u64_at(file, 0x28)?, u64::from(u16_at(file, 0x3a)?));
    let (count, names) = (u64::from(u16_at(file, 0x3c)?), u64::from(u16_at(file, 0x3e)?));
    let content = |header: &[u8]| {
        let start = usize::try_from(u64_at(header, 0x18)?).ok()?;
        let size = usize::try_from(u64_at(header, 0x20)?).ok()?;
        file.get(start..start.checked_add(size)?)
    };
    let header = |index: u64| {
        let start = usize::try_from(table.checked_add(index * size)?).ok()?;
        file.get(start..start.checked_add(size as usize)?)
    };
    let names = content(header(names)?)?;
    (0..count).filter_map(header).find_map(|header| {
        let own = names.get(u32_at(header, 0)? as usize..)?;
        let own = own.split(|byte| *byte == 0).next()?;
        if own == name.as_bytes() { content(header) } else { None }
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}
