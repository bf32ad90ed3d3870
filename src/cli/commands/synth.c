// SPDX-License-Identifier: Apache-2.0
// `coppice synth`: writes a model of a real shape with random weights.
#include "convert/synth/synth.h"
#include "cli/commands/convert.h"

static int find_shape(const char *name, const struct synth_shape **out, struct err *e) {
    struct str known = {0};
    *out = synth_shape(name);
    if (*out)
        return 0;
    for (int i = 0; synth_shape_at(i); i++)
        str_printf(&known, "%s%s", i ? ", " : "", synth_shape_at(i)->name);
    int rc = err_set(e, ERR_USAGE, "'%.40s' is no shape that is known; choose one of %s", name,
                     known.data ? known.data : "qwen35-27b, dflash-27b");
    str_fini(&known);
    return rc;
}

int cmd_synth(const struct cli_args *a, struct err *e) {
    int64_t shown = -1;
    struct synth_options o = {.seed = (uint64_t)options_int(&a->opt, OPT_SEED),
                              .threads = (int)options_int(&a->opt, OPT_THREADS),
                              .layers = (int)options_int(&a->opt, OPT_LAYERS),
                              .progress = cli_convert_progress,
                              .progress_arg = &shown};
    int rc = cli_need(a, OPT_SHAPE, e);
    if (!rc)
        rc = find_shape(options_str(&a->opt, OPT_SHAPE), &o.shape, e);
    if (!rc)
        rc = cli_recipe(options_str(&a->opt, OPT_QUANT), &o.recipe, e);
    if (rc)
        return rc;
    cli_catch_interrupt();
    return synth_write(a->opt.operands[0], &o, e);
}
