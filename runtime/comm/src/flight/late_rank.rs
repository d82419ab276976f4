//! The search for a rank that the others wait for, in a run that goes on.

use std::collections::BTreeMap;

use super::cause::FlightCause;
use super::channel::{ChannelKind, Channels};
use super::file::RankRecord;

/// Fewest collectives from which a rank is called slow.
const FEWEST_ARRIVALS: usize = 10;

/// The late arrivals of a rank at collectives.
#[derive(Default)]
struct Arrivals {
    /// Number of collectives at which it was the last.
    last: usize,
    /// The times in which the others issued no call until it arrived. They overlap.
    waits: Vec<(u64, u64)>,
}

/// Returns the rank for which the others have waited most, if that is much, and the last to arrive is not any rank.
pub fn late_rank(records: &[RankRecord], channels: &Channels<'_>) -> Option<FlightCause> {
    let issues: BTreeMap<usize, Vec<u64>> =
        records.iter().map(|record| (record.rank, issue_times(record))).collect();
    let times = issues.values().flatten();
    let (first, last) = (times.clone().min()?, times.max()?);
    let (arrivals, late) = arrivals(&issues, channels);
    let late: Vec<(usize, usize, u64)> =
        late.into_iter().map(|(rank, own)| (rank, own.last, union_len(own.waits))).collect();
    let all: u64 = late.iter().map(|(_, _, waited)| waited).sum();
    let (rank, count, waited) = late.into_iter().max_by_key(|(_, _, waited)| *waited)?;
    // One that is late in each step, or one that stops at times. On a busy machine each rank is late now and then.
    let is_usual = count * 5 > arrivals * 4 || waited * 3 > all * 2;
    let is_slow = arrivals >= FEWEST_ARRIVALS && is_usual && waited * 5 > last - first;
    is_slow.then(|| {
        let (waited, all) = (waited as f64 / 1e6, (last - first) as f64 / 1e6);
        let text = format!(
            "rank {rank} is slow: it was the last to arrive at {count} of {arrivals} collectives, and the others \
             waited {waited:.2} s of {all:.2} s for it"
        );
        FlightCause { text, culprits: vec![rank] }
    })
}

/// Returns the number of collectives that all members have issued, and how each rank was late to them.
///
/// A rank that has issued an asynchronous call goes on. So the others wait from the last call on that one of them has
/// issued before the late one arrives.
fn arrivals(
    issues: &BTreeMap<usize, Vec<u64>>,
    channels: &Channels<'_>,
) -> (usize, BTreeMap<usize, Arrivals>) {
    let mut late: BTreeMap<usize, Arrivals> = BTreeMap::new();
    let mut arrivals = 0;
    let collectives = channels.iter().filter(|(key, ranks)| {
        key.kind != ChannelKind::Message
            && key.members.len() >= 2
            && ranks.len() >= key.members.len()
    });
    for (_, ranks) in collectives {
        let numbers = ranks.values().next().into_iter().flat_map(|own| own.calls.keys());
        for number in numbers {
            let issued =
                ranks.iter().map(|(rank, own)| Some((own.calls.get(number)?.issued, *rank)));
            let Some(issued) = issued.collect::<Option<Vec<_>>>() else { continue };
            let Some((at, rank)) = issued.into_iter().max() else { continue };
            let others = ranks.keys().filter(|other| **other != rank);
            let Some(begin) = others.filter_map(|other| last_before(&issues[other], at)).max()
            else {
                continue;
            };
            arrivals += 1;
            let own = late.entry(rank).or_default();
            own.last += 1;
            own.waits.push((begin, at));
        }
    }
    (arrivals, late)
}

/// Returns the times at which a rank has issued its calls, in order.
fn issue_times(record: &RankRecord) -> Vec<u64> {
    let mut times: Vec<u64> = record.calls.iter().map(|call| call.issued).collect();
    times.sort_unstable();
    times
}

/// Returns the last one of sorted times until `at`.
fn last_before(times: &[u64], at: u64) -> Option<u64> {
    let before = times.partition_point(|time| *time <= at);
    times[..before].last().copied()
}

/// Returns the time that is in at least one of the intervals.
fn union_len(mut intervals: Vec<(u64, u64)>) -> u64 {
    intervals.sort_unstable();
    let (mut len, mut end) = (0, 0);
    for (from, to) in intervals {
        len += to.saturating_sub(from.max(end));
        end = end.max(to);
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_times_count_once() {
        assert_eq!(union_len(vec![(5, 9), (1, 4), (3, 6), (2, 3), (20, 21)]), 9);
        assert_eq!(union_len(Vec::new()), 0);
    }

    #[test]
    fn a_rank_goes_on_after_an_asynchronous_call() {
        assert_eq!(last_before(&[1, 4, 4, 9], 8), Some(4));
        assert_eq!(last_before(&[3], 2), None);
    }
}
