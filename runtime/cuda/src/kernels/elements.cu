// Copies, conversions and arithmetic on whole operands; `head` and `vectors` are arguments of `each_element`.

template <int N, class D, class S, class F>
__device__ inline void update_at(D* dst, const S* src, F f) {
    float x[N], y[N];
    load_vector(src, x);
    load_vector(dst, y);
#pragma unroll
    for (int n = 0; n < N; n++) y[n] = f(y[n], x[n]);
    store_vector(dst, y);
}

// dst = f(dst, src), elementwise.
template <class D, class S, class F>
__device__ inline void update(D* dst, const S* src, uint64_t head, uint64_t vectors, uint64_t n, F f) {
    constexpr int N = WIDE<D> < WIDE<S> ? WIDE<D> : WIDE<S>;
    each_element<N>(
        head, vectors, n, [&](uint64_t i) { update_at<N>(dst + i, src + i, f); },
        [&](uint64_t i) { update_at<1>(dst + i, src + i, f); });
}

template <int N, class D, class S>
__device__ inline void cast_at(D* dst, const S* src) {
    float x[N];
    load_vector(src, x);
    store_vector(dst, x);
}

#define CAST(S, S_NAME, D, D_NAME)                                                                               \
    KERNEL(cast_##S_NAME##_##D_NAME)(D* dst, const S* src, uint64_t head, uint64_t vectors, uint64_t n) {        \
        each_element<4>(                                                                                         \
            head, vectors, n, [&](uint64_t i) { cast_at<4>(dst + i, src + i); },                                 \
            [&](uint64_t i) { cast_at<1>(dst + i, src + i); });                                                  \
    }
CAST(float, f32, bf16, bf16)
CAST(bf16, bf16, float, f32)

#define UPDATES(D, D_NAME, S, S_NAME)                                                                            \
    KERNEL(add_assign_##D_NAME##_##S_NAME)(D* dst, const S* src, uint64_t head, uint64_t vectors, uint64_t n) {  \
        update(dst, src, head, vectors, n, [](float y, float x) { return y + x; });                              \
    }                                                                                                            \
    KERNEL(lerp_##D_NAME##_##S_NAME)                                                                             \
    (D* dst, const S* src, float weight, uint64_t head, uint64_t vectors, uint64_t n) {                          \
        /* Every operation is rounded on its own, as on the host. */                                             \
        update(dst, src, head, vectors, n,                                                                       \
               [=](float y, float x) { return __fadd_rn(y, __fmul_rn(weight, __fsub_rn(x, y))); });              \
    }
UPDATES(float, f32, float, f32)
UPDATES(float, f32, bf16, bf16)
UPDATES(bf16, bf16, float, f32)
UPDATES(bf16, bf16, bf16, bf16)

template <int N, class T>
__device__ inline void scale_at(T* x, float factor) {
    float v[N];
    load_vector(x, v);
#pragma unroll
    for (int n = 0; n < N; n++) v[n] *= factor;
    store_vector(x, v);
}

template <int N, class T>
__device__ inline void fill_at(T* x, float value) {
    float v[N];
#pragma unroll
    for (int n = 0; n < N; n++) v[n] = value;
    store_vector(x, v);
}

#define ALONE(OP, T, T_NAME)                                                                                     \
    KERNEL(OP##_##T_NAME)(T* x, float value, uint64_t head, uint64_t vectors, uint64_t n) {                      \
        each_element<WIDE<T>>(                                                                                   \
            head, vectors, n, [&](uint64_t i) { OP##_at<WIDE<T>>(x + i, value); },                               \
            [&](uint64_t i) { OP##_at<1>(x + i, value); });                                                      \
    }
ALONE(scale, float, f32)
ALONE(scale, bf16, bf16)
ALONE(fill, float, f32)
ALONE(fill, bf16, bf16)

// Copies `blocks` runs of `len` units each; strides are in units.
template <class U>
__device__ inline void copy_runs(U* dst, const U* src, uint64_t blocks, uint64_t len, uint64_t dst_stride,
                                 uint64_t src_stride) {
    for (uint64_t i = thread_index(); i < blocks * len; i += thread_count()) {
        uint64_t block = quotient(i, len), at = i - block * len;
        dst[block * dst_stride + at] = src[block * src_stride + at];
    }
}

#define COPY_BLOCKS(BYTES, U)                                                                                    \
    KERNEL(copy_blocks_##BYTES)                                                                                  \
    (U* dst, const U* src, uint64_t blocks, uint64_t len, uint64_t dst_stride, uint64_t src_stride) {            \
        copy_runs(dst, src, blocks, len, dst_stride, src_stride);                                                \
    }
COPY_BLOCKS(2, uint16_t)
COPY_BLOCKS(4, uint32_t)
COPY_BLOCKS(8, uint64_t)
COPY_BLOCKS(16, uint4)
