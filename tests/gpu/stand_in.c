// SPDX-License-Identifier: Apache-2.0
// A CUDA runtime without a GPU, for what the host does with one: memory is the host's, in steps of
// 2 MiB as on a device, copies are done at once, and kernels do nothing. It stands in front of the
// static runtime at linking, and says that it is of compute capability 9.0.
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cuda_runtime_api.h>

#undef cudaGetDeviceProperties

enum { BLOCKS = 4096, KERNELS = 4096, STEP = 2 << 20 };

static const size_t TOTAL = (size_t)24 << 30;
static size_t used;
static struct {
    void *p;
    size_t bytes;
} blocks[BLOCKS];
static const void *probe; // the kernel that says what it was compiled for

cudaError_t cudaMalloc(void **p, size_t bytes) {
    const size_t whole = (bytes + STEP - 1) / STEP * STEP;
    int i = 0;
    while (i < BLOCKS && blocks[i].p)
        i++;
    if (i == BLOCKS || used + whole > TOTAL)
        return cudaErrorMemoryAllocation;
    *p = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
              0);
    if (*p == MAP_FAILED)
        return cudaErrorMemoryAllocation;
    blocks[i].p = *p;
    blocks[i].bytes = whole;
    used += whole;
    return cudaSuccess;
}

cudaError_t cudaFree(void *p) {
    for (int i = 0; p && i < BLOCKS; i++) {
        if (blocks[i].p != p)
            continue;
        munmap(p, blocks[i].bytes);
        used -= blocks[i].bytes;
        blocks[i].p = NULL;
    }
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
    *available = TOTAL - used;
    *total = TOTAL;
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    memcpy(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream) {
    for (size_t i = 0; i < height; i++)
        memcpy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
    return cudaSuccess;
}

// Only what is small: what is large was mapped as zeros, and nothing is computed.
cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream) {
    if (bytes <= STEP)
        memset(p, value, bytes);
    return cudaSuccess;
}

static cudaError_t handle(void **out) {
    *out = malloc(1);
    return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    return handle((void **)stream);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    free(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
    return handle((void **)event);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    return handle((void **)event);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    *ms = 1;
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags) {
    *p = calloc(1, bytes);
    return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFreeHost(void *p) {
    free(p);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags) {
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *p) {
    return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags) {
    *device = host;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDevice(int *device) {
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count) {
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void) {
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t code) {
    return code == cudaErrorMemoryAllocation ? "out of memory" : "an error of the stand-in";
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute which, int value) {
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *kernel) {
    memset(a, 0, sizeof *a);
    a->numRegs = 64;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    memset(p, 0, sizeof *p);
    strcpy(p->name, "stand-in");
    p->major = 9;
    p->multiProcessorCount = 132;
    p->sharedMemPerBlockOptin = 227 << 10;
    p->totalGlobalMem = TOTAL;
    p->warpSize = 32;
    return cudaSuccess;
}

static int no_map(void) {
    return 0;
}

// Only the maker of tensor maps is there, which makes none.
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *found) {
    int (*const make)(void) = no_map;
    const bool there = strstr(name, "TensorMap") != NULL;
    *function = NULL;
    if (there)
        memcpy(function, &make, sizeof make);
    *found = there ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **args) {
    return cudaSuccess;
}

// What the compiler makes of <<<>>> and of kernels.

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function) {
    memcpy(kernel, &function, sizeof *kernel);
    return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
                               size_t shared, cudaStream_t stream) {
    if ((const void *)kernel == probe)
        **(int **)args[0] = 900;
    return cudaSuccess;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
                                     struct CUstream_st *stream) {
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    const dim3 one = {1, 1, 1};
    *grid = *block = one;
    *shared = 0;
    *(void **)stream = NULL;
    return cudaSuccess;
}

void **__cudaRegisterFatBinary(void *code) {
    static void *registered;
    return &registered;
}

void __cudaRegisterFatBinaryEnd(void **registered) {
}

void __cudaUnregisterFatBinary(void **registered) {
}

void __cudaRegisterFunction(void **registered, const char *function, char *device, const char *name,
                            int threads, void *a, void *b, void *c, void *d, int *e) {
    if (strstr(name, "probe"))
        probe = function;
}
