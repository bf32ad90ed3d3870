// SPDX-License-Identifier: Apache-2.0
// Text and token ids for callers of the public interface: results go into their arrays, and what
// does not fit is counted.
#include <string.h>

#include "api/api.h"
#include "base/num.h"

static int find_tokenizer(const struct coppice_model *m, const struct tokenizer **t,
                          struct err *e) {
    *t = session_tokenizer(m->s);
    return *t ? 0
              : err_set(e, ERR_UNSUPPORTED,
                        "%s has no tokenizer; work with token ids, or take a file that has one",
                        m->target);
}

int64_t coppice_tokenize(const struct coppice_model *m, const char *text, size_t bytes, int flags,
                         int32_t *ids, int64_t capacity, struct coppice_error *error) {
    struct err e = {0};
    const struct tokenizer *t;
    struct token_list list = {0};
    int rc = find_tokenizer(m, &t, &e);
    if (!rc && (flags & COPPICE_ADD_BOS) && tokenizer_add_bos(t))
        rc = token_list_push(&list, tokenizer_bos(t), &e);
    if (!rc)
        rc = tokenizer_encode(t, text, bytes, flags & COPPICE_SPECIAL, &list, &e);
    int64_t n = (int64_t)list.count, fits = min_i64(n, capacity);
    if (!rc && fits > 0)
        memcpy(ids, list.ids, (size_t)fits * sizeof *ids);
    token_list_fini(&list);
    return rc ? api_result(rc, &e, error) : n;
}

int64_t coppice_detokenize(const struct coppice_model *m, const int32_t *ids, int64_t n, int flags,
                           char *text, int64_t capacity, struct coppice_error *error) {
    struct err e = {0};
    const struct tokenizer *t;
    struct str raw = {0}, whole = {0};
    struct utf8_stream stream = {0};
    int rc = find_tokenizer(m, &t, &e);
    for (int64_t i = 0; !rc && i < n; i++)
        tokenizer_decode(t, ids[i], flags & COPPICE_SPECIAL, &raw);
    if (raw.len)
        utf8_stream_push(&stream, raw.data, raw.len, &whole);
    utf8_stream_end(&stream, &whole);
    if (!rc && (raw.failed || whole.failed))
        rc = err_set(&e, ERR_MEMORY, "no memory for the text of %lld tokens", (long long)n);
    int64_t bytes = (int64_t)whole.len, fits = min_i64(bytes, capacity);
    if (!rc && fits > 0)
        memcpy(text, whole.data, (size_t)fits);
    if (!rc && bytes < capacity)
        text[bytes] = '\0';
    str_fini(&raw);
    str_fini(&whole);
    return rc ? api_result(rc, &e, error) : bytes;
}

int coppice_is_end(const struct coppice_model *m, int32_t id) {
    const struct tokenizer *t = session_tokenizer(m->s);
    return t && tokenizer_is_eog(t, id);
}
