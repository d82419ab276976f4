//! Wrong programs that compile, and are refused when they run.

use meshwright::layout::{SplitAxes, Stacked};
use meshwright::nn::layers::{ExpertGroups, RouterScore};
use meshwright::nn::{Build, BuildError, Builder, Sizes, build};
use meshwright::prelude::*;
use meshwright_tests::data::numbers;
use meshwright_tests::run::on_mesh;

dims! { Batch @ data, Hidden, Experts, TopK }

type Stream = Tensor<(Batch, Hidden)>;

#[model]
struct Moe {
    router: Router<Hidden, Experts, TopK>,
    #[sharded(ep = "experts")]
    experts: GroupedLinear<Experts, Hidden, Hidden>,
}

fn sizes() -> Sizes {
    Sizes::new().with(Hidden, 4).with(Experts, 4).with(TopK, 2)
}

/// Returns the message with which `body` ends on a rank.
fn refusal(mesh: &str, body: impl Fn(&Rank, &Moe, &Stream) + Sync) -> String {
    let outcome = meshwright::run_on(mesh, 0, |rank| {
        let net = build::<Moe>(rank, &sizes())?;
        let x: Stream = numbers(rank, "x", &[8, 4]);
        body(rank, &net.model, &x);
        Ok(())
    });
    outcome.err().map(|error| error.to_string()).expect("the program is refused")
}

#[test]
fn rows_go_back_by_their_own_routing() {
    let message = refusal("ep=2", |_, moe, x| {
        let [first, second] = [(); 2].map(|()| moe.router.forward(x));
        let _ = second.combine(&moe.experts.forward(&first.dispatch(x, Ep)));
    });
    assert!(message.contains("rows that another routing has dispatched"), "{message}");
}

#[test]
fn rows_of_two_routings_are_not_added() {
    let message = refusal("ep=2", |_, moe, x| {
        let [first, second] = [(); 2].map(|()| moe.router.forward(x));
        let _ = first.dispatch(x, Ep) + second.dispatch(x, Ep);
    });
    assert!(message.contains("of routing 1") && message.contains("of routing 2"), "{message}");
}

#[test]
fn tokens_are_those_that_were_routed() {
    let message = refusal("1", |rank, moe, x| {
        let others: Stream = numbers(rank, "others", &[6, 4]);
        let _ = moe.router.forward(x).dispatch(&others, Ep);
    });
    assert!(message.contains("the tensor that is dispatched has Batch = 6"), "{message}");
}

/// The parameters of experts could not be declared, but a routing does not need them.
#[test]
fn experts_divide_among_the_ranks() {
    #[model]
    struct Alone {
        router: Router<Hidden, Experts, TopK>,
    }

    let outcome = meshwright::run_on("ep=2", 0, |rank| {
        let net = build::<Alone>(rank, &sizes().with(Experts, 5))?;
        let x: Stream = numbers(rank, "x", &[8, 4]);
        let _ = net.model.router.forward(&x).dispatch(&x, Ep);
        Ok(())
    });
    let message = outcome.unwrap_err().to_string();
    let expected =
        "`router` routes tokens to 5 experts, which do not divide among the 2 ranks of ep";
    assert!(message.contains(expected), "{message}");
}

fn problems(mesh: &str, sizes: &Sizes) -> String {
    let outcomes =
        on_mesh(mesh, 1, |rank| -> Option<BuildError> { build::<Moe>(rank, sizes).err() });
    outcomes[0].as_ref().expect("the model cannot be built").to_string()
}

#[test]
fn sizes_are_checked() {
    let message = problems("1", &sizes().with(TopK, 5));
    assert!(message.contains("`router`: TopK = 5, but a token can choose at most 4"), "{message}");
    let message = problems("ep=2", &sizes().with(Experts, 5));
    assert!(message.contains("`experts`: Experts = 5 is not divisible by ep = 2"), "{message}");
    let mut options = sizes();
    options.router.scale = f32::NAN;
    let message = problems("1", &options);
    assert!(message.contains("`Sizes::router` has the scale NaN"), "{message}");
    let groups = |count, best, top| {
        let mut options = sizes();
        options.router.groups = Some(ExpertGroups { count, best, top });
        problems("1", &options)
    };
    for ((count, best, top), mistake) in [
        ((0, 1, 1), "there are 0 groups, and can be 1 to 32"),
        ((3, 1, 1), "4 experts are no multiple of 3 groups"),
        ((2, 3, 1), "tokens choose from 3 of 2 groups"),
        ((2, 1, 3), "groups of 2 experts are scored by their 3 best ones"),
        ((4, 1, 1), "tokens choose 2 experts from 1 groups of 1, which have fewer"),
    ] {
        let message = groups(count, best, top);
        let expected = format!("the groups of `Sizes::router` do not fit: {mistake}");
        assert!(message.contains(&expected), "{message}");
    }
    let mut options = sizes();
    options.choice_bias_rate = 0.001;
    let message = problems("1", &options);
    assert!(message.contains("but the router has no bias of the choice: add it by"), "{message}");
}

/// Fields of a model cannot be declared so (`stack_over_dp`), but a user-defined layer chooses the shapes of its
/// parameters.
#[test]
fn layers_do_not_split_experts_over_data_axes() {
    struct Weights<A>(Param<Stacked<Split<Experts, A>, Hidden, Hidden>>);

    impl<A: SplitAxes> Build for Weights<A> {
        fn build(builder: &mut Builder<'_>) -> Self {
            Weights(builder.param("weight", Init::Ones))
        }
    }

    fn outcome<A: SplitAxes>(mesh: &str) -> String {
        let outcomes = on_mesh(mesh, 1, |rank| match build::<Weights<A>>(rank, &sizes()) {
            Ok(net) => format!("{} on this rank", net.model.0.handle().local_len()),
            Err(error) => error.to_string(),
        });
        outcomes[0].clone()
    }

    assert_eq!(outcome::<(Ep, Tp)>("ep=2,tp=2"), "16 on this rank");
    for message in [outcome::<Dp>("dp=2"), outcome::<Fsdp>("fsdp=2"), outcome::<(Fsdp, Ep)>("ep=2")]
    {
        assert!(
            message.contains("or the experts of stacked weights over ep, cp and tp"),
            "{message}"
        );
    }
}

/// An auxiliary loss has a gradient, and leaves the value of the loss as it is.
#[test]
fn auxiliary_losses_are_not_a_part_of_the_value() {
    let norms = on_mesh("dp=2", 1, |rank| {
        let net = build::<Moe>(rank, &sizes()).unwrap_or_else(|error| panic!("{error}"));
        let x: Stream = numbers(rank, "x", &[8, 4]);
        let loss = |weight: f32| {
            let routing = net.model.router.forward(&x);
            let y = routing.combine(&net.model.experts.forward(&routing.dispatch(&x, Ep)));
            Loss::mean_of(&y.square().mean(Hidden))
                .with_penalty(&(routing.load_balancing_loss() * weight))
        };
        [0.0, 1.0].map(|weight| {
            let value = loss(weight).reduce().value();
            (value, loss(weight).backward().reduce().norm())
        })
    });
    for [without, with] in norms {
        assert_eq!(without.0, with.0);
        assert!((without.1 - with.1).abs() > 1e-4, "{without:?} {with:?}");
    }
}

/// Ranks whose parameters are equal, but not their routers, are refused.
#[test]
fn routers_are_those_of_every_rank() {
    let run = |of_second: Sizes| {
        meshwright::run_on("dp=2", 0, |rank| {
            let sizes = if rank.index() == 1 { &of_second } else { &sizes() };
            let net = build::<Moe>(rank, sizes)?;
            let x: Stream = numbers(rank, "x", &[8, 4]);
            let routing = net.model.router.forward(&x);
            let out = routing.combine(&net.model.experts.forward(&routing.dispatch(&x, Ep)));
            Ok(Loss::mean_of(&out).backward().reduce().norm())
        })
    };
    let norms = run(sizes()).unwrap();
    assert!(norms[0] > 0.0 && norms[0] == norms[1], "{norms:?}");

    let mut scaled = sizes();
    scaled.router.scale = 2.0;
    let mut by_sigmoid = sizes();
    by_sigmoid.router.score = RouterScore::Sigmoid;
    let biased = sizes().with_optional("router.choice_bias", true);
    let by_flag = sizes().with_flag("biased", true);
    for of_second in [sizes().with(TopK, 1), by_flag, scaled, by_sigmoid, biased] {
        let message = run(of_second).map(drop).unwrap_err().to_string();
        assert!(message.contains("the configuration of a model"), "{message}");
    }
}
