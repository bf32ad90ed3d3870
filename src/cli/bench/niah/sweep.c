// SPDX-License-Identifier: Apache-2.0
// Reading the options of `bench niah`; see sweep.h.
#include "cli/bench/niah/sweep.h"

#include <string.h>

#include "base/file.h"

enum { TEXT_MAX = 64 << 20 };

static const char *filler_at(int i) {
    return niah_filler_name((enum niah_filler)i);
}
static const char *kind_at(int i) {
    return niah_kind_name((enum niah_kind)i);
}

int niah_words(const char *option, const char *list, const char *(*name)(int), int n, int *out,
               struct err *e) {
    int got = 0;
    for (const char *p = list;; p++) {
        size_t len = strcspn(p, ",");
        int i = 0;
        while (i < n && (strlen(name(i)) != len || memcmp(name(i), p, len) != 0))
            i++;
        if (i == n)
            return err_set(e, ERR_USAGE, "--%s has no '%.*s'; there is %s, for one", option,
                           (int)(len < 40 ? len : 40), p, name(0));
        for (int k = 0; k < got; k++)
            if (out[k] == i)
                return err_set(e, ERR_USAGE, "--%s names %s twice", option, name(i));
        out[got++] = i;
        p += len;
        if (!*p)
            return got;
    }
}

static int read_fillers(struct niah_sweep *s, const struct options *o, struct err *e) {
    int words[NIAH_FILLERS], n = 0;
    const char *file = options_str(o, OPT_FILLER_FILE);
    if (!file || options_given(o, OPT_FILLERS))
        n = niah_words("fillers", options_str(o, OPT_FILLERS), filler_at, NIAH_FILE, words, e);
    if (n < 0)
        return n;
    for (int i = 0; i < n; i++)
        s->fillers[s->n_fillers++] = (enum niah_filler)words[i];
    if (!file)
        return 0;
    s->fillers[s->n_fillers++] = NIAH_FILE;
    int rc = file_read(&s->text, file, TEXT_MAX, e);
    if (!rc && s->text.len == strspn(s->text.data ? s->text.data : "", " \t\r\n"))
        rc = err_set(e, ERR_USAGE, "%s is empty; a filler needs lines of text", file);
    return rc;
}

int niah_sweep_read(struct niah_sweep *s, const struct cli_args *a, struct err *e) {
    const struct options *o = &a->opt;
    static const int32_t length = 4096;
    *s = (struct niah_sweep){.seed = (uint64_t)options_int(o, OPT_SEED)};
    s->lengths = options_list(o, OPT_PROMPT_TOKENS, &s->n_lengths);
    if (!s->n_lengths) {
        s->lengths = &length;
        s->n_lengths = 1;
    }
    s->counts = options_list(o, OPT_NEEDLES, &s->n_counts);
    s->depths = options_list(o, OPT_DEPTHS, &s->n_depths);
    int words[NIAH_KINDS];
    int n = niah_words("kinds", options_str(o, OPT_KINDS), kind_at, NIAH_KINDS, words, e);
    for (int i = 0; i < n; i++)
        s->kinds[s->n_kinds++] = (enum niah_kind)words[i];
    return n < 0 ? n : read_fillers(s, o, e);
}

void niah_sweep_fini(struct niah_sweep *s) {
    str_fini(&s->text);
}

size_t niah_sweep_groups(const struct niah_sweep *s) {
    return s->n_lengths * s->n_counts * s->n_fillers * s->n_kinds;
}

struct niah_spec niah_sweep_spec(const struct niah_sweep *s, size_t group, size_t depth) {
    struct niah_spec spec = {.depth = s->depths[depth], .seed = s->seed};
    spec.kind = s->kinds[group % s->n_kinds];
    group /= s->n_kinds;
    spec.filler = s->fillers[group % s->n_fillers];
    group /= s->n_fillers;
    spec.needles = s->counts[group % s->n_counts];
    spec.tokens = s->lengths[group / s->n_counts];
    if (spec.filler == NIAH_FILE) {
        spec.text = s->text.data;
        spec.n = s->text.len;
    }
    return spec;
}
