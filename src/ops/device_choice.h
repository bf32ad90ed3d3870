// SPDX-License-Identifier: Apache-2.0
// Chooses the device from the options and from what the CUDA backend found on the machine: gives
// the device, a sentence to show once, or an error. Pure functions of their arguments, so that
// tests need no broken machine.
#ifndef COPPICE_OPS_DEVICE_CHOICE_H
#define COPPICE_OPS_DEVICE_CHOICE_H

#include <stdbool.h>

#include "base/err.h"

enum { DEVICE_MAX = 32, DEVICE_OLDEST = 75, DEVICE_CPU_NUMBER = -1 };

enum device_kind {
    DEVICE_AUTO, // the first GPU that can be used, else the CPU
    DEVICE_CPU,
    DEVICE_CUDA, // a GPU or nothing
};

struct device_request {
    enum device_kind kind;
    int index; // CUDA's number of the GPU, -1: the first that can be used
};

// "auto", "cpu", "cuda" or "cuda:N"; NULL is auto. ERR_USAGE.
int device_request_parse(struct device_request *r, const char *text, struct err *e);

enum device_runtime {
    RUNTIME_ABSENT,     // built without CUDA
    RUNTIME_READY,      // devices[] is filled
    RUNTIME_NO_DEVICE,  // a driver and no GPU
    RUNTIME_OLD_DRIVER, // the driver is older than this program's CUDA, or not there
    RUNTIME_FAILED,     // anything else; see reason
};

// The result of a look at the machine.
struct device_survey {
    enum device_runtime runtime;
    int driver, version; // CUDA of the driver and of this program, 13000 for 13.0; driver 0: none
    const char *reason;  // the runtime's own words for RUNTIME_FAILED
    const char *built;   // architectures that kernels were built for, for example "80 90a"
    int n;
    struct {
        int sm; // compute capability, 90 for 9.0
        char name[64];
    } devices[DEVICE_MAX];
};

// A look at the machine's GPUs; it opens none of them (of the CUDA backend).
void exec_survey_cuda(struct device_survey *s);

// What this program holds, whatever the machine has: the levels of the CPU backend, as in
// "scalar avx2"; the architectures that kernels were built for, as in "80 90a", with CUDA's version
// (13000 for 13.0), or NULL without CUDA.
const char *exec_cpu_levels(void);
const char *exec_cuda_built(int *version);

struct device_choice {
    int device;     // CUDA's number, or DEVICE_CPU_NUMBER
    char note[256]; // a sentence to show once, or empty
};

// ERR_DEVICE or ERR_UNSUPPORTED when a GPU was requested and cannot be had: one sentence why.
int device_choose(struct device_choice *out, const struct device_request *r,
                  const struct device_survey *s, struct err *e);

// Whether kernels built for these architectures run on a GPU of this compute capability: those of
// its own or an older one, and those marked "a" on exactly that one.
bool device_runs(const char *built, int sm);
// Whether an architecture marked "a" for this capability is among them.
bool device_has_special(const char *built, int sm);

// How linear layers use the matrix instructions of a GPU.
enum cuda_path {
    CUDA_PATH_SMALL, // mma.sync m16n8k8: sm_75
    CUDA_PATH_MMA,   // mma.sync m16n8k16: sm_80 and newer
    CUDA_PATH_WGMMA, // wgmma for many rows, mma.sync for few: sm_90a
    CUDA_PATHS,
    CUDA_PATH_AUTO = CUDA_PATHS, // the best one
};
const char *device_path_name(enum cuda_path path);
// The path to take on this GPU. ERR_UNSUPPORTED when the one that was requested is not possible.
int device_path(enum cuda_path *out, enum cuda_path requested, const char *built, int sm,
                struct err *e);

#endif
