// Sums and maxima over the contributions of ranks.

// Addresses of contributions: the first few are in the kernel parameter, the others in a table.
struct Sources {
    static constexpr uint32_t HERE = 16;
    uint64_t here[HERE];
    const uint64_t* others;
    uint64_t count;

    template <class T>
    __device__ const T* at(uint32_t i) const {
        return (const T*)(i < HERE ? here[i] : others[i - HERE]);
    }
};

// Reduces N elements from i on, in the order of sources. `out` may alias a source: each thread reads its elements of
// all sources before it writes.
template <int N, class T, class Op>
__device__ inline void combine_at(const Sources& sources, T* out, uint64_t i, Op op) {
    float sum[N];
    load_vector(sources.at<T>(0) + i, sum);
#pragma unroll 4
    for (uint32_t s = 1; s < sources.count; s++) {
        float x[N];
        load_vector(sources.at<T>(s) + i, x);
#pragma unroll
        for (int k = 0; k < N; k++) sum[k] = op(sum[k], x[k]);
    }
    store_vector(out, sum);
}

// `head` and `vectors` are arguments of `each_element`.
#define COMBINE(name, T, op, Op)                                                                                 \
    KERNEL(combine_##op##_##name)(Sources sources, T* out, uint64_t head, uint64_t vectors, uint64_t n) {        \
        each_element<WIDE<T>>(                                                                                   \
            head, vectors, n, [&](uint64_t i) { combine_at<WIDE<T>>(sources, out + i, i, Op()); },                   \
            [&](uint64_t i) { combine_at<1>(sources, out + i, i, Op()); });                                          \
    }

// Reduces `count` runs of `len` vectors of N elements, `distance` vectors apart, into contiguous output.
template <int N, class T, class Op>
__device__ inline void combine_each(const Sources& sources, T* out, uint64_t count, uint64_t len, uint64_t distance,
                                    Op op) {
    for (uint64_t i = thread_index(); i < count * len; i += thread_count()) {
        uint64_t run = quotient(i, len), at = run * distance + (i - run * len);
        combine_at<N>(sources, out + i * N, at * N, op);
    }
}

#define COMBINE_RUNS(name, T, op, Op)                                                                            \
    KERNEL(combine_runs_##op##_##name)                                                                           \
    (Sources sources, T* out, uint64_t count, uint64_t len, uint64_t distance) {                                 \
        combine_each<1>(sources, out, count, len, distance, Op());                                               \
    }                                                                                                            \
    KERNEL(combine_runs_##op##_##name##_wide)                                                                    \
    (Sources sources, T* out, uint64_t count, uint64_t len, uint64_t distance) {                                 \
        combine_each<WIDE<T>>(sources, out, count, len, distance, Op());                                         \
    }

COMBINE(f32, float, sum, Sum)
COMBINE(f32, float, max, Max)
COMBINE(bf16, bf16, sum, Sum)
COMBINE(bf16, bf16, max, Max)

COMBINE_RUNS(f32, float, sum, Sum)
COMBINE_RUNS(f32, float, max, Max)
COMBINE_RUNS(bf16, bf16, sum, Sum)
COMBINE_RUNS(bf16, bf16, max, Max)
