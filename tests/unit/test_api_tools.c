// SPDX-License-Identifier: Apache-2.0
// Calls of tools over HTTP, from the bundled pair: a choice that requests a call is held to the
// declared names and schemas, whole and streamed, guessed and not; choices that cannot be kept are
// refused.
#include "test.h"

#include <stdlib.h>

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

// Pieces that are ready together are sent together, all of them where the machine is busy.
static void streamed_pieces_join_to_the_call(void **state) {
    enum { TRIES = 5 };
    (void)state;
    struct json *whole = ask(NAMED, 3, "");
    for (int i = 0; i < TRIES; i++)
        assert_true(stream_call(whole) > 0);
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

// A schema that no grammar holds: refused where the tool is strict, of all three interfaces.
static void strict_tools_are_held_or_refused(void **state) {
    (void)state;
    static const char schema[] = "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\","
                                 "\"pattern\":\"(?=a)b\"}}}";
    static const struct {
        const char *path, *head, *tail;
    } forms[] = {
        {CHAT,
         "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":1,\"tools\":[{"
         "\"type\":\"function\",\"function\":{\"name\":\"t\",\"parameters\":",
         "}}]"},
        {"/v1/responses",
         "\"input\":\"a\",\"max_output_tokens\":1,\"tools\":[{\"type\":\"function\","
         "\"name\":\"t\",\"parameters\":",
         "}]"},
        {"/v1/messages",
         "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":1,"
         "\"tools\":[{\"name\":\"t\",\"input_schema\":",
         "}]"},
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        for (int strict = 0; strict < 2; strict++) {
            struct str body = {0};
            str_printf(&body, "{%s%s,\"strict\":%s%s}", forms[i].head, schema,
                       strict ? "true" : "false", forms[i].tail);
            struct json *v = server_rig_json(&rig, forms[i].path, body.data, strict ? 400 : 200);
            if (strict)
                assert_non_null(strstr(server_rig_text(v, "error.message"),
                                       "'t' is strict, and no grammar holds its parameters: the "
                                       "schema at '#/properties/a': the pattern"));
            json_free(v);
            str_fini(&body);
        }
}

#define FORM                                                                                       \
    ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":{"  \
    "\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\",\"maximum\":9,\"minimum\":0}" \
    "},"                                                                                           \
    "\"required\":[\"n\"],\"additionalProperties\":false}}}"

// A form of the reply together with tools: what comes is a call or has the form.
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

// Each allowed tool is looked for among those declared, so there may be as many as of those.
static void allowed_tools_are_few(void **state) {
    (void)state;
    struct str body = {0}, out = {0};
    str_puts(&body, HEAD "{\"type\":\"allowed_tools\",\"mode\":\"auto\",\"tools\":[");
    for (int i = 0; i < 1025; i++)
        str_printf(&body, "%s{\"name\":\"t%d\"}", i ? "," : "", i);
    str_puts(&body, "]}}");
    assert_int_equal(server_rig_ask(&rig, CHAT, body.data, &out), 400);
    assert_non_null(strstr(out.data, "tool_choice allows 1025 tools"));
    str_fini(&body);
    str_fini(&out);
}

#define OLDER(choice)                                                                              \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"Read a.txt\"}],\"max_completion_tokens\":"    \
    "300,\"functions\":[{\"name\":\"read\",\"parameters\":{\"type\":\"object\",\"properties\":{"   \
    "\"lines\":{\"type\":\"integer\",\"maximum\":9}},\"required\":[\"lines\"],"                    \
    "\"additionalProperties\":false}}],\"function_call\":" choice

// functions and function_call: the answer has its call in function_call, whole and in pieces.
static void the_older_form_is_answered_in_it(void **state) {
    (void)state;
    struct json *v = server_rig_json(&rig, CHAT, OLDER("{\"name\":\"read\"}}"), 200);
    assert_string_equal(server_rig_text(v, "choices.0.finish_reason"), "function_call");
    assert_string_equal(server_rig_text(v, "choices.0.message.function_call.name"), "read");
    assert_non_null(
        strstr(server_rig_text(v, "choices.0.message.function_call.arguments"), "\"lines\""));
    assert_null(server_rig_at(v, "choices.0.message.tool_calls"));
    json_free(v);
    struct str out = {0};
    assert_int_equal(
        server_rig_ask(&rig, CHAT, OLDER("{\"name\":\"read\"},\"stream\":true}"), &out), 200);
    assert_non_null(strstr(out.data, "\"function_call\":{\"name\":\"read\",\"arguments\":\"\"}"));
    assert_non_null(strstr(out.data, "\"finish_reason\":\"function_call\""));
    assert_null(strstr(out.data, "tool_calls"));
    str_fini(&out);
    v = server_rig_json(&rig, CHAT, OLDER("\"none\",\"max_tokens\":1}"), 200);
    assert_null(server_rig_at(v, "choices.0.message.function_call"));
    json_free(v);
}

static char *prompt_of(const char *messages, const char *more) {
    struct str body = {0};
    str_printf(&body, "{\"messages\":%s%s}", messages, more);
    struct json *v = server_rig_json(&rig, "/apply-template", body.data, 200);
    char *text = strdup(server_rig_text(v, "prompt"));
    assert_non_null(text);
    json_free(v);
    str_fini(&body);
    return text;
}

static void older_calls_in_a_conversation_are_calls(void **state) {
    (void)state;
    char *older = prompt_of(
        "[{\"role\":\"user\",\"content\":\"?\"},{\"role\":\"assistant\",\"function_call\":{"
        "\"name\":\"read\",\"arguments\":\"{\\\"path\\\": \\\"Oslo\\\"}\"}},{\"role\":\"function\","
        "\"name\":\"read\",\"content\":\"rain\"}]",
        "");
    char *newer = prompt_of(
        "[{\"role\":\"user\",\"content\":\"?\"},{\"role\":\"assistant\",\"tool_calls\":[{"
        "\"id\":\"a\",\"type\":\"function\",\"function\":{\"name\":\"read\",\"arguments\":"
        "\"{\\\"path\\\": \\\"Oslo\\\"}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"a\","
        "\"content\":\"rain\"}]",
        "");
    assert_string_equal(older, newer);
    assert_true(strstr(older, "Oslo") && strstr(older, "rain"));
    free(older);
    free(newer);
    struct str out = {0};
    assert_int_equal(
        server_rig_ask(&rig, "/apply-template",
                       "{\"messages\":[{\"role\":\"assistant\",\"function_call\":{}}]}", &out),
        400);
    assert_non_null(strstr(out.data, "messages[0].function_call.name is missing"));
    str_fini(&out);
}

// The assistant's last words go on, are whole, or cannot go on.
static void the_last_message_goes_on_or_not(void **state) {
    (void)state;
#define USER_SAYS  "[{\"role\":\"user\",\"content\":\"Hi\"}"
#define MODEL_SAYS ",{\"role\":\"assistant\",\"content\":\"Hel\"}]"
    char *open = prompt_of(USER_SAYS MODEL_SAYS, ",\"continue_final_message\":true");
    char *also = prompt_of(USER_SAYS MODEL_SAYS,
                           ",\"continue_final_message\":true,\"add_generation_prompt\":false");
    char *unsaid = prompt_of(USER_SAYS MODEL_SAYS, "");
    char *next = prompt_of(USER_SAYS MODEL_SAYS, ",\"continue_final_message\":false");
    char *closed = prompt_of(USER_SAYS MODEL_SAYS, ",\"add_generation_prompt\":false");
    assert_true(strlen(open) > 3 && !strcmp(open + strlen(open) - 3, "Hel"));
    assert_string_equal(open, also);
    assert_string_equal(open, unsaid);
    assert_true(strlen(closed) > strlen(open) && !strncmp(closed, open, strlen(open)));
    assert_true(strlen(next) > strlen(closed) && !strncmp(next, closed, strlen(closed)));
    free(open);
    free(also);
    free(unsaid);
    free(next);
    free(closed);
    struct str out = {0};
    assert_int_equal(server_rig_ask(&rig, CHAT,
                                    "{\"messages\":" USER_SAYS "],\"continue_final_message\":true}",
                                    &out),
                     400);
    assert_non_null(strstr(out.data, "continue_final_message is true"));
    str_fini(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_named_tool_is_called),
        cmocka_unit_test(guessing_changes_no_call),
        cmocka_unit_test(free_text_is_a_string),
        cmocka_unit_test(streamed_pieces_join_to_the_call),
        cmocka_unit_test(choices_that_cannot_be_kept_are_refused),
        cmocka_unit_test(strict_tools_are_held_or_refused),
        cmocka_unit_test(a_reply_is_a_call_or_has_its_form),
        cmocka_unit_test(allowed_tools_are_few),
        cmocka_unit_test(the_older_form_is_answered_in_it),
        cmocka_unit_test(older_calls_in_a_conversation_are_calls),
        cmocka_unit_test(the_last_message_goes_on_or_not),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
