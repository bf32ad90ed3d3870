// SPDX-License-Identifier: Apache-2.0
// Continues a prompt: asks what loading would take, loads, and prints the text as it comes.
// Usage: example-generate TARGET.gguf DRAFT.gguf|- PROMPT [TOKENS]
#include <coppice.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int print_piece(void *arg, const struct coppice_piece *piece) {
    (void)arg;
    fwrite(piece->text, 1, piece->bytes, stdout);
    return fflush(stdout) != 0; // the reader has closed the pipe: end it
}

static int fail(const char *what, const struct coppice_error *e) {
    fprintf(stderr, "%s: %s\n", what, e->text);
    return 1;
}

// The prompt's ids in memory that the caller frees; NULL after an error.
static int32_t *read_prompt(const struct coppice_model *m, const char *text, int64_t *n,
                            struct coppice_error *e) {
    int flags = COPPICE_SPECIAL | COPPICE_ADD_BOS;
    *n = coppice_tokenize(m, text, strlen(text), flags, NULL, 0, e);
    int32_t *ids = *n < 0 ? NULL : malloc((size_t)(*n + 1) * sizeof *ids);
    if (ids)
        coppice_tokenize(m, text, strlen(text), flags, ids, *n, e);
    return ids;
}

static int run(struct coppice_model *m, const char *prompt, int64_t tokens) {
    struct coppice_error e = {0};
    struct coppice_sequence *s = NULL;
    struct coppice_request r = {.size = sizeof r, .max_tokens = tokens, .tokens = print_piece};
    struct coppice_result y = {.size = sizeof y};
    int64_t n;
    int32_t *ids = read_prompt(m, prompt, &n, &e);
    int rc = ids ? coppice_sequence_create(&s, m, &e) : -1;
    if (!rc)
        rc = coppice_sequence_append(s, ids, n, &e);
    if (!rc)
        rc = coppice_generate(s, &r, &y, &e);
    printf("\n");
    if (!rc && y.passes > 0 && y.decode_ms > 0)
        fprintf(stderr, "%lld tokens, %.1f a second, %.2f a pass\n", (long long)y.tokens,
                (double)(y.tokens - 1) * 1000 / y.decode_ms,
                (double)(y.tokens - 1) / (double)y.passes);
    coppice_sequence_free(s);
    free(ids);
    return rc ? fail("generate", &e) : 0;
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: %s TARGET.gguf DRAFT.gguf|- PROMPT [TOKENS]\n", argv[0]);
        return 2;
    }
    struct coppice_error e = {0};
    struct coppice_load_options o = {.size = sizeof o, .model = argv[1]};
    struct coppice_plan plan = {.size = sizeof plan};
    struct coppice_model *m = NULL;
    if (strcmp(argv[2], "-") != 0)
        o.draft = argv[2];
    if (coppice_plan(&o, &plan, &e))
        return fail("plan", &e);
    fprintf(stderr, "%.1f MB for a context of %lld tokens\n", (double)plan.total / 1e6,
            (long long)plan.max_ctx);
    if (coppice_load(&m, &o, &e))
        return fail("load", &e);
    int status = run(m, argv[3], argc > 4 ? atoll(argv[4]) : 128);
    coppice_free(m);
    return status;
}
