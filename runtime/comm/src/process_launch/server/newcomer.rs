//! Connections that are not admitted yet.

use std::io;
use std::net::TcpStream;
use std::time::Instant;

use super::super::handshake::{Challenge, Greeting, HandshakeSide, Proof, is_proven, prove};
use super::super::protocol::StoreMessage;
use super::super::random::{RandomBytes, SystemRandom};
use super::ServerSettings;
use super::link::Link;

/// Longest greeting in bytes, with space for the proof.
const MAX_GREETING: usize = 512;

/// A connection during its handshake.
pub struct Newcomer {
    pub link: Link,
    pub since: Instant,
    /// The greeting and the challenge of the store, once the greeting has arrived.
    greeting: Option<(Greeting, RandomBytes)>,
}

/// The progress of a handshake.
pub enum HandshakeState {
    /// More bytes are needed.
    Waiting,
    /// The other side has proven to be a process of the job, with this rank.
    Proven(u32),
    /// The connection is to be closed.
    Closed,
}

impl Newcomer {
    /// Takes over an accepted connection.
    pub fn new(stream: TcpStream, now: Instant) -> io::Result<Newcomer> {
        Ok(Newcomer { link: Link::new(stream)?, since: now, greeting: None })
    }

    /// Receives what has arrived, and goes on with the handshake.
    pub fn advance(&mut self, settings: &ServerSettings, random: &SystemRandom) -> HandshakeState {
        let limit = MAX_GREETING.saturating_sub(self.link.arrived());
        let received = self.link.receive(limit);
        let progress = self.read(settings, random).unwrap_or(HandshakeState::Closed);
        match (received, progress) {
            (Err(_), HandshakeState::Waiting) => HandshakeState::Closed,
            (Ok(()), HandshakeState::Waiting) if self.link.arrived() >= MAX_GREETING => {
                HandshakeState::Closed
            }
            (_, progress) => progress,
        }
    }

    /// Refuses the connection, and sends the reason.
    pub fn refuse(&mut self, reason: &str) -> HandshakeState {
        // The reply is short: there is space for it, or the other side does not read it.
        let _ = self.link.send(StoreMessage::Refused(reason.into()).to_bytes().into());
        HandshakeState::Closed
    }

    fn read(
        &mut self,
        settings: &ServerSettings,
        random: &SystemRandom,
    ) -> io::Result<HandshakeState> {
        if self.greeting.is_none() {
            let Some(greeting) = self.link.read(|bytes| Greeting::read(bytes))? else {
                return Ok(HandshakeState::Waiting);
            };
            let Some(greeting) = greeting else {
                return Ok(self.refuse("it uses another protocol: run one version on all ranks"));
            };
            if let Err(reason) = settings.check(&greeting) {
                return Ok(self.refuse(&reason));
            }
            let token = settings.token.as_ref();
            let challenge = random.next_bytes()?;
            let proof = prove(token, &greeting, &challenge, HandshakeSide::Store);
            let reply = Challenge { has_token: token.is_some(), challenge, proof };
            self.link.send(reply.to_bytes().into())?;
            self.greeting = Some((greeting, challenge));
        }
        let read_proof = |bytes: &mut &[u8]| -> io::Result<Proof> {
            let mut proof = [0; 32];
            io::Read::read_exact(bytes, &mut proof)?;
            Ok(proof)
        };
        let Some(proof) = self.link.read(read_proof)? else { return Ok(HandshakeState::Waiting) };
        let Some((greeting, challenge)) = &self.greeting else {
            return Ok(HandshakeState::Waiting);
        };
        let rank = greeting.rank;
        if is_proven(settings.token.as_ref(), greeting, challenge, HandshakeSide::Rank, &proof) {
            return Ok(HandshakeState::Proven(rank));
        }
        Ok(self.refuse("it does not know the token of the job: set MESHWRIGHT_TOKEN alike"))
    }
}

impl ServerSettings {
    /// Checks that a greeting is that of a rank of this job.
    fn check(&self, greeting: &Greeting) -> Result<(), String> {
        let (rank, world) = (greeting.rank as usize, greeting.world as usize);
        if greeting.job != self.job.as_bytes() {
            return Err(
                "it belongs to another job: stop old processes of other runs, or choose another MASTER_PORT".into()
            );
        }
        if world != self.world {
            return Err(format!("rank 0 expects {} ranks, rank {rank} {world}", self.world));
        }
        if rank >= self.world {
            let last = self.world - 1;
            return Err(format!(
                "there is no rank {rank}, only the ranks 0 to {last}; check RANK of all processes"
            ));
        }
        Ok(())
    }
}
