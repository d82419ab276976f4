//! The search for the rank that has stopped or slowed down the others.

use std::collections::{BTreeMap, BTreeSet};

use super::super::rank_table::name_ranks;
use super::cause::FlightCause;
use super::channel::{ChannelKey, ChannelKind, Channels, channel_of, channels};
use super::file::{End, FlightCall, RankRecord};
use super::late_rank::late_rank;

/// Microseconds that a rank of a run that goes on may wait for another one without being listed.
const USUAL_WAIT: u64 = 10_000_000;

/// A rank that waits in a call.
struct Wait<'a> {
    record: &'a RankRecord,
    call: &'a FlightCall,
    channel: ChannelKey,
    /// The members that have not issued the call.
    missing: Vec<usize>,
}

/// Returns the causes, the most telling ones first.
pub fn analyze(records: &[RankRecord]) -> Vec<FlightCause> {
    let channels = channels(records);
    let mut findings = failures(records);
    findings.extend(differences(&channels));
    let named = named_ranks(records);
    let mut missing = missing_ranks(records, &waits(records, &channels), &channels);
    // A launcher ends ranks after a failure: those that others name are the cause of it.
    let is_named =
        |finding: &FlightCause| finding.culprits.iter().any(|rank| named.contains_key(rank));
    missing.retain(|finding| named.is_empty() || is_named(finding));
    findings.extend(missing);
    for (rank, message) in named {
        if !findings.iter().any(|finding| finding.culprits.contains(&rank)) {
            let text = format!("rank {rank} has stopped the others: {message}");
            findings.push(FlightCause { text, culprits: vec![rank] });
        }
    }
    if findings.is_empty() {
        findings.extend(late_rank(records, &channels).or_else(|| rank_with_slow_steps(records)));
    }
    findings
}

/// Ranks that have failed by themselves.
fn failures(records: &[RankRecord]) -> Vec<FlightCause> {
    let failed = records.iter().filter(|record| record.end == End::Failed);
    let failed = failed.filter(|record| record.stopped_by.is_none());
    let finding = |record: &RankRecord| {
        let message = record.message.as_deref().and_then(|text| text.lines().next());
        let reason = message.map(|line| format!(": {line}")).unwrap_or_default();
        let text = format!("rank {} has failed in step {}{reason}", record.rank, record.step);
        FlightCause { text, culprits: vec![record.rank] }
    };
    failed.map(finding).collect()
}

/// The ranks whose end has stopped others, with the message of one of these.
fn named_ranks(records: &[RankRecord]) -> BTreeMap<usize, String> {
    let stopper_of = |rank: usize| {
        let own = records.iter().find(|record| record.rank == rank);
        own.and_then(|own| own.stopped_by).filter(|by| *by != rank)
    };
    let mut named = BTreeMap::new();
    for record in records {
        let Some(mut rank) = record.stopped_by.filter(|by| *by != record.rank) else { continue };
        // Each rank stops at most all others.
        for _ in records {
            rank = stopper_of(rank).unwrap_or(rank);
        }
        let line = record.message.as_deref().and_then(|text| text.lines().next());
        named.entry(rank).or_insert_with(|| line.unwrap_or_default().to_owned());
    }
    named
}

/// The first number of each channel at which its members have issued different calls. Later ones follow from it.
fn differences(channels: &Channels<'_>) -> Vec<FlightCause> {
    let mut found: Vec<(u64, FlightCause)> = Vec::new();
    for (key, ranks) in channels {
        let numbers: BTreeSet<u64> =
            ranks.values().flat_map(|own| own.calls.keys().copied()).collect();
        let difference = numbers.into_iter().find_map(|number| {
            let calls: Vec<(usize, &FlightCall)> = ranks
                .iter()
                .filter_map(|(rank, own)| Some((*rank, *own.calls.get(&number)?)))
                .collect();
            let (_, first) = calls.first()?;
            if calls.iter().all(|(_, call)| call.matches(first)) {
                return None;
            }
            let issued = calls.iter().map(|(_, call)| call.issued).max()?;
            Some((issued, describe_difference(key, number, &calls)))
        });
        found.extend(difference);
    }
    found.sort_by_key(|(issued, _)| *issued);
    found.into_iter().map(|(_, finding)| finding).take(1).collect()
}

fn describe_difference(
    key: &ChannelKey,
    number: u64,
    calls: &[(usize, &FlightCall)],
) -> FlightCause {
    let mut kinds: Vec<(&FlightCall, Vec<usize>)> = Vec::new();
    for (rank, call) in calls {
        match kinds.iter_mut().find(|(known, _)| known.matches(call)) {
            Some((_, ranks)) => ranks.push(*rank),
            None => kinds.push((call, vec![*rank])),
        }
    }
    let most = kinds.iter().map(|(_, ranks)| ranks.len()).max().unwrap_or(0);
    let is_usual = |ranks: &[usize]| ranks.len() == most;
    // Without a majority all are named.
    let has_majority = kinds.iter().filter(|(_, ranks)| is_usual(ranks)).count() == 1;
    let odd = kinds.iter().filter(|(_, ranks)| !has_majority || !is_usual(ranks));
    let culprits = odd.flat_map(|(_, ranks)| ranks.iter().copied()).collect();
    let lines: Vec<String> = kinds
        .iter()
        .map(|(call, ranks)| {
            let step = call.step;
            format!("\n  {}: {} in step {step}", name_ranks(ranks), call.operation())
        })
        .collect();
    let group = name_ranks(&key.members);
    let text =
        format!("{group} have issued different calls as their number {number}:{}", lines.concat());
    FlightCause { text, culprits }
}

/// Returns the ranks that wait for others, with the call in which they do.
fn waits<'a>(records: &'a [RankRecord], channels: &Channels<'_>) -> Vec<Wait<'a>> {
    let wait_of = |record: &'a RankRecord| {
        let is_open = |call: &&FlightCall| call.ended.is_none();
        // A blocking call is the last one; otherwise the rank waits for an asynchronous one, if at all.
        let blocking = record.calls.last().filter(is_open);
        let blocking = blocking.filter(|call| {
            channel_of(record, call).is_some_and(|channel| channel.kind == ChannelKind::Blocking)
        });
        let mut open = blocking.into_iter().chain(record.calls.iter().filter(is_open));
        open.find_map(|call| {
            let waited = record.written.saturating_sub(call.issued);
            if record.end == End::Returned || record.end == End::Running && waited < USUAL_WAIT {
                return None;
            }
            let channel = channel_of(record, call)?;
            let ranks = channels.get(&channel)?;
            let has_issued = |rank: &usize| match ranks.get(rank) {
                Some(own) => {
                    // A rank that was paused issues the call after the others have given up.
                    let issued = own.calls.get(&call.number).map(|found| found.issued);
                    own.count >= call.number && issued.is_none_or(|at| at <= record.written)
                }
                None => false,
            };
            let missing: Vec<usize> =
                channel.members.iter().copied().filter(|rank| !has_issued(rank)).collect();
            (!missing.is_empty()).then_some(Wait { record, call, channel, missing })
        })
    };
    records.iter().filter_map(wait_of).collect()
}

/// Returns the ranks for which others wait and which do not wait themselves; if there are none, the ranks that wait for
/// each other.
fn missing_ranks(
    records: &[RankRecord],
    waits: &[Wait<'_>],
    channels: &Channels<'_>,
) -> Vec<FlightCause> {
    let waiting: BTreeSet<usize> = waits.iter().map(|wait| wait.record.rank).collect();
    let mut roots: BTreeMap<usize, Vec<&Wait<'_>>> = BTreeMap::new();
    for wait in waits {
        for rank in wait.missing.iter().filter(|rank| !waiting.contains(rank)) {
            roots.entry(*rank).or_default().push(wait);
        }
    }
    if roots.is_empty() && !waits.is_empty() {
        let lines = waits.iter().map(|wait| {
            let missing = name_ranks(&wait.missing);
            format!("\n  rank {} waits for {missing} in {}", wait.record.rank, describe(wait))
        });
        let text = format!("ranks wait for each other:{}", lines.collect::<String>());
        return vec![FlightCause { text, culprits: waiting.into_iter().collect() }];
    }
    let finding = |(rank, waits): (usize, Vec<&Wait<'_>>)| {
        let state = match records.iter().find(|record| record.rank == rank) {
            None => {
                "has left no file: its process was killed, is paused, was not asked, or cannot write"
                    .to_owned()
            }
            Some(record) => {
                let wait = waits[0];
                let own = channels.get(&wait.channel).and_then(|ranks| ranks.get(&rank));
                let count = own.map_or(0, |own| own.count);
                let last = record.calls.last().map_or("none".to_owned(), FlightCall::operation);
                let state = match record.end {
                    End::Returned => " and has returned",
                    _ if count >= wait.call.number => " in time",
                    _ => "",
                };
                format!(
                    "has not issued number {}{state}; it is in step {}, and its last call is {last}",
                    wait.call.number, record.step
                )
            }
        };
        let lines = waits.iter().map(|wait| {
            format!("\n  rank {} waits for it in {}", wait.record.rank, describe(wait))
        });
        let text = format!("rank {rank} {state}{}", lines.collect::<String>());
        FlightCause { text, culprits: vec![rank] }
    };
    roots.into_iter().map(finding).collect()
}

/// `all_gather(..) of .., number 17 in step 3, since 4.0 s`.
fn describe(wait: &Wait<'_>) -> String {
    let seconds = wait.record.written.saturating_sub(wait.call.issued) as f64 / 1e6;
    format!(
        "{}, number {} in step {}, since {seconds:.1} s",
        wait.call.operation(),
        wait.call.number,
        wait.call.step
    )
}

/// The rank that has taken long for single steps of its calls, as to send a message: its library or its core is slow.
/// Its calls begin in time and end late, as those of the others.
fn rank_with_slow_steps(records: &[RankRecord]) -> Option<FlightCause> {
    let times = records.iter().flat_map(|record| &record.calls).map(|call| call.issued);
    let (first, last) = (times.clone().min()?, times.max()?);
    let slow_steps_of = |record: &RankRecord| {
        let slow_steps: u64 = record.calls.iter().filter_map(|call| call.slow_steps).sum();
        (slow_steps.min(last - first), record.rank)
    };
    let mut slow_steps: Vec<(u64, usize)> = records.iter().map(slow_steps_of).collect();
    slow_steps.sort_unstable();
    let (most, rank) = slow_steps.pop()?;
    let (second, _) = slow_steps.pop()?;
    let is_slow = most * 5 > last - first && most > 3 * second;
    is_slow.then(|| {
        let [most, second, all] = [most, second, last - first].map(|time| time as f64 / 1e6);
        let text = format!(
            "rank {rank} is slow in calls: their steps took it {most:.2} s of {all:.2} s, and the others at most \
             {second:.2} s; its library, its network or its core is slow"
        );
        FlightCause { text, culprits: vec![rank] }
    })
}
