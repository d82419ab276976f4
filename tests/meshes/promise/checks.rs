//! Run-time checks of mistakes that types cannot detect: one error each, at the line of the mistake.

use std::rc::Rc;

use meshwright::layout::{AxisId, AxisSet};
use meshwright::optim::{Ema, Sgd, SgdOptions};
use meshwright::prelude::*;
use meshwright::tensor::{Rank, Unit};

use super::harness::{Spot, built, mesh, on, refused, stage3};
use super::net::*;

const FILE: &str = "tests/meshes/promise/checks.rs";

/// Reduces the gradients of a loss on `x`, which ends the first step.
fn first_step(rank: &Rank, x: impl FnOnce(&Net, &Stream) -> Stream) -> f64 {
    let net = built::<Net>(rank, &sizes()).model;
    let batch = micro_batch(rank, (8, 6), (0, 1), false);
    let x = x(&net, &net.embed.forward(&batch.tokens));
    Loss::mean_of(&net.plain.forward(&x)).backward().reduce().norm()
}

const DIFFERS: &[&str] = &["is declared the same on all ranks", "of different numbers", "from_fn"];

fn tp(rank: &Rank) -> usize {
    rank.position(AxisSet::of(AxisId::Tp))
}

type Mask = Tensor<(Batch, Seq, Hidden)>;

fn rank_mask<S: meshwright::layout::Shape>(x: &Tensor<S>, spot: &Spot) -> Tensor<S> {
    let index = tp(x.rank()) as f32;
    spot.next(line!());
    Tensor::from_fn(x.rank(), &x.sizes(), |_| index)
}

struct Cached {
    mask: Mask,
}

#[test]
fn rank_dependent_tensors_are_refused() {
    for mesh in [mesh("tp=2"), mesh("dp=2,tp=2"), stage3("fsdp=2,tp=2")] {
        refused(mesh, FILE, DIFFERS, |rank, spot| {
            first_step(rank, |_, x| {
                let index = tp(rank) as f32;
                spot.next(line!());
                let mask: Mask = Tensor::from_fn(x.rank(), &x.sizes(), |_| index);
                x * mask
            })
        });
        refused(mesh, FILE, DIFFERS, |rank, spot| first_step(rank, |_, x| x * rank_mask(x, spot)));
        refused(mesh, FILE, DIFFERS, |rank, spot| {
            first_step(rank, |_, x| {
                let block = vec![tp(rank) as f32; x.to_local_vec().len()];
                spot.next(line!());
                let cached = Cached { mask: Tensor::from_block(x.rank(), &x.sizes(), &block) };
                x + &cached.mask
            })
        });
        refused(mesh, FILE, DIFFERS, |rank, spot| {
            first_step(rank, |_, x| {
                let add = |x: &Stream, index: usize| {
                    let shift = (index * tp(rank)) as f32;
                    spot.next(line!());
                    x + Tensor::from_fn(x.rank(), &x.sizes(), |_| shift)
                };
                (1..2).fold(x.clone(), |x, index| add(&x, index))
            })
        });
    }
}

/// A tensor typed as whole from the values of one rank's shard.
#[test]
fn a_shard_typed_as_whole_is_refused() {
    refused(mesh("tp=2"), FILE, DIFFERS, |rank, spot| {
        first_step(rank, |net, x| {
            let inner = net.up.forward(x);
            let own: Vec<f32> =
                inner.to_local_vec().into_iter().cycle().take(x.to_local_vec().len()).collect();
            spot.next(line!());
            let copy: Mask = Tensor::from_block(x.rank(), &x.sizes(), &own);
            x + copy
        })
    });
    refused(mesh("tp=2"), FILE, DIFFERS, |rank, spot| {
        let net = built::<Net>(rank, &sizes()).model;
        let ids = vec![tp(rank) as u32; 48 / rank.degree_of(AxisSet::DATA)];
        spot.next(line!());
        let tokens: Ids = Tokens::from_block(rank, &[8, 6], &ids);
        Loss::mean_of(&net.embed.forward(&tokens)).backward().reduce().norm()
    });
    refused(mesh("tp=2"), FILE, DIFFERS, |rank, spot| {
        let net = built::<Net>(rank, &sizes()).model;
        let batch = micro_batch(rank, (8, 6), (0, 1), false);
        let ids = vec![tp(rank) as u32; 48 / rank.degree_of(AxisSet::DATA)];
        let x = net.embed.forward(&batch.tokens);
        spot.next(line!());
        let targets: Targets<(Batch, Seq)> = Tokens::from_rows(rank, &[8, 6], 0, &ids);
        net.head.loss(&x, &targets).backward().reduce().norm()
    });
    refused(mesh("dp=2"), FILE, DIFFERS, |rank, spot| {
        let net = built::<Net>(rank, &sizes());
        let batch = micro_batch(rank, (8, 6), (0, 1), false);
        let gain = net.model.gain.handle();
        let block = vec![1.0 + rank.index() as f32; 8];
        spot.next(line!());
        gain.write(&block);
        let x = net.model.embed.forward(&batch.tokens) * &net.model.gain;
        Loss::mean_of(&x).backward().reduce().norm()
    });
}

/// Elements that follow from the number of calls: each rank would have those of other elements.
#[test]
fn elements_of_a_shared_generator_are_refused() {
    let parts = &["for the same index later", "has to follow from its index"];
    for mesh in [mesh("1"), mesh("dp=2"), mesh("tp=2")] {
        refused(mesh, FILE, parts, |rank, spot| {
            first_step(rank, |_, x| {
                let calls = std::cell::Cell::new(0);
                let count = |_: &[usize]| {
                    calls.set(calls.get() + 1);
                    calls.get() as f32
                };
                spot.next(line!());
                x + Tensor::from_fn(x.rank(), &x.sizes(), count)
            })
        });
        let not_a_number = |rank: &Rank| {
            first_step(rank, |_, x| x * Tensor::from_fn(x.rank(), &x.sizes(), |_| f32::NAN))
        };
        assert!(on(mesh, not_a_number).is_ok());
    }
}

/// Tensors created at different lines on different ranks.
#[test]
fn tensors_made_at_different_lines_are_refused() {
    let other = &["made it at another line"];
    refused(mesh("tp=2"), "tests/meshes/promise/checks.rs", other, |rank, spot| {
        first_step(rank, |_, x| {
            let mask: Mask = if tp(rank) == 0 {
                spot.next(line!());
                Tensor::from_fn(x.rank(), &x.sizes(), |_| 1.0)
            } else {
                Tensor::from_fn(x.rank(), &x.sizes(), |_| 2.0)
            };
            x * mask
        })
    });
}

/// Rank-dependent scale factors.
#[test]
fn rank_dependent_numbers_are_refused() {
    let differs = &["is declared the same on all ranks", "of different numbers"];
    refused(mesh("tp=2"), FILE, differs, |rank, spot| {
        first_step(rank, |_, x| {
            let factor = 1.0 + tp(rank) as f32;
            spot.next(line!());
            x.scale(factor)
        })
    });
    refused(mesh("tp=2"), FILE, differs, |rank, spot| {
        first_step(rank, |_, x| {
            let shift = tp(rank) as f32;
            spot.next(line!());
            1.0 * x + shift
        })
    });
    refused(mesh("dp=2,tp=2"), FILE, differs, |rank, spot| {
        first_step(rank, |net, x| {
            let partial = net.up.forward(x).contract(&net.down_own);
            let factor = 0.5 + tp(rank) as f32;
            spot.next(line!());
            let partial = partial * factor;
            partial.all_reduce()
        })
    });
    refused(mesh("dp=2"), FILE, differs, |rank, spot| {
        first_step(rank, |_, x| {
            let mean = x.mean(Batch).all_reduce();
            let factor = 1.0 + rank.index() as f32;
            spot.next(line!());
            let mean = mean / factor;
            Tensor::from_fn(x.rank(), &x.sizes(), |_| 1.0) * x + x * mean.to_local_vec()[0]
        })
    });
    // Values of which ranks hold different parts may be different.
    let norms = super::harness::on(mesh("dp=2"), |rank| {
        first_step(rank, |_, x| x * (1.0 + rank.index() as f32))
    });
    assert!(norms.is_ok());
}

/// Ranks with different seeds, sizes or steps.
#[test]
fn ranks_of_different_settings_are_refused() {
    let differs = &["is declared the same on all ranks"];
    refused(mesh("dp=2"), FILE, differs, |rank, spot| {
        let mut sizes = sizes();
        sizes.init_std = 0.1 + 0.1 * rank.index() as f32;
        spot.next(line!());
        let net = meshwright::nn::build::<Net>(rank, &sizes).map_err(|error| error.to_string());
        let net = net.expect("it is built").model;
        let batch = micro_batch(rank, (8, 6), (0, 1), false);
        Loss::mean_of(&net.embed.forward(&batch.tokens)).backward().reduce().norm()
    });
    refused(mesh("dp=2"), FILE, &["the training step", "set_step"], |rank, spot| {
        let net = built::<Net>(rank, &sizes()).model;
        let batch = micro_batch(rank, (8, 6), (0, 1), false);
        rank.set_step(rank.index() as u64);
        let gradients = Loss::mean_of(&net.embed.forward(&batch.tokens)).backward();
        spot.next(line!());
        let gradients = gradients.reduce();
        gradients.norm()
    });
}

const TARGETS: &[&str] = &["its targets", "make both of the same sizes"];

#[test]
fn targets_of_other_sizes_are_refused() {
    for mesh in [mesh("1"), mesh("tp=2"), mesh("dp=2")] {
        refused(mesh, FILE, TARGETS, |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let [long, short] = [6, 5].map(|seq| micro_batch(rank, (8, seq), (0, 1), false));
            let x = net.embed.forward(&long.tokens);
            spot.next(line!());
            let loss = net.head.loss(&x, &short.targets);
            loss.backward().reduce().norm()
        });
        // Targets of another micro-batch, through a generic function.
        fn loss<H: Heading>(
            head: &H,
            x: &Stream,
            targets: &Ids,
            spot: &Spot,
        ) -> Loss<(Batch, Seq)> {
            head.of(x, targets, spot)
        }
        trait Heading {
            fn of(&self, x: &Stream, targets: &Ids, spot: &Spot) -> Loss<(Batch, Seq)>;
        }
        impl Heading for Net {
            fn of(&self, x: &Stream, targets: &Ids, spot: &Spot) -> Loss<(Batch, Seq)> {
                spot.next(line!());
                self.plain_head.loss(x, targets)
            }
        }
        refused(mesh, FILE, TARGETS, |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let [first, second] = [0, 1].map(|index| micro_batch(rank, (8, 6), (index, 2), false));
            let x = net.embed.forward(&first.tokens);
            loss(&net, &x, &second.targets, spot).backward().reduce().norm()
        });
        // Through `CrossEntropy`.
        refused(mesh, FILE, &["their targets", "make both"], |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let [first, second] = [0, 1].map(|index| micro_batch(rank, (8, 6), (index, 2), false));
            let logits = net.head.logits(&net.embed.forward(&first.tokens));
            spot.next(line!());
            let loss = net.entropy.forward(&logits, &second.targets);
            loss.backward().reduce().norm()
        });
        // Through an iterator with mismatched pairs.
        refused(mesh, FILE, TARGETS, |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let batches = [0, 1].map(|index| micro_batch(rank, (8, 6), (index, 2), false));
            let pairs = batches.iter().zip(batches.iter().skip(1));
            let losses = pairs.map(|(batch, next)| {
                let x = net.embed.forward(&batch.tokens);
                spot.next(line!());
                net.head.loss(&x, &next.targets)
            });
            losses.last().expect("there is one").reduce().value()
        });
    }
}

#[test]
fn tensors_of_different_micro_batches_are_refused() {
    let sizes_differ = &["make both of the same sizes, and of the same micro-batch"];
    for mesh in [mesh("1"), mesh("dp=2"), mesh("tp=2")] {
        refused(mesh, FILE, sizes_differ, |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let streams = [0, 1].map(|index| {
                net.embed.forward(&micro_batch(rank, (8, 6), (index, 2), false).tokens)
            });
            spot.next(line!());
            let sum = &streams[0] + &streams[1];
            sum.to_local_vec()
        });
        refused(mesh, FILE, sizes_differ, |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let x = net.embed.forward(&micro_batch(rank, (8, 6), (1, 2), false).tokens);
            // Made on the rank of whole batches.
            let mask: Stream = Tensor::from_fn(rank, &x.sizes(), |_| 1.0);
            spot.next(line!());
            let product = &x * &mask;
            product.to_local_vec()
        });
        refused(mesh, FILE, &["the queries have a batch of"], |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let [long, short] = [6, 5].map(|seq| micro_batch(rank, (8, seq), (0, 1), false));
            let [x, y] = [&long, &short].map(|batch| net.embed.forward(&batch.tokens));
            let (q, k, v) = (net.q.forward(&x), net.k.forward(&y), net.v.forward(&y));
            spot.next(line!());
            let out = net.attention.forward(&(q, k, v));
            out.to_local_vec()
        });
        refused(mesh, FILE, &["the left partial sum"], |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let [a, b] = [6, 5].map(|seq| {
                let x = net.embed.forward(&micro_batch(rank, (8, seq), (0, 1), false).tokens);
                net.up.forward(&x).contract(&net.down_own)
            });
            spot.next(line!());
            let sum = a + b;
            sum.all_reduce().to_local_vec()
        });
    }
}

/// Shards of heads in which query heads do not match key-value heads.
#[test]
fn mismatched_heads_are_refused() {
    refused(
        mesh("tp=2"),
        FILE,
        &["query heads", "must be divisible by the degree"],
        |rank, spot| {
            let mut sizes = Sizes::new()
                .with(Hidden, 8)
                .with(Heads, 6)
                .with(KvHeads, 3)
                .with(HeadDim, 4)
                .with(Layers, 1);
            sizes.init_std = 0.2;
            #[model]
            struct Whole {
                q: Linear<Hidden, (Heads, HeadDim)>,
                k: Linear<Hidden, (KvHeads, HeadDim)>,
                attention: Attention<Heads, KvHeads, HeadDim>,
            }
            let net = built::<Whole>(rank, &sizes).model;
            let x: Stream = Tensor::from_fn(rank, &[2, 5, 8], |at| at[2] as f32 * 0.1);
            let (q, k) = (net.q.forward(&x).slice(Heads, Tp), net.k.forward(&x).slice(KvHeads, Tp));
            spot.next(line!());
            let out = net.attention.forward(&(q, k.clone(), k));
            out.to_local_vec()
        },
    );
    // A model with indivisible heads is not built.
    let result = super::harness::on(mesh("tp=2"), |rank| {
        let sizes = sizes().with(KvHeads, 1);
        meshwright::nn::build::<Net>(rank, &sizes).map(|_| ()).map_err(|error| error.to_string())
    });
    let message = result.expect("no rank panics")[0].clone().expect_err("it is refused");
    assert!(message.contains("KvHeads = 1 is not divisible by tp = 2"), "{message}");
}

/// Collectives of one field, with the same kind and size, in another order on one rank.
#[test]
fn collectives_in_another_order_are_refused() {
    let order = &["different lines", "control flow"];
    type Program = fn(&Net, &Stream, bool, &Spot) -> Vec<f32>;
    let programs: [Program; 4] = [
        |net, x, first, spot| {
            let inner = net.up.forward(x);
            let (a, b) = (inner.tanh().sum(Ffn), inner.silu().sum(Ffn));
            if first {
                spot.next(line!());
                let a = a.all_reduce();
                (a + b.all_reduce()).to_local_vec()
            } else {
                let b = b.all_reduce();
                (a.all_reduce() + b).to_local_vec()
            }
        },
        |_, x, first, spot| {
            let (a, b) = (x.slice(Seq, Tp), x.tanh().slice(Seq, Tp));
            if first {
                spot.next(line!());
                let a = a.gather(Seq);
                (a - b.gather(Seq)).to_local_vec()
            } else {
                let b = b.gather(Seq);
                (a.gather(Seq) - b).to_local_vec()
            }
        },
        |net, x, first, spot| {
            let (a, b) = (net.up.forward(x), net.up.forward(x).tanh());
            if first {
                spot.next(line!());
                let a = net.down.forward(&a);
                (a - net.down.forward(&b)).to_local_vec()
            } else {
                let b = net.down.forward(&b);
                (net.down.forward(&a) - b).to_local_vec()
            }
        },
        |net, x, first, spot| {
            let inner = net.up.forward(x);
            let (a, b) = (inner.contract(&net.down_own), inner.tanh().contract(&net.down_own));
            if first {
                spot.next(line!());
                let a = a.reduce_scatter(Seq);
                (a - b.reduce_scatter(Seq)).to_local_vec()
            } else {
                let b = b.reduce_scatter(Seq);
                (a.reduce_scatter(Seq) - b).to_local_vec()
            }
        },
    ];
    for program in programs {
        refused(mesh("tp=2"), FILE, order, |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let batch = micro_batch(rank, (8, 6), (0, 1), false);
            program(&net, &net.embed.forward(&batch.tokens), tp(rank) == 0, spot)
        });
    }
}

/// An unused axis of the mesh.
#[test]
fn an_unused_axis_is_refused() {
    for (mesh, axis) in [("cp=2", "cp=2"), ("dp=2,cp=2", "cp=2"), ("pp=2", "pp=2")] {
        let result = meshwright::run_on(mesh, 0, |rank| Ok(first_step(rank, |_, x| x.clone())));
        let message = result.expect_err("it is refused").to_string();
        assert!(message.contains(axis) && message.contains("leave"), "{message}");
    }
}

/// Models and tensors of two ranks in one thread.
#[test]
fn operands_of_two_meshes_are_refused() {
    type Use = fn(&Net, &Net, &Batched, &Spot) -> Vec<f32>;
    let uses: [Use; 7] = [
        |own, other, batch, spot| {
            let x = own.embed.forward(&batch.tokens);
            spot.next(line!());
            let y = other.norm.forward(&x);
            y.to_local_vec()
        },
        |own, other, batch, spot| {
            let x = own.embed.forward(&batch.tokens);
            spot.next(line!());
            let y = other.layer_norm.forward(&x);
            y.to_local_vec()
        },
        |own, other, batch, spot| {
            let x = own.embed.forward(&batch.tokens);
            spot.next(line!());
            let y = other.plain.forward(&x);
            y.to_local_vec()
        },
        |own, other, batch, spot| {
            let x = own.embed.forward(&batch.tokens);
            spot.next(line!());
            let y = &x * &other.gain;
            y.to_local_vec()
        },
        |_, other, batch, spot| {
            spot.next(line!());
            let y = other.embed.forward(&batch.tokens);
            y.to_local_vec()
        },
        |own, other, batch, spot| {
            let x = own.embed.forward(&batch.tokens);
            spot.next(line!());
            let loss = other.head.loss(&x, &batch.targets);
            vec![loss.reduce().value() as f32]
        },
        |own, other, batch, spot| {
            let x = own.embed.forward(&batch.tokens);
            spot.next(line!());
            let y = other.bias.forward(&x);
            y.to_local_vec()
        },
    ];
    for one in uses {
        refused(mesh("1"), FILE, &["different meshes", "the same `Rank`"], |rank, spot| {
            let second = second_world();
            let own = built::<Net>(rank, &sizes()).model;
            let other = built::<Net>(&second, &sizes()).model;
            let batch = micro_batch(rank, (8, 6), (0, 1), false);
            one(&own, &other, &batch, spot)
        });
    }
}

/// Token ids without a row on any rank.
#[test]
fn ids_beyond_the_vocabulary_are_refused() {
    let beyond = &["id 12 is beyond the vocabulary of 11"];
    for mesh in [mesh("1"), mesh("tp=2"), stage3("fsdp=2")] {
        let wrong = |rank: &Rank| -> Ids {
            let rows = 8 / rank.degree_of(AxisSet::DATA);
            Tokens::from_block(rank, &[8, 6], &vec![12; rows * 6])
        };
        refused(mesh, FILE, beyond, |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let ids = wrong(rank);
            spot.next(line!());
            let x = net.embed.forward(&ids);
            x.to_local_vec()
        });
        refused(mesh, FILE, beyond, |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let batch = micro_batch(rank, (8, 6), (0, 1), false);
            let (x, ids) = (net.embed.forward(&batch.tokens), wrong(rank));
            spot.next(line!());
            let loss = net.head.loss(&x, &ids);
            loss.reduce().value()
        });
        refused(mesh, FILE, beyond, |rank, spot| {
            let net = built::<Net>(rank, &sizes()).model;
            let batch = micro_batch(rank, (8, 6), (0, 1), false);
            let (x, ids) = (net.embed.forward(&batch.tokens), wrong(rank));
            let logits = net.head.logits(&x);
            spot.next(line!());
            let loss = net.entropy.forward(&logits, &ids);
            loss.reduce().value()
        });
    }
    // A table with an empty shard.
    refused(mesh("tp=2"), FILE, &["have no elements on this rank"], |rank, spot| {
        spot.next(line!());
        let ids: Tokens<(Batch, Split<Seq, Tp>)> = Tokens::from_rows(rank, &[4, 1], 0, &[]);
        ids.sizes()
    });
    // In a stack of plain layers.
    refused(mesh("1"), FILE, &["different meshes"], |rank, spot| {
        #[model]
        struct Norms {
            norms: Stack<RmsNorm<Hidden>>,
        }
        let second = second_world();
        let norms = built::<Norms>(&second, &sizes()).model;
        let x: Stream = Tensor::from_fn(rank, &[2, 3, 8], |_| 1.0);
        spot.next(line!());
        let y = norms.norms.forward(&x);
        y.to_local_vec()
    });
}

/// Creates a rank of another mesh on this thread.
fn second_world() -> Rank {
    let comms = meshwright::comm::launch(&"1".parse().expect("a mesh"), Ok::<_, String>);
    let backend = meshwright::backend::cpu::CpuBackend::new(1).expect("threads start");
    Rank::new(comms.expect("a second world").remove(0), Box::new(backend), 3)
}

/// Numbers, sizes and units that would give wrong results.
#[test]
fn arguments_out_of_range_are_refused() {
    let gradients = |rank: &Rank| {
        let net = built::<Net>(rank, &sizes());
        let batch = micro_batch(rank, (8, 6), (0, 1), false);
        Loss::mean_of(&net.model.embed.forward(&batch.tokens)).backward().reduce()
    };
    for norm in [-1.0, f64::NAN] {
        refused(mesh("dp=2"), FILE, &["to a norm of at least 0, not"], |rank, spot| {
            let mut gradients = gradients(rank);
            spot.next(line!());
            gradients.clip(norm)
        });
    }
    for decay in [1.0, -0.5, f64::NAN] {
        refused(mesh("dp=2"), FILE, &["the decay of an average must be"], |rank, spot| {
            let units = built::<Net>(rank, &sizes()).units;
            spot.next(line!());
            drop(Ema::new(rank, &units, decay));
        });
    }
    let twice = &["`norm.weight`", "is given twice"];
    refused(mesh("dp=2"), FILE, twice, |rank, spot| {
        let net = built::<Net>(rank, &sizes());
        let has_norm =
            |unit: &&Rc<Unit>| unit.params().iter().any(|param| param.path() == "norm.weight");
        let norm = net.units.iter().find(has_norm).unwrap();
        let units = [norm, net.units.last().unwrap(), norm].map(Rc::clone);
        spot.next(line!());
        drop(Sgd::new(rank, &units, SgdOptions::default()));
    });
    refused(mesh("dp=2"), FILE, &["is not made of the rows of [4, 2]"], |rank, spot| {
        spot.next(line!());
        drop(Ids::from_rows(rank, &[4, 2], usize::MAX, &[1, 2]));
    });
    for sizes in [[1 << 31, 1 << 31, 8], [usize::MAX, 2, 2]] {
        refused(mesh("dp=2"), FILE, &["is larger than any memory"], |rank, spot| {
            spot.next(line!());
            drop(Stream::from_fn(rank, &sizes, |_| 0.0));
        });
    }
    type Change = fn(&mut Sizes);
    let changes: [(&str, Change); 3] = [
        ("`init_std` is NaN", |sizes| sizes.init_std = f32::NAN),
        ("`init_std` is -1", |sizes| sizes.init_std = -1.0),
        ("`norm_eps` is -0.5", |sizes| sizes.norm_eps = -0.5),
    ];
    for (message, change) in changes {
        let mut sizes = sizes();
        change(&mut sizes);
        let result = on(mesh("dp=2"), |rank| {
            meshwright::nn::build::<Net>(rank, &sizes).map(drop).unwrap_err().to_string()
        });
        assert!(result.unwrap().iter().all(|error| error.contains(message)), "{message}");
    }
}
