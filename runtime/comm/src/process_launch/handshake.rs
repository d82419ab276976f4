//! The handshake of a connection: both sides prove that they know the token of the job, without sending it.
//!
//! 1. The rank sends a [`Greeting`], with a challenge.
//! 2. The store sends a [`Challenge`] of its own, and its proof.
//! 3. The rank sends its proof, and the store admits or refuses it.
//!
//! A proof is the HMAC-SHA-256 of both challenges and the greeting, with the token as key. A recorded handshake is of
//! no use, as each side chooses a new challenge for each connection. Without a token the key is empty.

use std::io::{self, Read, Write};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::protocol::{
    MAGIC, MAX_KEY, read_byte, read_bytes, read_number, write_bytes, write_number,
};
use super::random::RandomBytes;
use super::rank_assignment::RankAssignment;
use super::token::Token;

/// Reply to a greeting that is followed by a [`Challenge`]. It differs from the replies of
/// [`StoreMessage`](super::protocol::StoreMessage).
pub const CHALLENGE: u8 = 9;

/// The proof that a side knows the token.
pub type Proof = [u8; 32];

/// The first message of a connection.
#[derive(Debug, Clone, PartialEq)]
pub struct Greeting {
    /// Job identifier.
    pub job: Vec<u8>,
    /// The rank of the process.
    pub rank: u32,
    /// World size.
    pub world: u32,
    /// Set if the process has a token.
    pub has_token: bool,
    /// The challenge of the rank.
    pub challenge: RandomBytes,
}

/// The store's reply to a greeting.
#[derive(Debug, Clone, PartialEq)]
pub struct Challenge {
    /// Set if the store has a token.
    pub has_token: bool,
    /// The challenge of the store.
    pub challenge: RandomBytes,
    /// The proof of the store.
    pub proof: Proof,
}

/// A side of a connection. Its proof is of no use for the other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeSide {
    /// The rank that connects.
    Rank,
    /// The store.
    Store,
}

impl Greeting {
    /// Creates the greeting of a process.
    pub fn new(assignment: &RankAssignment, has_token: bool, challenge: RandomBytes) -> Greeting {
        Greeting {
            job: assignment.job.clone().into_bytes(),
            rank: assignment.rank as u32,
            world: assignment.world as u32,
            has_token,
            challenge,
        }
    }

    /// Reads a greeting; `None` if it begins with another protocol.
    pub fn read(input: &mut impl Read) -> io::Result<Option<Greeting>> {
        for expected in MAGIC {
            if read_byte(input)? != expected {
                return Ok(None);
            }
        }
        let (job, rank) = (read_bytes(input, MAX_KEY)?, read_number(input)?);
        let (world, has_token) = (read_number(input)?, read_byte(input)? != 0);
        Ok(Some(Greeting { job, rank, world, has_token, challenge: read_array(input)? }))
    }

    /// Returns the bytes of the greeting.
    ///
    /// # Errors
    /// A job identifier that is too long.
    pub fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let mut out = MAGIC.to_vec();
        write_bytes(&mut out, &self.job, MAX_KEY)?;
        write_number(&mut out, self.rank)?;
        write_number(&mut out, self.world)?;
        out.push(u8::from(self.has_token));
        out.write_all(&self.challenge)?;
        Ok(out)
    }
}

impl Challenge {
    /// Reads the reply after its first byte.
    pub fn read(input: &mut impl Read) -> io::Result<Challenge> {
        let (has_token, challenge) = (read_byte(input)? != 0, read_array(input)?);
        Ok(Challenge { has_token, challenge, proof: read_array(input)? })
    }

    /// Returns the bytes of the reply.
    pub fn to_bytes(&self) -> Vec<u8> {
        [&[CHALLENGE, u8::from(self.has_token)], &self.challenge[..], &self.proof].concat()
    }
}

/// Returns the proof of one side.
pub fn prove(
    token: Option<&Token>,
    greeting: &Greeting,
    store: &RandomBytes,
    side: HandshakeSide,
) -> Proof {
    keyed(token, greeting, store, side).finalize().into_bytes().into()
}

/// Returns true if `proof` is that of `side`. Takes the same time for every wrong one.
pub fn is_proven(
    token: Option<&Token>,
    greeting: &Greeting,
    store: &RandomBytes,
    side: HandshakeSide,
    proof: &Proof,
) -> bool {
    keyed(token, greeting, store, side).verify_slice(proof).is_ok()
}

fn keyed(
    token: Option<&Token>,
    greeting: &Greeting,
    store: &RandomBytes,
    side: HandshakeSide,
) -> Hmac<Sha256> {
    let key = token.map_or(&[][..], Token::bytes);
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key may have any length");
    let side: &[u8] = match side {
        HandshakeSide::Rank => b"meshwright rank ",
        HandshakeSide::Store => b"meshwright store",
    };
    // Only the last part has a length of its own.
    mac.update(side);
    mac.update(&greeting.challenge);
    mac.update(store);
    mac.update(&greeting.rank.to_le_bytes());
    mac.update(&greeting.world.to_le_bytes());
    mac.update(&greeting.job);
    mac
}

fn read_array(input: &mut impl Read) -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}
