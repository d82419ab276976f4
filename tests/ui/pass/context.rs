//! Context-parallel attention in every style, with rotary positions, which use the global positions of a rank's part of
//! a sequence.

use meshwright::nn::ContextStyle;
use meshwright::prelude::*;

dims! { Batch @ data, Seq @ cp, Hidden, Heads, KvHeads, HeadDim }

type Stream = Tensor<(Batch, Split<Seq, Tp>, Hidden)>;

#[model]
struct Styles {
    #[sharded(tp = "col")]
    q: Linear<Hidden, (Heads, HeadDim)>,
    #[sharded(tp = "col")]
    k: Linear<Hidden, (KvHeads, HeadDim)>,
    #[sharded(tp = "col")]
    v: Linear<Hidden, (KvHeads, HeadDim)>,
    rope: Rope<HeadDim>,
    #[sharded(cp = "ring")]
    ring: Attention<Heads, KvHeads, HeadDim>,
    #[sharded(cp = "ulysses")]
    ulysses: Attention<Heads, KvHeads, HeadDim>,
    #[sharded(cp = "gather")]
    gather: Attention<Heads, KvHeads, HeadDim>,
    #[sharded(cp = "hybrid")]
    hybrid: Attention<Heads, KvHeads, HeadDim>,
    #[sharded(tp = "row", scatter = Seq)]
    o: Linear<(Heads, HeadDim), Hidden>,
}

#[forward]
impl Styles {
    fn forward(&self, (x, documents): &(Stream, Documents<(Batch, Seq)>)) -> Stream {
        let q = self.rope.forward(&self.q.forward(x));
        let k = self.rope.forward(&self.k.forward(x));
        let qkv = (q, k, self.v.forward(x));
        let y = self.ring.forward(&qkv) + self.ulysses.forward(&qkv);
        let y = y + self.gather.forward(&qkv);
        let (q, k, v) = qkv;
        let y = y + self.hybrid.forward(&(q, k, v, documents));
        self.o.forward(&y)
    }
}

/// All styles compute the same, so four of them are four times one.
#[test]
fn styles_of_one_model_compute_the_same() {
    let mut sizes = Sizes::new().with(Hidden, 8).with(Heads, 4).with(KvHeads, 2).with(HeadDim, 2);
    sizes.init_std = 0.5;
    let results = std::sync::Mutex::new(Vec::new());
    for (mesh, style) in
        [("1", None), ("cp=2", None), ("cp=2,tp=2", None), ("cp=4", Some(ContextStyle::Ring))]
    {
        sizes.context = style;
        super::on_mesh::<Styles>(mesh, &sizes, |rank, built| {
            let x = Tensor::from_fn(rank, &[2, 16, 8], |index| {
                (index[0] * 31 + index[1] * 7 + index[2] * 3) as f32 % 5.0 - 2.0
            });
            let ids = vec![0; 32];
            let tokens = Tokens::<(Batch, Seq)>::from_whole_rows(rank, &[2, 16], 0, &ids);
            let y = built.model.forward(&(x, tokens.documents())).gather_to_vec();
            if rank.index() == 0 {
                results.lock().unwrap().push(y);
            }
        });
    }
    let results = results.into_inner().unwrap();
    assert!(results[0].iter().any(|y| y.abs() > 0.1));
    for other in &results[1..] {
        assert!(other.iter().zip(&results[0]).all(|(a, b)| (a - b).abs() < 1e-5));
    }
}
