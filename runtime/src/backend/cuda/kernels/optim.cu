// Optimiser steps over the parameters of a shard: every operand is read and written once. Each operation is rounded as it
// stands here, never fused with another by the compiler, so that a step gives the same bits on every device.

// Fields of AdamStep, and what is the same for every element.
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

// Fields of SgdStep, and what is the same for every element.
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

// Where a new parameter goes beside its master: to one of these, or nowhere.
struct Copies {
    float* wide;
    bf16* narrow;

    template <int N>
    __device__ void put(uint64_t at, const float (&p)[N]) const {
        if (wide) store_vector(wide + at, p);
        if (narrow) store_vector(narrow + at, p);
    }
};

template <int N, class G>
__device__ inline void adamw(const Adam& adam, float* p, const G* g, float* m, float* v, const Copies& copies,
                             uint64_t from, uint64_t to) {
    for (uint64_t i = from + thread_index() * N; i < to; i += thread_count() * N) {
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
}

// Without momentum where m is null.
template <int N, class G>
__device__ inline void sgd(const Sgd& sgd, float* p, const G* g, float* m, const Copies& copies, uint64_t from,
                           uint64_t to) {
    for (uint64_t i = from + thread_index() * N; i < to; i += thread_count() * N) {
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
}

// The first `vectored` of n elements are aligned for vectors of 4, and a multiple of that.
#define OPTIMIZERS(name, G)                                                                                            \
    KERNEL(adamw_##name)(Adam step, float* p, const G* g, float* m, float* v, Copies copies, uint64_t vectored,        \
                         uint64_t n) {                                                                                 \
        adamw<4>(step, p, g, m, v, copies, 0, vectored);                                                               \
        adamw<1>(step, p, g, m, v, copies, vectored, n);                                                               \
    }                                                                                                                  \
    KERNEL(sgd_##name)(Sgd step, float* p, const G* g, float* m, Copies copies, uint64_t vectored, uint64_t n) {       \
        sgd<4>(step, p, g, m, copies, 0, vectored);                                                                    \
        sgd<1>(step, p, g, m, copies, vectored, n);                                                                    \
    }

OPTIMIZERS(f32, float)
OPTIMIZERS(bf16, bf16)
