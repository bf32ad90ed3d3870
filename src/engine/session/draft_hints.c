// SPDX-License-Identifier: Apache-2.0
// See draft_hints.h.
#include "engine/session/draft_hints.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"
#include "models/draft/config.h"
#include "models/draft/dflash/dflash.h"

static void say(const struct draft_hints *h, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void say(const struct draft_hints *h, const char *format, ...) {
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    h->note(h->arg, line);
}

enum { WORD = 24, VERSIONS = 8 };

// Families of models with their versions in names: "Qwen3.6-27B" has Qwen 3.6.
struct version {
    char family[WORD], number[WORD];
};
struct versions {
    struct version at[VERSIONS];
    int n;
};

// Words before a number that is no version of a model.
static bool is_other_word(const char *s, size_t n) {
    return str_lists("mxfp nvfp int rtn ctx block layer layers step epoch seed part bpw", s, n);
}

// Reads a word of three or more letters and the number after it at s; how many bytes it took.
static size_t read_version(const char *s, size_t n, struct version *v) {
    size_t word = 0, at, digits;
    while (word < n && isalpha((unsigned char)s[word]))
        word++;
    at = word;
    if (at < n && strchr("-_ ", s[at]))
        at++;
    digits = at;
    while (digits < n && (isdigit((unsigned char)s[digits]) ||
                          (digits > at && s[digits] == '.' && digits + 1 < n &&
                           isdigit((unsigned char)s[digits + 1]))))
        digits++;
    bool size = digits < n && isalnum((unsigned char)s[digits]); // as in "Coder-30B"
    char lower[WORD] = "";
    for (size_t i = 0; i < word && word < WORD; i++)
        lower[i] = (char)tolower((unsigned char)s[i]);
    if (word < 3 || word >= WORD || digits == at || digits - at >= WORD || size ||
        is_other_word(lower, word))
        return word;
    snprintf(v->family, WORD, "%.*s", (int)word, s);
    snprintf(v->number, WORD, "%.*s", (int)(digits - at), s + at);
    return digits;
}

static void add_versions(struct versions *all, const char *s, size_t n) {
    for (size_t i = 0; i < n && all->n < VERSIONS;) {
        struct version v = {.family = ""};
        size_t taken = isalpha((unsigned char)s[i]) ? read_version(s + i, n - i, &v) : 0;
        if (v.family[0])
            all->at[all->n++] = v;
        i += taken ? taken : 1;
    }
}

static void add_path(struct versions *all, const char *path) {
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    if (strcmp(base, "model.safetensors") != 0) {
        add_versions(all, base, strlen(base));
        return;
    }
    size_t end = slash ? (size_t)(slash - path) : 0, begin = end; // its folder says what it is
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    add_versions(all, path + begin, end - begin);
}

// By what the file says of itself; by the file's name where that has none.
static struct versions versions_of(const struct gguf *g, const char *path) {
    static const char *const keys[] = {"general.name", "general.basename",
                                       "general.base_model.0.name"};
    struct versions all = {.n = 0};
    struct err ignored;
    for (size_t i = 0; g && i < sizeof keys / sizeof *keys; i++) {
        const char *s;
        size_t n;
        if (!gguf_get_str(g, keys[i], &s, &n, &ignored) && s)
            add_versions(&all, s, n);
    }
    if (!all.n)
        add_path(&all, path);
    return all;
}

static void look_at_versions(const struct draft_hints *h, const struct gguf *own) {
    const struct versions a = versions_of(own, h->draft), b = versions_of(h->target, h->model);
    for (int i = 0; i < a.n; i++) {
        const struct version *v = &a.at[i], *other = NULL;
        bool same = false;
        for (int k = 0; k < b.n; k++)
            if (!strcasecmp(v->family, b.at[k].family)) {
                other = &b.at[k];
                same |= !strcmp(v->number, other->number);
            }
        if (!other || same)
            continue;
        say(h,
            "the draft is for %s %s by its name and the target is %s %s: drafts of another version "
            "guess badly; take the one of this target",
            v->family, v->number, other->family, other->number);
        return;
    }
}

static void look_at_templates(const struct draft_hints *h, const struct gguf *own) {
    static const char key[] = "tokenizer.chat_template";
    const char *a, *b;
    size_t n, k;
    struct err ignored;
    if (gguf_get_str(own, key, &a, &n, &ignored) || gguf_get_str(h->target, key, &b, &k, &ignored))
        return;
    if (a && b && (n != k || memcmp(a, b, n) != 0))
        say(h,
            "the draft's file has another chat template than the target's (%s): it was trained "
            "on texts of that form and may guess worse in chats",
            key);
}

// Where the kind of draft does not refuse it.
static void look_at_tokens(const struct draft_hints *h, const struct gguf *own) {
    const int64_t apart = draft_token_apart(own, h->target);
    if (apart >= 0)
        say(h,
            "token %lld of the draft's file is not the target's (tokenizer.ggml.tokens): the draft "
            "is for another tokenizer and will guess badly; take the one of this target",
            (long long)apart);
}

// Drafts are trained on layers spread over the whole target.
static void look_at_taps(const struct draft_hints *h) {
    struct dflash *d = draft_dflash(h->loaded);
    const struct dflash_params *p = d ? dflash_params_of(d) : NULL;
    int deepest = -1;
    for (int i = 0; p && i < p->n_taps; i++)
        deepest = p->taps[i] > deepest ? p->taps[i] : deepest;
    if (p && 4 * (deepest + 1) < 3 * h->layers)
        say(h,
            "the deepest layer that the draft reads (target_layers) is %d of the target's %d, and "
            "drafts read up to the last ones: it may be for a shallower model, or its list is "
            "wrong",
            deepest, h->layers);
}

// Options that only other kinds of drafts have.
static void look_at_options(const struct draft_hints *h) {
    const struct dflash_options *o = h->dflash, none = dflash_options_default();
    const char *given = o->n_taps                    ? "taps"
                        : o->mask_id != none.mask_id ? "mask-id"
                        : o->block_size              ? "block"
                        : o->window != none.window   ? "window"
                        : o->causal != none.causal   ? "causal"
                                                     : NULL;
    if (h->others)
        return;
    if (given && !draft_dflash(h->loaded))
        say(h,
            "--draft-%s is not used: it is for DFlash drafts, and this one is of another kind (%s)",
            given, draft_traits(h->loaded).name);
    if (draft_dflash(h->loaded) && (h->vocab->list || h->vocab->rows != DRAFT_VOCAB_AUTO))
        say(h,
            "--draft-vocab is not used: a DFlash draft scores all tokens with the target's head");
}

void draft_hints(const struct draft_hints *h) {
    struct gguf *own = NULL;
    struct err ignored;
    if (!h->note)
        return;
    look_at_options(h);
    if (h->draft == DRAFT_OF_TARGET)
        return;
    if (gguf_open(&own, h->draft, &ignored))
        own = NULL; // safetensors
    look_at_versions(h, own);
    if (own) {
        look_at_templates(h, own);
        look_at_tokens(h, own);
    }
    look_at_taps(h);
    gguf_close(own);
}
