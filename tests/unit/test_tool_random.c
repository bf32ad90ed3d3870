// SPDX-License-Identifier: Apache-2.0
// Random calls, written as each family writes them between random words and cut at random places,
// come back with the values that were written.
#include "test.h"

#include "base/rng.h"
#include "text/chat/reasoning.h"
#include "text/tools/calls.h"

#define BAR   "\xef\xbd\x9c"
#define UND   "\xe2\x96\x81"
#define DS(x) "<" BAR x BAR ">"

enum { MAX_CALLS = 3 };

static struct tool_set tools;
static struct rng rng = {11};

static int start(void **state) {
    (void)state;
    static const char schema[] =
        "{\"properties\":{\"s\":{\"type\":\"string\"},\"n\":{\"type\":\"number\"},\"b\":{\"type\":"
        "\"boolean\"},\"a\":{\"type\":\"array\"},\"o\":{\"type\":\"object\"},\"z\":{\"type\":"
        "[\"null\",\"integer\"]},\"long_name\":{\"anyOf\":[{\"type\":\"string\"}]}}}";
    struct json *v;
    struct err e = {0};
    assert_int_equal(json_parse(&v, schema, sizeof schema - 1, &e), 0);
    assert_int_equal(tool_set_add(&tools, "get", 3, v, false, &e), 0);
    assert_int_equal(tool_set_add(&tools, "get_all-2", 9, v, false, &e), 0);
    json_free(v);
    return 0;
}

static int stop(void **state) {
    (void)state;
    tool_set_fini(&tools);
    return 0;
}

static uint32_t below(uint32_t n) {
    return rng_below(&rng, n);
}

// Words that mean something somewhere, and odd ones.
static const char *const words[] = {"a",
                                    "Rome",
                                    "12",
                                    "\"",
                                    "\\",
                                    "{",
                                    "}",
                                    "[",
                                    "]",
                                    ",",
                                    ":",
                                    "\n",
                                    "\r\n",
                                    "\t",
                                    " ",
                                    "'",
                                    "<",
                                    ">",
                                    "null",
                                    "true",
                                    "</tool_call>",
                                    "<tool_call>",
                                    "<function=get>",
                                    "</parameter>",
                                    "<arg_key>",
                                    "</arg_value> ",
                                    "[ARGS]",
                                    "[TOOL_CALLS]",
                                    "```",
                                    "\n```\n",
                                    "\\u00e9",
                                    "\xc3\xa9",
                                    "\xf0\x9f\xa6\x8a",
                                    "\xe2\x80\xa8",
                                    "\x01",
                                    "\x7f",
                                    "<|tool_call",
                                    "functions.",
                                    ";",
                                    DS("tool" UND "sep"),
                                    "&amp;",
                                    "%s"};

static void put_words(struct str *out) {
    str_puts(out, "");
    for (uint32_t n = below(6); n > 0; n--)
        str_puts(out, words[below(sizeof words / sizeof *words)]);
}

static void put_string(struct json_writer *w) {
    struct str s = {0};
    put_words(&s);
    jw_str(w, s.data, s.len);
    str_fini(&s);
}

static void put_value(struct json_writer *w, char kind, int depth) {
    static const char kinds[] = "snbzao";
    static const char *const keys[] = {"k", "key_2", "a-b"};
    if (kind == 'z' && below(2))
        jw_null(w);
    else if (kind == 'z' || (kind == 'n' && below(2)))
        jw_int(w, (int64_t)below(2000000) - 1000000);
    else if (kind == 'n')
        jw_num(w, (double)rng_unit(rng_next(&rng)) * 1e20);
    else if (kind == 'b')
        jw_bool(w, below(2));
    else if (kind == 's')
        put_string(w);
    if (kind != 'a' && kind != 'o')
        return;
    jw_begin(w, kind == 'a' ? '[' : '{');
    uint32_t n = below(depth > 6 ? 1 : 4);
    for (uint32_t i = 0; i < n; i++) {
        if (kind == 'o')
            jw_key(w, keys[i % 3]);
        put_value(w, kinds[below(6)], depth + 1);
    }
    jw_end(w, kind == 'a' ? ']' : '}');
}

// The arguments of a random call.
static struct json *make_arguments(void) {
    static const char *const names[] = {"s", "n", "b", "a", "o", "z", "long_name"};
    struct json_writer w = {0};
    struct json *v;
    struct err e = {0};
    jw_begin(&w, '{');
    for (uint32_t i = 0; i < 7; i++)
        if (below(2)) {
            jw_key(&w, names[i]);
            put_value(&w, i == 6 ? 's' : names[i][0], 0);
        }
    jw_end(&w, '}');
    assert_int_equal(json_parse(&v, w.out.data, w.out.len, &e), 0);
    str_fini(&w.out);
    return v;
}

static void put_json(struct str *out, const struct json *v) {
    struct json_writer w = {0};
    jw_value(&w, v);
    str_append(out, w.out.data, w.out.len);
    str_fini(&w.out);
}

struct tags {
    struct str *out;
    enum tool_family family;
};

static int put_tagged(void *arg, const char *key, size_t n, const struct json *v) {
    struct tags *t = arg;
    bool qwen = t->family == TOOLS_QWEN;
    (void)n;
    str_printf(t->out, qwen ? "<parameter=%s>\n" : "<arg_key>%s</arg_key>\n<arg_value>", key);
    size_t len = 0;
    const char *s = json_str(v, &len);
    if (s)
        str_append(t->out, s, len);
    else
        put_json(t->out, v);
    str_puts(t->out, qwen ? "\n</parameter>\n" : "</arg_value>\n");
    return 0;
}

static void put_gemma(struct str *out, const struct json *v);

static int put_gemma_member(void *arg, const char *key, size_t n, const struct json *v) {
    struct str *out = arg;
    (void)n;
    if (out->data[out->len - 1] != '{')
        str_putc(out, ',');
    str_printf(out, "%s:", key);
    put_gemma(out, v);
    return 0;
}

static void put_gemma(struct str *out, const struct json *v) {
    size_t n = 0;
    const char *s = json_str(v, &n);
    if (s) {
        str_puts(out, "<|\"|>");
        str_append(out, s, n);
        str_puts(out, "<|\"|>");
    } else if (json_kind_of(v) == JSON_OBJECT) {
        str_putc(out, '{');
        json_each(v, put_gemma_member, out);
        str_putc(out, '}');
    } else if (json_kind_of(v) == JSON_ARRAY) {
        str_putc(out, '[');
        for (size_t i = 0; i < json_len(v); i++) {
            str_puts(out, i ? "," : "");
            put_gemma(out, json_at(v, i));
        }
        str_putc(out, ']');
    } else {
        put_json(out, v);
    }
}

struct call {
    const char *name;
    struct json *args;
};

static void put_named(struct str *out, const struct call *c, const char *key) {
    str_printf(out, "{\"name\": \"%s\", \"%s\": ", c->name, key);
    put_json(out, c->args);
    str_putc(out, '}');
}

static void put_plain(struct str *out, const char *head, const struct call *c, const char *between,
                      const char *end) {
    str_printf(out, "%s%s%s", head, c->name, between);
    put_json(out, c->args);
    str_puts(out, end);
}

// The i-th of n calls, as the family's template writes it.
static void put_call(struct str *out, enum tool_family f, const struct call *c, int i, int n) {
    struct tags t = {out, f};
    switch (f) {
    case TOOLS_HERMES:
        str_puts(out, i ? "\n<tool_call>\n" : "<tool_call>\n");
        put_named(out, c, "arguments");
        str_puts(out, "\n</tool_call>");
        break;
    case TOOLS_QWEN:
        str_printf(out, "%s<tool_call>\n<function=%s>\n", i ? "\n" : "", c->name);
        json_each(c->args, put_tagged, &t);
        str_puts(out, "</function>\n</tool_call>");
        break;
    case TOOLS_LAGUNA:
        str_printf(out, "<tool_call>%s\n", c->name);
        json_each(c->args, put_tagged, &t);
        str_puts(out, "</tool_call>");
        break;
    case TOOLS_LLAMA:
        str_puts(out, i ? "; " : "<|python_tag|>");
        put_named(out, c, "parameters");
        break;
    case TOOLS_GEMMA:
        str_printf(out, "<|tool_call>call:%s", c->name);
        put_gemma(out, c->args);
        str_puts(out, "<tool_call|>");
        break;
    case TOOLS_HARMONY:
        put_plain(out,
                  i ? "<|start|>assistant<|channel|>commentary to=functions."
                    : "<|channel|>commentary to=functions.",
                  c, " <|constrain|>json<|message|>", "<|call|>");
        break;
    case TOOLS_DEEPSEEK:
        str_puts(out, i ? "" : DS("tool" UND "calls" UND "begin"));
        put_plain(out, DS("tool" UND "call" UND "begin"), c, DS("tool" UND "sep"),
                  DS("tool" UND "call" UND "end"));
        str_puts(out, i < n - 1 ? "" : DS("tool" UND "calls" UND "end"));
        break;
    case TOOLS_DEEPSEEK_V3:
        str_puts(out, i ? "\n" : DS("tool" UND "calls" UND "begin"));
        put_plain(out, DS("tool" UND "call" UND "begin") "function" DS("tool" UND "sep"), c,
                  "\n```json\n", "\n```" DS("tool" UND "call" UND "end"));
        str_puts(out, i < n - 1 ? "" : DS("tool" UND "calls" UND "end"));
        break;
    case TOOLS_KIMI:
        str_printf(out, "%s<|tool_call_begin|>functions.%s:%d<|tool_call_argument_begin|>",
                   i ? "" : "<|tool_calls_section_begin|>", c->name, i);
        put_json(out, c->args);
        str_printf(out, "<|tool_call_end|>%s", i < n - 1 ? "" : "<|tool_calls_section_end|>");
        break;
    case TOOLS_MISTRAL:
        put_plain(out, "[TOOL_CALLS]", c, "[ARGS]", "");
        break;
    default: // older Mistral
        str_puts(out, i ? ", " : "[TOOL_CALLS][");
        put_named(out, c, "arguments");
        str_puts(out, i < n - 1 ? "" : "]");
    }
}

struct heard {
    struct str text, args;
    const struct call *calls; // that were written
    int n, at;
};

static void on_text(void *arg, const char *s, size_t n) {
    struct heard *h = arg;
    str_append(&h->text, s, n);
}

static void on_begin(void *arg, const struct tool *t) {
    struct heard *h = arg;
    assert_true(h->at < h->n);
    assert_string_equal(t->name, h->calls[h->at].name);
    str_clear(&h->args);
}

static void on_arguments(void *arg, const char *s, size_t n) {
    struct heard *h = arg;
    str_append(&h->args, s, n);
}

static void on_end(void *arg, bool whole) {
    struct heard *h = arg;
    struct json *v;
    struct err e = {0};
    struct str got = {0}, want = {0};
    assert_true(whole);
    if (json_parse(&v, h->args.data, h->args.len, &e))
        fail_msg("%s: %s", h->args.data, e.text);
    put_json(&got, v);
    put_json(&want, h->calls[h->at++].args);
    assert_string_equal(got.data, want.data);
    json_free(v);
    str_fini(&got);
    str_fini(&want);
}

static void read_reply(enum tool_family f, const struct str *reply, bool constrained,
                       struct heard *h) {
    const struct tool_sink sink = {h, on_text, on_begin, on_arguments, on_end};
    struct tool_calls c;
    struct reasoning r;
    struct str thought = {0}, content = {0};
    struct err e = {0};
    reasoning_init(&r, f == TOOLS_HARMONY ? REASONING_HARMONY : REASONING_NONE, false);
    r.frames = true;
    assert_int_equal(tool_calls_init(&c, f, &tools, constrained, &e), 0);
    for (size_t at = 0, n = 0; at < reply->len; at += n) {
        n = 1 + below(12);
        n = n < reply->len - at ? n : reply->len - at;
        reasoning_push(&r, reply->data + at, n, &thought, &content);
        tool_calls_push(&c, content.data ? content.data : "", content.len, &sink);
        str_clear(&content);
    }
    reasoning_end(&r, &thought, &content);
    tool_calls_push(&c, content.data ? content.data : "", content.len, &sink);
    tool_calls_end(&c, false, &sink);
    assert_false(c.failed);
    tool_calls_fini(&c);
    reasoning_fini(&r);
    str_fini(&thought);
    str_fini(&content);
}

// Text that no format can write inside of a value, because it ends the value.
static bool is_ambiguous(enum tool_family f, const struct str *reply, const struct heard *h) {
    size_t found = 0, written = 0;
    if (f != TOOLS_QWEN && f != TOOLS_LAGUNA)
        return false;
    const char *end = f == TOOLS_QWEN ? "</parameter>" : "</arg_value>";
    for (const char *at = reply->data; (at = strstr(at, end)) != NULL; at++)
        found++;
    for (int i = 0; i < h->n; i++)
        written += json_len(h->calls[i].args);
    return found != written;
}

static void one_reply(enum tool_family f) {
    struct call calls[MAX_CALLS];
    struct str reply = {0};
    struct heard h = {.calls = calls, .n = 1 + (int)below(MAX_CALLS)};
    bool before = f != TOOLS_HARMONY && below(2);
    str_puts(&reply, before ? "Let me see." : "");
    for (int i = 0; i < h.n; i++) {
        calls[i] = (struct call){tools.list[below(2)].name, make_arguments()};
        put_call(&reply, f, &calls[i], i, h.n);
    }
    if (!is_ambiguous(f, &reply, &h)) {
        read_reply(f, &reply, below(2), &h);
        if (h.at != h.n)
            fail_msg("%s: %d calls of %d in: %s", tool_formats[f].speaks[0], h.at, h.n, reply.data);
        assert_string_equal(h.text.data ? h.text.data : "", before ? "Let me see." : "");
    }
    for (int i = 0; i < h.n; i++)
        json_free(calls[i].args);
    str_fini(&reply);
    str_fini(&h.text);
    str_fini(&h.args);
}

static void calls_come_back(void **state) {
    (void)state;
    for (int f = 0; f < TOOLS_FAMILIES; f++)
        for (int i = 0; i < 400; i++)
            one_reply((enum tool_family)f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(calls_come_back)};
    return cmocka_run_group_tests(tests, start, stop);
}
