// SPDX-License-Identifier: Apache-2.0
// A rendered text as tokens, after the tokens of an earlier one, and where others part from it; see
// chat.h. Text that a model made is seldom cut into tokens as the tokenizer would cut it, so a
// conversation that has grown is compared as text: as long as the old tokens spell the new text
// they stay. The border is put where a control token ends, or where the old tokens do, so that no
// piece of text is cut in two. Where conversations part needs no rule of any template: the
// conversation is rendered again without the opening of a reply, and with one message put
// differently.
#include <stdlib.h>
#include <string.h>

#include "text/chat/impl.h"
#include "text/tokenizer/utf8_stream.h"

// Appends the ids of the text from byte `from` on.
static int encode_from(const struct tokenizer *t, const struct chat_text *x, size_t from,
                       struct token_list *out, struct err *e) {
    const struct chat_template *of = x->of;
    struct special_span *spans = calloc(x->n_spans + 1, sizeof *spans);
    size_t n = 0;
    if (!spans)
        return err_set(e, ERR_MEMORY, "no memory for the tokens of a text");
    for (size_t i = 0; i < x->n_spans; i++)
        if (x->spans[i].end > from)
            spans[n++] = (struct special_span){x->spans[i].end - from, x->spans[i].trusted};
    const struct special_where w = {spans, n, of ? of->guarded.ids : NULL,
                                    of ? of->guarded.count : 0};
    const char *text = x->text.data ? x->text.data + from : "";
    int rc = tokenizer_encode_spans(t, text, x->text.len - from, &w, out, e);
    free(spans);
    return rc;
}

int chat_encode(const struct tokenizer *t, const struct chat_text *x, struct token_list *out,
                struct err *e) {
    size_t before = out->count;
    int32_t bos = tokenizer_bos(t);
    int rc = tokenizer_add_bos(t) ? token_list_push(out, bos, e) : 0;
    if (!rc)
        rc = encode_from(t, x, 0, out, e);
    if (rc) {
        out->count = before;
        return rc;
    }
    // The template may have printed it.
    if (tokenizer_add_bos(t) && out->count > before + 1 && out->ids[before + 1] == bos) {
        out->count--;
        memmove(out->ids + before, out->ids + before + 1, (out->count - before) * sizeof *out->ids);
    }
    return 0;
}

// After earlier tokens.

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

// Whether the text of w->text comes next; goes past it.
static bool text_follows(struct walk *w) {
    const struct str *x = &w->x->text;
    if (w->text.len > x->len - w->at ||
        (w->text.len > 0 && memcmp(x->data + w->at, w->text.data, w->text.len) != 0))
        return false;
    w->at += w->text.len;
    return true;
}

// Whether the bytes from `begin` to w->at are all the template's.
static bool is_trusted(struct walk *w, size_t begin) {
    while (w->span < w->x->n_spans && w->x->spans[w->span].end <= begin)
        w->span++;
    return w->span < w->x->n_spans && w->x->spans[w->span].trusted &&
           w->x->spans[w->span].end >= w->at;
}

// One old token; false when the new text goes on otherwise.
static bool walk_token(struct walk *w, int32_t id, size_t after) {
    str_clear(&w->bytes);
    str_clear(&w->text);
    tokenizer_decode(w->t, id, false, &w->bytes);
    bool control = w->bytes.len == 0;
    if (control) {
        utf8_stream_end(&w->utf8, &w->text);
        if (!text_follows(w))
            return false;
        str_clear(&w->text);
        tokenizer_decode(w->t, id, true, &w->text);
    } else if (!w->bytes.failed) {
        utf8_stream_push(&w->utf8, w->bytes.data, w->bytes.len, &w->text);
    }
    size_t begin = w->at;
    if (w->bytes.failed || w->text.failed || !text_follows(w))
        return false;
    if (control && w->at > begin) {
        if (!is_trusted(w, begin))
            return false;
        w->keep = after;
        w->from = w->at;
    }
    return true;
}

// Walks along all old tokens. True when they end inside the new text, at w->at; the border is
// then still that of the last control token.
static bool walk_all(struct walk *w, const struct chat_tokens *before) {
    // A BOS in front that the vocabulary adds and the template does not print stands for no text.
    bool bos = before->n > 0 && tokenizer_add_bos(w->t) && before->ids[0] == tokenizer_bos(w->t);
    if (bos && !walk_token(w, before->ids[0], 1)) {
        w->keep = 1;
        w->from = w->at = 0;
    }
    for (w->n = bos; w->n < before->n; w->n++) {
        int32_t id = before->ids[w->n];
        if (walk_token(w, id, w->n + 1))
            continue;
        if (w->n + 1 < before->n || !tokenizer_is_eog(w->t, id))
            return false;
        break; // the model ended with another token than the template does
    }
    str_clear(&w->text);
    utf8_stream_end(&w->utf8, &w->text);
    return !w->text.failed && text_follows(w) && w->at < w->x->text.len;
}

// Whether the first of the new tokens is ordinary text, which might have joined the text before it.
static bool may_join(const struct walk *w, const struct token_list *out, size_t first) {
    struct str text = {0};
    if (out->count > first)
        tokenizer_decode(w->t, out->ids[first], false, &text);
    bool is = text.len > 0 || text.failed;
    str_fini(&text);
    return is;
}

static size_t count_same_tokens(const struct chat_tokens *a, const struct token_list *b,
                                size_t first) {
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
    *keep = count_same_tokens(before, out, first);
    if (*keep == 0)
        return 0;
    out->count -= *keep;
    memmove(out->ids + first, out->ids + first + *keep, (out->count - first) * sizeof *out->ids);
    return 0;
}

int chat_encode_after(const struct tokenizer *t, const struct chat_text *x,
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
        rc = encode_from(t, x, w.at, out, e);
        whole = !rc && !may_join(&w, out, first);
        if (!whole)
            out->count = first;
    }
    if (whole)
        *keep = w.n;
    else if (!rc && w.keep > 0 && (rc = encode_from(t, x, w.from, out, e)) == 0)
        *keep = w.keep;
    else if (!rc)
        rc = encode_all(t, x, before, keep, out, e);
    str_fini(&w.bytes);
    str_fini(&w.text);
    return rc;
}

// Where others part.

// Stands in the place of a message; no message has it.
static const char other_words[] = "\xEF\xBF\xBC";

// Turns with another content of one of them, of its first result where it has some; NULL: no
// memory.
static struct conversation_turn *put_differently(const struct conversation *said, int which,
                                                 struct arena *a) {
    struct conversation_turn *turns = arena_array(a, (size_t)said->n_turns, sizeof *turns);
    if (!turns)
        return NULL;
    memcpy(turns, said->turns, (size_t)said->n_turns * sizeof *turns);
    struct conversation_turn *t = &turns[which];
    struct conversation_part *parts = arena_array(a, (size_t)t->n_parts + 2, sizeof *parts);
    if (!parts)
        return NULL;
    int n = 0;
    struct conversation_part *words = &parts[t->n_parts + 1];
    *words = (struct conversation_part){.kind = PART_TEXT, .text = words_of_text(other_words)};
    for (int i = 0; i < t->n_parts; i++)
        if (!conversation_is_content(&t->parts[i]) || t->role == CONVERSATION_TOOL)
            parts[n++] = t->parts[i];
    if (t->role == CONVERSATION_TOOL && n) {
        parts[0].parts = words;
        parts[0].n_parts = 1;
        parts[0].list = false;
    } else {
        parts[n++] = *words;
    }
    t->parts = parts;
    t->n_parts = n;
    t->list = false;
    return turns;
}

// Bytes that the text shares with another rendering; all of them where there is none.
static size_t shared_bytes(const struct chat_template *t, const struct chat_input *in,
                           const struct chat_text *x) {
    struct chat_text y = {0};
    size_t n = 0;
    if (chat_render(t, in, &y, NULL))
        return x->text.len;
    while (n < x->text.len && n < y.text.len && x->text.data[n] == y.text.data[n])
        n++;
    chat_text_fini(&y);
    return n;
}

static size_t shared_without_message(const struct chat_template *t, const struct chat_input *in,
                                     const struct chat_text *x, int which) {
    struct arena a = {0};
    struct conversation said = *in->said;
    struct chat_input changed = *in;
    said.turns = put_differently(in->said, which, &a);
    changed.said = &said;
    size_t n = said.turns ? shared_bytes(t, &changed, x) : x->text.len;
    arena_fini(&a);
    return n;
}

// Whole tokens within the first `bytes` of the text.
static int64_t tokens_within(const struct tokenizer *k, const struct token_list *ids,
                             const struct chat_text *x, size_t bytes) {
    struct str s = {0};
    size_t i = 0, len = 0;
    int32_t bos = tokenizer_bos(k);
    if (ids->count && bos >= 0 && ids->ids[0] == bos) { // it may not be in the text
        tokenizer_decode(k, bos, true, &s);
        bool printed = s.len && x->text.len >= s.len && !memcmp(x->text.data, s.data, s.len);
        i = !printed;
    }
    for (; i < ids->count && !s.failed; i++) {
        str_clear(&s);
        tokenizer_decode(k, ids->ids[i], true, &s);
        if (len + s.len > bytes)
            break;
        len += s.len;
    }
    str_fini(&s);
    return (int64_t)i;
}

int chat_split_positions(const struct chat_template *t, const struct chat_input *in,
                         const struct chat_text *x, const struct tokenizer *k,
                         const struct token_list *ids, int64_t at[CHAT_SPLIT_POSITIONS]) {
    const struct conversation_turn *turns = in->said->turns;
    struct chat_input closed = *in;
    size_t places[CHAT_SPLIT_POSITIONS];
    int n = in->said->n_turns, first = 0, last = n, made = 0, kept = 0;
    while (first < n && is_system_role(turns[first].role))
        first++;
    while (last > 0 && turns[last - 1].role != CONVERSATION_USER)
        last--;
    closed.add_generation_prompt = false;
    if (first < n)
        places[made++] = shared_without_message(t, in, x, first);
    if (last > first + 1)
        places[made++] = shared_without_message(t, in, x, last - 1);
    if (in->add_generation_prompt)
        places[made++] = shared_bytes(t, &closed, x);
    for (int i = 0; i < made; i++) {
        int64_t place = places[i] < x->text.len ? tokens_within(k, ids, x, places[i]) : 0;
        if (place > (kept ? at[kept - 1] : 0))
            at[kept++] = place;
    }
    return kept;
}
