// What every kernel source begins with. The host shim provides the same names for tests (MESHWRIGHT_HOST is defined
// there), so that each kernel runs on a machine without a GPU.
#ifndef MESHWRIGHT_HOST

typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef long long int64_t;

#define KERNEL(name) extern "C" __global__ void name
#define INFINITY __int_as_float(0x7f800000)

#endif
