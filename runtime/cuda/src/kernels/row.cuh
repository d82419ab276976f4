// Rows of a matrix, each processed by a group of threads: a warp or a whole block.

// Rows of this thread's group (first, first + step, ..), and this thread's lane in it.
struct Group {
    uint32_t lane, lanes;
    uint64_t first, step;
    // Of the next reduction over a block.
    uint32_t turn = 0;

    // In a block of more than `lanes` threads, which are 32 then, each warp is a group.
    __device__ explicit Group(uint32_t lanes) : lane(threadIdx.x % lanes), lanes(lanes) {
        uint32_t groups = blockDim.x / lanes;
        first = (uint64_t)blockIdx.x * groups + threadIdx.x / lanes;
        step = (uint64_t)gridDim.x * groups;
    }

    template <class T, int N, class Op>
    __device__ void reduce(T (&x)[N], Op op) {
        if (lanes == 32) {
#pragma unroll
            for (int i = 0; i < N; i++) x[i] = warp_reduce(x[i], op);
        } else {
            block_reduce(x, op, turn);
            turn ^= 1;
        }
    }
    template <class T, class Op>
    __device__ T reduce(T x, Op op) {
        T one[1] = {x};
        reduce(one, op);
        return one[0];
    }

    // Calls f(k, i) for the first element i of each of this lane's vectors of N elements. With K, there are at most K
    // vectors, and this is the k-th; otherwise k is 0.
    template <int N, int K, class F>
    __device__ void each_vector(uint64_t cols, F f) const {
        if constexpr (K > 0) {
#pragma unroll
            for (int k = 0; k < K; k++) {
                uint64_t i = (uint64_t)(k * lanes + lane) * N;
                if (i < cols) f(k, i);
            }
        } else {
            for (uint64_t i = (uint64_t)lane * N; i < cols; i += (uint64_t)lanes * N) f(0, i);
        }
    }
};

// 16 bytes of four f32, and of eight bf16.
__device__ inline uint4 packed(const float (&x)[4]) {
    return uint4{__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]), __float_as_uint(x[3])};
}
__device__ inline uint4 packed(const float (&x)[8]) {
    return uint4{bf16_pair(x[0], x[1]), bf16_pair(x[2], x[3]), bf16_pair(x[4], x[5]), bf16_pair(x[6], x[7])};
}

// A row as one lane accesses it: with K its vectors, of 16 bytes, stay in registers after they are read, without
// conversion; otherwise they are read from memory. L is the load policy.
template <class T, int N, int K, class L = Load>
struct Row {
    const T* from;
    uint4 kept[K > 0 ? K : 1];

    __device__ void read(const Group& group, const T* row, uint64_t cols) {
        from = row;
        if constexpr (K > 0) {
            group.template each_vector<N, K>(cols, [&](int k, uint64_t i) { kept[k] = L()((const uint4*)(from + i)); });
        }
    }

    __device__ void get(int k, uint64_t i, float (&x)[N]) const {
        if constexpr (K > 0) {
            uint4 vector = kept[k];
            load_vector((const T*)&vector, x);
        } else {
            load_vector(from + i, x, L());
        }
    }

    // For a row in registers, the source of later reads of this lane.
    __device__ void set(int k, const float (&x)[N]) {
        if constexpr (K > 0) kept[k] = packed(x);
    }
};
