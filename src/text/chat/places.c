// SPDX-License-Identifier: Apache-2.0
// Where other conversations are likely to part from a rendered one. No rule of any template is
// needed: the conversation is rendered again without the opening of a reply, and with one message
// put differently, and where the texts first differ is the place. See chat.h.
#include <stdlib.h>
#include <string.h>

#include "text/chat/impl.h"

// Stands in the place of a message; nobody writes it.
static const char other[] = "\xEF\xBF\xBC";

static int copy_member(void *arg, const char *key, size_t n, const struct json *v) {
    struct json_writer *w = arg;
    (void)n;
    if (!strcmp(key, "content"))
        return 0;
    jw_key(w, key);
    jw_value(w, v);
    return 0;
}

// The messages with another content of one of them; NULL: no memory.
static struct json *put_differently(const struct json *messages, size_t which) {
    struct json_writer w = {0};
    struct json *out = NULL;
    jw_begin(&w, '[');
    for (size_t i = 0; i < json_len(messages); i++) {
        if (i != which) {
            jw_value(&w, json_at(messages, i));
            continue;
        }
        jw_begin(&w, '{');
        json_each(json_at(messages, i), copy_member, &w);
        jw_key(&w, "content");
        jw_cstr(&w, other);
        jw_end(&w, '}');
    }
    jw_end(&w, ']');
    if (!w.out.failed)
        (void)json_parse(&out, w.out.data, w.out.len, NULL);
    str_fini(&w.out);
    return out;
}

static bool has_role(const struct json *message, const char *role) {
    const char *own = json_str(json_get(message, "role"), NULL);
    return own && !strcmp(own, role);
}

// Bytes that the text shares with another rendering; all of them where there is none.
static size_t shared(const struct chat_template *t, const struct chat_input *in,
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

static size_t shared_without(const struct chat_template *t, const struct chat_input *in,
                             const struct chat_text *x, size_t which) {
    struct chat_input changed = *in;
    struct json *messages = put_differently(in->messages, which);
    if (!messages)
        return x->text.len;
    changed.messages = messages;
    size_t n = shared(t, &changed, x);
    json_free(messages);
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

int chat_places(const struct chat_template *t, const struct chat_input *in,
                const struct chat_text *x, const struct tokenizer *k, const struct token_list *ids,
                int64_t at[CHAT_PLACES]) {
    size_t n = json_len(in->messages), first = 0, last = n, places[CHAT_PLACES];
    struct chat_input closed = *in;
    int made = 0, kept = 0;
    while (first < n && (has_role(json_at(in->messages, first), "system") ||
                         has_role(json_at(in->messages, first), "developer")))
        first++;
    while (last > 0 && !has_role(json_at(in->messages, last - 1), "user"))
        last--;
    closed.add_generation_prompt = false;
    if (first < n)
        places[made++] = shared_without(t, in, x, first);
    if (last > first + 1)
        places[made++] = shared_without(t, in, x, last - 1);
    if (in->add_generation_prompt)
        places[made++] = shared(t, &closed, x);
    for (int i = 0; i < made; i++) {
        int64_t place = places[i] < x->text.len ? tokens_within(k, ids, x, places[i]) : 0;
        if (place > (kept ? at[kept - 1] : 0))
            at[kept++] = place;
    }
    return kept;
}
