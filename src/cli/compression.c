// SPDX-License-Identifier: Apache-2.0
// Compression of prompts from the options; see compression.h.
#include "cli/compression.h"

#include <stdio.h>

#include "base/num.h"
#include "cli/prefill.h"
#include "compress/open.h"

enum { LONGEST = 131072 };

int compression_options(struct compression *k, const struct cli_args *a, struct err *e) {
    static const int needless[] = {OPT_PREFILL_DRAFTER, OPT_PREFILL_KEEP,       OPT_PREFILL_CURVE,
                                   OPT_PREFILL_MASS,    OPT_PREFILL_NO_ANCHORS, OPT_PREFILL_GAP,
                                   OPT_PREFILL_FLOWKV,  OPT_PREFILL_THRESHOLD,  OPT_PREFILL_ADAPT,
                                   OPT_PREFILL_MEMORY};
    const struct options *o = &a->opt;
    *k = (struct compression){.options = prefill_options_default()};
    k->options.mode = (enum prefill_mode)options_int(o, OPT_PREFILL_COMPRESSION); // in enum order
    for (size_t i = 0; i < sizeof needless / sizeof *needless && !k->options.mode; i++)
        if (options_given(o, needless[i]))
            return err_set(e, ERR_USAGE,
                           "--%s is for compressed prompts; give --prefill-compression auto or "
                           "always as well",
                           cli_options[needless[i]].name);
    if (k->options.mode == PREFILL_OFF)
        return 0;
    if (!options_given(o, OPT_PREFILL_DRAFTER))
        return err_set(e, ERR_USAGE,
                       "--prefill-compression needs a scorer: give --prefill-drafter FILE, a small "
                       "qwen3 model (GGUF)");
    k->path = options_str(o, OPT_PREFILL_DRAFTER);
    k->options.threshold = options_int(o, OPT_PREFILL_THRESHOLD);
    k->options.gap = options_str(o, OPT_PREFILL_GAP);
    k->options.adapt = options_flag(o, OPT_PREFILL_ADAPT);
    int rc = prefill_options(o, &k->options.compress, e);
    return rc ? rc : prefill_scorer_options(o, &k->scorer, e);
}

int compression_open(struct compression *k, const struct cli_args *a, struct err *e) {
    const struct options *o = &a->opt;
    const char *where = options_str(o, OPT_PREFILL_DEVICE);
    const struct device_options d = {.name = where ? where : options_str(o, OPT_DEVICE),
                                     .cpu_level = options_str(o, OPT_CPU_LEVEL),
                                     .threads = (int)options_int(o, OPT_THREADS),
                                     .cuda_path = (enum cuda_path)options_int(o, OPT_CUDA_PATH),
                                     .vram_limit = options_int(o, OPT_VRAM_LIMIT)};
    struct runtime_device *device;
    if (k->options.mode == PREFILL_OFF)
        return 0;
    int rc = runtime_create(&k->runtime, 0, e);
    if (!rc)
        rc = runtime_device(k->runtime, &d, &device, e);
    if (!rc)
        rc = compressor_open(&k->c, runtime_exec(device), k->path, &k->scorer, e);
    if (!rc)
        k->x = runtime_exec(device);
    return rc;
}

int compression_share(const struct compression *k, const struct cli_args *a,
                      struct session_options *o, struct err *e) {
    struct score_plan plan = {0};
    struct exec_memory m;
    struct gguf *g;
    if (!k->c || !exec_is_device(k->x) || options_given(&a->opt, OPT_PREFILL_DEVICE))
        return 0;
    int rc = gguf_open(&g, k->path, e);
    if (rc)
        return rc;
    rc = score_plan_of(&plan, k->x, g, &k->scorer, LONGEST, e);
    gguf_close(g);
    exec_memory_of(k->x, &m);
    int64_t all = o->vram_limit > 0 ? min_i64(o->vram_limit, m.free) : m.free;
    if (!rc && plan.total >= all)
        rc = err_set(e, ERR_MEMORY,
                     "the scorer takes %.1f GiB for a prompt of %d tokens, and there are %.1f GiB "
                     "for it and the target",
                     (double)plan.total / (1 << 30), LONGEST, (double)all / (1 << 30));
    if (!rc)
        o->vram_limit = all - plan.total;
    return rc;
}

void compression_close(struct compression *k) {
    compressor_close(k->c);
    runtime_destroy(k->runtime);
    *k = (struct compression){0};
}

void compression_show(const struct prefill_report *r) {
    if (r->tried && r->reason)
        fprintf(stderr, "coppice: the prompt of %lld tokens is not compressed: %s\n",
                (long long)r->from, r->reason);
    else if (r->tried)
        fprintf(stderr, "coppice: the prompt is compressed from %lld to %lld tokens in %.1f ms%s\n",
                (long long)r->from, (long long)r->to, r->ms,
                r->adapted > 0 ? ", by how earlier answers were guessed" : "");
}
