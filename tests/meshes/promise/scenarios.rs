//! Training with several models, losses and optimizers per rank, compared with one rank after some steps.

use std::rc::Rc;

use meshwright::nn::Built;
use meshwright::optim::{AdamWOptions, Ema, Muon, MuonOptions, Sgd, SgdOptions};
use meshwright::prelude::*;
use meshwright::tensor::{Rank, Unit};

use super::harness::{
    Numbers, Steps, assert_mesh_parity, built, gradients_of, numbers, params_of, together,
};
use super::net::*;

/// A model with a layer of every kind, some of them recomputed.
#[model]
pub struct Part {
    norm: RmsNorm<Hidden>,
    #[sharded(tp = "col")]
    up: Linear<Hidden, Ffn>,
    #[sharded(tp = "row")]
    down: Linear<Ffn, Hidden>,
    #[recompute]
    blocks: Stack<Block>,
    plain: Linear<Hidden, Hidden>,
}

#[forward]
impl Part {
    fn forward(&self, x: &Stream) -> Stream {
        let inner = self.up.forward(&self.norm.forward(x)).tanh();
        self.plain.forward(&self.blocks.forward(&self.down.forward(&inner)))
    }
}

/// A model of one unit.
#[model]
pub struct Alone {
    up: Linear<Hidden, Hidden>,
}

fn part(rank: &Rank, std: f32) -> Built<Part> {
    let mut sizes = sizes();
    sizes.init_std = std;
    built(rank, &sizes)
}

/// Returns samples as a function of `seed`.
fn samples(rank: &Rank, seed: u64) -> Stream {
    Tensor::from_fn(rank, &[6, 5, 8], |at| {
        let at = (at[0] * 40 + at[1] * 8 + at[2]) as u64;
        let key = meshwright::random::subkey(meshwright::random::key(seed, "samples"), at);
        (key >> 40) as f32 / (1 << 23) as f32 - 1.0
    })
}

fn squares(x: &Stream) -> Loss<(Batch, Seq, Hidden)> {
    Loss::mean_of(&(x * x))
}

fn sgd(rank: &Rank, units: &[Rc<Unit>]) -> Sgd {
    Sgd::new(rank, units, SgdOptions::default())
}

#[test]
fn teacher_and_student() {
    assert_mesh_parity("teacher and student", |rank| {
        let (teacher, student) = (part(rank, 0.5), part(rank, 0.3));
        let mut teaches = sgd(rank, &teacher.units);
        let mut learns = sgd(rank, &student.units);
        for step in 0..3 {
            let x = samples(rank, step);
            let says = teacher.model.forward(&x);
            let own = squares(&(&says - &x));
            let wanted = rank.evaluate(|| teacher.model.forward(&x));
            let follows = squares(&(student.model.forward(&x) - wanted));
            // Both are pending, and are reduced in the other order.
            let of_teacher = own.backward();
            let of_student = follows.backward();
            learns.step(0.2, of_student.reduce());
            let mut of_teacher = of_teacher.reduce();
            of_teacher.clip(0.5);
            teaches.step(0.2, of_teacher);
        }
        together([params_of("teacher", rank, &teacher), params_of("student", rank, &student)])
    });
}

/// One step of a GAN: the discriminator, then the generator.
type Turn = fn(&Rank, &Built<Part>, &Built<Part>, &mut [Sgd; 2], u64);

#[test]
fn gan() {
    let turns: [(&str, Turn); 4] = [
        ("the fake is evaluated", |rank, makes, judges, [of_makes, of_judges], step| {
            let fake = rank.evaluate(|| makes.model.forward(&samples(rank, step)));
            let real = samples(rank, step + 100);
            let loss = squares(&judges.model.forward(&fake))
                + squares(&(judges.model.forward(&real) + 1.0));
            of_judges.step(0.1, loss.backward().reduce());
            let fake = makes.model.forward(&samples(rank, step));
            let loss = squares(&(judges.model.forward(&fake) - 1.0));
            of_makes.step(0.1, loss.only(&makes.units).backward().reduce());
        }),
        ("the fake is computed before", |rank, makes, judges, [of_makes, of_judges], step| {
            let fake = makes.model.forward(&samples(rank, step));
            let detached = rank.evaluate(|| &fake + 0.0);
            let real = samples(rank, step + 100);
            let loss = squares(&judges.model.forward(&detached))
                + squares(&(judges.model.forward(&real) + 1.0));
            of_judges.step(0.1, loss.only(&judges.units).backward().reduce());
            let loss = squares(&(judges.model.forward(&fake) - 1.0));
            of_makes.step(0.1, loss.only(&makes.units).backward().reduce());
        }),
        ("the discriminator's own gradients wait", |rank, makes, judges, optimizers, step| {
            let [of_makes, of_judges] = optimizers;
            let fake = rank.evaluate(|| makes.model.forward(&samples(rank, step)));
            let loss = squares(&judges.model.forward(&fake));
            let pending = loss.backward();
            let fake = makes.model.forward(&samples(rank, step));
            let loss = squares(&(judges.model.forward(&fake) - 1.0));
            let of_fake = loss.only(&makes.units).backward().reduce();
            of_makes.step(0.1, of_fake);
            of_judges.step(0.1, pending.reduce());
        }),
        ("several micro-batches", |rank, makes, judges, [of_makes, of_judges], step| {
            let real = squares(&(judges.model.forward(&samples(rank, step + 100)) + 1.0));
            let fake = rank.evaluate(|| makes.model.forward(&samples(rank, step)));
            let fake = squares(&judges.model.forward(&fake));
            let gradients = real.only(&judges.units).accumulate().backward(fake);
            of_judges.step(0.1, gradients.reduce());
            let loss = |seed| {
                let fake = makes.model.forward(&samples(rank, seed));
                squares(&(judges.model.forward(&fake) - 1.0))
            };
            let gradients = loss(step).only(&makes.units).accumulate().accumulate(loss(step + 1));
            of_makes.step(0.1, gradients.backward(loss(step + 2)).reduce());
        }),
    ];
    for (name, turn) in turns {
        assert_mesh_parity(name, |rank| {
            let (makes, judges) = (part(rank, 0.4), part(rank, 0.3));
            let mut optimizers = [sgd(rank, &makes.units), sgd(rank, &judges.units)];
            (0..3).for_each(|step| turn(rank, &makes, &judges, &mut optimizers, step));
            together([
                params_of("generator", rank, &makes),
                params_of("discriminator", rank, &judges),
            ])
        });
    }
}

#[model]
pub struct ActorCritic {
    trunk: Part,
    actor: Part,
    critic: Linear<Hidden, Hidden>,
}

/// Returns the units of some fields.
fn units_of(built: &Built<ActorCritic>, fields: &[&str]) -> Vec<Rc<Unit>> {
    let is_in =
        |unit: &&Rc<Unit>| fields.iter().any(|field| unit.name().split('.').next() == Some(field));
    built.units.iter().filter(is_in).cloned().collect()
}

#[test]
fn actor_and_critic() {
    assert_mesh_parity("apart", |rank| {
        let (actor, critic) = (part(rank, 0.4), part(rank, 0.3));
        let mut optimizers = [sgd(rank, &actor.units), sgd(rank, &critic.units)];
        for step in 0..3 {
            let x = samples(rank, step);
            let value = critic.model.forward(&x);
            let advantage = rank.evaluate(|| &x - &value);
            let of_actor = Loss::mean_of(&(actor.model.forward(&x) * advantage));
            let of_critic = squares(&(&value - &x));
            // Two losses are pending, and the second is differentiated first.
            let of_critic = of_critic.backward();
            let of_actor = of_actor.backward().reduce();
            optimizers[0].step(0.1, of_actor);
            optimizers[1].step(0.2, of_critic.reduce());
        }
        together([params_of("actor", rank, &actor), params_of("critic", rank, &critic)])
    });
    assert_mesh_parity("with a shared trunk, together", |rank| {
        let both = built::<ActorCritic>(rank, &sizes());
        let mut policy = sgd(rank, &units_of(&both, &["trunk", "actor"]));
        let mut value = sgd(rank, &units_of(&both, &["critic"]));
        for step in 0..3 {
            let x = samples(rank, step);
            let shared = both.model.trunk.forward(&x);
            let values = both.model.critic.forward(&shared).mean(Hidden);
            let of_actor = squares(&both.model.actor.forward(&shared));
            let gradients = of_actor.and(Loss::mean_of(&(&values * &values))).backward().reduce();
            policy.step(0.1, &gradients);
            value.step(0.3, &gradients);
        }
        params_of("both", rank, &both)
    });
    assert_mesh_parity("with a shared trunk, one after the other", |rank| {
        let both = built::<ActorCritic>(rank, &sizes());
        let actors = units_of(&both, &["trunk", "actor"]);
        let critics = units_of(&both, &["critic"]);
        let (mut policy, mut value) = (sgd(rank, &actors), sgd(rank, &critics));
        for step in 0..3 {
            let x = samples(rank, step);
            let shared = both.model.trunk.forward(&x);
            let detached = rank.evaluate(|| &shared + 0.0);
            let of_critic = squares(&(both.model.critic.forward(&detached) - &x));
            let of_actor = squares(&both.model.actor.forward(&shared));
            let of_critic = of_critic.only(&critics).backward();
            let of_actor = of_actor.only(&actors).backward().reduce();
            value.step(0.3, of_critic.reduce());
            policy.step(0.1, of_actor);
        }
        params_of("both", rank, &both)
    });
}

#[test]
fn three_losses_are_pending() {
    assert_mesh_parity("of one model", |rank| {
        let part = part(rank, 0.4);
        let losses = [1, 2, 3].map(|seed| squares(&part.model.forward(&samples(rank, seed))));
        let [a, b, c] = losses;
        let mut all = Numbers::new();
        for (name, loss) in [("b", b), ("a", a), ("c", c)] {
            let gradients = loss.backward().reduce();
            for (path, values) in gradients_of(&part, &gradients) {
                all.insert(format!("{name}: {path}"), values);
            }
        }
        // Equal to the gradients computed alone.
        let alone = gradients_of(
            &part,
            &squares(&part.model.forward(&samples(rank, 2))).backward().reduce(),
        );
        for (path, values) in &alone {
            assert_eq!(&all[&format!("b: {path}")], values, "{path}");
        }
        all
    });
    assert_mesh_parity("of three models", |rank| {
        let parts = [0.2, 0.3, 0.4].map(|std| part(rank, std));
        let losses: Vec<_> =
            parts.iter().map(|part| squares(&part.model.forward(&samples(rank, 1)))).collect();
        let pending: Vec<_> = losses.into_iter().map(Loss::backward).collect();
        let mut all = Numbers::new();
        for (index, (part, gradients)) in parts.iter().zip(pending).enumerate().rev() {
            for (path, values) in gradients_of(part, &gradients.reduce()) {
                all.insert(format!("{index}: {path}"), values);
            }
        }
        all
    });
    assert_mesh_parity("and one is dropped", |rank| {
        let part = part(rank, 0.4);
        let losses = [1, 2, 3].map(|seed| squares(&part.model.forward(&samples(rank, seed))));
        let [a, b, c] = losses;
        let gradients = c.accumulate();
        drop(b);
        let gradients = gradients.backward(a).reduce();
        let mut all = gradients_of(&part, &gradients);
        all.insert("norm".into(), vec![gradients.norm() as f32]);
        all
    });
}

#[test]
fn a_model_is_dropped_and_built_again() {
    assert_mesh_parity("built again", |rank| {
        let first = part(rank, 0.4);
        let pending = squares(&first.model.forward(&samples(rank, 1))).backward();
        let unused = squares(&first.model.forward(&samples(rank, 2)));
        drop(first);
        drop(unused);
        let second = part(rank, 0.4);
        let mut sgd = sgd(rank, &second.units);
        for step in 0..2 {
            sgd.step(0.1, squares(&second.model.forward(&samples(rank, step))).backward().reduce());
        }
        pending.discard();
        params_of("second", rank, &second)
    });
}

#[test]
fn ema_and_muon_together() {
    assert_mesh_parity("EMA and Muon", |rank| {
        let (first, second) = (part(rank, 0.4), part(rank, 0.3));
        let options = MuonOptions {
            adamw: AdamWOptions { eps: 1e-2, ..AdamWOptions::default() },
            ..MuonOptions::default()
        };
        let mut muon = Muon::new(rank, &first.units, options);
        let mut sgd = sgd(rank, &second.units);
        let mut average = Ema::new(rank, &first.units, 0.7);
        let mut all = Numbers::new();
        for step in 0..3 {
            let x = samples(rank, step);
            let pending = squares(&second.model.forward(&x));
            let gradients = squares(&first.model.forward(&x)).backward().reduce();
            muon.step_and_average(0.05, &gradients, &mut average);
            let seen = average.with_average(|| {
                rank.evaluate(|| squares(&first.model.forward(&x)).reduce().value())
            });
            let now = rank.evaluate(|| squares(&first.model.forward(&x)).reduce().value());
            all.insert(format!("losses after step {step}"), vec![seen as f32, now as f32]);
            sgd.step(0.1, pending.backward().reduce());
        }
        together([all, params_of("first", rank, &first), params_of("second", rank, &second)])
    });
    // The average is swapped in between forward and backward of a loss.
    assert_mesh_parity("EMA between forward and backward", |rank| {
        let part = part(rank, 0.4);
        let mut sgd = sgd(rank, &part.units);
        let mut average = Ema::new(rank, &part.units, 0.7);
        let mut all = Numbers::new();
        for step in 0..3 {
            let loss = squares(&part.model.forward(&samples(rank, step)));
            let look = || squares(&part.model.forward(&samples(rank, 9))).reduce().value();
            let seen = average.with_average(|| rank.evaluate(look));
            sgd.step(0.1, loss.backward().reduce());
            average.update();
            all.insert(format!("loss at step {step}"), vec![seen as f32]);
        }
        together([all, params_of("part", rank, &part)])
    });
}

#[test]
fn evaluation_between_accumulate_and_backward() {
    assert_mesh_parity("evaluated between", |rank| {
        let part = part(rank, 0.4);
        let loss = |seed| squares(&part.model.forward(&samples(rank, seed)));
        let gradients = loss(1).accumulate();
        let seen = rank.evaluate(|| loss(7).reduce().value());
        let pending = loss(2);
        let again = rank.evaluate(|| loss(7).reduce().value());
        assert_eq!(seen, again);
        let gradients = gradients.backward(pending);
        let last = rank.evaluate(|| loss(7).reduce().value());
        assert_eq!(seen, last);
        let gradients = gradients.reduce();
        let mut all = gradients_of(&part, &gradients);
        all.insert("seen".into(), vec![seen as f32]);
        all
    });
}

/// The next forward pass reads newly written values, even if old ones were unsharded before.
#[test]
fn parameters_are_written_between_forward_passes() {
    assert_mesh_parity("written between", |rank| {
        let part = part(rank, 0.4);
        let x = samples(rank, 1);
        let loss = || squares(&part.model.forward(&x)).reduce().value() as f32;
        let mut losses = vec![loss()];
        for factor in [0.5, 1.5, 0.8] {
            for param in part.params() {
                let block: Vec<f32> =
                    param.to_local_vec().iter().map(|value| value * factor).collect();
                param.write(&block);
            }
            losses.extend([loss(), loss()]);
        }
        Numbers::from([("losses".to_owned(), losses)])
    });
    // The same unit is read last and first.
    assert_mesh_parity("written between, in a model of one unit", |rank| {
        let net = built::<Alone>(rank, &sizes());
        let x = samples(rank, 1);
        let loss = || squares(&net.model.up.forward(&x)).reduce().value() as f32;
        let mut losses = vec![loss()];
        for factor in [0.5, 1.5] {
            let param = &net.params()[0];
            let block: Vec<f32> = param.to_local_vec().iter().map(|value| value * factor).collect();
            param.write(&block);
            losses.extend([loss(), loss()]);
        }
        Numbers::from([("losses".to_owned(), losses)])
    });
    assert_mesh_parity("stepped between", |rank| {
        let part = part(rank, 0.4);
        let mut sgd = sgd(rank, &part.units);
        let x = samples(rank, 1);
        let loss = || squares(&part.model.forward(&x));
        let mut losses = Vec::new();
        for _ in 0..3 {
            let gradients = loss().backward().reduce();
            losses.push(loss().reduce().value() as f32);
            sgd.step(0.3, &gradients);
            losses.push(loss().reduce().value() as f32);
            sgd.step(0.3, &gradients);
            losses.push(rank.evaluate(|| loss().reduce().value()) as f32);
        }
        together([Numbers::from([("losses".to_owned(), losses)]), params_of("part", rank, &part)])
    });
    assert_mesh_parity("averaged between", |rank| {
        let part = part(rank, 0.4);
        let mut sgd = sgd(rank, &part.units);
        let mut average = Ema::new(rank, &part.units, 0.5);
        let x = samples(rank, 1);
        let loss = || squares(&part.model.forward(&x));
        let mut losses = Vec::new();
        for _ in 0..3 {
            sgd.step(0.3, loss().backward().reduce());
            average.update();
            losses.push(loss().reduce().value() as f32);
            losses.push(average.with_average(|| loss().reduce().value()) as f32);
            losses.push(loss().reduce().value() as f32);
        }
        Numbers::from([("losses".to_owned(), losses)])
    });
}

/// A step with a gradient that is not finite is skipped without side effects.
#[test]
fn a_step_that_is_not_finite_is_skipped() {
    assert_mesh_parity("skipped", |rank| {
        let part = part(rank, 0.4);
        let mut sgd = sgd(rank, &part.units);
        let mut skipped = 0;
        for step in 0..4 {
            let factor = if step == 1 { f32::NAN } else { 1.0 };
            let loss = squares(&part.model.forward(&samples(rank, step)).scale(factor));
            if !loss.reduce().value().is_finite() && rank.step() == 0 {
                skipped += 1;
            }
            let gradients = loss.backward();
            if step == 2 {
                gradients.discard();
                continue;
            }
            let gradients = gradients.reduce();
            if gradients.norm().is_finite() {
                sgd.step(0.1, gradients);
            }
        }
        assert_eq!(skipped, 1);
        params_of("part", rank, &part)
    });
}

#[test]
fn a_penalty_of_another_shape_in_every_micro_batch() {
    assert_mesh_parity("accumulated penalties", |rank| {
        let part = part(rank, 0.4);
        let mut steps = Steps::default();
        for seed in 0..3 {
            let x = part.model.forward(&samples(rank, seed));
            let mean = x.mean(Batch).all_reduce();
            steps.add(squares(&x).and(Loss::mean_of(&(&mean * &mean))));
            let split = part.model.plain.forward(&samples(rank, seed).slice(Seq, Tp));
            steps.add(Loss::mean_of(&split.tanh()));
        }
        numbers(&part, steps)
    });
}
