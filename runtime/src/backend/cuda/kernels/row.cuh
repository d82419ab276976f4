// Rows of a matrix, each worked on by a group of threads: a warp, or a whole block.

// Which rows this thread works on (first, first + step, ..), and as which lane of its group.
struct Group {
    uint32_t lane, lanes;
    uint64_t first, step;

    // In a block of more than `lanes` threads, which are 32 then, each warp is a group.
    __device__ explicit Group(uint32_t lanes) : lane(threadIdx.x % lanes), lanes(lanes) {
        uint32_t groups = blockDim.x / lanes;
        first = (uint64_t)blockIdx.x * groups + threadIdx.x / lanes;
        step = (uint64_t)gridDim.x * groups;
    }

    template <class T, int N, class Op>
    __device__ void reduce(T (&x)[N], Op op) const {
        if (lanes == 32) {
#pragma unroll
            for (int i = 0; i < N; i++) x[i] = warp_reduce(x[i], op);
        } else {
            block_reduce(x, op);
        }
    }
    template <class T, class Op>
    __device__ T reduce(T x, Op op) const {
        T one[1] = {x};
        reduce(one, op);
        return one[0];
    }

    // Calls f(k, i) for the first element i of each vector of N elements that is this lane's. With K, it has at most K of
    // them, of which this is the k-th; without, k is 0.
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

// A row as one lane sees it: with K its vectors are in registers once they have been read, without K in memory.
template <class T, int N, int K>
struct Row {
    const T* from;
    float kept[K > 0 ? K : 1][N];

    __device__ void read(const Group& group, const T* row, uint64_t cols) {
        from = row;
        if constexpr (K > 0) {
            group.template each_vector<N, K>(cols, [&](int k, uint64_t i) { load_vector(from + i, kept[k]); });
        }
    }

    __device__ void get(int k, uint64_t i, float (&x)[N]) const {
        if constexpr (K > 0) {
#pragma unroll
            for (int n = 0; n < N; n++) x[n] = kept[k][n];
        } else {
            load_vector(from + i, x);
        }
    }
};
