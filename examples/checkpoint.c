// SPDX-License-Identifier: Apache-2.0
// Several endings of one beginning: the beginning is read once, and each ending goes on from a
// checkpoint after it, which is kept in a file for the next run of the program. Prints each text,
// and how many tokens had to be read for it.
// Usage: example-checkpoint TARGET.gguf FILE BEGINNING ENDING...
#include <coppice.h>

#include <stdio.h>
#include <string.h>

enum { ROOM = 4096, TOKENS = 24 };

static int append_text(struct coppice_model *m, struct coppice_sequence *s, const char *text,
                       struct coppice_error *e) {
    int32_t ids[ROOM];
    int64_t n = coppice_tokenize(m, text, strlen(text), COPPICE_SPECIAL, ids, ROOM, e);
    if (n > ROOM) {
        snprintf(e->text, sizeof e->text, "a text of %lld tokens is too long", (long long)n);
        return -1;
    }
    return n < 0 ? (int)n : coppice_sequence_append(s, ids, n, e);
}

static int print_piece(void *arg, const struct coppice_piece *piece) {
    (void)arg;
    return fwrite(piece->text, 1, piece->bytes, stdout) != piece->bytes;
}

static int continue_with(struct coppice_model *m, const struct coppice_checkpoint *c,
                         struct coppice_sequence *s, const char *ending, struct coppice_error *e) {
    struct coppice_request r = {.size = sizeof r, .max_tokens = TOKENS, .tokens = print_piece};
    struct coppice_result y = {.size = sizeof y};
    int rc = coppice_checkpoint_restore(c, s, e);
    if (!rc)
        rc = append_text(m, s, ending, e);
    printf("%s", ending);
    if (!rc)
        rc = coppice_generate(s, &r, &y, e);
    if (!rc)
        printf("\n[%lld tokens read, %lld in all]\n", (long long)y.prompt_tokens,
               (long long)(coppice_sequence_length(s) - y.tokens));
    return rc;
}

// A checkpoint after the text: from the file if there is one, else by reading the text.
static int begin(struct coppice_model *m, const char *path, const char *text,
                 struct coppice_checkpoint **c, struct coppice_error *e) {
    struct coppice_sequence *s = NULL;
    FILE *f = fopen(path, "rb");
    if (f) {
        fclose(f);
        return coppice_checkpoint_load(c, m, path, e);
    }
    fprintf(stderr, "reading the beginning\n");
    int rc = coppice_sequence_create(&s, m, e);
    if (!rc)
        rc = append_text(m, s, text, e);
    if (!rc)
        rc = coppice_sequence_run(s, NULL, NULL, e);
    if (!rc)
        rc = coppice_checkpoint_create(c, s, e);
    if (!rc)
        rc = coppice_checkpoint_save(*c, path, e);
    coppice_sequence_free(s);
    return rc;
}

static int run(struct coppice_model *m, const char *path, char **texts, int n,
               struct coppice_error *e) {
    struct coppice_sequence *s = NULL;
    struct coppice_checkpoint *c = NULL;
    int rc = begin(m, path, texts[0], &c, e);
    if (!rc)
        rc = coppice_sequence_create(&s, m, e);
    for (int i = 1; !rc && i < n; i++)
        rc = continue_with(m, c, s, texts[i], e);
    coppice_checkpoint_free(c);
    coppice_sequence_free(s);
    return rc;
}

int main(int argc, char **argv) {
    struct coppice_error e = {0};
    struct coppice_load_options o = {.size = sizeof o, .model = argc > 1 ? argv[1] : NULL};
    struct coppice_model *m = NULL;
    if (argc < 5) {
        fprintf(stderr, "usage: %s TARGET.gguf FILE BEGINNING ENDING...\n", argv[0]);
        return 2;
    }
    int rc = coppice_load(&m, &o, &e);
    if (!rc)
        rc = run(m, argv[2], argv + 3, argc - 3, &e);
    if (rc)
        fprintf(stderr, "%s\n", e.text);
    coppice_free(m);
    return rc != 0;
}
