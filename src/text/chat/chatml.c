// SPDX-License-Identifier: Apache-2.0
// ChatML; see chatml.h. What stands between two marks is encoded in one piece, as it would be in
// the whole text: control tokens always part it.
#include "text/chat/chatml.h"

#include <string.h>

#include "base/str.h"

static const char start_mark[] = "<|im_start|>", end_mark[] = "<|im_end|>";

int chatml_init(struct chatml *c, const struct tokenizer *t, struct err *e) {
    c->t = t;
    c->start = tokenizer_find(t, start_mark, sizeof start_mark - 1);
    c->end = tokenizer_find(t, end_mark, sizeof end_mark - 1);
    if (c->start < 0 || c->end < 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "the model's vocabulary has no %s, so it does not speak ChatML; use "
                       "'generate' with a prompt in its own form",
                       c->start < 0 ? start_mark : end_mark);
    return 0;
}

static int plain(const struct chatml *c, const char *text, size_t n, struct token_list *out,
                 struct err *e) {
    return tokenizer_encode(c->t, text, n, false, out, e);
}

// The start mark, the role, a line end and the words.
static int begin(const struct chatml *c, const char *role, const char *text, size_t n,
                 struct token_list *out, struct err *e) {
    struct str s = {0};
    str_puts(&s, role);
    str_putc(&s, '\n');
    str_append(&s, text, n);
    int rc = s.failed ? err_set(e, ERR_MEMORY, "no memory for a message of %zu bytes", n)
                      : token_list_push(out, c->start, e);
    if (!rc)
        rc = plain(c, s.data, s.len, out, e);
    str_fini(&s);
    return rc;
}

int chatml_message(const struct chatml *c, const char *role, const char *text, size_t n,
                   struct token_list *out, struct err *e) {
    int rc = begin(c, role, text, n, out, e);
    return rc ? rc : chatml_close(c, false, out, e);
}

int chatml_open(const struct chatml *c, const char *role, struct token_list *out, struct err *e) {
    return begin(c, role, "", 0, out, e);
}

int chatml_close(const struct chatml *c, bool ended, struct token_list *out, struct err *e) {
    int rc = ended ? 0 : token_list_push(out, c->end, e);
    return rc ? rc : plain(c, "\n", 1, out, e);
}
