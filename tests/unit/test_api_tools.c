// SPDX-License-Identifier: Apache-2.0
// Calls of tools over HTTP, from the bundled pair: a choice that asks for a call is held to the
// declared names and schemas, whole and streamed, guessed and not; choices that cannot be kept are
// refused.
#include "test.h"

#include "server_rig.h"

static struct server_rig rig;

#define CHAT "/v1/chat/completions"
#define HEAD                                                                                       \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"Read a.txt\"}],\"max_completion_tokens\":"    \
    "300,\"temperature\":1.2,\"tools\":[{\"type\":\"function\","                                   \
    "\"function\":{\"name\":\"read\",\"parameters\":{\"type\":\"object\",\"properties\":{"         \
    "\"path\":{\"type\":\"string\",\"maxLength\":9},\"lines\":{\"type\":\"integer\"}},"            \
    "\"required\":[\"path\"],\"additionalProperties\":false}}},{\"type\":\"web_search\"},{"        \
    "\"type\":\"custom\",\"custom\":{\"name\":\"patch\"}}],\"tool_choice\":"
#define NAMED "{\"type\":\"function\",\"function\":{\"name\":\"read\"}}"

static int start(void **state) {
    (void)state;
    server_rig_start(&rig, (struct server_options){0});
    return 0;
}

static int stop(void **state) {
    (void)state;
    server_rig_stop(&rig);
    return 0;
}

static struct json *ask(const char *choice, int seed, const char *more) {
    struct str body = {0};
    str_printf(&body, "%s%s,\"seed\":%d%s}", HEAD, choice, seed, more);
    struct json *v = server_rig_json(&rig, CHAT, body.data, 200);
    str_fini(&body);
    return v;
}

static void a_named_tool_is_called(void **state) {
    (void)state;
    for (int seed = 0; seed < 8; seed++) {
        struct json *v = ask(NAMED, seed, ""), *args;
        struct err e = {0};
        const char *place = "choices.0.message.tool_calls.0.function.arguments";
        const char *text = server_rig_text(v, place);
        assert_string_equal(server_rig_text(v, "choices.0.finish_reason"), "tool_calls");
        assert_string_equal(server_rig_text(v, "choices.0.message.tool_calls.0.function.name"),
                            "read");
        assert_int_equal(
            strncmp(server_rig_text(v, "choices.0.message.tool_calls.0.id"), "call_", 5), 0);
        assert_null(server_rig_at(v, "choices.0.message.content"));
        assert_null(server_rig_at(v, "choices.0.message.tool_calls.1"));
        assert_int_equal(json_parse(&args, text, strlen(text), &e), 0);
        const char *path = json_str(json_get(args, "path"), NULL);
        assert_true(path && strlen(path) <= 36);
        json_free(args);
        json_free(v);
    }
}

static void guessing_changes_no_call(void **state) {
    (void)state;
    for (int seed = 0; seed < 4; seed++) {
        struct json *tree = ask("\"required\"", seed,
                                ",\"parallel_tool_calls\":false,\"coppice\":{\"token_ids\":true}");
        struct json *plain =
            ask("\"required\"", seed,
                ",\"parallel_tool_calls\":false,\"coppice\":{\"token_ids\":true,\"speculate\":"
                "\"off\"}");
        struct json_writer a = {0}, b = {0};
        jw_value(&a, server_rig_at(tree, "coppice.token_ids"));
        jw_value(&b, server_rig_at(plain, "coppice.token_ids"));
        assert_string_equal(a.out.data, b.out.data);
        assert_string_equal(server_rig_text(tree, "choices.0.finish_reason"), "tool_calls");
        str_fini(&a.out);
        str_fini(&b.out);
        json_free(tree);
        json_free(plain);
    }
}

static void free_text_is_a_string(void **state) {
    (void)state;
    struct json *v = ask("{\"type\":\"custom\",\"custom\":{\"name\":\"patch\"}}", 1, "");
    assert_string_equal(server_rig_text(v, "choices.0.message.tool_calls.0.type"), "custom");
    assert_non_null(server_rig_text(v, "choices.0.message.tool_calls.0.custom.input"));
    json_free(v);
}

// Streams the call once, which must be as `whole` is; returns in how many pieces it came.
static int stream_call(const struct json *whole) {
    struct str body = {0}, out = {0}, joined = {0};
    struct rig_stream s = {0};
    str_printf(&body, "%s%s,\"seed\":3,\"stream\":true}", HEAD, NAMED);
    assert_int_equal(server_rig_ask(&rig, CHAT, body.data, &out), 200);
    rig_stream_read(&s, &out);
    assert_string_equal(s.finish, "tool_calls");
    int pieces = 0, heads = 0;
    for (const char *at = out.data; (at = strstr(at, "data: {")) != NULL; at++) {
        struct json *v;
        struct err e = {0};
        const char *end = strchr(at, '\n');
        assert_int_equal(json_parse(&v, at + 6, (size_t)(end - at) - 6, &e), 0);
        const struct json *call = server_rig_at(v, "choices.0.delta.tool_calls.0");
        const char *text = json_str(json_get(json_get(call, "function"), "arguments"), NULL);
        heads += json_get(call, "id") != NULL;
        pieces += text && *text;
        str_puts(&joined, text ? text : "");
        json_free(v);
    }
    assert_int_equal(heads, 1);
    assert_string_equal(
        joined.data, server_rig_text(whole, "choices.0.message.tool_calls.0.function.arguments"));
    rig_stream_fini(&s);
    str_fini(&body);
    str_fini(&out);
    str_fini(&joined);
    return pieces;
}

// Pieces that are ready together are sent together, so a busy machine may join many.
static void streamed_pieces_join_to_the_call(void **state) {
    enum { TRIES = 20 };
    (void)state;
    struct json *whole = ask(NAMED, 3, "");
    int most = 0;
    for (int i = 0; i < TRIES && most <= 2; i++) {
        const int pieces = stream_call(whole);
        most = pieces > most ? pieces : most;
    }
    assert_true(most > 2);
    json_free(whole);
}

static void choices_that_cannot_be_kept_are_refused(void **state) {
    (void)state;
    static const char *const bodies[] = {
        HEAD "{\"type\":\"function\",\"function\":{\"name\":\"unknown\"}}}", HEAD "\"perhaps\"}",
        HEAD "{\"type\":\"function\"}}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tool_choice\":\"required\"}"};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        struct json *v = server_rig_json(&rig, CHAT, bodies[i], 400);
        assert_string_equal(server_rig_text(v, "error.param"), "tool_choice");
        json_free(v);
    }
    struct json *v = ask("{\"type\":\"web_search\"}", 1, "");
    json_free(v);
}

#define FORM                                                                                       \
    ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":{"  \
    "\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\",\"maximum\":9,\"minimum\":0}" \
    "},"                                                                                           \
    "\"required\":[\"n\"],\"additionalProperties\":false}}}"

// A form of the reply beside tools: what comes is a call or has the form.
static void a_reply_is_a_call_or_has_its_form(void **state) {
    (void)state;
    struct json *v = server_rig_json(&rig, "/v1/tokenize", "{\"content\":\"{\"}", 200), *value;
    struct str open = {0}, body = {0};
    int calls = 0;
    str_printf(&open, FORM ",\"logit_bias\":{\"%lld\":100}",
               (long long)json_int(server_rig_at(v, "tokens.0"), -1));
    json_free(v);
    for (int seed = 0; seed < 12; seed++) {
        struct err e = {0};
        v = ask("\"auto\"", seed, seed < 6 ? FORM : open.data);
        if (server_rig_at(v, "choices.0.message.tool_calls.0")) {
            calls++;
        } else if (strcmp(server_rig_text(v, "choices.0.finish_reason"), "length") != 0) {
            const char *text = server_rig_text(v, "choices.0.message.content");
            assert_int_equal(json_parse(&value, text, strlen(text), &e), 0);
            int64_t n = json_int(json_get(value, "n"), -1);
            assert_true(json_len(value) == 1 && n >= 0 && n <= 9);
            json_free(value);
        }
        json_free(v);
    }
    assert_true(calls > 0 && calls <= 6);
    v = ask("\"required\"", 1, FORM);
    assert_non_null(server_rig_at(v, "choices.0.message.tool_calls.0"));
    json_free(v);
    str_printf(&body, "%s\"auto\",\"guided_regex\":\"a+\"}", HEAD);
    v = server_rig_json(&rig, CHAT, body.data, 400);
    assert_string_equal(server_rig_text(v, "error.param"), "guided_regex");
    json_free(v);
    str_fini(&open);
    str_fini(&body);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_named_tool_is_called),
        cmocka_unit_test(guessing_changes_no_call),
        cmocka_unit_test(free_text_is_a_string),
        cmocka_unit_test(streamed_pieces_join_to_the_call),
        cmocka_unit_test(choices_that_cannot_be_kept_are_refused),
        cmocka_unit_test(a_reply_is_a_call_or_has_its_form),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
