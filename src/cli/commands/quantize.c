// SPDX-License-Identifier: Apache-2.0
// `coppice quantize`: re-encodes the matrices of a GGUF file.
#include "cli/commands/convert.h"

enum { MOST_TYPES = 64 };

int cmd_quantize(const struct cli_args *a, struct err *e) {
    const char *const *operand = a->opt.operands;
    int64_t shown = -1;
    const char *imatrix = options_str(&a->opt, OPT_IMATRIX);
    const char *types = options_str(&a->opt, OPT_TENSOR_TYPES);
    struct imatrix *m = NULL;
    struct convert_override overrides[MOST_TYPES];
    struct convert_options o = {.pure = options_flag(&a->opt, OPT_PURE),
                                .threads = (int)options_int(&a->opt, OPT_THREADS),
                                .split_size = options_int(&a->opt, OPT_SPLIT_SIZE),
                                .progress = cli_convert_progress,
                                .progress_arg = &shown};
    int rc = cli_recipe(operand[2], &o.recipe, e);
    o.overrides = overrides;
    if (!rc && types)
        rc = convert_overrides(types, overrides, MOST_TYPES, &o.n_overrides, e);
    if (!rc && imatrix)
        rc = imatrix_open(&m, imatrix, e);
    o.imatrix = m;
    cli_catch_interrupt();
    if (!rc)
        rc = convert_quantize(operand[0], operand[1], &o, e);
    imatrix_close(m);
    return rc;
}
