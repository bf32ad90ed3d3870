// SPDX-License-Identifier: Apache-2.0
// `coppice quantize`: re-encodes the matrices of a GGUF file.
#include "cli/convert.h"

int cmd_quantize(const struct cli_args *a, struct err *e) {
    const char *const *operand = a->opt.operands;
    int64_t shown = -1;
    struct convert_options o = {.threads = (int)options_int(&a->opt, OPT_THREADS),
                                .progress = cli_convert_progress,
                                .progress_arg = &shown};
    int rc = cli_recipe(operand[2], &o.recipe, e);
    cli_catch_interrupt();
    return rc ? rc : convert_quantize(operand[0], operand[1], &o, e);
}
