//! The snapshots type-check and run, as written and as expanded.

extern crate self as meshwright;

#[path = "support/mock.rs"]
mod mock;
use mock::__private;

macro_rules! cases {
    ($($name:ident)*) => {$(
        mod $name {
            #[allow(dead_code, clippy::needless_return, clippy::type_complexity)]
            pub mod written {
                include!(concat!("snapshots/", stringify!($name), ".rs"));
            }
            #[allow(dead_code, unused_imports, clippy::needless_return, clippy::type_complexity)]
            mod expanded {
                include!(concat!("snapshots/", stringify!($name), ".expanded.rs"));
            }
        }
    )*};
}

cases!(mlp tied parameters kinds generic recompute conditional stages mesh_test);

use mock::{AxisSet, Build, Builder, Dim, FieldDescription, Layer, Model, Module, SCOPES, Tensor};

fn built<M: Build>() -> Vec<String> {
    let mut builder = Builder::new();
    M::build(&mut builder);
    builder.log()
}

#[test]
fn dims_know_their_name_and_axis() {
    use mlp::written::{Batch, Hidden, Seq};
    fn of<D: Dim>() -> (&'static str, AxisSet) {
        (D::NAME, D::VARIES)
    }
    assert_eq!(of::<Batch>(), ("Batch", AxisSet::DATA));
    assert_eq!(of::<Seq>(), ("Seq", AxisSet::of(mock::AxisId::Cp)));
    assert_eq!(of::<Hidden>(), ("Hidden", AxisSet::NONE));
    assert_eq!(format!("{:?}", Hidden.clone()), "Hidden");
}

#[test]
fn dims_are_local_or_batch_dims() {
    use mlp::written::{Batch, Hidden, Seq};
    use mock::{BatchDim, Local, Whole};
    /// Detects the traits of `D` by autoref: the inherent function is preferred if its bound holds.
    struct Is<D>(std::marker::PhantomData<D>);
    trait Neither {
        const LOCAL: bool = false;
        const BATCH: bool = false;
    }
    impl<D> Neither for Is<D> {}
    impl<D: Local> Is<D> {
        const LOCAL: bool = true;
    }
    impl<D: BatchDim> Is<D> {
        const BATCH: bool = true;
    }
    assert_eq!((Is::<Batch>::LOCAL, Is::<Batch>::BATCH), (false, true));
    assert_eq!((Is::<Seq>::LOCAL, Is::<Seq>::BATCH), (false, false));
    assert_eq!((Is::<Hidden>::LOCAL, Is::<Hidden>::BATCH), (true, false));
    fn whole<D: Whole>() {}
    whole::<Seq>();
}

#[test]
fn fields_are_built_in_the_order_of_declaration() {
    assert_eq!(built::<mlp::written::Mlp>(), [".gate", ".up", ".down"]);
    assert_eq!(
        built::<generic::written::Block<mlp::written::Mlp, mlp::written::Ffn>>(),
        [
            ".norm",
            ".inner.gate",
            ".inner.up",
            ".inner.down",
            ".inner.gate",
            ".inner.up",
            ".inner.down",
            ".up",
            ".down"
        ]
    );
}

#[test]
fn ties_precede_the_build_of_their_field() {
    assert_eq!(
        built::<tied::written::Llama>(),
        [".embed.tokens", ".norm", ".head -> embed.tokens when tie_word_embeddings", ".head"]
    );
}

#[test]
fn units_and_policies_precede_the_build() {
    use recompute::written::{Block, Mlp};
    let mlp = |path: &str| {
        let of = |rest: &str| format!("{path}{rest}");
        [of(" is a unit"), of(".up is a unit"), of(".up"), of(".down")]
    };
    let mut expected = vec![".mlp recomputes Every(1) but []".to_owned()];
    expected.extend(mlp(".mlp"));
    expected.push(".inner recomputes Every(1) but [\"inner\"], offloading".to_owned());
    expected.extend(mlp(".inner.inner"));
    assert_eq!(built::<Block<Mlp>>(), expected);

    let tower = built::<recompute::written::Tower>();
    let saving = ".blocks recomputes Every(2) but [\"mlp\", \"inner.inner.down\"], offloading";
    assert_eq!(tower[0], saving);
    let of_stacks: Vec<&String> = tower
        .iter()
        .filter(|line| line.starts_with(".mlps ") || line.starts_with(".others"))
        .collect();
    assert_eq!(of_stacks, [".mlps is a unit", ".mlps recomputes Sqrt but []", ".mlps is a unit"]);
}

#[test]
fn a_model_describes_its_fields() {
    let description = mlp::written::Mlp::describe();
    assert_eq!(description.name, "Mlp");
    let last = FieldDescription {
        name: "down",
        ty: "Linear<Ffn, Hidden>",
        sharded: Some("tp = \"row\", scatter = Seq"),
        tied: None,
        shared: false,
        frozen: false,
        init: None,
        recompute: None,
        stage: None,
    };
    assert_eq!(description.fields.last(), Some(&last));
    let fields = tied::written::Llama::describe().fields;
    assert_eq!(
        fields.iter().map(|field| field.name).collect::<Vec<_>>(),
        ["embed", "norm", "head"]
    );
    assert_eq!(fields[2].tied, Some("embed.tokens"));
    let [up, down] = recompute::written::Mlp::describe().fields else { panic!("two fields") };
    assert_eq!(
        [up, down].map(|field| field.sharded),
        [Some("tp = \"col\", fsdp"), Some("tp = \"row\"")]
    );
    let [blocks, mlps] = recompute::written::Tower::describe().fields else { panic!("two fields") };
    assert_eq!(blocks.recompute, Some("every = 2, save = [mlp, inner.inner.down], offload"));
    assert_eq!((mlps.recompute, mlps.sharded), (Some("every = \"sqrt\""), Some("fsdp")));
    let [mlp, _] = recompute::written::Block::<recompute::written::Mlp>::describe().fields else {
        panic!("two fields")
    };
    assert_eq!(mlp.recompute, Some(""));
}

#[test]
fn forward_without_body_runs_the_stages() {
    use mock::{StageDescription, StageValue};
    use stages::written::{Block, Net};
    let net = Net::build(&mut Builder::new());
    let mut names = Vec::new();
    let output = net.visit_stages(&mut names, StageValue::new(Tensor::new()));
    assert!(output.is_some());
    assert_eq!(names, ["up", "type", "down"]);
    SCOPES.take();
    net.forward(&Tensor::new());
    assert_eq!(SCOPES.take(), ["Net::forward", "Block::forward"]);
    let block = Block::build(&mut Builder::new());
    let mut names = Vec::new();
    assert!(block.visit_stages(&mut names, StageValue::new(Tensor::new())).is_none());
    let stages: Vec<_> = Net::describe().fields.iter().map(|field| &field.stage).collect();
    let stage = |last, cost| Some(StageDescription { last, cost });
    let expected =
        [stage(false, None), stage(false, Some(1.5)), stage(false, Some(2.0)), stage(true, None)];
    assert_eq!(stages, expected.iter().collect::<Vec<_>>());
}

#[test]
fn forward_is_a_method_and_a_layer_and_names_itself() {
    let model = mlp::written::Mlp::build(&mut Builder::new());
    let x = Tensor::new();
    SCOPES.take();
    model.forward(&x);
    Layer::forward(&model, &x);
    let names = SCOPES.take();
    assert_eq!(names, ["Mlp::forward", "Mlp::is_linear", "Mlp::forward", "Mlp::is_linear"]);
}

#[test]
fn parameters_begin_as_declared() {
    let mut log = built::<parameters::written::Adapted>();
    log.retain(|line| line.contains(' '));
    let expected = [
        ".base is frozen",
        ".norm begins as Normal(0.01)",
        "`bias` of .norm begins as Constant(-1.5)",
        ".table is shared",
        ".table is scaled, None",
    ];
    assert_eq!(log, expected);
}

#[test]
fn kinds_of_layers_are_chosen_by_the_builder() {
    use kinds::written::{Block, Wide};
    assert_eq!(built::<Block>()[0], " is a Block of [\"Narrow\", \"Wide\"]");
    let block = Block::build(&mut Builder::new());
    assert!(matches!(block, Block::Wide(Wide { .. })));
    SCOPES.take();
    Layer::forward(&block, &Tensor::new());
    assert_eq!(SCOPES.take(), ["Wide::forward"]);
    let fields: Vec<_> = Block::describe().fields.iter().map(|field| field.ty).collect();
    assert_eq!(fields, ["Narrow", "Wide"]);
}
