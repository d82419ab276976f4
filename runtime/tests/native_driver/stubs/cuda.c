// A CUDA driver whose device is host memory, for tests of how it is called. Work is executed when it is submitted. With
// -DNO_DEVICE, the driver of a machine without a device.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE_ERROR = 100, INVALID_CONTEXT = 201, NOT_FOUND = 500, NOT_READY = 600 };

// Each thread must set its current context before other calls.
static _Thread_local void *current;
#define NEEDS_CONTEXT if (!current) return INVALID_CONTEXT

typedef struct { int timed, recorded; double at; } Event;
// A stream keeps the last event of its capture, and a graph the one that its launches record.
typedef struct { int urgent, capturing, calls; Event *captured; } Stream;
typedef struct { Event *event; } Graph;
typedef struct { char name[64]; int shared; } Function;

int cuDriverGetVersion(int *v) { *v = 13000; return SUCCESS; }
int cuGetErrorName(int e, const char **s) { if (e > 999) return INVALID_VALUE; *s = e == INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE" : e == NO_DEVICE_ERROR ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_OTHER"; return SUCCESS; }
int cuGetErrorString(int e, const char **s) { if (e > 999) return INVALID_VALUE; *s = e == INVALID_VALUE ? "invalid argument" : e == NO_DEVICE_ERROR ? "no CUDA-capable device is detected" : "other"; return SUCCESS; }
#ifdef NO_DEVICE
int cuInit(unsigned f) { return NO_DEVICE_ERROR; }
#else
int cuInit(unsigned f) { return SUCCESS; }
#endif
int cuDeviceGetCount(int *n) { *n = 1; return SUCCESS; }
int cuDeviceGet(int *d, int n) { *d = n; return n == 0 ? SUCCESS : INVALID_VALUE; }
int cuDeviceGetName(char *s, int n, int d) { strncpy(s, "Stub H100", n); return SUCCESS; }
int cuDeviceTotalMem_v2(size_t *n, int d) { *n = (size_t)80 << 30; return SUCCESS; }
int cuDeviceGetAttribute(int *v, int a, int d) {
    switch (a) {
    case 75: *v = 9; return SUCCESS;
    case 76: *v = 0; return SUCCESS;
    case 16: *v = 132; return SUCCESS;
    case 97: *v = 232448; return SUCCESS;
    }
    return INVALID_VALUE;
}
int cuDevicePrimaryCtxRetain(void **c, int d) { *c = (void *)0x1000; return SUCCESS; }
int cuCtxSetCurrent(void *c) { current = c; return SUCCESS; }
int cuCtxSynchronize(void) { NEEDS_CONTEXT; return SUCCESS; }
int cuCtxGetStreamPriorityRange(int *least, int *greatest) { NEEDS_CONTEXT; *least = 0; *greatest = -5; return SUCCESS; }

// All memory is free; a test can reduce it.
size_t stub_memory = (size_t)80 << 30;
int cuMemGetInfo_v2(size_t *unused, size_t *all) { NEEDS_CONTEXT; *all = stub_memory; *unused = stub_memory; return SUCCESS; }
int cuMemAlloc_v2(uint64_t *p, size_t n) {
    NEEDS_CONTEXT;
    if (n > (size_t)1 << 40) return OUT_OF_MEMORY;
    *p = (uint64_t)aligned_alloc(256, (n + 255) / 256 * 256);
    memset((void *)*p, 0xff, n);
    return SUCCESS;
}
int cuMemFree_v2(uint64_t p) { NEEDS_CONTEXT; free((void *)p); return SUCCESS; }
int cuMemHostAlloc(void **p, size_t n, unsigned flags) { NEEDS_CONTEXT; if (flags) return INVALID_VALUE; *p = malloc(n); return SUCCESS; }
int cuMemFreeHost(void *p) { NEEDS_CONTEXT; free(p); return SUCCESS; }
int cuMemcpyHtoDAsync_v2(uint64_t d, const void *s, size_t n, Stream *t) { NEEDS_CONTEXT; memcpy((void *)d, s, n); t->calls++; return SUCCESS; }
int cuMemcpyDtoHAsync_v2(void *d, uint64_t s, size_t n, Stream *t) { NEEDS_CONTEXT; memcpy(d, (void *)s, n); t->calls++; return SUCCESS; }
int cuMemcpyDtoDAsync_v2(uint64_t d, uint64_t s, size_t n, Stream *t) { NEEDS_CONTEXT; memcpy((void *)d, (void *)s, n); t->calls++; return SUCCESS; }
int cuMemsetD8Async(uint64_t d, unsigned char v, size_t n, Stream *t) { NEEDS_CONTEXT; memset((void *)d, v, n); t->calls++; return SUCCESS; }

int cuStreamCreateWithPriority(Stream **s, unsigned flags, int priority) {
    NEEDS_CONTEXT;
    if (flags != 1) return INVALID_VALUE;
    *s = calloc(1, sizeof **s);
    (*s)->urgent = priority == -5;
    return SUCCESS;
}
int cuStreamDestroy_v2(Stream *s) { NEEDS_CONTEXT; free(s); return SUCCESS; }
// A test can make the calls of its thread fail with any status.
static _Thread_local int stub_status = 0;
void stub_set_status(int s) { stub_status = s; }
int cuStreamSynchronize(Stream *s) { NEEDS_CONTEXT; if (stub_status) return stub_status; return s->capturing ? INVALID_VALUE : SUCCESS; }
int cuStreamWaitEvent(Stream *s, Event *e, unsigned f) { NEEDS_CONTEXT; return SUCCESS; }
int cuStreamIsCapturing(Stream *s, int *v) { NEEDS_CONTEXT; *v = s->capturing; return SUCCESS; }
int cuStreamBeginCapture_v2(Stream *s, int mode) { NEEDS_CONTEXT; if (mode != 2) return INVALID_VALUE; s->capturing = 1; s->calls = 0; s->captured = NULL; return SUCCESS; }
int cuStreamEndCapture(Stream *s, Graph **g) { NEEDS_CONTEXT; if (!s->capturing) return INVALID_VALUE; s->capturing = 0; *g = calloc(1, sizeof **g); (*g)->event = s->captured; return SUCCESS; }

int cuEventCreate(Event **e, unsigned flags) { NEEDS_CONTEXT; *e = calloc(1, sizeof **e); (*e)->timed = flags != 2; return SUCCESS; }
int cuEventDestroy_v2(Event *e) { NEEDS_CONTEXT; free(e); return SUCCESS; }
// Milliseconds since the start. Time advances with every event, and with every matmul, as the cuBLASLt stub reports.
double stub_clock = 0;
int cuEventRecord(Event *e, Stream *s) { NEEDS_CONTEXT; e->recorded = 1; e->at = stub_clock; stub_clock += 0.001; return SUCCESS; }
// CU_EVENT_RECORD_EXTERNAL: each launch of the graph records the event.
int cuEventRecordWithFlags(Event *e, Stream *s, unsigned f) { NEEDS_CONTEXT; if (f != 1 || !s->capturing) return INVALID_VALUE; s->captured = e; return SUCCESS; }
int cuEventQuery(Event *e) { NEEDS_CONTEXT; return e->recorded ? SUCCESS : NOT_READY; }
int cuEventElapsedTime_v2(float *ms, Event *a, Event *b) { NEEDS_CONTEXT; if (!a->timed || !b->timed) return INVALID_VALUE; *ms = b->at - a->at; return SUCCESS; }

int cuModuleLoadData(void **m, const void *image) { NEEDS_CONTEXT; if (strncmp(image, "CUBIN", 5)) return INVALID_VALUE; *m = strdup(image); return SUCCESS; }
int cuModuleUnload(void *m) { NEEDS_CONTEXT; free(m); return SUCCESS; }
int cuModuleGetFunction(Function **f, char *m, const char *name) {
    NEEDS_CONTEXT;
    char entry[80] = "KERNEL(";
    strncat(strncat(entry, name, 60), ")", 2);
    if (!strstr(m, entry) && strncmp(name, "autotune_", 9)) return NOT_FOUND;
    *f = calloc(1, sizeof **f);
    strncpy((*f)->name, name, 63);
    (*f)->shared = 48 << 10;
    return SUCCESS;
}
int cuFuncGetAttribute(int *v, int a, Function *f) { NEEDS_CONTEXT; if (a != 1) return INVALID_VALUE; *v = 1024; return SUCCESS; }
int cuFuncSetAttribute(Function *f, int a, int v) { NEEDS_CONTEXT; if (a != 8 || v > 232448 - 1024) return INVALID_VALUE; f->shared = v; return SUCCESS; }
// The autotuning kernels, by name: a fixed pattern of small numbers, and a comparison.
static int autotune_kernel(const char *name, void **args) {
    uint64_t first = *(uint64_t *)args[0], second = *(uint64_t *)args[1];
    if (!strcmp(name, "autotune_operand_f32")) {
        for (uint64_t i = 0; i < second; i++) ((float *)first)[i] = 1.0f / (1 + (i * 7919 + *(uint64_t *)args[2]) % 1009);
        return 1;
    }
    if (!strcmp(name, "autotune_difference")) {
        uint64_t n = *(uint64_t *)args[2];
        if (memcmp((void *)first, (void *)second, 2 * n)) **(uint32_t **)args[3] = 1;
        return 1;
    }
    return 0;
}
// Every other kernel adds its second parameter and the number of threads to the value that the first one points to.
int cuLaunchKernel(Function *f, unsigned x, unsigned y, unsigned z, unsigned tx, unsigned ty, unsigned tz, unsigned shared, Stream *s, void **args, void **extra) {
    NEEDS_CONTEXT;
    if (ty != 1 || tz != 1 || extra || (int)shared > f->shared) return INVALID_VALUE;
    s->calls++;
    if (autotune_kernel(f->name, args)) return SUCCESS;
    *(uint32_t *)*(uint64_t *)args[0] += *(uint32_t *)args[1] + x * y * z * tx;
    return SUCCESS;
}

// Kernels of a graph keep the priority of the streams on which they were captured:
// CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.
int cuGraphInstantiateWithFlags(Graph **e, Graph *g, unsigned long long f) { NEEDS_CONTEXT; *e = calloc(1, sizeof **e); (*e)->event = g->event; return f == 8 ? SUCCESS : INVALID_VALUE; }
int cuGraphLaunch(Graph *e, Stream *s) { NEEDS_CONTEXT; s->calls++; return e->event ? cuEventRecord(e->event, s) : SUCCESS; }
int cuGraphDestroy(Graph *g) { NEEDS_CONTEXT; free(g); return SUCCESS; }
int cuGraphExecDestroy(Graph *e) { NEEDS_CONTEXT; free(e); return SUCCESS; }
