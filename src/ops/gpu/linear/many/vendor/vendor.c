// SPDX-License-Identifier: Apache-2.0
// The vendor's matrix products (cuBLAS), found when a user asks for them: no header and no library
// is needed to build, and nothing is loaded otherwise. Declared here is what is called, as the
// library documents it; one interface serves its versions 11 to 13.
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "ops/gpu/linear/many/vendor/vendor.h"
#include "ops/gpu/runtime/ops_cuda.h"

enum {
    SUCCESS = 0,
    OP_N = 0, // the matrix as it is, column by column
    OP_T = 1,
    TYPE_FLOAT32 = 0,
    TYPE_FLOAT16 = 2,
    SUMS_IN_F32 = 68,
    ITS_CHOICE = -1, // of an algorithm
};

typedef int create_fn(void **handle);
typedef int destroy_fn(void *handle);
typedef int set_stream_fn(void *handle, gpu_stream stream);
typedef int set_workspace_fn(void *handle, void *workspace, size_t bytes);
typedef int multiply_fn(void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha,
                        const void *a, int type_a, int lda, const void *b, int type_b, int ldb,
                        const void *beta, void *c, int type_c, int ldc, int sums, int algorithm);

struct vendor {
    void *library, *handle;
    destroy_fn *destroy;
    multiply_fn *multiply;
};

// The function `name`, into *f; false if there is none.
static bool find(void *library, const char *name, void *f) {
    void *found = dlsym(library, name);
    memcpy(f, &found, sizeof found);
    return found != NULL;
}

static void *load(void) {
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"};
    void *library = NULL;
    for (int i = 0; i < 3 && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

static bool start(struct gpu *g, struct vendor *v, void *workspace) {
    create_fn *create;
    set_stream_fn *set_stream;
    set_workspace_fn *set_workspace;
    return find(v->library, "cublasCreate_v2", &create) &&
           find(v->library, "cublasDestroy_v2", &v->destroy) &&
           find(v->library, "cublasSetStream_v2", &set_stream) &&
           find(v->library, "cublasSetWorkspace_v2", &set_workspace) &&
           find(v->library, "cublasGemmEx", &v->multiply) && create(&v->handle) == SUCCESS &&
           set_stream(v->handle, g->stream) == SUCCESS &&
           set_workspace(v->handle, workspace, VENDOR_WORKSPACE) == SUCCESS;
}

int vendor_open(struct gpu *g, struct err *e) {
    struct vendor *v = calloc(1, sizeof *v);
    void *workspace = gpu_alloc(g, VENDOR_WORKSPACE);
    g->vendor = v;
    if (!v || !workspace)
        return err_set(e, ERR_MEMORY, "GPU %d has no %d MiB for cuBLAS; leave --prompt-gemm out",
                       g->device, VENDOR_WORKSPACE >> 20);
    v->library = load();
    if (!v->library)
        return err_set(e, ERR_UNSUPPORTED,
                       "--prompt-gemm vendor needs cuBLAS and libcublas.so.13, .12 or .11 is not "
                       "found; put its folder into LD_LIBRARY_PATH or leave the option out");
    if (!start(g, v, workspace))
        return err_set(e, ERR_UNSUPPORTED,
                       "cuBLAS does not start on GPU %d; use the one of this driver's CUDA or "
                       "leave --prompt-gemm out",
                       g->device);
    return 0;
}

void vendor_close(struct gpu *g) {
    struct vendor *v = g->vendor;
    g->vendor = NULL;
    if (v && v->handle)
        v->destroy(v->handle);
    if (v && v->library)
        dlclose(v->library);
    free(v);
}

// Rows of ours are columns of the library's matrices.
void vendor_multiply(struct gpu *g, const struct vendor_product *p) {
    const float one = 1, zero = 0;
    const struct vendor *v = g->vendor;
    gpu_flush(g);
    launch_order_forget(&g->order);
    int rc = v->multiply(v->handle, OP_T, OP_N, (int)p->m, (int)p->n, (int)p->k, &one, p->w,
                         TYPE_FLOAT16, (int)p->k, p->x, TYPE_FLOAT16, (int)p->k, &zero, p->out,
                         TYPE_FLOAT32, (int)p->m_stride, SUMS_IN_F32, ITS_CHOICE);
    gpu_check(g, rc == SUCCESS ? GPU_OK : GPU_NO_KERNEL, "a product by cuBLAS");
}
