// SPDX-License-Identifier: Apache-2.0
// Calls of tools in replies: the first byte chooses the family and whether arguments go out as they
// come, the second how the stream is cut, the rest is the reply. Cuts change nothing; all text that
// is no part of a call comes out, in its order; what comes out is UTF-8, and arguments of whole
// calls are JSON objects.
#include "fuzz.h"

#include <string.h>

#include "base/rng.h"
#include "base/utf8.h"
#include "text/chat/reasoning.h"
#include "text/tools/calls.h"

static struct tool_set tools;

struct heard {
    struct str all;  // with marks where calls begin and end
    struct str text; // outside of calls
    struct str args; // of the open call
    bool freeform, failed;
    int calls;
};

static void on_text(void *arg, const char *s, size_t n) {
    struct heard *h = arg;
    FUZZ_CHECK(n > 0 && utf8_valid(s, n));
    str_append(&h->all, s, n);
    str_append(&h->text, s, n);
}

static void on_begin(void *arg, const struct tool *t) {
    struct heard *h = arg;
    str_printf(&h->all, "\x01%s\x02", t->name);
    str_clear(&h->args);
    h->freeform = t->freeform;
    h->calls++;
}

static void on_arguments(void *arg, const char *s, size_t n) {
    struct heard *h = arg;
    FUZZ_CHECK(n > 0);
    str_append(&h->all, s, n);
    str_append(&h->args, s, n);
}

static void on_end(void *arg, bool whole) {
    struct heard *h = arg;
    struct json *v = NULL;
    struct err e = {0};
    const struct json_rules rules = {.depth = 200, .big_integers = true};
    str_puts(&h->all, whole ? "\x03" : "\x04");
    if (!whole || h->freeform || h->args.failed)
        return;
    int rc = json_parse_with(&v, h->args.data, h->args.len, &rules, &e);
    // A number that no double holds is JSON all the same, as are NULs in keys.
    bool odd = rc && (strstr(e.text, "number") || strstr(e.text, "U+0000"));
    FUZZ_CHECK(!rc || rc == ERR_MEMORY || odd);
    FUZZ_CHECK(rc || json_kind_of(v) == JSON_OBJECT);
    h->failed |= rc == ERR_MEMORY;
    json_free(v);
}

// content: what of the reply the reader of calls gets, without frames.
static void hear(struct heard *h, const uint8_t *data, size_t size, bool cut, struct str *content) {
    const struct tool_sink sink = {h, on_text, on_begin, on_arguments, on_end};
    struct rng rng = {data[1]};
    enum tool_family family = (enum tool_family)(data[0] / 2 % TOOLS_FAMILIES);
    struct tool_calls c;
    struct reasoning r;
    struct str thought = {0}, some = {0};
    struct err e = {0};
    reasoning_init(&r, family == TOOLS_HARMONY ? REASONING_HARMONY : REASONING_NONE, false);
    r.frames = true;
    h->failed |= tool_calls_init(&c, family, &tools, data[0] & 1, &e) != 0;
    for (size_t at = 2; at <= size && !h->failed;) {
        size_t left = size - at, piece = cut ? 1 + rng_below(&rng, 7) : left;
        piece = piece < left ? piece : left;
        if (left)
            reasoning_push(&r, (const char *)data + at, piece, &thought, &some);
        else
            reasoning_end(&r, &thought, &some);
        if (some.len)
            tool_calls_push(&c, some.data, some.len, &sink);
        for (size_t i = 0; i < some.len; i++)
            if ((unsigned char)some.data[i] < 0xfe)
                str_putc(content, some.data[i]);
        h->failed |= some.failed || thought.failed;
        str_clear(&some);
        at += left ? piece : 1;
    }
    if (!h->failed)
        tool_calls_end(&c, false, &sink);
    h->failed |= c.failed || c.args.failed || h->all.failed || h->text.failed || h->args.failed ||
                 content->failed;
    tool_calls_fini(&c);
    reasoning_fini(&r);
    str_fini(&thought);
    str_fini(&some);
}

static bool same(const struct str *a, const struct str *b) {
    return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

static bool begins(const struct str *all, const struct str *with) {
    return with->len <= all->len && (!with->len || memcmp(all->data, with->data, with->len) == 0);
}

// Whether the text is what is left of the content when something is taken out of it.
static bool is_left_of(const struct str *text, const struct str *content) {
    size_t at = 0;
    for (size_t i = 0; i < content->len && at < text->len; i++)
        at += content->data[i] == text->data[at];
    return at == text->len;
}

static void add(const char *name, const char *schema, bool freeform) {
    struct json *v = NULL;
    struct err e = {0};
    FUZZ_CHECK(!json_parse(&v, schema, strlen(schema), &e));
    FUZZ_CHECK(!tool_set_add(&tools, name, strlen(name), v, freeform, &e));
    json_free(v);
}

void fuzz_setup(void) {
    add("get",
        "{\"properties\":{\"s\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"},\"a\":{}}}",
        false);
    add("do", "{}", true);
}

static void heard_fini(struct heard *h) {
    str_fini(&h->all);
    str_fini(&h->text);
    str_fini(&h->args);
}

void fuzz_one(const uint8_t *data, size_t size, bool fragile) {
    struct heard whole = {0}, cut = {0};
    struct str content[2] = {0};
    struct err e = {0};
    if (size < 2)
        return;
    hear(&whole, data, size, false, &content[0]);
    hear(&cut, data, size, true, &content[1]);
    bool failed = whole.failed || cut.failed;
    FUZZ_CHECK(!failed || fragile);
    if (!failed) {
        FUZZ_CHECK(same(&whole.all, &cut.all) && same(&content[0], &content[1]));
        FUZZ_CHECK(is_left_of(&whole.text, &content[0]));

        // Where a mark alone makes a call, one that the end cuts off before it is a call is no
        // text.
        FUZZ_CHECK(whole.calls > 0 || same(&whole.text, &content[0]) ||
                   ((data[0] & 1) && begins(&content[0], &whole.text)));
    }
    int rc = failed ? err_set(&e, ERR_MEMORY, "no memory for the calls of a reply") : 0;
    fuzz_result(rc, &e, fragile);
    heard_fini(&whole);
    heard_fini(&cut);
    str_fini(&content[0]);
    str_fini(&content[1]);
}
