// Sums and maxima over the contributions of ranks.

// Addresses of contributions: the first few lie in the parameter itself, the others in a table.
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

// Combines elements `from..to` in the order of sources. `out` may be one of them: each thread has read an element of all
// before it writes it.
template <int N, class T, class Op>
__device__ inline void combine(const Sources& sources, T* out, uint64_t from, uint64_t to, Op op) {
    for (uint64_t i = from + thread_index() * N; i < to; i += thread_count() * N) {
        float sum[N];
        load_vector(sources.at<T>(0) + i, sum);
#pragma unroll 4
        for (uint32_t s = 1; s < sources.count; s++) {
            float x[N];
            load_vector(sources.at<T>(s) + i, x);
#pragma unroll
            for (int k = 0; k < N; k++) sum[k] = op(sum[k], x[k]);
        }
        store_vector(out + i, sum);
    }
}

// The first `vectored` of n elements are aligned vectors in `out` and every source.
#define COMBINE(name, T, op, Op)                                                                                       \
    KERNEL(combine_##op##_##name)(Sources sources, T* out, uint64_t vectored, uint64_t n) {                            \
        combine<WIDE<T>>(sources, out, 0, vectored, Op());                                                             \
        combine<1>(sources, out, vectored, n, Op());                                                                   \
    }

COMBINE(f32, float, sum, Sum)
COMBINE(f32, float, max, Max)
COMBINE(bf16, bf16, sum, Sum)
COMBINE(bf16, bf16, max, Max)
