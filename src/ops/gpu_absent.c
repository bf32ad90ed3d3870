// SPDX-License-Identifier: Apache-2.0
// Stands in for the CUDA backend in a build without it.
#include "ops/ops.h"

int exec_create_cuda(struct exec **out, const struct cuda_options *o, struct err *e) {
    (void)o;
    *out = NULL;
    return err_set(e, ERR_UNSUPPORTED,
                   "this program was built without CUDA; build it with the preset cuda");
}

const char *exec_cuda_built(int *version) {
    *version = 0;
    return NULL;
}

void exec_survey_cuda(struct device_survey *s) {
    *s = (struct device_survey){.runtime = RUNTIME_ABSENT, .built = ""};
}
