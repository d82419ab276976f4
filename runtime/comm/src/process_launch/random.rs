//! Random bytes of the system, for challenges and tokens.

use std::fs::File;
use std::io::{self, Read};

/// 256 random bits.
pub type RandomBytes = [u8; 32];

/// The random number generator of the system.
#[derive(Debug)]
pub struct SystemRandom(File);

impl SystemRandom {
    /// Opens the generator.
    pub fn open() -> io::Result<SystemRandom> {
        Ok(SystemRandom(File::open("/dev/urandom")?))
    }

    /// Returns the next bytes.
    pub fn next_bytes(&self) -> io::Result<RandomBytes> {
        let mut bytes = [0; 32];
        (&self.0).read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

/// Returns random bytes as hexadecimal digits.
pub fn random_digits() -> io::Result<String> {
    let bytes = SystemRandom::open()?.next_bytes()?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns 16 random hexadecimal digits, for names that no other process chooses.
pub fn random_id() -> io::Result<String> {
    random_digits().map(|digits| digits[..16].to_owned())
}
