//! The communicators of point-to-point messages: one for each pair of members and direction.

use std::collections::HashMap;

use crate::CommError;

use super::api::Comm;

/// The communicators of one member, by sender and receiver. In each, the sender is rank 0 and the receiver rank 1.
#[derive(Debug, Default)]
pub struct PairComms {
    comms: HashMap<(usize, usize), Comm>,
}

impl PairComms {
    /// Creates them by `split`, with a color (`None` if this member does not take part) and a key. All members make the
    /// same splits: in every round each member has at most one partner.
    pub fn create(
        members: usize,
        member: usize,
        mut split: impl FnMut(Option<usize>, usize) -> Result<Option<Comm>, CommError>,
    ) -> Result<PairComms, CommError> {
        let mut comms = HashMap::new();
        for round in 0..round_count(members) {
            let partner = partner(members, round, member);
            let pair = partner.map(|partner| (member.min(partner), member.max(partner)));
            for upwards in [true, false] {
                let direction =
                    pair.map(|(low, high)| if upwards { (low, high) } else { (high, low) });
                let key = direction.map_or(0, |(from, _)| usize::from(from != member));
                let comm = split(pair.map(|(low, _)| low), key)?;
                if let (Some(direction), Some(comm)) = (direction, comm) {
                    comms.insert(direction, comm);
                }
            }
        }
        Ok(PairComms { comms })
    }

    /// The communicator of messages of `from` to `to`.
    pub fn get(&self, from: usize, to: usize) -> Option<Comm> {
        self.comms.get(&(from, to)).copied()
    }
}

/// Number of rounds that pair every two of `members` once.
fn round_count(members: usize) -> usize {
    if members < 2 { 0 } else { members.next_multiple_of(2) - 1 }
}

/// Returns the partner of `member` in a round, by the circle method for tournaments: the last member, or an empty place
/// if their number is odd, stays fixed, and the others rotate around it.
fn partner(members: usize, round: usize, member: usize) -> Option<usize> {
    let rotating = round_count(members);
    let fixed = rotating;
    let opposite = |place: usize| (2 * round + rotating - place) % rotating;
    let met = match member {
        _ if member == fixed => round,
        _ if opposite(member) == member => fixed,
        _ => opposite(member),
    };
    (met < members).then_some(met)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_of_members_meets_once() {
        for members in 1..=9 {
            let mut met = vec![0; members * members];
            for round in 0..round_count(members) {
                for member in 0..members {
                    if let Some(other) = partner(members, round, member) {
                        assert_eq!(partner(members, round, other), Some(member));
                        assert_ne!(member, other);
                        met[member * members + other] += 1;
                    }
                }
            }
            for (idx, times) in met.iter().enumerate() {
                assert_eq!(*times, usize::from(idx / members != idx % members), "{members}");
            }
        }
    }
}
