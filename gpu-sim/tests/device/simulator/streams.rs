//! Streams, events, and asynchronous transfers.

use meshwright_cuda::{DriverCalls, DriverError, Event, Stream};

use super::rig::Rig;

const LEN: usize = 64;

/// A second stream copies the result of a first one, ordered by an event or not.
fn chain(seed: u64, ordered: bool) -> Result<Vec<f32>, DriverError> {
    let rig = Rig::new(seed);
    let driver = &rig.driver;
    let [x, y, z] = [1.0f32, 2.0, 3.0].map(|value| rig.put(&[value; LEN]));
    let (other, event) = (driver.new_stream(true)?, driver.new_event(false)?);
    // SAFETY: all are large enough for the copies.
    unsafe { driver.copy(rig.stream, y, x, LEN * 4)? };
    if ordered {
        driver.record(event, rig.stream)?;
        driver.wait(other, event)?;
    }
    // SAFETY: as above.
    unsafe { driver.copy(other, z, y, LEN * 4)? };
    driver.synchronize(other)?;
    driver.synchronize(rig.stream)?;
    rig.get(z, LEN)
}

#[test]
fn an_event_orders_two_streams() {
    for seed in 0..100 {
        assert_eq!(chain(seed, true), Ok(vec![1.0; LEN]), "seed {seed}");
    }
}

#[test]
fn a_missing_event_shows() {
    let wrong = (0..20).filter(|&seed| chain(seed, false) == Ok(vec![2.0; LEN])).count();
    assert!((2..19).contains(&wrong), "wrong for {wrong} of 20 seeds");
}

#[test]
fn a_wait_is_for_the_record_before_it() -> Result<(), DriverError> {
    for seed in 0..20 {
        let rig = Rig::new(seed);
        let driver = &rig.driver;
        let (second, third) = (driver.new_stream(false)?, driver.new_stream(false)?);
        let (event, late) = (driver.new_event(false)?, driver.new_event(false)?);
        // Nothing is recorded yet, so the wait has no effect.
        driver.wait(second, event)?;
        driver.synchronize(second)?;
        driver.record(event, rig.stream)?;
        driver.wait(second, event)?;
        // A later record of the event, after the second stream, does not affect the wait.
        driver.record(late, second)?;
        driver.wait(third, late)?;
        driver.record(event, third)?;
        driver.free_event(late)?;
        for stream in [third, second] {
            driver.synchronize(stream)?;
        }
        assert_eq!(driver.is_done(event), Ok(true));
    }
    Ok(())
}

#[test]
fn who_asks_again_and_again_gets_an_answer() -> Result<(), DriverError> {
    let rig = Rig::new(1);
    let driver = &rig.driver;
    let x = rig.put(&[0f32; LEN]);
    let event = driver.new_event(false)?;
    assert_eq!(driver.is_done(event), Ok(true));
    let mut early = 0;
    for _ in 0..20 {
        // SAFETY: the memory is large enough.
        unsafe { driver.zero(rig.stream, x, LEN * 4)? };
        driver.record(event, rig.stream)?;
        let asked = (0..100).position(|_| driver.is_done(event) == Ok(true));
        early += usize::from(asked.expect("an answer") > 0);
    }
    assert!(early > 0, "work is not always done immediately");
    Ok(())
}

#[test]
fn events_measure_time_if_they_are_meant_to() -> Result<(), DriverError> {
    let rig = Rig::new(1);
    let driver = &rig.driver;
    let (from, to, plain) =
        (driver.new_event(true)?, driver.new_event(true)?, driver.new_event(false)?);
    assert!(driver.elapsed_ms(from, to).is_err());
    for event in [from, plain, to] {
        driver.record(event, rig.stream)?;
    }
    driver.synchronize(rig.stream)?;
    let elapsed = driver.elapsed_ms(from, to)?;
    assert!((0.0..1e4).contains(&elapsed), "{elapsed}");
    assert!(driver.elapsed_ms(from, plain).is_err());
    Ok(())
}

/// Returns the result of a transfer whose host memory changes before the stream is synchronized.
fn uploaded(seed: u64) -> Result<f32, DriverError> {
    let rig = Rig::new(seed);
    let x = rig.put(&[0f32]);
    let mut source = [1f32];
    // SAFETY: the memory lives until the stream is synchronized.
    unsafe { rig.driver.upload(rig.stream, x, source.as_ptr().cast(), 4)? };
    // SAFETY: owned by the test; read and written only through pointers.
    unsafe { source.as_mut_ptr().write_volatile(2.0) };
    rig.driver.synchronize(rig.stream)?;
    Ok(rig.get(x, 1)?[0])
}

#[test]
fn host_memory_is_used_when_the_transfer_is_done() {
    let values: Vec<f32> = (0..20).map(|seed| uploaded(seed).expect("a transfer")).collect();
    assert!(values.contains(&1.0) && values.contains(&2.0), "{values:?}");
}

#[test]
fn handles_must_be_known() {
    let rig = Rig::new(1);
    let driver = &rig.driver;
    let (stream, event) = (Stream(999), Event(999));
    assert!(driver.synchronize(stream).is_err());
    assert!(driver.record(event, rig.stream).is_err());
    assert!(driver.record(driver.new_event(false).expect("an event"), stream).is_err());
    driver.free_stream(rig.stream).expect("a stream");
    assert!(driver.free_stream(rig.stream).is_err());
    assert!(driver.free_event(event).is_err());
}

#[test]
fn pinned_memory_is_freed_once() {
    let driver = Rig::new(1).driver;
    let memory = driver.alloc_pinned(100).expect("memory");
    // SAFETY: nothing uses the memory.
    unsafe {
        assert!(driver.free_pinned(memory, 99).is_err());
        driver.free_pinned(memory, 100).expect("memory that was allocated");
        assert!(driver.free_pinned(memory, 100).is_err());
    }
}
