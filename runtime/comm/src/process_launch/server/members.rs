//! The ranks that are connected to the server, or were.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::{RankExit, RankProgress};

use super::super::heartbeat::HEARTBEAT_PERIOD;
use super::super::protocol::{IdleRank, MAX_IDLE, StoreMessage};
use super::link::Link;

/// Most that one interval between two checks counts as silence. A longer one was a pause of the whole process, in which
/// heartbeats could not be received.
const LONGEST_TICK: Duration = Duration::from_secs(1);
/// Time without progress after which a rank is listed as idle.
const IDLE_TIME: Duration = Duration::from_secs(3);

/// The ranks that are connected, or were.
#[derive(Default)]
pub struct Members {
    ranks: BTreeMap<u32, Member>,
    /// Ranks that have exited, in the order of their exits.
    exits: Vec<(u32, RankExit)>,
}

/// A rank that is connected, or was.
pub struct Member {
    /// `None` after the connection has ended.
    pub link: Option<Link>,
    /// The key that the rank waits for, and the end of the wait.
    pub wanted: Option<(Vec<u8>, Instant)>,
    has_exited: bool,
    /// Time since the last heartbeat.
    silence: Duration,
    progress: RankProgress,
    /// Time since the last progress.
    idle: Duration,
}

impl Members {
    /// Returns true if a rank is connected, or was.
    pub fn contains(&self, rank: u32) -> bool {
        self.ranks.contains_key(&rank)
    }

    /// Number of ranks that are connected, or were.
    pub fn len(&self) -> usize {
        self.ranks.len()
    }

    /// Returns true if no connection is left.
    pub fn are_gone(&self) -> bool {
        self.ranks.values().all(|member| member.link.is_none())
    }

    /// Returns a rank.
    pub fn get_mut(&mut self, rank: u32) -> Option<&mut Member> {
        self.ranks.get_mut(&rank)
    }

    /// Returns all ranks, in their order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Member)> {
        self.ranks.iter_mut().map(|(rank, member)| (*rank, member))
    }

    /// Admits a rank: it gets `reply`, and then the exits of others so far.
    pub fn admit(&mut self, rank: u32, mut link: Link, reply: Vec<u8>) {
        let mut bytes = reply;
        for (other, exit) in &self.exits {
            bytes.extend(StoreMessage::Exited(*other as usize, exit.clone()).to_bytes());
        }
        // A connection that has failed ends when it is read.
        let _ = link.send(bytes.into());
        let (silence, idle) = (Duration::ZERO, Duration::ZERO);
        let (progress, has_exited) = (RankProgress::default(), false);
        let member = Member { link: Some(link), wanted: None, has_exited, silence, progress, idle };
        self.ranks.insert(rank, member);
    }

    /// Notes the exit of a rank, unless it is known, and notifies the others. All ranks receive exits in one order, so
    /// a failure before those that follow from it.
    pub fn note_exit(&mut self, rank: u32, exit: RankExit) {
        let Some(own) = self.ranks.get_mut(&rank).filter(|own| !own.has_exited) else { return };
        own.has_exited = true;
        let notification: Arc<[u8]> =
            StoreMessage::Exited(rank as usize, exit.clone()).to_bytes().into();
        // A paused process reads when it goes on that the others have given it up.
        if let (RankExit::Silent(_), Some(link)) = (&exit, &mut own.link) {
            let _ = link.send(Arc::clone(&notification));
        }
        self.exits.push((rank, exit));
        for member in self.ranks.values_mut().filter(|member| !member.has_exited) {
            if let Some(link) = &mut member.link {
                // A rank that cannot be notified has exited, or its connection ends when it is read.
                let _ = link.send(Arc::clone(&notification));
            }
        }
    }

    /// Counts the time since the last call as silence of all ranks, and announces those that are silent for `limit`,
    /// never before.
    pub fn pass_time(&mut self, elapsed: Duration, limit: Duration) {
        let tick = elapsed.min(LONGEST_TICK);
        let mut silent = Vec::new();
        for (rank, member) in self.ranks.iter_mut().filter(|(_, member)| !member.has_exited) {
            member.silence += tick;
            member.idle += tick;
            // The last heartbeat was sent up to a period before the rank fell silent.
            if member.silence >= limit + HEARTBEAT_PERIOD {
                silent.push(*rank);
            }
        }
        silent.into_iter().for_each(|rank| self.note_silence(rank, limit));
    }

    /// Announces that a rank was silent for `limit`.
    pub fn note_silence(&mut self, rank: u32, limit: Duration) {
        let Some(member) = self.ranks.get(&rank) else { return };
        let text = format!("{} s, last seen {}", limit.as_secs_f64(), member.progress);
        self.note_exit(rank, RankExit::Silent(text.into()));
    }

    /// Returns the ranks that have made no progress for longest, those that do not wait for others first.
    pub fn idle_ranks(&self) -> Vec<IdleRank> {
        let is_idle = |(_, member): &(&u32, &Member)| !member.has_exited && member.idle > IDLE_TIME;
        let idle = self.ranks.iter().filter(is_idle).map(|(rank, member)| IdleRank {
            rank: *rank as usize,
            since: member.idle,
            progress: member.progress.clone(),
        });
        let mut idle: Vec<IdleRank> = idle.collect();
        idle.sort_by_key(|idle| (idle.progress.is_communicating, std::cmp::Reverse(idle.since)));
        idle.truncate(MAX_IDLE);
        idle
    }
}

impl Member {
    /// Notes a heartbeat.
    pub fn beat(&mut self, progress: RankProgress) {
        self.silence = Duration::ZERO;
        if (progress.step, progress.calls) != (self.progress.step, self.progress.calls) {
            self.idle = Duration::ZERO;
        }
        self.progress = progress;
    }

    /// Sends a message.
    pub fn send(&mut self, bytes: Arc<[u8]>) -> io::Result<()> {
        self.link.as_mut().map_or(Ok(()), |link| link.send(bytes))
    }
}
