// SPDX-License-Identifier: Apache-2.0
// What the grammars of calls allow, the reader of replies reads: random walks through the grammar
// of each family come out as whole calls whose arguments the schemas allow, with no text left over.
#include "test.h"

#include <stdio.h>

#include "base/rng.h"
#include "grammar/tool_grammar.h"
#include "text/chat/reasoning.h"

static const char schema[] =
    "{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\"},\"n\":{\"type\":"
    "\"integer\"},\"on\":{\"type\":\"boolean\"},\"kind\":{\"enum\":[\"a\",\"bc\"]},\"list\":{"
    "\"$ref\":\"#/$defs/list\"}},\"required\":[\"path\",\"kind\"],\"additionalProperties\":false,"
    "\"$defs\":{\"list\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}}}";

static struct tool_set tools;
static struct tool_grammar_tool declared[3];
static struct json *parsed;

static int start(void **state) {
    (void)state;
    struct err e = {0};
    assert_int_equal(json_parse(&parsed, schema, sizeof schema - 1, &e), 0);
    declared[0] = (struct tool_grammar_tool){"get", 3, parsed, false, false};
    declared[1] = (struct tool_grammar_tool){"do-it", 5, NULL, false, false};
    declared[2] = (struct tool_grammar_tool){"patch", 5, NULL, true, false};
    for (int i = 0; i < 3; i++)
        assert_int_equal(tool_set_add(&tools, declared[i].name, declared[i].n, declared[i].schema,
                                      declared[i].freeform, &e),
                         0);
    return 0;
}

static int stop(void **state) {
    (void)state;
    json_free(parsed);
    tool_set_fini(&tools);
    return 0;
}

// ---- a vocabulary: bytes, and the words that end things

static const char *const words[] = {"</parameter>\n",
                                    "</function>",
                                    "</tool_call>",
                                    "\n</tool_call>",
                                    "</arg_value>",
                                    "</arg_key>",
                                    "<parameter=",
                                    "<arg_key>",
                                    "<arg_value>",
                                    "<|\"|>",
                                    "<tool_call|>",
                                    "\"",
                                    "\"}",
                                    "}}",
                                    "]",
                                    "}",
                                    "\n",
                                    "get",
                                    "path",
                                    "<|message|>",
                                    "[ARGS]",
                                    "```",
                                    " <|constrain|>json",
                                    "input",
                                    "<tool_call>",
                                    "abc"};
enum { BYTES = 256, WORDS = sizeof words / sizeof *words, END = BYTES + WORDS, VOCAB };

static void bytes_of(void *arg, int32_t id, struct str *out) {
    (void)arg;
    if (id < BYTES)
        str_putc(out, (char)id);
    else if (id < END)
        str_puts(out, words[id - BYTES]);
}

static bool ends(void *arg, int32_t id) {
    (void)arg;
    return id == END;
}

// A random text of the grammar, which is brought to its end by words rather than by bytes.
static void walk(struct grammar *g, struct rng *rng, struct str *out) {
    const struct grammar_tokens tokens = {VOCAB, bytes_of, ends, NULL};
    struct grammar_vocab *v;
    struct grammar_matcher *m;
    struct err e = {0};
    assert_int_equal(grammar_vocab_create(&v, &tokens, &e), 0);
    assert_int_equal(grammar_matcher_create(&m, g, v, &e), 0);
    struct grammar_state *at = grammar_start(m);
    for (int i = 0; !grammar_must_end(m, at); i++) {
        uint32_t bits[(VOCAB + 31) / 32];
        int32_t ids[VOCAB];
        uint32_t n = 0, from;
        struct grammar_state *to;
        assert_int_equal(grammar_mask(m, at, bits, &e), 0);
        for (int32_t id = 0; id < VOCAB; id++)
            if (bits[id / 32] >> (id % 32) & 1)
                ids[n++] = id;
        assert_true(n > 0 && i < 20000);
        if (ids[n - 1] == END && rng_below(rng, 3) == 0)
            break;
        n -= ids[n - 1] == END;
        for (from = 0; from < n && ids[from] < BYTES; from++)
            continue;
        bool word = from < n && rng_below(rng, 3) > 0;
        int32_t id = word ? ids[from + rng_below(rng, n - from)] : ids[rng_below(rng, n)];
        assert_int_equal(grammar_accept(m, at, id, &to, &e), 1);
        grammar_state_unref(m, at);
        at = to;
        bytes_of(NULL, id, out);
    }
    grammar_state_unref(m, at);
    grammar_matcher_destroy(m);
    grammar_vocab_destroy(v);
}

// ---- what the reader makes of it

struct heard {
    struct str text, args;
    const struct tool *tool;
    int calls;
};

static void on_text(void *arg, const char *s, size_t n) {
    struct heard *h = arg;
    str_append(&h->text, s, n);
}

static void on_begin(void *arg, const struct tool *t) {
    struct heard *h = arg;
    h->tool = t;
    str_clear(&h->args);
}

static void on_arguments(void *arg, const char *s, size_t n) {
    struct heard *h = arg;
    str_append(&h->args, s, n);
}

static void on_end(void *arg, bool whole) {
    struct heard *h = arg;
    struct json *v = NULL;
    struct err e = {0};
    assert_true(whole);
    h->calls++;
    if (h->tool->freeform)
        return;
    if (json_parse(&v, h->args.data, h->args.len, &e))
        fail_msg("%s: %s", h->args.data, e.text);
    const char *kind = json_str(json_get(v, "kind"), NULL);
    bool known = kind && (!strcmp(kind, "a") || !strcmp(kind, "bc"));
    if (!strcmp(h->tool->name, "get") && (!known || !json_str(json_get(v, "path"), NULL)))
        fail_msg("arguments that the schema does not allow: %s", h->args.data);
    assert_int_equal(json_kind_of(v), JSON_OBJECT);
    json_free(v);
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
    reasoning_push(&r, reply->data, reply->len, &thought, &content);
    reasoning_end(&r, &thought, &content);
    tool_calls_push(&c, content.data ? content.data : "", content.len, &sink);
    tool_calls_end(&c, false, &sink);
    tool_calls_fini(&c);
    reasoning_fini(&r);
    str_fini(&thought);
    str_fini(&content);
}

static void one_walk(enum tool_family f, struct grammar *g, const char *mark, struct rng *rng) {
    struct str reply = {0};
    str_puts(&reply, mark);
    walk(g, rng, &reply);
    for (int constrained = 0; constrained < 2; constrained++) {
        struct heard h = {0};
        read_reply(f, &reply, constrained, &h);
        size_t left = h.text.len;
        while (left > 0 && h.text.data[left - 1] == '\n')
            left--;
        if (h.calls == 0 || left > 0)
            fail_msg("%s: %d calls and '%s' of: %s", tool_formats[f].speaks[0], h.calls,
                     h.text.data ? h.text.data : "", reply.data);
        str_fini(&h.text);
        str_fini(&h.args);
    }
    str_fini(&reply);
}

static void walk_family(enum tool_family f, bool several, struct rng *rng) {
    struct tool_grammar g;
    struct err e = {0};
    if (tool_grammar_create(&g, f, declared, 3, &(struct tool_grammar_how){.several = several}, &e))
        fail_msg("%s: %s", tool_formats[f].speaks[0], e.text);
    assert_true(g.n > 0);
    for (int i = 0; i < 40; i++) {
        for (int k = 0; k < g.n && !g.first[k]; k++)
            one_walk(f, g.rest[k], g.marks[k], rng);
        one_walk(f, g.whole, "", rng);
    }
    tool_grammar_fini(&g);
}

// ---- what schemas say of strings holds between tags, too

static const char bounded[] =
    "{\"type\":\"object\",\"properties\":{"
    "\"short\":{\"type\":\"string\",\"minLength\":2,\"maxLength\":5},"
    "\"long\":{\"type\":\"string\",\"minLength\":100,\"maxLength\":400},"
    "\"word\":{\"type\":\"string\",\"pattern\":\"^[a-f]+<?[0-9]{2}$\"},"
    "\"both\":{\"type\":\"string\",\"pattern\":\"b.*e\",\"maxLength\":9},"
    "\"day\":{\"type\":\"string\",\"format\":\"date\"},"
    "\"kind\":{\"$ref\":\"#/$defs/kind\"},"
    "\"maybe\":{\"anyOf\":[{\"type\":\"string\",\"maxLength\":3},{\"type\":\"integer\",\"minimum\":"
    "500,\"maximum\":600},{\"type\":\"null\"}]},"
    "\"tag\":{\"type\":\"string\",\"maxLength\":30,\"minLength\":1},"
    "\"none\":{\"type\":\"string\",\"maxLength\":0},"
    "\"part\":{\"type\":\"number\",\"minimum\":0,\"maximum\":1}},"
    "\"required\":[\"short\",\"long\",\"word\",\"both\",\"day\",\"kind\",\"maybe\",\"tag\","
    "\"none\",\"part\"],\"additionalProperties\":false,"
    "\"$defs\":{\"kind\":{\"enum\":[\"a b\",\"<c>\",\"\",\"</parameter>\"]}}}";

struct checked {
    struct str args;
    int calls;
};

static void no_text(void *arg, const char *s, size_t n) {
    (void)arg;
    for (size_t i = 0; i < n; i++)
        assert_int_equal(s[i], '\n');
}

static void no_begin(void *arg, const struct tool *t) {
    (void)arg;
    (void)t;
}

static void add_arguments(void *arg, const char *s, size_t n) {
    str_append(&((struct checked *)arg)->args, s, n);
}

static void count_call(void *arg, bool whole) {
    assert_true(whole);
    ((struct checked *)arg)->calls++;
}

static bool fits(struct grammar *g, const struct grammar_vocab *v, const struct str *text) {
    struct grammar_matcher *m;
    struct grammar_state *to = NULL;
    struct err e = {0};
    assert_int_equal(grammar_matcher_create(&m, g, v, &e), 0);
    struct grammar_state *first = grammar_start(m);
    bool ok = grammar_accept_bytes(m, first, text->data, text->len, &to, &e) == 1 &&
              grammar_may_end(m, to);
    if (to)
        grammar_state_unref(m, to);
    grammar_state_unref(m, first);
    grammar_matcher_destroy(m);
    return ok;
}

static void bounds_hold_between_tags(void **state) {
    (void)state;
    static const enum tool_family families[] = {TOOLS_QWEN, TOOLS_LAGUNA};
    const struct grammar_tokens tokens = {VOCAB, bytes_of, ends, NULL};
    struct json *v;
    struct grammar *whole;
    struct grammar_vocab *vocab;
    struct tool_set set = {0};
    struct rng rng = {5};
    struct err e = {0};
    assert_int_equal(json_parse(&v, bounded, sizeof bounded - 1, &e), 0);
    assert_int_equal(grammar_from_schema(&whole, v, NULL, NULL, &e), 0);
    assert_int_equal(grammar_vocab_create(&vocab, &tokens, &e), 0);
    const struct tool_grammar_tool t = {"t", 1, v, false, false};
    assert_int_equal(tool_set_add(&set, "t", 1, v, false, &e), 0);
    for (int i = 0; i < 24; i++) {
        enum tool_family f = families[i % 2];
        struct tool_grammar g;
        struct str reply = {0};
        struct checked h = {0};
        struct tool_calls c;
        const struct tool_sink sink = {&h, no_text, no_begin, add_arguments, count_call};
        if (tool_grammar_create(&g, f, &t, 1, &(struct tool_grammar_how){0}, &e))
            fail_msg("%s", e.text);
        walk(g.whole, &rng, &reply);
        assert_int_equal(tool_calls_init(&c, f, &set, i % 4 < 2, &e), 0);
        tool_calls_push(&c, reply.data, reply.len, &sink);
        tool_calls_end(&c, false, &sink);
        tool_calls_fini(&c);
        if (h.calls != 1 || !fits(whole, vocab, &h.args))
            fail_msg("%d calls, '%s' of: %s", h.calls, h.args.data, reply.data);
        str_fini(&h.args);
        str_fini(&reply);
        tool_grammar_fini(&g);
    }
    tool_set_fini(&set);
    grammar_vocab_destroy(vocab);
    grammar_unref(whole);
    json_free(v);
}

// Whether a text is a whole call of a tool t of that schema.
static bool is_call(enum tool_family f, const char *whole, const struct str *call) {
    const struct grammar_tokens tokens = {VOCAB, bytes_of, ends, NULL};
    struct json *v;
    struct grammar_vocab *vocab;
    struct tool_grammar g;
    struct err e = {0};
    if (json_parse(&v, whole, strlen(whole), &e))
        fail_msg("%s", e.text);
    const struct tool_grammar_tool t = {"t", 1, v, false, false};
    assert_int_equal(grammar_vocab_create(&vocab, &tokens, &e), 0);
    assert_int_equal(tool_grammar_create(&g, f, &t, 1, &(struct tool_grammar_how){0}, &e), 0);
    bool ok = fits(g.whole, vocab, call);
    tool_grammar_fini(&g);
    grammar_vocab_destroy(vocab);
    json_free(v);
    return ok;
}

// Whether a call between tags with `value` for the parameter p is one of a tool of that schema.
static bool takes_of(const char *whole, const char *value) {
    struct str call = {0};
    str_printf(
        &call,
        "<tool_call>\n<function=t>\n<parameter=p>\n%s\n</parameter>\n</function>\n</tool_call>",
        value);
    bool ok = is_call(TOOLS_QWEN, whole, &call);
    str_fini(&call);
    return ok;
}

// The same of a parameter with these words.
static bool takes(const char *keywords, const char *value) {
    struct str s = {0};
    str_printf(&s, "{\"type\":\"object\",\"properties\":{\"p\":{%s}},\"required\":[\"p\"]}",
               keywords);
    bool ok = takes_of(s.data, value);
    str_fini(&s);
    return ok;
}

// Parameters need not be listed at the top: a tool of such a schema could be called without any
// only.
static void members_that_stand_elsewhere(void **state) {
    (void)state;
#define P "{\"type\":\"object\",\"properties\":{\"p\":{\"type\":\"string\"}},\"required\":[\"p\"]}"
    static const struct {
        const char *schema, *value;
        bool taken;
    } cases[] = {
        {"{\"$ref\":\"#/$defs/P\",\"$defs\":{\"P\":" P "}}", "x", true},
        {"{\"type\":\"object\",\"oneOf\":[" P ",{\"properties\":{\"q\":{}}}]}", "x", true},
        {"{\"anyOf\":[{\"allOf\":[" P "]}]}", "x", true},
        {"{\"properties\":{\"q\":{}},\"if\":{\"required\":[\"q\"]},\"then\":" P "}", "x", true},
        {"{\"type\":\"object\",\"additionalProperties\":true}", "x", true},
        {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}", "5", true},
        {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}", "x", false},
        {"{\"type\":\"object\",\"patternProperties\":{\"^p\":{}}}", "x", true},
        {"{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}", "x", false},
        {"{\"type\":\"object\",\"properties\":{\"q\":{}}}", "x", false},
        {"{\"properties\":{\"q\":{}},\"anyOf\":[{\"required\":[\"q\"]},{}]}", "x", false},
    };
#undef P
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (takes_of(cases[i].schema, cases[i].value) != cases[i].taken)
            fail_msg("%s: %s", cases[i].schema, cases[i].value);
}

// Gemma's notation holds all that JSON does: values within values, and what a schema says of the
// object as a whole. Q is what stands around strings, and a bare word is a name.
static void gemmas_notation_holds_schemas(void **state) {
    (void)state;
#define Q "<|\"|>"
    static const char deep[] = "{\"type\":\"object\",\"properties\":{\"list\":{\"type\":\"array\","
                               "\"items\":{\"$ref\":\"#/$defs/"
                               "one\"},\"maxItems\":2},\"odd name\":{\"enum\":[\"a "
                               "b\",3]},\"x\":{\"type\":[\"string\",\"null\"],"
                               "\"maxLength\":2}},\"additionalProperties\":false,\"minProperties\":"
                               "1,\"$defs\":{\"one\":{\"type\":"
                               "\"object\",\"properties\":{\"k\":{\"type\":\"string\",\"pattern\":"
                               "\"^[a-c]+$\"}},\"required\":[\"k\"],"
                               "\"additionalProperties\":false}}}";
    static const char open[] =
        "{\"properties\":{\"n\":{\"type\":\"integer\"}},\"patternProperties\":{\"^s_\":{"
        "\"type\":\"string\"}},\"additionalProperties\":{\"type\":\"array\"}}";
    static const struct {
        const char *schema, *arguments;
        bool taken;
    } cases[] = {
        {deep, "{list:[{k:" Q "ab" Q "},{k:" Q "c" Q "}]}", true},
        {deep, "{list:[]," Q "odd name" Q ":" Q "a b" Q ",x:" Q "\"\\" Q "}", true},
        {deep, "{" Q "odd name" Q ":3,x:null}", true},
        {deep, "{}", false}, // one at least
        {deep, "{list:[{k:" Q "d" Q "}]}", false},
        {deep, "{list:[{}]}", false},
        {deep, "{list:[{k:" Q "a" Q "},{k:" Q "a" Q "},{k:" Q "a" Q "}]}", false},
        {deep, "{x:" Q "abc" Q "}", false},
        {deep, "{odd name:3}", false},
        {deep, "{y:1}", false},
        {open, "{}", true},
        {open, "{n:4,s_a:" Q "any" Q ",t:[{a:" Q Q "},true]}", true},
        {open, "{n:" Q "4" Q "}", false},
        {open, "{s_a:5}", false},
        {open, "{t:5}", false},
        {"{\"type\":\"object\"}", "{a:{b:[" Q "c" Q ",1.5]}}", true},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"(?=a)b\"}}"
         "}",
         "{a:5}", true}, // no grammar holds it
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct str call = {0};
        str_printf(&call, "<|tool_call>call:t%s<tool_call|>", cases[i].arguments);
        if (is_call(TOOLS_GEMMA, cases[i].schema, &call) != cases[i].taken)
            fail_msg("%s", cases[i].arguments);
        str_fini(&call);
    }
#undef Q
}

// A schema that has no type at its top means objects, and is held.
static void arguments_need_no_type(void **state) {
    (void)state;
    static const char *const schemas[] = {
        "{\"properties\":{\"n\":{\"type\":\"integer\"}}}",
        "{\"$ref\":\"#/$defs/"
        "n\",\"$defs\":{\"n\":{\"properties\":{\"n\":{\"type\":\"integer\"}}}}}",
        "{\"anyOf\":[{\"type\":\"array\"},{\"properties\":{\"n\":{\"const\":5}}}]}"};
    static const char *const values[] = {"{\"n\": 5}", "{\"n\": \"x\"}", "[5]"};
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < 3; k++) {
            struct str call = {0};
            str_printf(&call, "<tool_call>\n{\"name\": \"t\", \"arguments\": %s}\n</tool_call>",
                       values[k]);
            if (is_call(TOOLS_HERMES, schemas[i], &call) != (k == 0))
                fail_msg("%s: %s", schemas[i], values[k]);
            str_fini(&call);
        }
}

// Arguments have the properties that a schema declares, and others only where it speaks of them:
// without that a model may go on inventing names.
static void arguments_have_declared_members_only(void **state) {
    (void)state;
#define OPEN "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\"}}"
    static const struct {
        const char *schema, *value;
        bool fits;
    } cases[] = {
        {OPEN "}", "{\"n\": 5}", true},
        {OPEN "}", "{}", true},
        {OPEN "}", "{\"n\": 5, \"m\": 5}", false},
        {OPEN "}", "{\"m\": 5}", false},
        {OPEN ",\"additionalProperties\":true}", "{\"n\": 5, \"m\": 5}", true},
        {OPEN ",\"additionalProperties\":{\"type\":\"integer\"}}", "{\"m\": 5}", true},
        {OPEN ",\"additionalProperties\":{\"type\":\"integer\"}}", "{\"m\": \"x\"}", false},
        {OPEN ",\"unevaluatedProperties\":true}", "{\"m\": 5}", true},
        {OPEN ",\"patternProperties\":{\"^x\":{}}}", "{\"x1\": 5}", true},
        {OPEN ",\"patternProperties\":{\"^x\":{}}}", "{\"m\": 5}", false},
        {OPEN ",\"minProperties\":2}", "{\"n\": 5, \"m\": 5}", true}, // or nothing would hold
        {OPEN ",\"required\":[\"m\"]}", "{\"m\": [1]}", true},
        {OPEN ",\"anyOf\":[{\"properties\":{\"m\":{}}},{\"required\":[\"n\"]}]}", "{\"m\": 1}",
         true},
        {OPEN ",\"anyOf\":[{\"properties\":{\"m\":{}}},{\"required\":[\"n\"]}]}", "{\"k\": 1}",
         false},
        {"{\"type\":\"object\",\"properties\":{}}", "{}", true},
        {"{\"type\":\"object\",\"properties\":{}}", "{\"m\": 5}", false},
        {"{\"type\":\"object\"}", "{\"m\": 5}", true}, // a map that declares nothing
        {"{\"type\":\"object\",\"properties\":{\"o\":" OPEN "}}}", "{\"o\": {\"m\": 5}}", false},
        {"{\"type\":\"object\",\"properties\":{\"o\":{\"type\":\"object\"}}}",
         "{\"o\": {\"m\": 5}}", true},
    };
#undef OPEN
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct str call = {0};
        str_printf(&call, "<tool_call>\n{\"name\": \"t\", \"arguments\": %s}\n</tool_call>",
                   cases[i].value);
        if (is_call(TOOLS_HERMES, cases[i].schema, &call) != cases[i].fits)
            fail_msg("%s: %s", cases[i].schema, cases[i].value);
        str_fini(&call);
    }
}

static void values_between_tags(void **state) {
    (void)state;
    static const char two[] = "\"type\":\"string\",\"maxLength\":2";
    static const char big[] = "\"type\":\"string\",\"maxLength\":20000";
    static const char num[] = "\"type\":[\"string\",\"integer\"],\"minimum\":5,\"maxLength\":9";
    assert_true(takes(two, "ab"));
    assert_true(takes(two, "\xe2\x82\xac\n"));
    assert_true(takes(two, "<<"));
    assert_true(takes(two, "\"\\"));
    assert_false(takes(two, "abc"));
    assert_true(takes("\"type\":\"string\",\"maxLength\":11", "</parameter"));
    assert_false(takes("\"type\":\"string\",\"maxLength\":40", "a</parameter>b"));
    assert_false(takes("\"type\":\"string\",\"minLength\":3", "ab"));
    assert_true(takes("\"type\":\"string\",\"pattern\":\"^a+$\"", "aaa"));
    assert_false(takes("\"type\":\"string\",\"pattern\":\"^a+$\"", "aab"));
    assert_true(takes("\"allOf\":[{\"type\":\"string\"},{\"pattern\":\"b\"}]", "abc"));
    assert_false(takes("\"allOf\":[{\"type\":\"string\"},{\"pattern\":\"b\"}]", "ac"));
    assert_true(takes(num, "7"));
    assert_false(takes(num, "3"));
    assert_true(takes(num, "3 a"));
    assert_true(takes(big, "any"));
    // More than states allow: everything goes, as without the bound.
    assert_true(takes("\"type\":\"string\",\"maxLength\":1000000", "any"));
    assert_true(takes("\"type\":\"string\",\"pattern\":\"(?=a)b\"", "any"));
}

// What making the grammar of one tool of that schema comes to; *e has the sentence.
static int made(enum tool_family f, const char *text, bool strict, struct err *e) {
    struct json *v;
    struct tool_grammar g;
    if (json_parse(&v, text, strlen(text), e))
        fail_msg("%s", e->text);
    const struct tool_grammar_tool t = {"t", 1, v, false, strict};
    int rc = tool_grammar_create(&g, f, &t, 1, &(struct tool_grammar_how){0}, e);
    tool_grammar_fini(&g);
    json_free(v);
    return rc;
}

// A strict tool whose schema cannot be held is refused with the place; others take any object.
static void strict_tools_are_held_or_refused(void **state) {
    (void)state;
    enum { ALL, PARTS }; // families that fail: all, or those that write parameters one by one
    static const struct {
        const char *schema, *place;
        int where;
    } cases[] = {
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"(?=a)b\"}}"
         "}",
         "'#/properties/a': the pattern", ALL},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"items\":{\"oneOf\":[{"
         "\"minimum\":1},{\"maximum\":2}]}}}}",
         "oneOf", ALL},
        {"{\"type\":[\"object\",\"null\"],\"properties\":{\"a\":{}}}", "#/type", ALL},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"http://b.example/c\"}}}", "$ref",
         ALL},
        {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"minProperties\":1}", "#/minProperties",
         PARTS},
        {"{\"type\":\"object\",\"patternProperties\":{\"^a\":{\"type\":\"null\"}}}",
         "#/patternProperties", PARTS},
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"dependentRequired\":{\"a\":["
         "\"b\"]}}",
         "#/dependentRequired", PARTS},
        {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"required\":[\"b\"]}", "#/required",
         PARTS},
    };
    for (int f = 0; f < TOOLS_FAMILIES; f++) {
        bool parts = f == TOOLS_QWEN || f == TOOLS_LAGUNA;
        struct err e = {0};
        assert_int_equal(made((enum tool_family)f, schema, true, &e), 0);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            bool fails = cases[i].where == ALL || parts;
            assert_int_equal(made((enum tool_family)f, cases[i].schema, false, &e), 0);
            int rc = made((enum tool_family)f, cases[i].schema, true, &e);
            if (rc != (fails ? ERR_UNSUPPORTED : 0) || (fails && !strstr(e.text, cases[i].place)))
                fail_msg("%s, %s: %d %s", tool_formats[(enum tool_family)f].speaks[0],
                         cases[i].schema, rc, e.text);
        }
    }
}

static void allowed_calls_are_read(void **state) {
    (void)state;
    struct rng rng = {3};
    for (int f = 0; f < TOOLS_FAMILIES; f++) {
        walk_family((enum tool_family)f, false, &rng);
        walk_family((enum tool_family)f, true, &rng);
    }
}

// Llama's bare form: an object that begins like a call is one as soon as it names a tool and has
// parameters; everything else stays free.
static void an_object_may_be_a_call(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool fits;
    } texts[] = {
        {" \"get\", \"parameters\": {\"path\": \"x\", \"kind\": \"a\"}}", true},
        {"\"get\",\"parameters\":{\"path\":\"x\",\"n\":3,\"kind\":\"bc\"}}", true},
        {" \"get\", \"parameters\": {\"path\": \"x\", \"kind\": \"c\"}}", false},
        {" \"get\", \"parameters\": {\"path\": \"x\"}}", false},
        {" \"get\", \"parameters\": 3", false},
        {" \"get\", \"parameters\": {\"path\": \"x\", \"kind\": \"a\"}} and more", false},
        {" \"get\", \"age\": 3} is what I know", true},
        {" \"get\"}", true},
        {" \"Bob\", \"parameters\": 3} or [any", true},
        {" 5}", true},
    };
    const struct grammar_tokens tokens = {VOCAB, bytes_of, ends, NULL};
    struct grammar_vocab *vocab;
    struct tool_grammar g;
    struct err e = {0};
    assert_int_equal(grammar_vocab_create(&vocab, &tokens, &e), 0);
    assert_int_equal(
        tool_grammar_create(&g, TOOLS_LLAMA, declared, 3, &(struct tool_grammar_how){0}, &e), 0);
    assert_true(g.n == 2 && g.first[1] && !g.first[0]);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct str text = {0};
        str_puts(&text, texts[i].text);
        if (fits(g.rest[1], vocab, &text) != texts[i].fits)
            fail_msg("%s", texts[i].text);
        str_fini(&text);
    }
    tool_grammar_fini(&g);
    grammar_vocab_destroy(vocab);
}

// Where no call is to be made, there is none, not even as text.
static void forbidden_calls_are_not_generated(void **state) {
    (void)state;
    const struct grammar_tokens tokens = {VOCAB, bytes_of, ends, NULL};
    struct grammar_vocab *vocab;
    struct rng rng = {9};
    struct err e = {0};
    assert_int_equal(grammar_vocab_create(&vocab, &tokens, &e), 0);
    assert_false(tool_grammar_can_refuse(TOOLS_HARMONY));
    for (int f = 0; f < TOOLS_FAMILIES; f++) {
        struct tool_grammar g, calls;
        if (!tool_grammar_can_refuse((enum tool_family)f))
            continue;
        if (tool_grammar_refuse(&g, (enum tool_family)f, &e))
            fail_msg("%s", e.text);
        assert_int_equal(tool_grammar_create(&calls, (enum tool_family)f, declared, 3,
                                             &(struct tool_grammar_how){0}, &e),
                         0);
        struct str call = {0}, plain = {0};
        walk(calls.whole, &rng, &call);
        str_puts(&plain, "No <tool is [called] here.\n{\"name\": 1}");
        assert_true(fits(g.whole, vocab, &plain));
        if (f != TOOLS_LLAMA && fits(g.whole, vocab, &call))
            fail_msg("%s: %s", tool_formats[(enum tool_family)f].speaks[0], call.data);
        str_fini(&call);
        str_fini(&plain);
        tool_grammar_fini(&calls);
        tool_grammar_fini(&g);
    }
    grammar_vocab_destroy(vocab);
}

// Many tools that request much cost no more steps than a few of them.
static void many_bounds_are_bounded(void **state) {
    (void)state;
    enum { MANY = 100 };
    static const char one[] =
        "{\"type\":\"object\",\"properties\":{\"p\":{\"type\":\"string\",\"maxLength\":9000},\"q\":"
        "{"
        "\"type\":\"string\",\"pattern\":\"(a|b)*a(a|b){20}\"}},\"required\":[\"p\"]}";
    struct tool_grammar_tool list[MANY];
    char names[MANY][8];
    struct json *v;
    struct err e = {0};
    struct tool_grammar g;
    assert_int_equal(json_parse(&v, one, sizeof one - 1, &e), 0);
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "t%d", i);
        list[i] = (struct tool_grammar_tool){names[i], strlen(names[i]), v, false, false};
    }
    struct grammar_work work = {0};
    const struct tool_grammar_how how = {.work = &work};
    if (tool_grammar_create(&g, TOOLS_QWEN, list, MANY, &how, &e))
        fail_msg("%s", e.text);
    assert_in_range(work.steps, 1, 5 * GRAMMAR_STEPS_MAX); // of 100 that take 6,000,000 each
    tool_grammar_fini(&g);
    json_free(v);
}

// A schema that no grammar holds leaves the tool with any object.
static void odd_schemas_take_any_object(void **state) {
    (void)state;
    static const char odd[] = "{\"type\":\"object\",\"properties\":{\"a\":{\"not\":{}}},"
                              "\"unevaluatedProperties\":{\"$dynamicRef\":\"#x\"}}";
    struct json *v;
    struct err e = {0};
    assert_int_equal(json_parse(&v, odd, sizeof odd - 1, &e), 0);
    const struct tool_grammar_tool t = {"odd", 3, v, false, false};
    struct tool_grammar g;
    if (tool_grammar_create(&g, TOOLS_HERMES, &t, 1, &(struct tool_grammar_how){0}, &e))
        fail_msg("%s", e.text);
    tool_grammar_fini(&g);
    json_free(v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allowed_calls_are_read),
        cmocka_unit_test(bounds_hold_between_tags),
        cmocka_unit_test(values_between_tags),
        cmocka_unit_test(strict_tools_are_held_or_refused),
        cmocka_unit_test(gemmas_notation_holds_schemas),
        cmocka_unit_test(arguments_need_no_type),
        cmocka_unit_test(arguments_have_declared_members_only),
        cmocka_unit_test(an_object_may_be_a_call),
        cmocka_unit_test(forbidden_calls_are_not_generated),
        cmocka_unit_test(many_bounds_are_bounded),
        cmocka_unit_test(odd_schemas_take_any_object),
        cmocka_unit_test(members_that_stand_elsewhere),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
