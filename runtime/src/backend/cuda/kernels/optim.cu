// Optimizer steps over the parameters of a shard: every operand is read and written once. Operations are rounded
// separately, as written, never contracted by the compiler, so that a step has bitwise equal results on every device.

// Fields of AdamStep, and values that are the same for every element.
struct Adam {
    float beta1, beta2, eps, grad_scale;
    // 1 - beta1 and 1 - beta2
    float new1, new2;
    // 1 - lr * weight_decay, lr / bias_correction1 and 1 / sqrt(bias_correction2)
    float decay, rate, inv_root;

    __device__ void step(float g, float& p, float& m, float& v) const {
        float grad = __fmul_rn(g, grad_scale);
        m = __fmaf_rn(beta1, m, __fmul_rn(new1, grad));
        v = __fmaf_rn(beta2, v, __fmul_rn(__fmul_rn(new2, grad), grad));
        float denominator = __fmaf_rn(__fsqrt_rn(v), inv_root, eps);
        p = __fsub_rn(__fmul_rn(decay, p), __fmul_rn(rate, __fdiv_rn(m, denominator)));
    }
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

template <class G>
struct AdamOperands {
    float* p;
    const G* g;
    float *m, *v;
    Copies copies;

    template <int N>
    __device__ void step(const Adam& adam, uint64_t i) const {
        float ps[N], gs[N], ms[N], vs[N];
        load_vector(p + i, ps);
        load_vector(g + i, gs);
        load_vector(m + i, ms);
        load_vector(v + i, vs);
#pragma unroll
        for (int k = 0; k < N; k++) adam.step(gs[k], ps[k], ms[k], vs[k]);
        store_vector(p + i, ps);
        store_vector(m + i, ms);
        store_vector(v + i, vs);
        copies.put(i, ps);
    }
};

// No momentum if m is null.
template <class G>
struct SgdOperands {
    float* p;
    const G* g;
    float* m;
    Copies copies;

    template <int N>
    __device__ void step(const Sgd& sgd, uint64_t i) const {
        float ps[N], gs[N], ms[N];
        load_vector(p + i, ps);
        load_vector(g + i, gs);
        if (m) {
            load_vector(m + i, ms);
#pragma unroll
            for (int k = 0; k < N; k++) sgd.step(gs[k], ps[k], ms[k]);
            store_vector(m + i, ms);
        } else {
#pragma unroll
            for (int k = 0; k < N; k++) sgd.step(gs[k], ps[k]);
        }
        store_vector(p + i, ps);
        copies.put(i, ps);
    }
};

// `head` and `vectors` are those of `each_element`.
#define OPTIMIZER(name, Settings, Operands)                                                                      \
    KERNEL(name)(Settings settings, Operands operands, uint64_t head, uint64_t vectors, uint64_t n) {            \
        each_element<4>(                                                                                         \
            head, vectors, n, [&](uint64_t i) { operands.template step<4>(settings, i); },                       \
            [&](uint64_t i) { operands.template step<1>(settings, i); });                                        \
    }

OPTIMIZER(adamw_f32, Adam, AdamOperands<float>)
OPTIMIZER(adamw_bf16, Adam, AdamOperands<bf16>)
OPTIMIZER(sgd_f32, Sgd, SgdOperands<float>)
OPTIMIZER(sgd_bf16, Sgd, SgdOperands<bf16>)
