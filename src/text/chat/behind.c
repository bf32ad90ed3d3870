// SPDX-License-Identifier: Apache-2.0
// A conversation that has grown, behind the tokens of what was there before. Text that a model made
// is seldom cut into tokens as the tokenizer would cut it, so the comparison is one of texts: as
// long as the old tokens spell the new text they stay. The border is put where a control token
// ends, or where the old tokens do, so that no piece of text is cut in two.
#include <string.h>

#include "text/chat/impl.h"
#include "text/tokenizer/utf8_stream.h"

// Old tokens along the new text.
struct walk {
    const struct tokenizer *t;
    const struct chat_text *x;
    struct utf8_stream utf8;
    struct str bytes, text; // of one token
    size_t at;              // bytes of the new text that are spelled
    size_t span;            // of the new text, that `at` lies in
    size_t keep, from;      // the border: tokens before it, and bytes
    size_t n;               // old tokens that spell the text up to `at`
};

// Whether the text of w->text comes next; goes behind it.
static bool follows(struct walk *w) {
    const struct str *x = &w->x->text;
    if (w->text.len > x->len - w->at ||
        (w->text.len > 0 && memcmp(x->data + w->at, w->text.data, w->text.len) != 0))
        return false;
    w->at += w->text.len;
    return true;
}

// Whether the bytes from `begin` to w->at are all the template's.
static bool trusted(struct walk *w, size_t begin) {
    while (w->span < w->x->n_spans && w->x->spans[w->span].end <= begin)
        w->span++;
    return w->span < w->x->n_spans && w->x->spans[w->span].trusted &&
           w->x->spans[w->span].end >= w->at;
}

// One old token; false when the new text goes on otherwise.
static bool step(struct walk *w, int32_t id, size_t behind) {
    str_clear(&w->bytes);
    str_clear(&w->text);
    tokenizer_decode(w->t, id, false, &w->bytes);
    bool control = w->bytes.len == 0;
    if (control) {
        utf8_stream_end(&w->utf8, &w->text);
        if (!follows(w))
            return false;
        str_clear(&w->text);
        tokenizer_decode(w->t, id, true, &w->text);
    } else if (!w->bytes.failed) {
        utf8_stream_push(&w->utf8, w->bytes.data, w->bytes.len, &w->text);
    }
    size_t begin = w->at;
    if (w->bytes.failed || w->text.failed || !follows(w))
        return false;
    if (control && w->at > begin) {
        if (!trusted(w, begin))
            return false;
        w->keep = behind;
        w->from = w->at;
    }
    return true;
}

// Walks along all old tokens. True when they end inside the new text, at w->at; the border is
// then still that of the last control token.
static bool walk_all(struct walk *w, const struct chat_tokens *before) {
    // A BOS in front that the vocabulary wants and the template does not print stands for no text.
    bool bos = before->n > 0 && tokenizer_add_bos(w->t) && before->ids[0] == tokenizer_bos(w->t);
    if (bos && !step(w, before->ids[0], 1)) {
        w->keep = 1;
        w->from = w->at = 0;
    }
    for (w->n = bos; w->n < before->n; w->n++) {
        int32_t id = before->ids[w->n];
        if (step(w, id, w->n + 1))
            continue;
        if (w->n + 1 < before->n || !tokenizer_is_eog(w->t, id))
            return false;
        break; // the model ended with another token than the template does
    }
    str_clear(&w->text);
    utf8_stream_end(&w->utf8, &w->text);
    return !w->text.failed && follows(w) && w->at < w->x->text.len;
}

// Whether the first of the new tokens is ordinary text, which might have joined the text before it.
static bool joins(const struct walk *w, const struct token_list *out, size_t first) {
    struct str text = {0};
    if (out->count > first)
        tokenizer_decode(w->t, out->ids[first], false, &text);
    bool is = text.len > 0 || text.failed;
    str_fini(&text);
    return is;
}

static size_t same_tokens(const struct chat_tokens *a, const struct token_list *b, size_t first) {
    size_t n = 0;
    while (n < a->n && first + n < b->count && a->ids[n] == b->ids[first + n])
        n++;
    return n;
}

// Without a border: tokens that are the same stay, whatever they spell.
static int encode_all(const struct tokenizer *t, const struct chat_text *x,
                      const struct chat_tokens *before, size_t *keep, struct token_list *out,
                      struct err *e) {
    size_t first = out->count;
    int rc = chat_encode(t, x, out, e);
    if (rc)
        return rc;
    *keep = same_tokens(before, out, first);
    if (*keep == 0)
        return 0;
    out->count -= *keep;
    memmove(out->ids + first, out->ids + first + *keep, (out->count - first) * sizeof *out->ids);
    return 0;
}

int chat_encode_behind(const struct tokenizer *t, const struct chat_text *x,
                       const struct chat_tokens *before, size_t *keep, struct token_list *out,
                       struct err *e) {
    struct walk w = {.t = t, .x = x};
    size_t first = out->count;
    bool whole = false;
    int rc = 0;
    *keep = 0;
    if (!tokenizer_blank_first(t)) // else texts of tokens have blanks of their own
        whole = walk_all(&w, before);
    if (whole) {
        rc = chat_encode_from(t, x, w.at, out, e);
        whole = !rc && !joins(&w, out, first);
        if (!whole)
            out->count = first;
    }
    if (whole)
        *keep = w.n;
    else if (!rc && w.keep > 0 && (rc = chat_encode_from(t, x, w.from, out, e)) == 0)
        *keep = w.keep;
    else if (!rc)
        rc = encode_all(t, x, before, keep, out, e);
    str_fini(&w.bytes);
    str_fini(&w.text);
    return rc;
}
