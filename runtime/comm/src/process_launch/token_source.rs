//! The source of a job's token, by the environment.

use std::path::{Path, PathBuf};

use super::error::StoreError;
use super::rank_assignment::RankAssignment;
use super::token::Token;
use super::token_file::{HomeFile, read_secret};

/// The environment variable with the token.
const TOKEN: &str = "MESHWRIGHT_TOKEN";
/// The environment variable with a file that contains the token.
const TOKEN_FILE: &str = "MESHWRIGHT_TOKEN_FILE";

/// The source from which a process has the token of its job.
#[derive(Debug, Clone, Default)]
pub enum TokenSource {
    /// No token: every process that knows the address and the job is admitted.
    #[default]
    None,
    /// A token that the processes are started with.
    Given(Token),
    /// A file in the home folder, which rank 0 writes and the others read.
    HomeFolder(HomeFile),
}

impl TokenSource {
    /// Returns the source of this process: `MESHWRIGHT_TOKEN`, else `MESHWRIGHT_TOKEN_FILE`, else a file of the job in
    /// the home folder.
    ///
    /// # Errors
    /// A token that can be guessed, and a file that cannot be read, or that others can read.
    pub fn from_environment(assignment: &RankAssignment) -> Result<TokenSource, StoreError> {
        TokenSource::from_variables(assignment, &|name| std::env::var(name).ok())
    }

    /// Returns the source by the given environment variables. Empty ones count as not set.
    ///
    /// # Errors
    /// As [`from_environment`](Self::from_environment).
    pub fn from_variables(
        assignment: &RankAssignment,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<TokenSource, StoreError> {
        let get = |name| variable(name).filter(|value: &String| !value.trim().is_empty());
        let refuse = |name: &str, problem| StoreError::Token(format!("{name}: {problem}"));
        if let Some(text) = get(TOKEN) {
            let token = Token::new(&text).map_err(|problem| refuse(TOKEN, problem))?;
            return Ok(TokenSource::Given(token));
        }
        if let Some(file) = get(TOKEN_FILE) {
            let token = read_token(Path::new(&file));
            let token =
                token.map_err(|problem| refuse(TOKEN_FILE, format!("{file}: {problem}")))?;
            return Ok(TokenSource::Given(token));
        }
        let home = get("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        Ok(home.map_or(TokenSource::None, |home| {
            TokenSource::HomeFolder(HomeFile::of_job(&home, assignment))
        }))
    }
}

fn read_token(file: &Path) -> Result<Token, String> {
    let text = read_secret(file).map_err(|error| error.to_string())?;
    Token::new(&text)
}
