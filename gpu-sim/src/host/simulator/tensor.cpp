// Asynchronous copies, matrix loads and warp matmuls.
namespace meshwright_host {

void check_shared(const char* operation, const void* address, size_t bytes) {
    if (reinterpret_cast<uintptr_t>(address) % bytes != 0) {
        fail("%s of an address in shared memory that is not aligned to %zu bytes", operation, bytes);
    }
    if (!is_shared(address, bytes)) fail("%s of an address outside of shared memory", operation);
}

void start_copy(const char* operation, void* to, const void* from, uint32_t bytes, uint32_t zeros) {
    Fiber& fiber = current_fiber();
    check_shared(operation, to, bytes + zeros);
    if (reinterpret_cast<uintptr_t>(from) % (bytes + zeros) != 0) {
        fail("%s from an address that is not aligned to %u bytes", operation, bytes + zeros);
    }
    note<Use::write>(to, bytes + zeros);
    if (fiber.n_copies == fiber.copy_capacity) {
        fiber.copy_capacity = fiber.copy_capacity ? 2 * fiber.copy_capacity : 16;
        void* grown = realloc(fiber.copies, fiber.copy_capacity * sizeof(PendingCopy));
        if (!grown) fail("the host has no memory left for pending copies");
        fiber.copies = static_cast<PendingCopy*>(grown);
    }
    fiber.copies[fiber.n_copies++] = {static_cast<char*>(to), static_cast<const char*>(from), bytes, zeros,
                                        fiber.open_group};
}

void finish_copies(uint32_t group) {
    Fiber& fiber = current_fiber();
    uint32_t kept = 0;
    for (uint32_t i = 0; i < fiber.n_copies; i++) {
        PendingCopy copy = fiber.copies[i];
        if (copy.group < group) {
            note<Use::write>(copy.to, copy.bytes + copy.zeros);
            memcpy(copy.to, copy.from, copy.bytes);
            memset(copy.to + copy.bytes, 0, copy.zeros);
        } else {
            fiber.copies[kept++] = copy;
        }
    }
    fiber.n_copies = kept;
}

void load_matrices(void* const* operands, uint32_t) {
    MatrixLoad of_first = *static_cast<MatrixLoad*>(operands[0]);
    int matrices = of_first.matrices;
    for (int row = 0; row < 8 * matrices; row++) note<Use::warp_read>(static_cast<MatrixLoad*>(operands[row])->row, 16);
    for (int lane = 0; lane < 32; lane++) {
        MatrixLoad* load = static_cast<MatrixLoad*>(operands[lane]);
        for (int matrix = 0; matrix < matrices; matrix++) {
            uint32_t pair = 0;
            for (int half = 0; half < 2; half++) {
                int first = lane / 4, second = lane % 4 * 2 + half;
                int row = of_first.transposed ? second : first, col = of_first.transposed ? first : second;
                const uint16_t* elements = static_cast<MatrixLoad*>(operands[matrix * 8 + row])->row;
                pair |= static_cast<uint32_t>(elements[col]) << (16 * half);
            }
            load->registers[matrix] = pair;
        }
    }
}

static float bf16_half(uint32_t pair, int half) {
    uint32_t bits = half ? pair & 0xffff0000u : pair << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

// Sums are in order of `k`, in vectors of four columns.
void multiply_m16n8k16(void* const* operands, uint32_t) {
    typedef float Columns __attribute__((vector_size(16)));
    float a[16][16], c[16][8];
    alignas(16) float b[16][8];
    for (int lane = 0; lane < 32; lane++) {
        const Product* product = static_cast<Product*>(operands[lane]);
        int group = lane / 4, pair = lane % 4 * 2;
        for (int half = 0; half < 2; half++) {
            for (int i = 0; i < 4; i++) a[group + i % 2 * 8][pair + half + i / 2 * 8] = bf16_half(product->a[i], half);
            for (int i = 0; i < 2; i++) b[pair + half + i * 8][group] = bf16_half(product->b[i], half);
        }
        for (int i = 0; i < 4; i++) c[group + i / 2 * 8][pair + i % 2] = product->c[i];
    }
    for (int row = 0; row < 16; row++) {
        Columns sums[2];
        memcpy(sums, c[row], sizeof sums);
        for (int k = 0; k < 16; k++) {
            for (int i = 0; i < 2; i++) sums[i] += a[row][k] * *reinterpret_cast<const Columns*>(&b[k][4 * i]);
        }
        memcpy(c[row], sums, sizeof sums);
    }
    for (int lane = 0; lane < 32; lane++) {
        Product* product = static_cast<Product*>(operands[lane]);
        for (int i = 0; i < 4; i++) product->c[i] = c[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
    }
}

}  // namespace meshwright_host
