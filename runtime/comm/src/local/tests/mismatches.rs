//! Mismatching calls: an error on every member that names both calls and both sites.

use crate::{Blocks, CommError, Communicator, FailureCause, ReduceOp, Site};
use meshwright_backend::{CachingAllocator, Category, DType, View, ViewMut};

use super::{TP, failures_of};

type Body<'a> = &'a (dyn Fn(&Communicator) -> Result<(), CommError> + Sync);

/// Runs `odd` on rank 1 and `common` on ranks 0 and 2, twice, and checks that all of them fail with one
/// `Mismatch` text that holds all of `parts` and both sites with their lines.
fn assert_mismatch(common: Body<'_>, odd: Body<'_>, parts: &[&str]) {
    let error = failures_of(3, |comms| {
        let tp = comms.group(TP);
        tp.barrier(&Site::here("start"))?;
        if comms.rank() == 1 { odd(&tp) } else { common(&tp) }
    });
    assert_eq!(error.failures.len(), 3, "{error}");
    for failure in &error.failures {
        let FailureCause::Error(CommError::Mismatch { calls, .. }) = &failure.cause else {
            panic!("rank {}: {}", failure.rank, failure.cause);
        };
        let text = failure.cause.to_string();
        assert!(calls.contains("ranks 0, 2: "), "{text}");
        assert!(calls.contains("rank 1: "), "{text}");
        assert_eq!(calls.matches("mismatches.rs:").count(), 2, "{text}");
        for part in parts.iter().chain(&["a.norm", "b.down", "group tp [0, 1, 2]", "number 2"]) {
            assert!(text.contains(part), "`{part}` is not in:\n{text}");
        }
    }
}

fn sum(tp: &Communicator, site: &Site, len: usize) -> Result<(), CommError> {
    tp.all_reduce(site, ReduceOp::Sum, ViewMut::from(&mut vec![1.0f32; len][..]))
}

#[test]
fn operation() {
    assert_mismatch(
        &|tp| sum(tp, &Site::here("a.norm"), 4),
        &|tp| tp.barrier(&Site::here("b.down")),
        &["all_reduce(sum, f32 x 4) over tp", "barrier over tp", "control flow"],
    );
}

#[test]
fn order() {
    assert_mismatch(
        &|tp| {
            sum(tp, &Site::here("a.norm"), 4)?;
            tp.broadcast(&Site::here("b.down"), 0, ViewMut::from(&mut [0u32; 4][..]))
        },
        &|tp| {
            tp.broadcast(&Site::here("b.down"), 0, ViewMut::from(&mut [0u32; 4][..]))?;
            sum(tp, &Site::here("a.norm"), 4)
        },
        &["all_reduce", "broadcast(u32 x 4 from rank 0)", "in another order"],
    );
}

#[test]
fn order_of_equal_calls() {
    assert_mismatch(
        &|tp| {
            sum(tp, &Site::here("a.norm"), 4)?;
            sum(tp, &Site::here("b.down"), 4)
        },
        &|tp| {
            sum(tp, &Site::here("b.down"), 4)?;
            sum(tp, &Site::here("a.norm"), 4)
        },
        &["all_reduce", "alike but come from different places"],
    );
}

#[test]
fn missing_call() {
    assert_mismatch(
        &|tp| {
            sum(tp, &Site::here("a.norm"), 4)?;
            tp.barrier(&Site::here("later"))
        },
        &|tp| tp.barrier(&Site::here("b.down")),
        &["skipped a call"],
    );
}

#[test]
fn dtype() {
    assert_mismatch(
        &|tp| tp.broadcast(&Site::here("a.norm"), 0, ViewMut::from(&mut [0f32; 4][..])),
        &|tp| tp.broadcast(&Site::here("b.down"), 0, ViewMut::from(&mut [0u32; 4][..])),
        &["f32 x 4", "u32 x 4", "element types differ"],
    );
}

#[test]
fn count_small_and_large() {
    for len in [3, 100_000] {
        assert_mismatch(
            &|tp| sum(tp, &Site::here("a.norm"), len),
            &|tp| sum(tp, &Site::here("b.down"), len + 1),
            &[&format!("f32 x {len})"), &format!("f32 x {})", len + 1), "sizes differ"],
        );
    }
}

#[test]
fn blocks() {
    let gather = |tp: &Communicator, site: Site, lens: [usize; 3]| {
        let blocks = Blocks::new(2, lens);
        let src = vec![0f32; blocks.owned(tp.rank())];
        let mut dst = vec![0f32; blocks.total()];
        tp.all_gather(&site, View::from(&src[..]), ViewMut::from(&mut dst[..]), &blocks)
    };
    assert_mismatch(
        &|tp| gather(tp, Site::here("a.norm"), [2, 3, 4]),
        &|tp| gather(tp, Site::here("b.down"), [3, 3, 3]),
        &["2 x [2, 3, 4]", "2 x [3, 3, 3]", "sizes differ"],
    );
}

#[test]
fn root_and_reduction() {
    let reduce = |tp: &Communicator, site: Site, root, op| {
        tp.reduce(&site, root, op, ViewMut::from(&mut [0f32; 4][..]))
    };
    assert_mismatch(
        &|tp| reduce(tp, Site::here("a.norm"), 0, ReduceOp::Sum),
        &|tp| reduce(tp, Site::here("b.down"), 1, ReduceOp::Sum),
        &["to rank 0", "to rank 1", "roots differ"],
    );
    assert_mismatch(
        &|tp| reduce(tp, Site::here("a.norm"), 0, ReduceOp::Sum),
        &|tp| reduce(tp, Site::here("b.down"), 0, ReduceOp::Max),
        &["reduce(sum", "reduce(max", "reductions differ"],
    );
}

#[test]
fn all_to_all_counts() {
    let exchange = |tp: &Communicator, site: Site, counts: [usize; 3]| {
        let data = vec![0f32; counts.iter().sum()];
        let mut dst = data.clone();
        tp.all_to_all(&site, View::from(&data[..]), ViewMut::from(&mut dst[..]), &counts, &counts)
    };
    assert_mismatch(
        &|tp| exchange(tp, Site::here("a.norm"), [1, 1, 1]),
        &|tp| exchange(tp, Site::here("b.down"), [1, 1, 2]),
        &["send [1, 1, 1]", "receive [1, 1, 2]", "sizes differ"],
    );
}

#[test]
fn asynchronous_calls() {
    let start = |tp: &Communicator, site: Site, len| {
        let data = CachingAllocator::new().zeros(DType::F32, len, Category::Gradients);
        tp.start_all_reduce(&site, ReduceOp::Sum, data).wait().map(drop)
    };
    // The barrier before them does not count: asynchronous calls have a sequence of their own.
    let first = |tp: &Communicator| start(tp, Site::new("first"), 5);
    assert_mismatch(
        &|tp| first(tp).and_then(|()| start(tp, Site::here("a.norm"), 7)),
        &|tp| first(tp).and_then(|()| start(tp, Site::here("b.down"), 8)),
        &["asynchronous all_reduce(sum, f32 x 7)", "sizes differ"],
    );
}

#[test]
fn message_and_receiver() {
    // The sender may be through before the receiver comes: it learns at its next call.
    let error = failures_of(2, |comms| {
        let tp = comms.group(TP);
        if comms.rank() == 0 {
            tp.send(&Site::here("a.norm"), 1, View::from(&[1f32; 5][..]))?;
        } else {
            tp.recv(&Site::here("b.down"), 0, ViewMut::from(&mut [0f32; 6][..]))?;
        }
        tp.barrier(&Site::here("end"))
    });
    assert_eq!(error.failures.len(), 2);
    for failure in &error.failures {
        let text = failure.cause.to_string();
        for part in ["send(f32 x 5 to rank 1)", "recv(f32 x 6 from rank 0)", "a.norm", "b.down"] {
            assert!(text.contains(part), "`{part}` is not in:\n{text}");
        }
    }
}

#[test]
fn invalid_arguments_are_refused_before_waiting() {
    let error = failures_of(2, |comms| {
        let (tp, site) = (comms.group(TP), Site::here("x"));
        let (short, mut long) = ([0f32; 3], [0f32; 8]);
        let mut words = [0u32; 8];
        let even = Blocks::even(1, 4, 2);
        let problems = [
            tp.all_gather(&site, View::from(&short[..]), ViewMut::from(&mut long[..]), &even),
            tp.all_gather(&site, View::from(&{ long }[..4]), ViewMut::from(&mut words[..]), &even),
            tp.all_gather(
                &site,
                View::from(&short[..]),
                ViewMut::from(&mut long[..]),
                &Blocks::even(1, 3, 3),
            ),
            tp.all_reduce(&site, ReduceOp::Sum, ViewMut::from(&mut words[..])),
            tp.broadcast(&site, 2, ViewMut::from(&mut long[..])),
            tp.scatter(&site, comms.rank(), None, ViewMut::from(&mut long[..]), &[8, 8]),
            tp.send(&site, 9, View::from(&short[..])),
        ];
        let expected = [
            "src has 3 elements where 4 are expected",
            "src is f32 and dst is u32",
            "`blocks` has 3 entries, but the group has 2 members",
            "reductions take f32 or bf16, not u32",
            "`root` is 2, but the group has the members 0 to 1",
            "must pass src",
            "`to` is 9",
        ];
        for (problem, expected) in problems.into_iter().zip(expected) {
            let text = problem.expect_err(expected).to_string();
            assert!(text.contains(expected), "{text}");
        }
        Err(tp.broadcast(&site, 2, ViewMut::from(&mut long[..])).expect_err("no member 2"))
    });
    assert_eq!(error.failures.len(), 2);
}
