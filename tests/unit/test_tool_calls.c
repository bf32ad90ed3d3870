// SPDX-License-Identifier: Apache-2.0
// Calls of tools in replies, for each family: what is a call, what stays text, how arguments are
// typed, and that it makes no difference where the stream is cut.
#include "test.h"

#include "base/rng.h"
#include "base/utf8.h"
#include "text/chat/reasoning.h"
#include "text/tools/calls.h"

static struct tool_set tools;

static void add(const char *name, const char *schema, bool freeform) {
    struct json *v = NULL;
    struct err e = {0};
    if (schema)
        assert_int_equal(json_parse(&v, schema, strlen(schema), &e), 0);
    assert_int_equal(tool_set_add(&tools, name, strlen(name), v, freeform, &e), 0);
    json_free(v);
}

static int start(void **state) {
    (void)state;
    add("get",
        "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"},\"days\":{\"type\":"
        "\"integer\"},\"on\":{\"type\":\"boolean\"},\"list\":{\"type\":\"array\"},\"o\":{\"$ref\":"
        "\"#/$defs/o\"},\"u\":{\"anyOf\":[{\"type\":\"number\"},{\"type\":\"string\"}]},\"any\":"
        "{},\"maybe\":{\"type\":[\"integer\",\"null\"]},\"e\":{\"enum\":[\"a\",1]}},"
        "\"$defs\":{\"o\":{\"type\":\"object\"}}}",
        false);
    add("no-args", NULL, false);
    add("patch", NULL, true);
    return 0;
}

static int stop(void **state) {
    (void)state;
    tool_set_fini(&tools);
    return 0;
}

// What came out: text as it is, calls as {{name arguments}}, those that broke off as {{... !}}.
static void on_text(void *arg, const char *s, size_t n) {
    assert_true(n > 0 && utf8_valid(s, n));
    str_append(arg, s, n);
}

static void on_begin(void *arg, const struct tool *t) {
    str_printf(arg, "{{%s ", t->name);
}

static void on_arguments(void *arg, const char *s, size_t n) {
    assert_true(n > 0);
    str_append(arg, s, n);
}

static void on_end(void *arg, bool whole) {
    str_puts(arg, whole ? "}}" : " !}}");
}

struct pipe {
    enum tool_family family;
    bool constrained;
    struct rng *rng; // NULL: in one piece
    bool only, cut;
};

// Through the reader of reasoning, too, as replies go.
static void read_reply(const struct pipe *p, const char *text, size_t n, struct str *out) {
    struct tool_sink sink = {out, on_text, on_begin, on_arguments, on_end};
    struct tool_calls c;
    struct reasoning r;
    struct str thought = {0}, content = {0};
    struct err e = {0};
    reasoning_init(&r, p->family == TOOLS_HARMONY ? REASONING_HARMONY : REASONING_NONE, false);
    r.frames = true;
    assert_int_equal(tool_calls_init(&c, p->family, &tools, p->constrained, &e), 0);
    c.only = p->only;
    str_puts(out, "");
    for (size_t at = 0; at < n;) {
        size_t max = n - at;
        size_t size = p->rng ? 1 + rng_below(p->rng, max < 9 ? (uint32_t)max : 9) : max;
        reasoning_push(&r, text + at, size, &thought, &content);
        if (content.len)
            tool_calls_push(&c, content.data, content.len, &sink);
        str_clear(&content);
        at += size;
    }
    r.cut = p->cut;
    reasoning_end(&r, &thought, &content);
    if (content.len)
        tool_calls_push(&c, content.data, content.len, &sink);
    tool_calls_end(&c, p->cut, &sink);
    assert_false(c.failed || out->failed);
    tool_calls_fini(&c);
    reasoning_fini(&r);
    str_fini(&thought);
    str_fini(&content);
}

#define TC        "<tool_call>"
#define CT        "</tool_call>"
#define BAR       "\xef\xbd\x9c"
#define UND       "\xe2\x96\x81"
#define DS(x)     "<" BAR x BAR ">"
#define DS_BEGIN  DS("tool" UND "calls" UND "begin")
#define DS_END    DS("tool" UND "calls" UND "end")
#define DS_CALL   DS("tool" UND "call" UND "begin")
#define DS_CALLED DS("tool" UND "call" UND "end")
#define DS_SEP    DS("tool" UND "sep")

static const struct sample {
    enum tool_family family;
    const char *reply, *want; // want NULL: the reply itself
} samples[] = {
    {TOOLS_HERMES, "no call < <tool <tool_cal", NULL},
    {TOOLS_HERMES, TC "\n{\"name\": \"get\", \"arguments\": {\"city\": \"Rome\"}}\n" CT,
     "{{get {\"city\": \"Rome\"}}}"},
    {TOOLS_HERMES,
     "Well.\n\n" TC "{\"name\":\"no-args\"}" CT "\n" TC
     "\n{\"arguments\":{\"a\":[1,{}]},\"name\":\"get\"}" CT "\n",
     "Well.{{no-args {}}}{{get {\"a\":[1,{}]}}}"},
    {TOOLS_HERMES, TC "{\"name\":\"get\",\"arguments\":{\"a\":\"" CT "\"}}" CT " and on",
     "{{get {\"a\":\"" CT "\"}}} and on"},
    {TOOLS_HERMES, TC "{\"name\":\"get\",\"arguments\":\"{\\\"a\\\": 1}\"}" CT,
     "{{get {\"a\": 1}}}"},
    {TOOLS_HERMES, TC "{\"name\":\"get\",\"arguments\":null}" CT, "{{get {}}}"},
    {TOOLS_HERMES, TC "{\"name\":\"get\",\"arguments\":{\"a\":\"x\ny\"}}" CT,
     "{{get {\"a\":\"x\\ny\"}}}"},
    {TOOLS_HERMES, "a " TC "{\"name\":\"unknown\",\"arguments\":{}}" CT " b", NULL},
    {TOOLS_HERMES, "a " TC "{\"name\":\"get\",\"arguments\":{oops}}" CT " b", NULL},
    {TOOLS_HERMES, "a " TC "{\"name\":\"get\",\"arguments\":[]}" CT " b", NULL},
    {TOOLS_HERMES, "a " TC "{\"name\":\"get\",\"arguments\":{}}x" CT " b", NULL},
    {TOOLS_HERMES, TC "{\"name\":\"get\",\"arguments\":{\"a\":1", NULL},
    {TOOLS_HERMES, TC "{\"name\":\"get\",\"arguments\":{}}", "{{get {}}}"},
    {TOOLS_HERMES, TC "{\"name\":\"get\",\"arguments\":{}}</tool_", "{{get {}}}"},
    {TOOLS_HERMES, TC TC "{\"name\":\"get\",\"arguments\":{}}" CT, TC "{{get {}}}"},
    {TOOLS_HERMES, TC "{\"name\":\"patch\",\"arguments\":{\"input\":\"*** \\\"a\\\"\\n\"}}" CT,
     "{{patch *** \"a\"\n}}"},
    {TOOLS_HERMES, TC "{\"name\":\"patch\",\"arguments\":{\"in\":\"a\"}}" CT, NULL},

    {TOOLS_QWEN,
     TC "\n<function=get>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n2\n"
        "</parameter>\n</function>\n" CT,
     "{{get {\"city\":\"Rome\",\"days\":2}}}"},
    {TOOLS_QWEN, "<function=no-args></function>", "{{no-args {}}}"},
    {TOOLS_QWEN,
     "ok\n" TC "<function=no-args>\n</function>" CT TC "<function=get></function>" CT CT,
     "ok{{no-args {}}}{{get {}}}" CT},
    {TOOLS_QWEN, "<function=get><parameter=city>\n\n a\n\n</parameter></function>",
     "{{get {\"city\":\"\\n a\\n\"}}}"},
    {TOOLS_QWEN,
     "<function=get><parameter=city>12</parameter><parameter=days>x</parameter>"
     "<parameter=on>True</parameter><parameter=list>[1, \"</parameter>\"]</parameter>"
     "<parameter=o>{\"a\": null}</parameter><parameter=u>1.50</parameter>"
     "<parameter=any>hi</parameter><parameter=maybe>null</parameter>"
     "<parameter=e>1</parameter></function>",
     "{{get {\"city\":\"12\",\"days\":\"x\",\"on\":true,\"list\":[1, \"</parameter>\"],\"o\":"
     "{\"a\": null},\"u\":1.50,\"any\":\"hi\",\"maybe\":null,\"e\":1}}}"},
    {TOOLS_QWEN,
     "<function=get><parameter=u>1.2.3</parameter><parameter=any>{}</parameter>"
     "<parameter=e>a</parameter><parameter=maybe>None</parameter></function>",
     "{{get {\"u\":\"1.2.3\",\"any\":{},\"e\":\"a\",\"maybe\":null}}}"},
    {TOOLS_QWEN,
     "<function=get><parameter=city>a</parameter> b <parameter=x>\"\\\x01"
     "</parameter></function>",
     "{{get {\"city\":\"a</parameter> b <parameter=x>\\\"\\\\\\u0001\"}}}"},
    {TOOLS_QWEN, "<function=unknown>\n<parameter=a>\n1\n</parameter>\n</function>", NULL},
    {TOOLS_QWEN, TC "\n<function=get>\n<parameter=city>\nRome\n</parameter>\n", NULL},
    {TOOLS_QWEN, TC "\n<function=get>\nRome\n</function>\n" CT " x", NULL},
    {TOOLS_QWEN, "<function=patch><parameter=input>\n*** \"x\"\n</parameter></function>",
     "{{patch *** \"x\"}}"},

    {TOOLS_LAGUNA,
     TC "get\n<arg_key>city</arg_key>\n<arg_value>Rome\n</arg_value>\n<arg_key>days"
        "</arg_key>\n<arg_value>2</arg_value>\n" CT,
     "{{get {\"city\":\"Rome\\n\",\"days\":2}}}"},
    {TOOLS_LAGUNA,
     "Hm" TC "get<arg_key>city</arg_key><arg_value>a</arg_value>b</arg_value>" CT TC "no-args" CT,
     "Hm{{get {\"city\":\"a</arg_value>b\"}}}{{no-args {}}}"},
    {TOOLS_LAGUNA, TC "nobody" CT, NULL},

    {TOOLS_LLAMA, "{\"name\": \"get\", \"parameters\": {\"city\": \"Rome\"}}",
     "{{get {\"city\": \"Rome\"}}}"},
    {TOOLS_LLAMA,
     "<|python_tag|>{\"type\": \"function\", \"name\": \"get\", \"parameters\": {}}; "
     "{\"name\": \"no-args\", \"parameters\": {}}",
     "{{get {}}}{{no-args {}}}"},
    {TOOLS_LLAMA, "See {\"name\": \"get\", \"parameters\": {}}", NULL},
    {TOOLS_LLAMA, "{\"a\": \"get\"}", NULL},
    {TOOLS_LLAMA, "{\"name\": \"Bob\", \"parameters\": {\"city\": \"Rome\"}}", NULL},
    {TOOLS_LLAMA, "{\"name\": \"get\", \"age\": 3, \"x\": [1, {\"y\": null}]} and so on", NULL},
    {TOOLS_LLAMA, "{\"name\": \"get\", \"parameters\": \"oops", NULL},
    {TOOLS_LLAMA, "{\"name\": \"ge", NULL},
    {TOOLS_LLAMA, "\n{\"name\":\"get\",\"parameters\":{\"a\":\"}\\\"{\"}}\n",
     "{{get {\"a\":\"}\\\"{\"}}}"},
    {TOOLS_LLAMA, "<|python_tag|>print(1)", NULL},

    {TOOLS_GEMMA,
     "<|tool_call>call:get{city:<|\"|>Ro\"me<|\"|>,days:2,list:[1,{a:<|\"|><|\"|>}],"
     "on:true,u:None,o:{<|\"|>k<|\"|>:-1e5}}<tool_call|><|tool_call>call:no-args{}"
     "<tool_call|>",
     "{{get {\"city\":\"Ro\\\"me\",\"days\":2,\"list\":[1,{\"a\":\"\"}],\"on\":true,\"u\":null,"
     "\"o\":{\"k\":-1e5}}}}{{no-args {}}}"},
    {TOOLS_GEMMA, "<|tool_call>call:get{city:Rome}<tool_call|>", NULL},
    {TOOLS_GEMMA, "<|tool_call>get{}<tool_call|>", NULL},
    {TOOLS_GEMMA, "<|tool_call>call:get{city:<|\"|>a<|\"|>", NULL},

    {TOOLS_HARMONY,
     "<|channel|>commentary to=functions.get <|constrain|>json<|message|>{\"city\": "
     "\"Rome\"}<|call|>",
     "{{get {\"city\": \"Rome\"}}}"},
    {TOOLS_HARMONY,
     "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary"
     "<|message|>Now.<|end|><|start|>assistant to=functions.get<|channel|>commentary "
     "json<|message|>{}",
     "Now.{{get {}}}"},
    {TOOLS_HARMONY, " to=functions.nobody<|channel|>commentary<|message|>{}<|call|>", NULL},
    {TOOLS_HARMONY, " to=functions.get<|channel|>commentary<|message|>{oops<|call|>", NULL},

    {TOOLS_DEEPSEEK,
     "I see." DS_BEGIN DS_CALL "get" DS_SEP "{\"city\": \"R\"}" DS_CALLED DS_CALL "no-args" DS_SEP
     "{}" DS_CALLED DS_END,
     "I see.{{get {\"city\": \"R\"}}}{{no-args {}}}"},
    {TOOLS_DEEPSEEK, DS_BEGIN DS_CALL "nobody" DS_SEP "{}" DS_CALLED DS_END, NULL},
    {TOOLS_DEEPSEEK_V3,
     DS_BEGIN DS_CALL "function" DS_SEP "get\n```json\n{\"a\": 1}\n```" DS_CALLED "\n" DS_CALL
                      "function" DS_SEP "get\n```json\n{}\n```" DS_CALLED DS_END,
     "{{get {\"a\": 1}}}{{get {}}}"},
    {TOOLS_KIMI,
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.get:0"
     "<|tool_call_argument_begin|>{\"city\":\"x\"}<|tool_call_end|><|tool_call_begin|>"
     "functions.no-args:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
     "<|tool_calls_section_end|>",
     "{{get {\"city\":\"x\"}}}{{no-args {}}}"},
    {TOOLS_MISTRAL,
     "Hm.[TOOL_CALLS]get[ARGS]{\"city\": \"x\"}[TOOL_CALLS]no-args[CALL_ID]abcdefghi"
     "[ARGS]{}",
     "Hm.{{get {\"city\": \"x\"}}}{{no-args {}}}"},
    {TOOLS_MISTRAL, "[TOOL_CALLS]nobody[ARGS]{}", NULL},
    {TOOLS_MISTRAL_LIST,
     "[TOOL_CALLS] [{\"name\": \"get\", \"arguments\": {\"city\": \"x\"}, \"id\": "
     "\"abcdefghi\"}, {\"name\": \"no-args\", \"arguments\": {}}]",
     "{{get {\"city\": \"x\"}}}{{no-args {}}}"},
    {TOOLS_MISTRAL_LIST, "[TOOL_CALLS][1]", NULL},
};

static void one(const struct sample *s, bool constrained, struct rng *rng) {
    struct str out = {0};
    const struct pipe p = {.family = s->family, .constrained = constrained, .rng = rng};
    read_reply(&p, s->reply, strlen(s->reply), &out);
    const char *want = s->want ? s->want : s->reply;
    if (strcmp(out.data, want) != 0)
        fail_msg("%s: '%s' gave '%s' in place of '%s'", tool_formats[s->family].speaks[0], s->reply,
                 out.data, want);
    str_fini(&out);
}

static void calls_and_text_come_apart(void **state) {
    (void)state;
    struct rng rng = {5};
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        one(&samples[i], false, NULL);
        for (int k = 0; k < 50; k++)
            one(&samples[i], false, &rng);
    }
}

// Where calls are known to be well-formed, their arguments go out before they are whole.
static void arguments_flow(void **state) {
    (void)state;
    struct rng rng = {6};
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
        for (int k = 0; k < 20 && samples[i].want; k++)
            one(&samples[i], true, k ? &rng : NULL);
    static const struct sample cut[] = {
        {TOOLS_HERMES, TC "{\"name\":\"get\",\"arguments\":{\"a\":\"xy", "{{get {\"a\":\"xy !}}"},
        {TOOLS_QWEN, TC "<function=get><parameter=city>Ro\nme", "{{get {\"city\":\"Ro\\nme !}}"},
        // Before the arguments there is no call yet, and its marks are no text.
        {TOOLS_QWEN, "So:\n" TC "\n<function=ge", "So:"},
        {TOOLS_QWEN, TC "\n<function=get>\n<parameter", ""},
        {TOOLS_HERMES, TC "{\"name\":\"ge", ""},
        {TOOLS_HERMES, TC "{\"name\":\"get\",\"arguments\":{}}" CT TC "{\"na", "{{get {}}}"},
        {TOOLS_LLAMA, "{\"name\":\"ge", "{\"name\":\"ge"},
        // What may be the end of a value when the reply ends is no text of the value,
        {TOOLS_QWEN, TC "<function=get><parameter=city>Rome\n</parameter>",
         "{{get {\"city\":\"Rome !}}"},
        {TOOLS_QWEN, TC "<function=get><parameter=city>Rome\n</parameter>\n</func",
         "{{get {\"city\":\"Rome !}}"},
        {TOOLS_LAGUNA, TC "get<arg_key>city</arg_key><arg_value>Rome</arg_value>",
         "{{get {\"city\":\"Rome !}}"},
        // and none after the call.
        {TOOLS_QWEN, TC "<function=get><parameter=city>Rome\n", "{{get {\"city\":\"Rome !}}"},
        {TOOLS_QWEN, TC "<function=get><parameter=city>Rome</parameter><parameter=days>1",
         "{{get {\"city\":\"Rome\",\"days\": !}}"},
        {TOOLS_HERMES, TC "{\"name\":\"get\",\"arguments\":{\"a\":\"xy\"}",
         "{{get {\"a\":\"xy\"} !}}"},
        {TOOLS_GEMMA, "<|tool_call>call:get{city:<|\"|>ab", "{{get {\"city\":\"ab !}}"},
        {TOOLS_HARMONY, " to=functions.get<|channel|>commentary<|message|>{\"a\":\"xy",
         "{{get {\"a\":\"xy !}}"},
        {TOOLS_HERMES, TC "{\"name\":\"get\",\"arguments\":{\"a\":oops}}",
         "{{get {\"a\": !}}oops}}"},
    };
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++)
        one(&cut[i], true, NULL);
}

// A reply of nothing but calls, cut off at each byte: no text comes out.
static void cut_at_each_byte(const struct sample *s, struct rng *rng) {
    for (size_t at = 0; at < 3 * (strlen(s->reply) + 1); at++) {
        struct str out = {0};
        size_t cut = at / 3, way = at % 3;
        const struct pipe p = {s->family, true, way ? rng : NULL, true, way < 2};
        read_reply(&p, s->reply, cut, &out);
        if (out.len && (strncmp(out.data, "{{", 2) != 0 || out.data[out.len - 1] != '}'))
            fail_msg("%s: '%.*s' gave '%s'", tool_formats[s->family].speaks[0], (int)cut, s->reply,
                     out.data);
        str_fini(&out);
    }
}

static void pieces_of_marks_are_no_text(void **state) {
    (void)state;
    struct rng rng = {7};
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        const struct sample *s = &samples[i];
        size_t n = s->want ? strlen(s->want) : 0;
        if (n >= 4 && strncmp(s->want, "{{", 2) == 0 && strcmp(s->want + n - 2, "}}") == 0 &&
            s->family != TOOLS_HARMONY)
            cut_at_each_byte(s, &rng);
    }
    // Where words may come as well, and in reasoning.
    static const struct sample pieces[] = {
        {TOOLS_HERMES, "Well \n<tool_c", "Well"},
        {TOOLS_HERMES, "a <", "a <"},
        {TOOLS_HERMES, "a <t", "a <t"},
        {TOOLS_HERMES, "a <table", "a <table"},
        {TOOLS_QWEN, "<function=get></function>\n</tool_", "{{get {}}}"},
        {TOOLS_QWEN, "<function=get></function>\n<", "{{get {}}}"},
        {TOOLS_QWEN, "So <functio", "So"},
        {TOOLS_MISTRAL, "[TOOL_CALLS]get[ARGS]{}[TOOL_", "{{get {}}}"},
        {TOOLS_KIMI, "Hm<|tool_calls_sec", "Hm"},
        {TOOLS_HARMONY, "<|channel|>final<|message|>Yes<|en", "Yes"},
    };
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        for (int k = 0; k < 9; k++) {
            struct str out = {0};
            const struct pipe p = {pieces[i].family, k % 2, k > 1 ? &rng : NULL, false, true};
            read_reply(&p, pieces[i].reply, strlen(pieces[i].reply), &out);
            assert_string_equal(out.data, pieces[i].want);
            str_fini(&out);
        }
}

// Blanks and beginnings without end: what is held stays short, and a reply is not looked at again
// and again. The text stays what it was, byte for byte.
static void endless_beginnings_cost_little(void **state) {
    (void)state;
    static const struct {
        enum tool_family family;
        const char *first, *again;
    } rows[] = {
        {TOOLS_QWEN, TC, "\n"},
        {TOOLS_QWEN, "<function=get></function>", " "},
        {TOOLS_QWEN, "<function=get><parameter=city>a</parameter>", " "},
        {TOOLS_QWEN, "<function=get>", "<parameter=x>1</parameter>"},
        {TOOLS_LAGUNA, TC "get<arg_key>a</arg_key>", " "},
        {TOOLS_HERMES, "", TC "{\"name\":\"get\",\"arguments\":{\"a\":\""},
        {TOOLS_HERMES, TC "{\"name\":\"get\",\"arguments\":{}}", " "},
        {TOOLS_LLAMA, "<|python_tag|>", " "},
        {TOOLS_DEEPSEEK, DS_BEGIN, "\n"},
        {TOOLS_MISTRAL_LIST, "[TOOL_CALLS]", " "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct str out = {0}, reply = {0};
        struct tool_sink sink = {&out, on_text, on_begin, on_arguments, on_end};
        struct tool_calls c;
        struct err e = {0};
        assert_int_equal(tool_calls_init(&c, rows[i].family, &tools, false, &e), 0);
        str_puts(&reply, rows[i].first);
        while (reply.len < 60000)
            str_puts(&reply, rows[i].again);
        uint64_t held = 0;
        for (size_t at = 0; at < reply.len; at++) {
            tool_calls_push(&c, reply.data + at, 1, &sink);
            held += c.held.len - c.at; // what the next push looks at once more
        }
        tool_calls_end(&c, false, &sink);
        if (held > 700 * (uint64_t)reply.len || c.again > (8 << 20))
            fail_msg("%s: %llu bytes were looked at again, %zu given back",
                     tool_formats[rows[i].family].speaks[0], (unsigned long long)held, c.again);
        assert_false(c.failed);
        if (strncmp(out.data, "{{", 2) != 0)
            assert_string_equal(out.data, reply.data);
        tool_calls_fini(&c);
        str_fini(&out);
        str_fini(&reply);
    }
}

// The text of a freeform tool goes out while it comes, as text.
static void freeform_text_flows(void **state) {
    (void)state;
    static const struct sample cut[] = {
        {TOOLS_HERMES,
         TC "{\"name\":\"patch\",\"arguments\":{\"input\": \"*** Be\\ngin \\\"x\\\" \\u00e9",
         "{{patch *** Be\ngin \"x\" \xc3\xa9 !}}"},
        {TOOLS_HERMES,
         TC "{\"name\":\"patch\",\"arguments\":{\"input\":\"\\ud83d\\ude00 \\ud83dx \\ude00",
         "{{patch \xf0\x9f\x98\x80 \xef\xbf\xbdx \xef\xbf\xbd !}}"},
        {TOOLS_HERMES, TC "{\"name\":\"patch\",\"arguments\":{\"input\":\"a\\", "{{patch a !}}"},
        {TOOLS_HERMES, TC "{\"name\":\"patch\",\"arguments\":{\"input\":\"a\\u00", "{{patch a !}}"},
        {TOOLS_HERMES, TC "{\"name\":\"patch\",\"arguments\":{\"input\":\"\\/\\b\\f\\r\\t\"}}" CT,
         "{{patch /\b\f\r\t}}"},
        {TOOLS_HERMES, TC "{\"name\":\"patch\",\"arguments\":{\"input\":\"\"}}" CT "x",
         "{{patch }}x"},
        {TOOLS_QWEN, TC "<function=patch><parameter=input>\n*** \"a\\n\"\n+b",
         "{{patch *** \"a\\n\"\n+b !}}"},
        {TOOLS_LAGUNA, TC "patch<arg_key>input</arg_key><arg_value>a\"b", "{{patch a\"b !}}"},
        {TOOLS_HARMONY, " to=functions.patch<|channel|>commentary<|message|>{\"input\":\"a\\tb",
         "{{patch a\tb !}}"},
    };
    struct rng rng = {8};
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++)
        for (int k = 0; k < 30; k++)
            one(&cut[i], true, k ? &rng : NULL);
}

static void a_parameter_given_twice_counts_once(void **state) {
    (void)state;
    static const struct sample s[] = {
        {TOOLS_QWEN,
         "<function=get><parameter=city>a</parameter><parameter=city>b</parameter>"
         "</function>",
         "{{get {\"city\":\"b\"}}}"},
        {TOOLS_QWEN,
         "<function=get><parameter=city>a</parameter><parameter=days>1</parameter>"
         "<parameter=on>true</parameter><parameter=city>b</parameter></function>",
         "{{get {\"days\":1,\"on\":true,\"city\":\"b\"}}}"},
        {TOOLS_QWEN,
         "<function=get><parameter=city>a</parameter><parameter=days>1</parameter>"
         "<parameter=on>true</parameter><parameter=days>2</parameter></function>",
         "{{get {\"city\":\"a\",\"on\":true,\"days\":2}}}"},
    };
    for (size_t i = 0; i < sizeof s / sizeof *s; i++)
        one(&s[i], false, NULL);
}

static void templates_determine_the_tool_family(void **state) {
    (void)state;
    static const struct {
        const char *text;
        enum tool_family family;
    } cases[] = {
        {"", TOOLS_HERMES},
        {"<tool_call>\\n{\"name\": ", TOOLS_HERMES},
        {"<tool_call>\\n<function=' + name + '>\\n<parameter=", TOOLS_QWEN},
        {"<tool_call>' + name + '<arg_key>' <arg_value>", TOOLS_LAGUNA},
        {"<|start_header_id|>ipython<|end_header_id|>", TOOLS_LLAMA},
        {"'<|tool_call>call:' + name", TOOLS_GEMMA},
        {"<|start|>assistant<|channel|>final<|message|>", TOOLS_HARMONY},
        {DS_CALL "' + name + '" DS_SEP, TOOLS_DEEPSEEK},
        {DS_CALL "' + type + '" DS_SEP "' + name + '\\n```json\\n", TOOLS_DEEPSEEK_V3},
        {"<|tool_call_begin|>' + id + '<|tool_call_argument_begin|>", TOOLS_KIMI},
        {"[TOOL_CALLS]' + name + '[ARGS]'", TOOLS_MISTRAL},
        {"[TOOL_CALLS] [' + calls", TOOLS_MISTRAL_LIST},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(tool_family_of_template(cases[i].text, strlen(cases[i].text)),
                         cases[i].family);
    assert_true(tool_family_mark(TOOLS_GEMMA, "<|\"|>", 5));
    assert_true(tool_family_mark(TOOLS_KIMI, "<|tool_call_end|>", 17));
    assert_false(tool_family_mark(TOOLS_KIMI, "<|im_end|>", 10));
}

static void types_follow_schemas(void **state) {
    (void)state;
    static const struct {
        const char *schema;
        unsigned types;
    } cases[] = {
        {"{\"type\":\"string\"}", TOOL_STRING},
        {"{\"type\":[\"string\",\"null\"]}", TOOL_STRING | TOOL_NULL},
        {"{\"anyOf\":[{\"type\":\"integer\"},{\"enum\":[\"a\",true]}]}",
         TOOL_NUMBER | TOOL_STRING | TOOL_BOOL},
        {"{\"allOf\":[{\"type\":[\"string\",\"array\"]},{\"type\":\"array\"}]}", TOOL_ARRAY},
        {"{\"$ref\":\"#\"}", TOOL_OBJECT},
        {"{\"const\":null}", TOOL_ANY},
        {"{\"items\":{}}", TOOL_ARRAY},
        {"{\"properties\":{}}", TOOL_OBJECT},
        {"{\"type\":\"string\",\"nullable\":true}", TOOL_STRING | TOOL_NULL},
        {"{\"type\":\"strange\"}", TOOL_ANY},
        {"true", TOOL_ANY},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tool_set s = {0};
        struct str text = {0};
        struct json *v;
        struct err e = {0};
        str_printf(&text, "{\"properties\":{\"a\":%s}}", cases[i].schema);
        assert_int_equal(json_parse(&v, text.data, text.len, &e), 0);
        assert_int_equal(tool_set_add(&s, "t", 1, v, false, &e), 0);
        assert_int_equal(tool_param_types(&s.list[0], "a", 1), cases[i].types);
        json_free(v);
        str_fini(&text);
        tool_set_fini(&s);
    }
}

// References in circles that branch at every level.
static void hostile_schemas_end(void **state) {
    (void)state;
    static const char text[] =
        "{\"properties\":{\"a\":{\"$ref\":\"#/$defs/x\"}},\"$defs\":{\"x\":{\"anyOf\":[{\"$ref\":"
        "\"#/$defs/x\"},{\"$ref\":\"#/$defs/x\"},{\"$ref\":\"#/$defs/x\"}]}}}";
    struct tool_set s = {0};
    struct json *v;
    struct err e = {0};
    assert_int_equal(json_parse(&v, text, sizeof text - 1, &e), 0);
    assert_int_equal(tool_set_add(&s, "t", 1, v, false, &e), 0);
    assert_int_equal(tool_param_types(&s.list[0], "a", 1), TOOL_ANY);
    json_free(v);
    tool_set_fini(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_and_text_come_apart),
        cmocka_unit_test(arguments_flow),
        cmocka_unit_test(pieces_of_marks_are_no_text),
        cmocka_unit_test(endless_beginnings_cost_little),
        cmocka_unit_test(freeform_text_flows),
        cmocka_unit_test(a_parameter_given_twice_counts_once),
        cmocka_unit_test(templates_determine_the_tool_family),
        cmocka_unit_test(types_follow_schemas),
        cmocka_unit_test(hostile_schemas_end),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
