// SPDX-License-Identifier: Apache-2.0
// Stands in for an NVIDIA driver that is older than the program's CUDA: it answers all that the
// runtime calls before it gives up. With it, what the program says can be seen on any machine, one
// without a GPU included. Loaded as libcuda.so.1 by way of LD_LIBRARY_PATH
// (scripts/test_gpu_cli.sh).
#include <string.h>

enum { VERSION = 12020, NO_SUCH_FUNCTION = 500 };

int cuDriverGetVersion(int *version);
int cuInit(unsigned flags);
int cuGetProcAddress(const char *name, void **out, int version, unsigned long long flags);
int cuGetProcAddress_v2(const char *name, void **out, int version, unsigned long long flags,
                        int *found);

int cuDriverGetVersion(int *version) {
    *version = VERSION;
    return 0;
}

int cuInit(unsigned flags) {
    (void)flags;
    return 0;
}

static int other(void) {
    return 0;
}

int cuGetProcAddress(const char *name, void **out, int version, unsigned long long flags) {
    (void)flags;
    union {
        int (*other)(void);
        int (*driver_version)(int *);
        int (*init)(unsigned);
        int (*get)(const char *, void **, int, unsigned long long);
        int (*get_v2)(const char *, void **, int, unsigned long long, int *);
        void *p;
    } f = {.other = other};
    if (!strcmp(name, "cuDriverGetVersion"))
        f.driver_version = cuDriverGetVersion;
    else if (!strcmp(name, "cuInit"))
        f.init = cuInit;
    else if (!strncmp(name, "cuGetProcAddress", 16) && version >= 12000)
        f.get_v2 = cuGetProcAddress_v2;
    else if (!strncmp(name, "cuGetProcAddress", 16))
        f.get = cuGetProcAddress;
    *out = f.p;
    return f.p ? 0 : NO_SUCH_FUNCTION;
}

int cuGetProcAddress_v2(const char *name, void **out, int version, unsigned long long flags,
                        int *found) {
    if (found)
        *found = 0;
    return cuGetProcAddress(name, out, version, flags);
}
