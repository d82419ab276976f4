//! The token of a job: a secret that all its processes know, and other users of the network do not.

use std::fmt;

/// Fewest characters of a token: a recorded handshake can be compared with guesses.
const MIN_LEN: usize = 16;

/// The secret of a job.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Box<[u8]>);

impl Token {
    /// Creates a token of a text, without the white space around it.
    ///
    /// # Errors
    /// A text that is short enough to be guessed.
    pub fn new(text: &str) -> Result<Token, String> {
        let text = text.trim();
        if text.len() < MIN_LEN {
            return Err(format!(
                "a token of {} characters can be guessed: use at least {MIN_LEN}, such as those of `openssl rand -hex \
                 32`",
                text.len()
            ));
        }
        Ok(Token(text.as_bytes().into()))
    }

    /// The secret bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Without the secret.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a token")
    }
}
