// Optimizer steps over the parameters of a shard: every operand is read and written once. Operations are rounded
// separately, as written, never contracted by the compiler, so that a step has bitwise equal results on every device.

// Threads of a block, as in `ops/launch.rs`.
constexpr int THREADS = 256;

// No rounding of states in f32, in place of a StateRounding.
struct NoRounding {
    template <class... States>
    __device__ void round(uint64_t, uint32_t, States&...) const {}
};

// Fields of AdamStep, and values that are the same for every element.
struct Adam {
    float beta1, beta2, eps, grad_scale;
    // 1 - beta1 and 1 - beta2
    float new1, new2;
    // 1 / sqrt(bias_correction2)
    float inv_root;

    // `decay` is 1 - lr * weight_decay, and `rate` lr / bias_correction1.
    __device__ void step(float decay, float rate, float g, float& p, float& m, float& v) const {
        float grad = __fmul_rn(g, grad_scale);
        m = __fmaf_rn(beta1, m, __fmul_rn(new1, grad));
        v = __fmaf_rn(beta2, v, __fmul_rn(__fmul_rn(new2, grad), grad));
        float denominator = __fmaf_rn(__fsqrt_rn(v), inv_root, eps);
        p = __fsub_rn(__fmul_rn(decay, p), __fmul_rn(rate, __fdiv_rn(m, denominator)));
    }
};

// Groups of one launch, as in `ops/optim.rs`.
constexpr int MOST_GROUPS = 64;

// Consecutive elements with values of Adam::step of their own.
struct AdamGroups {
    // Ends of the groups; the last one is the number of elements.
    uint64_t ends[MOST_GROUPS];
    float decay[MOST_GROUPS], rate[MOST_GROUPS];

    // Moves `group` to that of element `i`.
    __device__ void find(uint64_t i, uint32_t& group) const {
        if (group > 0 && i < ends[group - 1]) group = 0;
        while (i >= ends[group]) group++;
    }

    __device__ NoRounding rounding(uint32_t) const { return NoRounding(); }
};

// Groups with moments in bf16, each in one parameter.
struct RoundedAdamGroups : AdamGroups {
    StateRounding roundings[MOST_GROUPS];

    __device__ const StateRounding& rounding(uint32_t group) const { return roundings[group]; }
};

// Fields of SgdStep, and values that are the same for every element.
struct Sgd {
    float momentum, grad_scale;
    // 1 - lr * weight_decay, and -lr
    float decay, rate;
    uint32_t nesterov;

    __device__ void step(float g, float& p) const {
        p = __fmaf_rn(decay, p, __fmul_rn(rate, __fmul_rn(g, grad_scale)));
    }

    __device__ void step(float g, float& p, float& m) const {
        float grad = __fmul_rn(g, grad_scale);
        m = __fmaf_rn(momentum, m, grad);
        float direction = nesterov ? __fmaf_rn(momentum, m, grad) : m;
        p = __fmaf_rn(decay, p, __fmul_rn(rate, direction));
    }

    __device__ NoRounding rounding() const { return NoRounding(); }
};

// SGD of one parameter with momentum in bf16.
struct RoundedSgd : Sgd {
    StateRounding of_momentum;

    __device__ const StateRounding& rounding() const { return of_momentum; }
};

// Destination of a new parameter in addition to its master weight: one of these, or none.
struct Copies {
    float* wide;
    bf16* narrow;

    template <int N>
    __device__ void put(uint64_t at, const float (&p)[N]) const {
        if (wide) store_vector(wide + at, p);
        if (narrow) store_vector(narrow + at, p);
    }
};

template <class G, class S>
struct AdamOperands {
    float* p;
    const G* g;
    S *m, *v;
    Copies copies;

    template <int N, class R>
    __device__ void step(const Adam& adam, float decay, float rate, const R& rounding, uint64_t i) const {
        float ps[N], gs[N], ms[N], vs[N];
        load_vector(p + i, ps);
        load_vector(g + i, gs);
        load_vector(m + i, ms);
        load_vector(v + i, vs);
#pragma unroll
        for (int k = 0; k < N; k++) adam.step(decay, rate, gs[k], ps[k], ms[k], vs[k]);
        rounding.round(i, 0, ms, vs);
        store_vector(p + i, ps);
        store_vector(m + i, ms);
        store_vector(v + i, vs);
        copies.put(i, ps);
    }
};

// No momentum if m is null.
template <class G, class S>
struct SgdOperands {
    float* p;
    const G* g;
    S* m;
    Copies copies;

    template <int N, class Step>
    __device__ void step(const Step& sgd, uint64_t i) const {
        float ps[N], gs[N], ms[N];
        load_vector(p + i, ps);
        load_vector(g + i, gs);
        if (m) {
            load_vector(m + i, ms);
#pragma unroll
            for (int k = 0; k < N; k++) sgd.step(gs[k], ps[k], ms[k]);
            sgd.rounding().round(i, 0, ms);
            store_vector(m + i, ms);
        } else {
#pragma unroll
            for (int k = 0; k < N; k++) sgd.step(gs[k], ps[k]);
        }
        store_vector(p + i, ps);
        copies.put(i, ps);
    }
};

// `head` and `vectors` are arguments of `each_element`. A vector lies in one group. S is the type of states.
#define ADAMW(name, G, S, Groups)                                                                                \
    KERNEL_OF(THREADS, adamw_##name)                                                                             \
    (Adam adam, Groups groups, AdamOperands<G, S> operands, uint64_t head, uint64_t vectors, uint64_t n) {       \
        uint32_t group = 0;                                                                                      \
        auto vector = [&](uint64_t i) {                                                                          \
            groups.find(i, group);                                                                               \
            operands.template step<4>(adam, groups.decay[group], groups.rate[group], groups.rounding(group), i); \
        };                                                                                                       \
        auto scalar = [&](uint64_t i) {                                                                          \
            groups.find(i, group);                                                                               \
            operands.template step<1>(adam, groups.decay[group], groups.rate[group], groups.rounding(group), i); \
        };                                                                                                       \
        each_element<4>(head, vectors, n, vector, scalar);                                                       \
    }

#define SGD(name, G, S, Step)                                                                                    \
    KERNEL_OF(THREADS, sgd_##name)                                                                               \
    (Step sgd, SgdOperands<G, S> operands, uint64_t head, uint64_t vectors, uint64_t n) {                        \
        each_element<4>(                                                                                         \
            head, vectors, n, [&](uint64_t i) { operands.template step<4>(sgd, i); },                            \
            [&](uint64_t i) { operands.template step<1>(sgd, i); });                                             \
    }

// Rounds x, or its sum with `out`, by the bits of state 2 * pair + odd.
template <int N, class T>
__device__ inline void round_into(const T* x, bf16* out, uint32_t accumulate, uint32_t pair, uint32_t odd,
                                  const StateRounding& rounding, uint64_t i) {
    float xs[N], sums[N];
    uint32_t random[N];
    load_vector(x + i, xs);
    if (accumulate) {
        load_vector(out + i, sums);
#pragma unroll
        for (int k = 0; k < N; k++) xs[k] = __fadd_rn(xs[k], sums[k]);
    }
    rounding.words(i, pair, random);
#pragma unroll
    for (int k = 0; k < N; k++) xs[k] = round_state(xs[k], odd ? random[k] >> 16 : random[k]);
    store_vector(out + i, xs);
}

#define ROUND_STATE(name, T)                                                                                     \
    KERNEL_OF(THREADS, round_state_##name)                                                                       \
    (const T* x, bf16* out, uint32_t accumulate, uint32_t pair, uint32_t odd, StateRounding rounding,            \
     uint64_t head, uint64_t vectors, uint64_t n) {                                                              \
        each_element<4>(                                                                                         \
            head, vectors, n,                                                                                    \
            [&](uint64_t i) { round_into<4>(x, out, accumulate, pair, odd, rounding, i); },                      \
            [&](uint64_t i) { round_into<1>(x, out, accumulate, pair, odd, rounding, i); });                     \
    }

ADAMW(f32, float, float, AdamGroups)
ADAMW(bf16, bf16, float, AdamGroups)
ADAMW(f32_rounded, float, bf16, RoundedAdamGroups)
ADAMW(bf16_rounded, bf16, bf16, RoundedAdamGroups)
SGD(f32, float, float, Sgd)
SGD(bf16, bf16, float, Sgd)
SGD(f32_rounded, float, bf16, RoundedSgd)
SGD(bf16_rounded, bf16, bf16, RoundedSgd)
ROUND_STATE(f32, float)
ROUND_STATE(bf16, bf16)
