// Convolutions along a sequence.

// Sizes of the operands [rows, channels], where rows are the `positions` of all samples: one or two ranges of
// consecutive positions, which begin at `starts` of the whole sequence. A halo is [samples, ranges, taps - 1,
// channels].
struct ConvSizes {
    uint64_t rows, positions, channels, taps, ranges, first_len, starts[2];
};

// The position of a row in its range.
struct Place {
    uint64_t sample, range, at, len;

    __device__ Place(const ConvSizes& s, uint64_t row) {
        sample = quotient(row, s.positions);
        at = row - sample * s.positions;
        range = at < s.first_len ? 0 : 1;
        len = range == 0 ? s.first_len : s.positions - s.first_len;
        if (range == 1) at -= s.first_len;
    }
};

// Returns the number of distances, from 0 on, at which a row may read: with ADJOINT at following positions, which end
// at the limit of the row, else at earlier ones, which begin there.
template <bool ADJOINT>
__device__ inline uint64_t reach(const ConvSizes& s, const Place& place, const uint32_t* limits, uint64_t row) {
    if (limits == nullptr) return s.taps;
    uint64_t position = s.starts[place.range] + place.at, limit = limits[row];
    uint64_t distances = ADJOINT ? limit - position : position - limit + 1;
    return distances < s.taps ? distances : s.taps;
}

// Returns the row of x, or of the halo, at a distance from a row; null for zeros.
template <bool ADJOINT, class T>
__device__ inline const T* row_at(const ConvSizes& s, const Place& place, const T* x, const T* halo, uint64_t row,
                                  uint64_t distance) {
    bool own = ADJOINT ? place.at + distance < place.len : distance <= place.at;
    if (own) return x + (ADJOINT ? row + distance : row - distance) * s.channels;
    if (halo == nullptr) return nullptr;
    uint64_t first = (place.sample * s.ranges + place.range) * (s.taps - 1);
    uint64_t beyond = ADJOINT ? place.at + distance - place.len : s.taps - 1 + place.at - distance;
    return halo + (first + beyond) * s.channels;
}

template <bool ADJOINT, int N, class T>
__device__ inline void causal_conv(const T* x, const T* halo, const uint32_t* limits, const T* weight, T* y,
                                   const ConvSizes& s) {
    uint64_t vectors = s.channels / N;
    for (uint64_t i = thread_index(); i < s.rows * vectors; i += thread_count()) {
        uint64_t row = quotient(i, vectors), channel = (i - row * vectors) * N;
        Place place(s, row);
        uint64_t distances = reach<ADJOINT>(s, place, limits, row);
        float sum[N] = {};
        for (uint64_t distance = 0; distance < distances; distance++) {
            const T* from = row_at<ADJOINT>(s, place, x, halo, row, distance);
            if (from == nullptr) break;
            float v[N];
            load_vector(from + channel, v, LoadConstant());
            const T* w = weight + channel * s.taps + s.taps - 1 - distance;
#pragma unroll
            for (int k = 0; k < N; k++) sum[k] += v[k] * widen(w[k * s.taps]);
        }
        store_vector(y + row * s.channels + channel, sum);
    }
}

// Warps of a block of `weight_grad`, which take rows in turn, and taps that a thread sums.
constexpr int WARPS = 8, TAP_GROUP = 4;

// partial[parts, channels, taps]: blocks along x take 32 channels each, along y equal parts of the rows, and along z
// groups of taps.
template <class T>
__device__ inline void weight_grad(const T* x, const T* dy, const T* halo, const uint32_t* limits, float* partial,
                                   const ConvSizes& s) {
    __shared__ float of_warp[WARPS][TAP_GROUP][32];
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint64_t per_part = (s.rows + gridDim.y - 1) / gridDim.y, from = blockIdx.y * per_part;
    uint64_t to = from + per_part < s.rows ? from + per_part : s.rows;
    uint64_t first = (uint64_t)blockIdx.x * 32, channel = first + lane, nearest = blockIdx.z * TAP_GROUP;
    float sum[TAP_GROUP] = {};
    if (channel < s.channels) {
        for (uint64_t row = from + warp; row < to; row += WARPS) {
            Place place(s, row);
            uint64_t distances = reach<true>(s, place, limits, row);
            float own = widen(x[row * s.channels + channel]);
#pragma unroll
            for (int tap = 0; tap < TAP_GROUP; tap++) {
                if (nearest + tap >= distances) break;
                const T* reached = row_at<true>(s, place, dy, halo, row, nearest + tap);
                if (reached == nullptr) break;
                sum[tap] += own * widen(reached[channel]);
            }
        }
    }
#pragma unroll
    for (int tap = 0; tap < TAP_GROUP; tap++) of_warp[warp][tap][lane] = sum[tap];
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < TAP_GROUP * 32; i += blockDim.x) {
        uint64_t distance = nearest + i / 32, channel = first + i % 32;
        if (distance >= s.taps || channel >= s.channels) continue;
        float total = 0.0f;
#pragma unroll
        for (int warp = 0; warp < WARPS; warp++) total += of_warp[warp][i / 32][i % 32];
        partial[(blockIdx.y * s.channels + channel) * s.taps + s.taps - 1 - distance] = total;
    }
}

// Sizes of an input [samples, len, channels] and of its unfolded elements [samples, outputs, channels, taps], and the
// number of threads.
struct UnfoldSizes {
    uint64_t len, outputs, channels, taps, stride, padding, items;
};

// Each thread copies the elements of one output and channel.
template <class T>
__device__ inline void unfold(const T* x, T* out, const UnfoldSizes& s) {
    for (uint64_t i = thread_index(); i < s.items; i += thread_count()) {
        uint64_t row = quotient(i, s.channels), channel = i - row * s.channels;
        uint64_t sample = quotient(row, s.outputs), first = (row - sample * s.outputs) * s.stride;
        for (uint64_t tap = 0; tap < s.taps; tap++) {
            // A position before the first one wraps to a number beyond the last.
            uint64_t at = first + tap - s.padding;
            out[i * s.taps + tap] = at < s.len ? x[(sample * s.len + at) * s.channels + channel] : T{};
        }
    }
}

// Each thread sums the gradients of the copies of one element.
template <class T>
__device__ inline void fold(const T* dout, T* dx, const UnfoldSizes& s) {
    for (uint64_t i = thread_index(); i < s.items; i += thread_count()) {
        uint64_t row = quotient(i, s.channels), channel = i - row * s.channels;
        uint64_t sample = quotient(row, s.len), at = row - sample * s.len + s.padding;
        float sum = 0.0f;
        for (uint64_t tap = 0; tap < s.taps && tap <= at; tap++) {
            uint64_t output = quotient(at - tap, s.stride);
            if (output * s.stride != at - tap || output >= s.outputs) continue;
            sum += widen(dout[((sample * s.outputs + output) * s.channels + channel) * s.taps + tap]);
        }
        store(dx + i, sum);
    }
}

#define CAUSAL_CONV(name, T, ADJOINT, N)                                                                               \
    KERNEL(causal_conv_##name)(const T* x, const T* halo, const uint32_t* limits, const T* weight, T* y,               \
                               ConvSizes sizes) {                                                                      \
        causal_conv<ADJOINT, N>(x, halo, limits, weight, y, sizes);                                                    \
    }

#define CONVOLUTION(name, T)                                                                                           \
    CAUSAL_CONV(forward_##name, T, false, 1)                                                                           \
    CAUSAL_CONV(forward_##name##_vectors, T, false, WIDE<T>)                                                           \
    CAUSAL_CONV(adjoint_##name, T, true, 1)                                                                            \
    CAUSAL_CONV(adjoint_##name##_vectors, T, true, WIDE<T>)                                                            \
    KERNEL(causal_conv_weight_grad_##name)(const T* x, const T* dy, const T* halo, const uint32_t* limits,             \
                                           float* partial, ConvSizes sizes) {                                          \
        weight_grad(x, dy, halo, limits, partial, sizes);                                                              \
    }                                                                                                                  \
    KERNEL(unfold_##name)(const T* x, T* out, UnfoldSizes sizes) { unfold(x, out, sizes); }                            \
    KERNEL(fold_##name)(const T* dout, T* dx, UnfoldSizes sizes) { fold(dout, dx, sizes); }

CONVOLUTION(f32, float)
CONVOLUTION(bf16, bf16)
