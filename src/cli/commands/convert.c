// SPDX-License-Identifier: Apache-2.0
// `coppice convert` and `coppice quantize`: HuggingFace folders and GGUF files to GGUF files.
#include <stdio.h>
#include <string.h>

#include "cli/commands/convert.h"

int cli_recipe(const char *name, const struct convert_recipe **out, struct err *e) {
    struct str known = {0};
    *out = convert_recipe(name);
    if (*out)
        return 0;
    for (int i = 0; convert_recipe_at(i); i++)
        str_printf(&known, "%s%s", i ? ", " : "", convert_recipe_at(i)->name);
    int rc = err_set(e, ERR_USAGE, "'%.40s' is no type that can be written; choose one of %s", name,
                     known.data ? known.data : "F16, Q8_0");
    str_fini(&known);
    return rc;
}

int cli_convert_progress(void *arg, const char *name, int64_t done, int64_t total) {
    bool redraw = cli_progress_wanted();
    int64_t *shown = arg, percent = total ? 100 * done / total : 100;
    if (cli_interrupted())
        return 1;
    if (redraw)
        fprintf(stderr, "\r%3d %% %-40.40s", (int)percent, name);
    else if (percent / 10 != *shown / 10 || done == total)
        fprintf(stderr, "%3d %% %s\n", (int)percent, name);
    if (redraw && done == total)
        fputc('\n', stderr);
    *shown = percent;
    return 0;
}

int cmd_convert(const struct cli_args *a, struct err *e) {
    const char *dir = a->opt.operands[0], *out = a->opt.operands[1];
    int64_t shown = -1;
    struct convert_options o = {.target_dir = options_str(&a->opt, OPT_TARGET_DIR),
                                .threads = (int)options_int(&a->opt, OPT_THREADS),
                                .split_size = options_int(&a->opt, OPT_SPLIT_SIZE),
                                .progress = cli_convert_progress,
                                .progress_arg = &shown};
    int rc = cli_recipe(options_str(&a->opt, OPT_TYPE), &o.recipe, e);
    cli_catch_interrupt();
    return rc ? rc : convert_hf(dir, out, &o, e);
}
