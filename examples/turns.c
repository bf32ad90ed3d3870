// SPDX-License-Identifier: Apache-2.0
// A conversation in ChatML: one line of standard input is one message. Only what is new is read by
// the model: the sequence keeps the state of all turns before.
// Usage: example-turns TARGET.gguf [DRAFT.gguf] <messages
#include <coppice.h>

#include <stdio.h>
#include <string.h>

enum { LINE = 8192 };

static int append(struct coppice_model *m, struct coppice_sequence *s, const char *text, int flags,
                  struct coppice_error *e) {
    int32_t ids[LINE];
    int64_t n = coppice_tokenize(m, text, strlen(text), flags, ids, LINE, e);
    return n < 0 ? (int)n : coppice_sequence_append(s, ids, n < LINE ? n : LINE, e);
}

// The user's words are not searched for control tokens, so they cannot end their own turn.
static int append_turn(struct coppice_model *m, struct coppice_sequence *s, const char *words,
                       struct coppice_error *e) {
    char text[LINE + 8];
    snprintf(text, sizeof text, "user\n%s", words);
    int rc = append(m, s, "<|im_start|>", COPPICE_SPECIAL, e);
    if (!rc)
        rc = append(m, s, text, 0, e);
    return rc ? rc : append(m, s, "<|im_end|>\n<|im_start|>assistant\n", COPPICE_SPECIAL, e);
}

static int print_piece(void *arg, const struct coppice_piece *piece) {
    (void)arg;
    return fwrite(piece->text, 1, piece->bytes, stdout) != piece->bytes;
}

static int answer(struct coppice_model *m, struct coppice_sequence *s, const char *words,
                  struct coppice_error *e) {
    struct coppice_request r = {.size = sizeof r, .max_tokens = 256, .tokens = print_piece};
    struct coppice_result y = {.size = sizeof y};
    int rc = append_turn(m, s, words, e);
    if (!rc)
        rc = coppice_generate(s, &r, &y, e);
    if (rc)
        return rc;
    printf("\n[%lld of %lld tokens read]\n", (long long)y.prompt_tokens,
           (long long)(coppice_sequence_length(s) - y.tokens));
    return append(m, s, y.end == COPPICE_END_STOP ? "\n" : "<|im_end|>\n", COPPICE_SPECIAL, e);
}

int main(int argc, char **argv) {
    struct coppice_error e = {0};
    struct coppice_load_options o = {
        .size = sizeof o, .model = argc > 1 ? argv[1] : NULL, .draft = argc > 2 ? argv[2] : NULL};
    struct coppice_model *m = NULL;
    struct coppice_sequence *s = NULL;
    char line[LINE];
    int rc = coppice_load(&m, &o, &e);
    if (!rc)
        rc = coppice_sequence_create(&s, m, &e);
    while (!rc && fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        rc = answer(m, s, line, &e);
    }
    if (rc)
        fprintf(stderr, "%s\n", e.text);
    coppice_sequence_free(s);
    coppice_free(m);
    return rc != 0;
}
