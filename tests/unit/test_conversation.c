// SPDX-License-Identifier: Apache-2.0
// Random conversations in the words of each interface and back: nothing may change. Then what the
// readers make of messages that clients send, and what templates get of them.
#include "test.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "serve/conversation/interfaces.h"
#include "serve/conversation/plain.h"
#include "support/conversation_words.h"
#include "text/chat/chat.h"

static const char *const values[] = {
    "1",     "\"x\"",         "[1,{\"a\":null}]", "{\"deep\":{\"er\":[true,-0.5e3]}}",
    "false", "\"\\u00e9\\n\""};
static const char *const media[] = {
    "{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,AA==\"}}",
    "{\"type\":\"input_image\",\"image_url\":\"https://x/y.png\",\"detail\":\"low\"}",
    "{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_type\":\"image/"
    "png\",\"data\":\"AA\"}}",
    "{\"type\":\"input_file\",\"file_id\":\"f1\"}"};
static const char *const others[] = {"{\"type\":\"x_search_result\",\"title\":\"T\",\"n\":[1]}",
                                     "{\"type\":\"x_reference\",\"tool_name\":\"t\"}"};
static const char *const schemas[] = {
    "{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\"}},\"required\":[\"path\"]}",
    "{\"type\":\"object\",\"properties\":{}}", "{\"anyOf\":[{},{\"const\":1.50}]}"};
static const char *const texts[] = {"",        "Hi",      "two\nlines", "\xc3\xa9\xf0\x9f\x8c\xb3",
                                    "\"q\"\\", "<think>", " blank ",    "{\"a\":1}"};
static const char *const arguments[] = {"{}", "{\"path\":\"a.c\"}", "{\"n\":1.50,\"l\":[1,2]}",
                                        "{\"s\":\"\xc3\xa9\\n\"}"};

enum { DOCUMENTS = 512 };
struct maker {
    struct rng rng;
    struct conversation *v;
    bool common;                  // only what every interface has a form for
    struct json *docs[DOCUMENTS]; // what the conversation borrows from
    int n_docs;
};

static int below(struct maker *m, int n) {
    return (int)(rng_next(&m->rng) % (uint64_t)n);
}
static bool one_in(struct maker *m, int n) {
    return below(m, n) == 0;
}

static const struct json *parsed(struct maker *m, const char *text) {
    struct err e = {0};
    assert_true(m->n_docs < DOCUMENTS);
    struct json **out = &m->docs[m->n_docs++];
    assert_int_equal(json_parse(out, text, strlen(text), &e), 0);
    return *out;
}
#define PICK(m, list) (list)[below(m, (int)(sizeof(list) / sizeof *(list)))]

static void add_extras(struct maker *m, struct extras *x) {
    char key[32];
    for (int n = one_in(m, 4) ? 1 + below(m, 2) : 0; n > 0; n--) {
        struct json_writer w = {0};
        snprintf(key, sizeof key, "x_%d", n);
        jw_begin(&w, '{');
        jw_key(&w, key);
        jw_value(&w, parsed(m, PICK(m, values)));
        jw_end(&w, '}');
        extras_take(m->v, x, parsed(m, w.out.data), (const char *const[]){NULL});
        str_fini(&w.out);
    }
}

static struct words id_of(struct maker *m) {
    char id[32];
    int n = snprintf(id, sizeof id, "call_%d", below(m, 1000));
    return conversation_copy(m->v, id, (size_t)n);
}

static void fill_content(struct maker *m, struct conversation_part *p, bool answer) {
    int k = below(m, 8);
    if (k == 0 && !answer && !m->common) {
        p->kind = PART_MEDIA;
        p->raw = parsed(m, PICK(m, media));
    } else if (k == 1 && !m->common) {
        p->kind = PART_OTHER;
        p->raw = parsed(m, PICK(m, others));
    } else {
        p->kind = k == 2 && answer ? PART_REFUSAL : PART_TEXT;
        p->text = words_of_text(PICK(m, texts));
        add_extras(m, &p->extras);
    }
}

static void add_reasoning(struct maker *m, struct conversation_turn *t) {
    struct conversation_part *p = conversation_part(m->v, t, PART_REASONING);
    if (m->common || !one_in(m, 4))
        p->text = words_of_text(one_in(m, 2) ? "need a tool" : "hm\n");
    if (one_in(m, 3))
        p->summary = words_of_text("short");
    if (one_in(m, 2) || (!p->text.s && !p->summary.s))
        p->signature = words_of_text("c2ln");
    add_extras(m, &p->extras);
}

static void add_call(struct maker *m, struct conversation_turn *t) {
    struct conversation_part *p = conversation_part(m->v, t, PART_CALL);
    p->custom = !m->common && one_in(m, 4);
    p->id = id_of(m);
    p->name = words_of_text(one_in(m, 2) ? "read" : "apply_patch");
    p->text = words_of_text(p->custom ? PICK(m, texts) : PICK(m, arguments));
    add_extras(m, &p->extras);
}

// A turn of the assistant as one message brings it.
static void add_answer(struct maker *m) {
    int reasoning = one_in(m, 2) ? 1 + below(m, 2) : 0;
    int content = one_in(m, 4) ? 0 : 1 + below(m, 2), calls = one_in(m, 2) ? 1 + below(m, 3) : 0;
    struct extras extras = {0};
    add_extras(m, &extras);
    enum conversation_kind first = reasoning                       ? PART_REASONING
                                   : content || extras.n || !calls ? PART_TEXT
                                                                   : PART_CALL;
    struct conversation_turn *t = conversation_turn(m->v, CONVERSATION_ASSISTANT, first);
    for (int i = 0; i < reasoning; i++)
        add_reasoning(m, t);
    if (extras.n)
        t->extras = extras;
    for (int i = 0; i < content; i++)
        fill_content(m, conversation_part(m->v, t, PART_TEXT), true);
    for (int i = 0; i < calls; i++)
        add_call(m, t);
}

static void add_results(struct maker *m) {
    struct conversation_turn *t = conversation_turn(m->v, CONVERSATION_TOOL, PART_RESULT);
    for (int n = 1 + below(m, 3); n > 0; n--) {
        struct conversation_part *p = conversation_part(m->v, t, PART_RESULT);
        p->id = id_of(m);
        p->custom = one_in(m, 4);
        p->is_error = one_in(m, 4);
        add_extras(m, &p->extras);
        for (int k = m->common + below(m, 3); k > 0; k--)
            fill_content(m, conversation_inner(m->v, p, PART_TEXT), false);
    }
}

static void add_words(struct maker *m, enum conversation_role role) {
    struct conversation_turn *t = conversation_turn(m->v, role, PART_TEXT);
    for (int n = 1 + below(m, 3); n > 0; n--)
        fill_content(m, conversation_part(m->v, t, PART_TEXT), false);
    add_extras(m, &t->extras);
}

static void add_tool(struct maker *m) {
    enum tool_kind kind = (enum tool_kind)below(m, 3);
    struct conversation_tool *t = conversation_tool(m->v, kind);
    if (kind == TOOL_OTHER) {
        t->raw = parsed(m, one_in(m, 2) ? "{\"type\":\"web_search\",\"x\":1}"
                                        : "{\"type\":\"x_tool_20260101\",\"name\":\"bash\"}");
        return;
    }
    t->name = words_of_text(kind == TOOL_CUSTOM ? "apply_patch" : "read");
    if (!one_in(m, 3))
        t->description = words_of_text("Reads a file.");
    if (kind == TOOL_FUNCTION) {
        t->schema = one_in(m, 5) ? NULL : parsed(m, PICK(m, schemas));
        t->strict = below(m, 3) - 1;
    } else if (!one_in(m, 3)) {
        t->format = parsed(m, "{\"type\":\"grammar\",\"syntax\":\"lark\",\"definition\":\"a: b\"}");
    }
    add_extras(m, &t->extras);
}

static void add_choice(struct maker *m) {
    m->v->choice.kind = (enum conversation_choice)below(m, CHOICE_ALLOWED);
    m->v->parallel = below(m, 3) - 1;
    if (m->v->choice.kind == CHOICE_NAMED) {
        m->v->choice.name = words_of_text("read");
        m->v->choice.custom = one_in(m, 3);
    }
}

static void make(struct maker *m, struct conversation *v, uint64_t seed, bool common) {
    *m = (struct maker){.rng = {rng_mix(seed)}, .v = v, .common = common};
    for (int n = 1 + below(m, 10); n > 0; n--) {
        int k = below(m, 8);
        if (k < 3)
            add_answer(m);
        else if (k < 5)
            add_results(m);
        else if (k < 7)
            add_words(m, CONVERSATION_USER);
        else
            add_words(m, m->common ? CONVERSATION_SYSTEM : (enum conversation_role)below(m, 3));
    }
    for (int n = below(m, 4); n > 0; n--)
        add_tool(m);
    add_choice(m);
    assert_false(v->failed);
}

static void drop(struct maker *m) {
    for (int i = 0; i < m->n_docs; i++)
        json_free(m->docs[i]);
}

// The body of a request, and back.
static void write_chat(const struct conversation *v, struct json_writer *w) {
    jw_begin(w, '{');
    jw_key(w, "messages");
    conversation_write_chat(v, w);
    jw_key(w, "tools");
    conversation_write_chat_tools(v, w);
    jw_key(w, "tool_choice");
    conversation_write_chat_choice(v, w);
    if (v->parallel)
        jw_key_bool(w, "parallel_tool_calls", v->parallel > 0);
    jw_end(w, '}');
}

static bool read_chat(const struct json *body, struct conversation *v) {
    struct api_error x = {0};
    if (!conversation_read_chat(v, json_get(body, "messages"), &x))
        return false;
    conversation_read_tools(v, json_get(body, "tools"), json_get(body, "tool_choice"),
                            json_get(body, "parallel_tool_calls"), true);
    return true;
}

static void write_messages(const struct conversation *v, struct json_writer *w) {
    jw_begin(w, '{');
    conversation_write_messages(v, w);
    conversation_write_messages_tools(v, w);
    jw_end(w, '}');
}

static bool read_messages(const struct json *body, struct conversation *v) {
    struct api_error x = {0};
    if (!conversation_read_messages(v, body, &x))
        return false;
    conversation_read_messages_tools(v, body);
    return true;
}

static void write_responses(const struct conversation *v, struct json_writer *w) {
    jw_begin(w, '{');
    jw_key(w, "input");
    conversation_write_responses(v, w);
    jw_key(w, "tools");
    conversation_write_responses_tools(v, w);
    jw_key(w, "tool_choice");
    conversation_write_responses_choice(v, w);
    if (v->parallel)
        jw_key_bool(w, "parallel_tool_calls", v->parallel > 0);
    jw_end(w, '}');
}

static bool read_responses(const struct json *body, struct conversation *v) {
    struct api_error x = {0};
    if (!conversation_read_responses(v, json_get(body, "input"), &x))
        fail_msg("%s", x.text);
    conversation_read_tools(v, json_get(body, "tools"), json_get(body, "tool_choice"),
                            json_get(body, "parallel_tool_calls"), false);
    return true;
}

static const struct interface {
    const char *name;
    void (*write)(const struct conversation *v, struct json_writer *w);
    bool (*read)(const struct json *body, struct conversation *v); // false: it refuses parts
} interfaces[] = {{"chat", write_chat, read_chat},
                  {"messages", write_messages, read_messages},
                  {"responses", write_responses, read_responses}};
enum { INTERFACES = sizeof interfaces / sizeof interfaces[0] };

// Whether there is a part that is no words, or a result without any, which chats refuse.
static bool has_others(const struct conversation_part *parts, int n) {
    bool found = false;
    for (int i = 0; i < n; i++)
        found |= parts[i].kind == PART_MEDIA || parts[i].kind == PART_OTHER ||
                 (parts[i].kind == PART_RESULT && parts[i].n_parts == 0) ||
                 has_others(parts[i].parts, parts[i].n_parts);
    return found;
}

static bool chats_refuse(const struct conversation *v) {
    bool found = false;
    for (int i = 0; i < v->n_turns; i++)
        found |= has_others(v->turns[i].parts, v->turns[i].n_parts);
    return found;
}

// Whether it was read and is the same; else the interface refuses it.
static bool expect_same(const struct conversation *v, const struct interface *i, uint64_t seed) {
    struct json_writer w = {0};
    struct json *body = NULL;
    struct conversation back = {0};
    struct str where = {0};
    struct err e = {0};
    i->write(v, &w);
    assert_false(w.out.failed);
    const struct json_rules rules = {.unique_keys = true, .big_integers = true};
    if (json_parse_with(&body, w.out.data, w.out.len, &rules, &e))
        fail_msg("%s wrote no JSON for seed %llu: %s\n%s", i->name, (unsigned long long)seed,
                 e.text, w.out.data);
    bool read = i->read(body, &back);
    if (read)
        assert_int_equal(conversation_differs(v, &back, &where, &e), 0);
    if (where.len)
        fail_msg("%s changes %s of seed %llu", i->name, where.data, (unsigned long long)seed);
    str_fini(&where);
    str_fini(&w.out);
    conversation_fini(&back);
    json_free(body);
    return read;
}

static void nothing_is_lost(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 20000; seed++) {
        struct conversation v = {0};
        struct maker m;
        make(&m, &v, seed, seed % 2);
        for (int i = 0; i < INTERFACES; i++) {
            bool read = expect_same(&v, &interfaces[i], seed);
            if (interfaces[i].read == read_chat)
                assert_int_equal(read, !chats_refuse(&v));
            else if (m.common || interfaces[i].read == read_responses)
                assert_true(read);
        }
        conversation_fini(&v);
        drop(&m);
    }
}

// What a template gets of chat messages, as JSON; wrong: the sentence instead.
static char *plain_of(const char *messages) {
    struct json *body = NULL;
    struct conversation v = {0};
    struct api_error x = {0};
    struct json_writer w = {0};
    struct err e = {0};
    assert_int_equal(json_parse(&body, messages, strlen(messages), &e), 0);
    if (conversation_read_chat(&v, body, &x) && conversation_plain(&v, &x))
        conversation_write_chat(&v, &w);
    else
        str_puts(&w.out, x.text);
    conversation_fini(&v);
    json_free(body);
    return w.out.data;
}

static void templates_get(void **state) {
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"[{\"role\":\"user\",\"content\":\"a\",\"name\":\"N\"}]",
         "[{\"role\":\"user\",\"content\":\"a\",\"name\":\"N\"}]"},
        {"[{\"role\":\"system\",\"content\":\"x-anthropic-billing-header: a=1;\\nBe brief.\"}]",
         "[{\"role\":\"system\",\"content\":\"Be brief.\"}]"},
        // Lines that change with each request: several, at the beginning of the first turn only.
        {"[{\"role\":\"system\",\"content\":\"x-anthropic-billing-header: a\\n"
         "x-anthropic-billing-header: b\\nText\"}]",
         "[{\"role\":\"system\",\"content\":\"Text\"}]"},
        {"[{\"role\":\"system\",\"content\":\"Text\\nx-anthropic-billing-header: a\"}]",
         "[{\"role\":\"system\",\"content\":\"Text\\nx-anthropic-billing-header: a\"}]"},
        {"[{\"role\":\"system\",\"content\":\"\"},{\"role\":\"user\",\"content\":\"x-anthropic-"
         "billing-"
         "header: a\\nb\"}]",
         "[{\"role\":\"system\",\"content\":\"\"},{\"role\":\"user\",\"content\":\"x-anthropic-"
         "billing-"
         "header: a\\nb\"}]"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x-anthropic-billing-"
         "header:"
         " b\"},{\"type\":\"text\",\"text\":\"a\"}]}]",
         "[{\"role\":\"user\",\"content\":\"a\"}]"},
        {"[{\"role\":\"assistant\",\"content\":null,\"reasoning\":\"hm\"},{\"role\":\"assistant\","
         "\"tool_calls\":[{\"id\":\"c1\",\"type\":\"custom\",\"custom\":{\"name\":\"p\",\"input\":"
         "\"a\\\"b\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":[{\"type\":"
         "\"quote\",\"text\":\"q\"}"
         ",{\"type\":\"text\",\"text\":\"r\"}]}]",
         "[{\"role\":\"assistant\",\"reasoning_content\":\"hm\",\"content\":null,\"tool_calls\":[{"
         "\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"p\",\"arguments\":\"{"
         "\\\"input"
         "\\\":\\\"a\\\\\\\"b\\\"}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":[{"
         "\"type\":"
         "\"text\",\"text\":\"q\"},{\"type\":\"text\",\"text\":\"r\"}]}]"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"image\"}]"
         "}]",
         "messages[0].content[1] is of type image, and this model reads text only"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"quote\",\"text\":\"a\"},{\"type\":\"x\"}]}]",
         "messages[0].content[1].text is missing and must be a string"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *got = plain_of(cases[i].in);
        assert_string_equal(got, cases[i].out);
        free(got);
    }
}

// The values of messages and tools that a template gets of a request, printed by it.
static void values_are_those_of_chats(void **state) {
    static const char form[] = "{% for m in messages %}{{ m | tojson }}{% endfor %}"
                               "{{ tools | tojson }}";
    static const char request[] =
        "{\"messages\":[{\"name\":\"N\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}],\"role\":"
        "\"user\"},{\"role\":\"assistant\",\"content\":null,\"x\":1,\"reasoning_content\":\"a b\","
        "\"reasoning_details\":[{\"type\":\"reasoning.text\",\"text\":\"a\"},{\"type\":"
        "\"reasoning.text\",\"text\":\" "
        "b\"}],\"tool_calls\":[{\"function\":{\"arguments\":{\"n\":1},"
        "\"name\":\"f\"},\"x\":2,\"id\":\"c1\"},{\"type\":\"custom\",\"id\":\"c2\",\"custom\":{"
        "\"name\":"
        "\"p\",\"input\":\"free\"}}]},{\"role\":\"tool\",\"is_error\":true,\"tool_call_id\":\"c1\","
        "\"content\":\"out\"},{\"role\":\"tool\",\"type\":\"custom\",\"tool_call_id\":\"c2\","
        "\"content\":"
        "[{\"type\":\"text\",\"text\":\"1\"},{\"type\":\"refusal\",\"refusal\":\"2\"}]}],"
        "\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"strict\":true,\"parameters\":{\"type\":"
        "\"object\"},\"x\":1},{\"type\":\"custom\",\"custom\":{\"name\":\"p\",\"description\":"
        "\"d\","
        "\"format\":{\"definition\":\"g\"}}}]}";
    static const char wanted[] =
        "{\"role\": \"user\", \"content\": \"a\", \"name\": \"N\"}"
        "{\"role\": \"assistant\", \"reasoning_details\": [{\"type\": \"reasoning.text\", "
        "\"text\": "
        "\"a\"}, {\"type\": \"reasoning.text\", \"text\": \" b\"}], \"x\": 1, "
        "\"reasoning_content\": "
        "\"a b\", \"thinking\": \"a b\", \"reasoning\": \"a b\", \"content\": \"\", "
        "\"tool_calls\": "
        "[{\"id\": \"c1\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": "
        "{\"n\": 1}}, \"x\": 2}, {\"id\": \"c2\", \"type\": \"function\", \"function\": {\"name\": "
        "\"p\", \"arguments\": {\"input\": \"free\"}}}]}"
        "{\"role\": \"tool\", \"tool_call_id\": \"c1\", \"is_error\": true, \"content\": \"out\", "
        "\"name\": \"f\"}"
        "{\"role\": \"tool\", \"tool_call_id\": \"c2\", \"type\": \"custom\", \"content\": "
        "\"1\\n2\", "
        "\"name\": \"p\"}"
        "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": "
        "\"object\"}, \"strict\": true, \"x\": 1}}, {\"type\": \"function\", \"function\": "
        "{\"name\": "
        "\"p\", \"description\": \"d\\n\\nThe input has to match this grammar:\\ng\", "
        "\"parameters\": "
        "{\"type\": \"object\", \"properties\": {\"input\": {\"type\": \"string\"}}, \"required\": "
        "[\"input\"]}}}]";
    struct chat_template *t = NULL;
    struct json *body = NULL;
    struct conversation v = {0};
    struct api_error x = {0};
    struct chat_text out = {0};
    struct err e = {0};
    (void)state;
    assert_int_equal(json_parse(&body, request, sizeof request - 1, &e), 0);
    assert_true(read_chat(body, &v) && conversation_plain(&v, &x));
    assert_int_equal(chat_template_create(&t, form, sizeof form - 1, NULL, &e), 0);
    assert_int_equal(chat_render(t, &(struct chat_input){.said = &v}, &out, &e), 0);
    assert_string_equal(out.text.data, wanted);
    chat_text_fini(&out);
    chat_template_free(t);
    conversation_fini(&v);
    json_free(body);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_those_of_chats),
        cmocka_unit_test(nothing_is_lost),
        cmocka_unit_test(templates_get),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
