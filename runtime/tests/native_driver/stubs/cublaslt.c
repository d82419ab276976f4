// Naive matmuls as described by the descriptors. Of the algorithms that it proposes, the second is the fastest but sums
// in another order; the third is refused at execution; the fourth sums like the first and is faster.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int type; uint64_t rows, cols; int64_t ld, stride; int32_t batch; } Layout;
typedef struct { int32_t transpose_a, transpose_b, epilogue; float *vector, *inside; int64_t inside_ld; } Operation;
typedef struct { uint64_t data[8]; } Algorithm;
typedef struct { Algorithm algorithm; size_t workspace; int state; float waves; int reserved[4]; } Result;

// The last execution, for the tests.
int stub_algorithm = -1, stub_runs = 0;
// Refusals of matmuls with epilogues: 1 by the heuristic, 2 at execution. Above 100, the status of every matmul.
int stub_refuses = 0;

size_t cublasLtGetVersion(void) { return 130100; }
const char *cublasLtGetStatusString(int s) { return s == 7 ? "an argument is invalid" : s > 100 ? "unknown" : "not supported"; }
// Number of objects that the thread has created.
_Thread_local int stub_handles = 0;
int cublasLtCreate(void **h) { stub_handles++; *h = malloc(1); return 0; }
int cublasLtDestroy(void *h) { free(h); return 0; }
// COMPUTE_32F and CUDA_R_32F: f32 accumulation, without TF32.
int cublasLtMatmulDescCreate(Operation **o, int compute, int scale) { *o = calloc(1, sizeof **o); return compute == 68 && scale == 0 ? 0 : 7; }
int cublasLtMatmulDescDestroy(Operation *o) { free(o); return 0; }
int cublasLtMatmulDescSetAttribute(Operation *o, int a, const void *v, size_t n) {
    if (n != (a == 3 || a == 4 || a == 7 ? 4 : 8)) return 7;
    switch (a) {
    case 3: memcpy(&o->transpose_a, v, n); return 0;
    case 4: memcpy(&o->transpose_b, v, n); return 0;
    case 7: memcpy(&o->epilogue, v, n); return 0;
    case 8: memcpy(&o->vector, v, n); return 0;
    case 11: memcpy(&o->inside, v, n); return 0;
    case 12: memcpy(&o->inside_ld, v, n); return 0;
    }
    return 7;
}
int cublasLtMatrixLayoutCreate(Layout **l, int type, uint64_t rows, uint64_t cols, int64_t ld) {
    *l = malloc(sizeof **l);
    **l = (Layout){type, rows, cols, ld, .batch = 1};
    return 0;
}
// BATCH_COUNT and STRIDED_BATCH_OFFSET.
int cublasLtMatrixLayoutSetAttribute(Layout *l, int a, const void *v, size_t n) {
    if (n != (a == 5 ? 4 : 8)) return 7;
    switch (a) {
    case 5: memcpy(&l->batch, v, n); return 0;
    case 6: memcpy(&l->stride, v, n); return 0;
    }
    return 7;
}
int cublasLtMatrixLayoutDestroy(Layout *l) { free(l); return 0; }
int cublasLtMatmulPreferenceCreate(void **p) { *p = malloc(1); return 0; }
int cublasLtMatmulPreferenceDestroy(void *p) { free(p); return 0; }
int cublasLtMatmulPreferenceSetAttribute(void *p, int a, const void *v, size_t n) { return n == (a == 1 ? 8 : 4) ? 0 : 7; }
int cublasLtMatmulAlgoGetHeuristic(void *h, Operation *o, Layout *a, Layout *b, Layout *c, Layout *d, void *p, int asked, Result *results, int *count) {
    // Of matmuls with epilogues, those with rows of 16 bytes and an address for the pre-activation.
    if (o->epilogue && stub_refuses == 1) return 7;
    if (o->epilogue && (d->rows % 4 || !o->vector)) return 15;
    *count = asked < 4 ? asked : 4;
    for (int i = 0; i < *count; i++) results[i] = (Result){.algorithm = {{i}}, .workspace = 1000 * i};
    return 0;
}

int cublasLtMatmulAlgoCheck(void *h, Operation *o, Layout *a, Layout *b, Layout *c, Layout *d, const Algorithm *algorithm, Result *result) {
    if (algorithm->data[0] > 3) return 7;
    *result = (Result){.algorithm = *algorithm, .workspace = 4096};
    return 0;
}
// Identifier, tile, stages and split-k.
int cublasLtMatmulAlgoConfigGetAttribute(const Algorithm *algorithm, int a, void *value, size_t n, size_t *written) {
    if (n != 4 || (a != 0 && a != 1 && a != 2 && a != 6)) return 7;
    *(uint32_t *)value = a == 0 ? algorithm->data[0] : 10 + a;
    *written = n;
    return 0;
}

static float at(const void *data, const Layout *l, int transposed, uint64_t batch, uint64_t i, uint64_t j) {
    uint64_t place = batch * l->stride + (transposed ? j + i * l->ld : i + j * l->ld);
    if (l->type == 0) return ((const float *)data)[place];
    uint32_t bits = (uint32_t)((const uint16_t *)data)[place] << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

int cublasLtMatmul(void *h, Operation *o, const float *alpha, const void *A, Layout *a, const void *B, Layout *b, const float *beta, const float *C, Layout *c, float *D, Layout *d, const Algorithm *algorithm, void *workspace, size_t bytes, void *stream) {
    if (algorithm->data[0] == 2 || (o->epilogue && stub_refuses == 2)) return 15;
    if (stub_refuses > 100) return stub_refuses;
    if (c->type != 0 || bytes != 64u << 20) return 7;
    stub_algorithm = algorithm->data[0];
    stub_runs++;
    extern double stub_clock;
    stub_clock += stub_algorithm == 0 ? 3 : stub_algorithm == 1 ? 1 : 2;
    uint64_t k = o->transpose_a ? a->rows : a->cols;
    if (a->batch != d->batch || b->batch != d->batch || c->batch != d->batch) return 7;
    for (uint64_t batch = 0; batch < (uint64_t)d->batch; batch++, C += c->stride, D += d->stride)
    for (uint64_t j = 0; j < d->cols; j++)
        for (uint64_t i = 0; i < d->rows; i++) {
            // Large matmuls compute only the first two rows and columns and repeat them, to save time.
            if (d->rows > 512 && (i > 1 || j > 1)) {
                D[i + j * d->ld] = D[(i & 1) + (j & 1) * d->ld];
                continue;
            }
            float sum = 0;
            for (uint64_t n = 0; n < k; n++) {
                uint64_t l = stub_algorithm == 1 ? k - 1 - n : n;
                sum += at(A, a, o->transpose_a, batch, i, l) * at(B, b, o->transpose_b, batch, l, j);
            }
            sum = *alpha * sum + (*beta == 0 ? 0 : *beta * C[i + j * c->ld]);
            // EPILOGUE_BIAS, _GELU and _AUX; GELU doubles its operand here.
            if (o->epilogue & 4) sum += o->vector[i];
            if (o->epilogue & 128) o->inside[i + j * o->inside_ld] = sum;
            if (o->epilogue & 32) sum *= 2;
            D[i + j * d->ld] = sum;
        }
    return 0;
}
