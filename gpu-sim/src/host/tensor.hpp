// Emulation of the instruction wrappers in `device.cuh`: asynchronous copies, matrix loads and warp matmuls.
#pragma GCC visibility push(hidden)
namespace meshwright_host {

void check_shared(const char* operation, const void* address, size_t bytes);

// A copy is executed when it is waited for, and otherwise never.
void start_copy(const char* operation, void* to, const void* from, uint32_t bytes, uint32_t zeros);

// Executes the copies committed in groups before `group`.
void finish_copies(uint32_t group);

struct MatrixLoad {
    const uint16_t* row;
    uint32_t* registers;
    // Of all lanes alike.
    int matrices;
    bool transposed;
};

void load_matrices(void* const* operands, uint32_t lanes);

template <int MATRICES, bool TRANSPOSED>
static inline void load_matrix(const char* operation, int line, uint32_t* registers, const void* row) {
    // The first lanes provide the rows of the matrices; the addresses of other lanes are ignored.
    if (current->lane < 8 * MATRICES) check_shared(operation, row, 16);
    MatrixLoad load = {static_cast<const uint16_t*>(row), registers, MATRICES, TRANSPOSED};
    warp_operation(~0u, operation, line, &load, load_matrices);
}

struct Product {
    float* c;
    const uint32_t *a, *b;
};

void multiply_m16n8k16(void* const* operands, uint32_t lanes);

}  // namespace meshwright_host
#pragma GCC visibility pop

static inline void cp_async_16(void* to, const void* from) {
    meshwright_host::start_copy("cp_async_16", to, from, 16, 0);
}
static inline void cp_async_16(void* to, const void* from, uint32_t bytes) {
    meshwright_host::start_copy("cp_async_16", to, from, bytes, 16 - bytes);
}
static inline void cp_async_4(void* to, const void* from, uint32_t bytes) {
    meshwright_host::start_copy("cp_async_4", to, from, bytes, 4 - bytes);
}
static inline void cp_async_commit() { meshwright_host::current->open_group++; }
template <int PENDING>
static inline void cp_async_wait() {
    uint32_t groups = meshwright_host::current->open_group;
    meshwright_host::finish_copies(groups > PENDING ? groups - PENDING : 0);
}

static inline void ldmatrix_x1(uint32_t (&r)[1], const void* row, int line = __builtin_LINE()) {
    meshwright_host::load_matrix<1, false>("ldmatrix_x1", line, r, row);
}
static inline void ldmatrix_x2(uint32_t (&r)[2], const void* row, int line = __builtin_LINE()) {
    meshwright_host::load_matrix<2, false>("ldmatrix_x2", line, r, row);
}
static inline void ldmatrix_x4(uint32_t (&r)[4], const void* row, int line = __builtin_LINE()) {
    meshwright_host::load_matrix<4, false>("ldmatrix_x4", line, r, row);
}
static inline void ldmatrix_x1_trans(uint32_t (&r)[1], const void* row, int line = __builtin_LINE()) {
    meshwright_host::load_matrix<1, true>("ldmatrix_x1_trans", line, r, row);
}
static inline void ldmatrix_x2_trans(uint32_t (&r)[2], const void* row, int line = __builtin_LINE()) {
    meshwright_host::load_matrix<2, true>("ldmatrix_x2_trans", line, r, row);
}
static inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row, int line = __builtin_LINE()) {
    meshwright_host::load_matrix<4, true>("ldmatrix_x4_trans", line, r, row);
}
static inline void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                int line = __builtin_LINE()) {
    meshwright_host::Product product = {c, a, b};
    meshwright_host::warp_operation(~0u, "mma_m16n8k16", line, &product, meshwright_host::multiply_m16n8k16);
}
