//! Rows of experts between pipeline stages.

use meshwright::pipeline::{StageCut, StageRequest, plan_stages};
use meshwright::prelude::*;
use meshwright_tests::run::on_mesh;

dims! { Batch @ data, Seq, Hidden, Vocab, Experts, TopK }

type ExpertTokens = Tensor<(Routed<(Batch, Seq), Split<Experts, Ep>>, Hidden)>;

#[model]
struct Front {
    embed: Embedding<Vocab, Hidden>,
    router: Router<Hidden, Experts, TopK>,
}

#[forward]
impl Front {
    fn forward(&self, ids: &Tokens<(Batch, Seq)>) -> ExpertTokens {
        let x = self.embed.forward(ids);
        self.router.forward(&x).dispatch(&x, Ep)
    }
}

#[model]
struct Back {
    #[sharded(ep = "experts")]
    experts: GroupedLinear<Experts, Hidden, Hidden>,
}

#[forward]
impl Back {
    fn forward(&self, x: &ExpertTokens) -> ExpertTokens {
        self.experts.forward(x)
    }
}

#[model]
#[allow(dead_code, reason = "the model is declared only")]
struct Net {
    #[pipeline_stage]
    front: Front,
    #[pipeline_stage]
    back: Back,
}

#[forward]
impl Net {
    fn forward(&self, ids: &Tokens<(Batch, Seq)>) -> ExpertTokens;
}

#[test]
fn rows_do_not_cross_between_stages() {
    let sizes = Sizes::new().with(Hidden, 4).with(Vocab, 8).with(Experts, 4).with(TopK, 2);
    let found = on_mesh("pp=2", 1, |rank| {
        let request = StageRequest { placement: &[0, 1], cut: &StageCut::Even, seq: 5 };
        let refused = plan_stages::<Net>(rank, &sizes, &request).err();
        refused.map_or_else(Vec::new, |error| error.problems)
    });
    for problems in found {
        assert_eq!(
            problems,
            [
                "`front`: its output, which crosses to the next pipeline stage, has rows that were routed to experts, \
                 and ranks have different numbers of them: end the stage after `routing.combine(&rows)`"
            ]
        );
    }
}
