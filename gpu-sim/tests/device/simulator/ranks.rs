//! Several ranks, as threads, on one device.

use std::sync::Barrier;
use std::thread;

use meshwright_cuda::{DriverCalls, DriverError, Event, Stream};
use meshwright_gpu_sim::{SimDevice, SimDriver};

const LEN: usize = 32;
const ROUNDS: usize = 10;

struct RankState {
    driver: SimDriver,
    stream: Stream,
    mine: u64,
    copy: u64,
    written: Event,
    read: Event,
}

impl RankState {
    fn new(device: &SimDevice) -> RankState {
        let driver = device.driver();
        let stream = driver.new_stream(false).expect("a stream");
        let [mine, copy] = [(); 2].map(|()| driver.alloc(LEN * 4).expect("memory"));
        let [written, read] = [(); 2].map(|()| driver.new_event(false).expect("an event"));
        RankState { driver, stream, mine, copy, written, read }
    }

    /// Writes, lets the other rank copy the values, and writes again only after the copy is done.
    fn work(&self, other: &RankState, number: f32, barrier: &Barrier) -> Result<(), DriverError> {
        let RankState { driver, stream, .. } = self;
        for round in 0..ROUNDS {
            let values = [number + round as f32; LEN];
            let mut got = [0f32; LEN];
            // SAFETY: the memory is large enough; the values live until the stream is synchronized at the end of the
            // round.
            unsafe {
                driver.upload(*stream, self.mine, values.as_ptr().cast(), LEN * 4)?;
                driver.record(self.written, *stream)?;
                barrier.wait();
                driver.wait(*stream, other.written)?;
                driver.copy(*stream, self.copy, other.mine, LEN * 4)?;
                driver.record(self.read, *stream)?;
                barrier.wait();
                driver.wait(*stream, other.read)?;
                driver.download(*stream, got.as_mut_ptr().cast(), self.copy, LEN * 4)?;
                driver.synchronize(*stream)?;
            }
            assert_eq!(got, [1.0 - number + round as f32; LEN], "round {round}");
        }
        Ok(())
    }
}

#[test]
fn two_ranks_exchange_values() {
    for seed in 0..30 {
        let device = SimDevice::new(seed);
        let states = [RankState::new(&device), RankState::new(&device)];
        let barrier = Barrier::new(2);
        thread::scope(|scope| {
            let [first, second] = &states;
            scope.spawn(|| first.work(second, 0.0, &barrier).expect("the first rank"));
            scope.spawn(|| second.work(first, 1.0, &barrier).expect("the second rank"));
        });
        let drivers: Vec<usize> = device.log().iter().map(|entry| entry.driver).collect();
        assert!(drivers.contains(&0) && drivers.contains(&1) && !drivers.contains(&2));
    }
}

/// Synchronizes a stream that waits for work which another rank submits later.
#[test]
fn a_wait_for_another_rank_does_not_stop_it() {
    for seed in 0..10 {
        let device = SimDevice::new(seed);
        let (first, second) = (RankState::new(&device), RankState::new(&device));
        let recorded = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..20 {
                    first.driver.synchronize(first.stream).expect("nothing to wait for");
                }
                recorded.wait();
                first.driver.wait(first.stream, second.written).expect("an event");
                first.driver.synchronize(first.stream).expect("the other rank");
                assert_eq!(first.driver.is_done(second.written), Ok(true));
            });
            scope.spawn(|| {
                // SAFETY: the memory is large enough.
                unsafe { second.driver.zero(second.stream, second.mine, LEN * 4) }.expect("work");
                second.driver.record(second.written, second.stream).expect("an event");
                recorded.wait();
            });
        });
    }
}
