// SPDX-License-Identifier: Apache-2.0
// The Responses interface: events in their order with ascending numbers, for every kind of item;
// streamed and whole answers agree; kept responses are continued, shown and forgotten; refusals.
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "serve/api/handlers.h"
#include "serve/api/kept.h"
#include "serve/reply/opaque.h"
#include "server_rig.h"

#define RESPONSES "/v1/responses"

static struct server_rig rig;

static int start(void **state) {
    (void)state;
    server_rig_start(&rig, (struct server_options){.name = "tiny"});
    return 0;
}

static int stop(void **state) {
    (void)state;
    server_rig_stop(&rig);
    return 0;
}

// The data of the events of a stream, whose names must be those of their data and whose numbers
// must rise by one.
struct events {
    struct json *at[400];
    int n;
};

static void read_events(struct events *v, const char *at) {
    v->n = 0;
    while (*at) {
        char name[64] = "";
        const char *data = strstr(at, "\ndata: "), *end = strstr(at, "\n\n");
        assert_true(v->n < 400 && data && end && sscanf(at, "event: %63s", name) == 1);
        data += 7;
        assert_int_equal(json_parse(&v->at[v->n], data, (size_t)(end - data), NULL), 0);
        assert_string_equal(server_rig_text(v->at[v->n], "type"), name);
        assert_int_equal(server_rig_int(v->at[v->n], "sequence_number"), v->n);
        v->n++;
        at = end + 2;
    }
}

static void drop_events(struct events *v) {
    for (int i = 0; i < v->n; i++)
        json_free(v->at[i]);
}

static const char *type_at(const struct events *v, int i) {
    assert_true(i < v->n);
    return server_rig_text(v->at[i], "type") + 9; // without "response."
}

// The names of the events, deltas that follow each other once.
static void names_of(const struct events *v, struct str *out) {
    const char *before = "";
    for (int i = 0; i < v->n; i++) {
        const char *name = type_at(v, i);
        if (strcmp(name, before) != 0 || !strstr(name, ".delta"))
            str_printf(out, "%s%s", out->len ? " " : "", name);
        before = name;
    }
}

static void join_deltas(const struct events *v, const char *name, struct str *out) {
    str_puts(out, "");
    for (int i = 0; i < v->n; i++)
        if (!strcmp(type_at(v, i), name))
            str_puts(out, server_rig_text(v->at[i], "delta"));
}

#define ASK "\"instructions\":\"Be brief.\",\"input\":\"Tell me of a fox.\",\"temperature\":0"

static void streams_and_whole_answers_agree(void **state) {
    (void)state;
    struct str out = {0}, names = {0}, text = {0};
    struct events v;
    struct json *one = server_rig_json(
        &rig, RESPONSES, "{\"max_output_tokens\":20,\"metadata\":{\"a\":\"b\"}," ASK "}", 200);
    assert_string_equal(server_rig_text(one, "status"), "incomplete");
    assert_string_equal(server_rig_text(one, "incomplete_details.reason"), "max_output_tokens");
    assert_string_equal(server_rig_text(one, "instructions"), "Be brief.");
    assert_string_equal(server_rig_text(one, "metadata.a"), "b");
    assert_int_equal(server_rig_int(one, "usage.output_tokens"), 20);
    assert_int_equal(server_rig_int(one, "usage.total_tokens"),
                     server_rig_int(one, "usage.input_tokens") + 20);
    assert_int_equal(
        server_rig_ask(&rig, RESPONSES, "{\"max_output_tokens\":20,\"stream\":true," ASK "}", &out),
        200);
    read_events(&v, out.data);
    names_of(&v, &names);
    assert_string_equal(names.data,
                        "created in_progress output_item.added content_part.added "
                        "output_text.delta output_text.done content_part.done output_item.done "
                        "incomplete");
    join_deltas(&v, "output_text.delta", &text);
    const struct json *last = v.at[v.n - 1];
    assert_string_equal(text.data, server_rig_text(one, "output.0.content.0.text"));
    assert_string_equal(text.data, server_rig_text(last, "response.output.0.content.0.text"));
    assert_string_equal(text.data, server_rig_text(v.at[v.n - 2], "item.content.0.text"));
    assert_string_equal(server_rig_text(last, "response.output.0.status"), "incomplete");
    assert_int_equal(json_len(server_rig_at(v.at[0], "response.output")), 0);
    drop_events(&v);
    json_free(one);
    str_fini(&text);
    str_fini(&names);
    str_fini(&out);
}

static void kept_responses_can_be_continued(void **state) {
    (void)state;
    char body[2048], path[96];
    struct json *one = server_rig_json(&rig, RESPONSES, "{\"max_output_tokens\":8," ASK "}", 200);
    const char *id = server_rig_text(one, "id"),
               *said = server_rig_text(one, "output.0.content.0.text");
    snprintf(path, sizeof path, RESPONSES "/%s", id);
    struct json *kept = server_rig_json(&rig, path, NULL, 200);
    assert_string_equal(server_rig_text(kept, "output.0.content.0.text"), said);
    snprintf(body, sizeof body,
             "{\"previous_response_id\":\"%s\",\"input\":\"More.\",\"temperature\":0,"
             "\"max_output_tokens\":8,\"instructions\":\"Be brief.\"}",
             id);
    struct json *two = server_rig_json(&rig, RESPONSES, body, 200);
    struct str again = {0};
    str_printf(&again,
               "{\"instructions\":\"Be brief.\",\"store\":false,\"temperature\":0,"
               "\"max_output_tokens\":8,\"input\":[{\"role\":\"user\",\"content\":\"Tell me of a "
               "fox.\"},{\"type\":\"item_reference\",\"id\":\"%s\"},{\"type\":\"message\",\"role\":"
               "\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"More.\"}]}]}",
               server_rig_text(one, "output.0.id"));
    struct json *three = server_rig_json(&rig, RESPONSES, again.data, 200);
    assert_int_equal(server_rig_int(two, "usage.input_tokens"),
                     server_rig_int(three, "usage.input_tokens"));
    assert_string_equal(server_rig_text(two, "output.0.content.0.text"),
                        server_rig_text(three, "output.0.content.0.text"));
    snprintf(path, sizeof path, RESPONSES "/%s/input_items", server_rig_text(two, "id"));
    struct json *items = server_rig_json(&rig, path, NULL, 200);
    assert_int_equal(json_len(server_rig_at(items, "data")), 3);
    snprintf(path, sizeof path, RESPONSES "/%s", server_rig_text(three, "id"));
    json_free(server_rig_json(&rig, path, NULL, 404)); // it was not to be kept
    json_free(items);
    json_free(three);
    json_free(two);
    json_free(kept);
    json_free(one);
    str_fini(&again);
}

// The path of a kept response with something after it.
static const char *path_of(char *out, size_t size, const struct json *response, const char *tail) {
    snprintf(out, size, RESPONSES "/%s%s", server_rig_text(response, "id"), tail);
    return out;
}

// The last three events of a text have all its log-probabilities, which no document holds
// meanwhile.
static void log_probabilities_of_an_item_are_in_its_last_events(void **state) {
    (void)state;
    static const char *const places[] = {"logprobs", "part.logprobs", "item.content.0.logprobs"};
    struct str text = {0};
    struct events v;
    assert_int_equal(server_rig_ask(&rig, RESPONSES,
                                    "{\"max_output_tokens\":8,\"stream\":true,\"include\":["
                                    "\"message.output_text.logprobs\"]," ASK "}",
                                    &text),
                     200);
    read_events(&v, text.data);
    for (int i = 0; i < 3; i++)
        assert_int_equal(json_len(server_rig_at(v.at[v.n - 4 + i], places[i])), 8);
    assert_int_equal(json_len(server_rig_at(v.at[v.n - 1], "response.output.0.content.0.logprobs")),
                     8);
    drop_events(&v);
    str_fini(&text);
}

static void kept_responses_are_streamed_again(void **state) {
    (void)state;
    char path[128];
    struct str text = {0}, names = {0}, said = {0}, rest = {0};
    struct events v;
    struct json *one = server_rig_json(
        &rig, RESPONSES,
        "{\"max_output_tokens\":8,\"include\":[\"message.output_text.logprobs\"]," ASK "}", 200);
    path_of(path, sizeof path, one, "?include_obfuscation=false&stream=true");
    assert_int_equal(server_rig_ask(&rig, path, NULL, &text), 200);
    read_events(&v, text.data);
    names_of(&v, &names);
    assert_string_equal(names.data,
                        "created in_progress output_item.added content_part.added "
                        "output_text.delta output_text.done content_part.done output_item.done "
                        "incomplete");
    join_deltas(&v, "output_text.delta", &said);
    assert_string_equal(said.data, server_rig_text(one, "output.0.content.0.text"));
    assert_string_equal(server_rig_text(v.at[0], "response.status"), "in_progress");
    assert_int_equal(json_len(server_rig_at(v.at[0], "response.output")), 0);
    assert_null(server_rig_at(v.at[0], "response.usage"));
    assert_int_equal(json_len(server_rig_at(v.at[4], "logprobs")), 8);
    assert_string_equal(server_rig_text(v.at[8], "response.output.0.content.0.text"), said.data);
    path_of(path, sizeof path, one, "?stream=true&starting_after=6");
    assert_int_equal(server_rig_ask(&rig, path, NULL, &rest), 200);
    assert_non_null(strstr(text.data, rest.data));
    assert_non_null(strstr(rest.data, "\"sequence_number\":7,"));
    assert_null(strstr(rest.data, "\"sequence_number\":6,"));
    path_of(path, sizeof path, one, "?stream=true&starting_after=9");
    json_free(server_rig_json(&rig, path, NULL, 400));
    path_of(path, sizeof path, one, "?stream=true&starting_after=-1");
    json_free(server_rig_json(&rig, path, NULL, 400));
    path_of(path, sizeof path, one, "?stream=false");
    json_free(server_rig_json(&rig, path, NULL, 200));
    drop_events(&v);
    json_free(one);
    str_fini(&text);
    str_fini(&names);
    str_fini(&said);
    str_fini(&rest);
}

// Calls and reasoning, which a tiny model does not make by itself.
static void all_kinds_of_items_are_streamed_again(void **state) {
    (void)state;
    static const char kept[] =
        "{\"id\":\"resp_1\",\"status\":\"completed\",\"usage\":{},\"output\":["
        "{\"id\":\"rs_1\",\"type\":\"reasoning\",\"status\":\"completed\",\"summary\":[{\"type\":"
        "\"summary_text\",\"text\":\"Well.\"}],\"content\":[{\"type\":\"reasoning_text\",\"text\":"
        "\"Hm.\"}],\"encrypted_content\":\"eA==\"},"
        "{\"id\":\"fc_1\",\"type\":\"function_call\",\"status\":\"completed\",\"call_id\":\"c\","
        "\"name\":\"f\",\"arguments\":\"{}\"},"
        "{\"id\":\"ctc_1\",\"type\":\"custom_tool_call\",\"status\":\"completed\",\"call_id\":"
        "\"d\",\"name\":\"g\",\"input\":\"\"}]}";
    struct json *response = NULL;
    struct json_writer w = {0};
    struct str text = {0}, names = {0};
    struct events v;
    assert_int_equal(json_parse(&response, kept, sizeof kept - 1, NULL), 0);
    struct response_events all = {.w = &w, .out = &text, .after = -1};
    response_events_all(&all, response);
    assert_int_equal(all.next, 20);
    read_events(&v, text.data);
    names_of(&v, &names);
    assert_string_equal(
        names.data,
        "created in_progress output_item.added reasoning_summary_part.added "
        "reasoning_summary_text.delta reasoning_summary_text.done reasoning_summary_part.done "
        "content_part.added reasoning_text.delta reasoning_text.done content_part.done "
        "output_item.done output_item.added function_call_arguments.delta "
        "function_call_arguments.done output_item.done output_item.added "
        "custom_tool_call_input.done output_item.done completed");
    assert_null(server_rig_at(v.at[2], "item.encrypted_content"));
    assert_string_equal(server_rig_text(v.at[12], "item.arguments"), "");
    assert_string_equal(server_rig_text(v.at[14], "name"), "f");
    drop_events(&v);
    json_free(response);
    str_fini(&text);
    str_fini(&w.out);
    str_fini(&names);
}

static void input_items_come_in_pages(void **state) {
    (void)state;
    static const char text[] =
        "[{\"type\":\"message\",\"role\":\"user\"},{\"type\":\"kind_of_tomorrow\"},"
        "{\"id\":\"own\",\"type\":\"message\"},{\"type\":\"function_call_output\",\"id\":null}]";
    static const struct {
        const char *after;
        size_t limit;
        bool ascending;
        const char *want;
    } table[] = {
        {NULL, 9, true,
         "{\"object\":\"list\",\"data\":[{\"id\":\"msg_7f_i0\",\"type\":\"message\",\"role\":"
         "\"user\"},{\"type\":\"kind_of_tomorrow\"},{\"id\":\"own\",\"type\":\"message\"},"
         "{\"id\":\"fco_7f_i3\",\"type\":\"function_call_output\"}],\"first_id\":"
         "\"msg_7f_i0\",\"last_id\":\"fco_7f_i3\",\"has_more\":false}"},
        {"own", 9, true,
         "{\"object\":\"list\",\"data\":[{\"id\":\"fco_7f_i3\",\"type\":"
         "\"function_call_output\"}],\"first_id\":\"fco_7f_i3\",\"last_id\":\"fco_7f_i3\","
         "\"has_more\":false}"},
        {"fco_7f_i3", 1, false,
         "{\"object\":\"list\",\"data\":[{\"id\":\"own\",\"type\":\"message\"}],"
         "\"first_id\":\"own\",\"last_id\":\"own\",\"has_more\":true}"},
        {"msg_7f_i0", 1, false,
         "{\"object\":\"list\",\"data\":[],\"first_id\":null,\"last_id\":null,"
         "\"has_more\":false}"},
        {"nobody", 1, true, NULL}};
    struct json *items = NULL;
    assert_int_equal(json_parse(&items, text, sizeof text - 1, NULL), 0);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct json_writer w = {0};
        const struct input_page page = {.response = "resp_7f",
                                        .ascending = table[i].ascending,
                                        .limit = table[i].limit,
                                        .after = words_of_text(table[i].after)};
        assert_int_equal(input_items_write(items, &page, &w), table[i].want != NULL);
        if (table[i].want)
            assert_string_equal(w.out.data, table[i].want);
        str_fini(&w.out);
    }
    json_free(items);
}

// Keeps a response to n items of reasoning that no prompt shows, and gives its id's digits.
static void keep_items(int n, const char *sealed, char digits[static 64]) {
    struct str body = {0};
    str_puts(&body, "{\"max_output_tokens\":1,\"input\":[");
    for (int i = 0; i < n; i++)
        str_printf(&body, "{\"type\":\"reasoning\",\"summary\":[],\"encrypted_content\":\"%s\"},",
                   sealed);
    str_puts(&body, "{\"role\":\"user\",\"content\":\"Hi\"}]}");
    struct json *kept = server_rig_json(&rig, RESPONSES, body.data, 200);
    snprintf(digits, 64, "%s", server_rig_text(kept, "id") + strlen("resp_"));
    json_free(kept);
    str_fini(&body);
}

// A request that refers n times to that item of a kept response is refused for it.
static void refuse_references(int n, const char *digits, int item) {
    struct str body = {0};
    str_puts(&body, "{\"max_output_tokens\":1,\"input\":[{\"role\":\"user\",\"content\":\"Hi\"}");
    for (int i = 0; i < n; i++)
        str_printf(&body, ",{\"type\":\"item_reference\",\"id\":\"rs_%s_i%d\"}", digits, item);
    str_puts(&body, "]}");
    struct json *why = server_rig_json(&rig, RESPONSES, body.data, 400);
    assert_string_equal(server_rig_text(why, "error.param"), "input");
    assert_non_null(strstr(server_rig_text(why, "error.message"), "refers to more"));
    json_free(why);
    json_free(server_rig_json(&rig, RESPONSES "/input_tokens", body.data, 400));
    str_fini(&body);
}

// A few bytes of a request stand for any number of copies, and each for a search: both are bounded.
static void references_are_bounded(void **state) {
    (void)state;
    enum { SEALED = 400 << 10, COPIES = 200, ITEMS = 2100 };
    char digits[64], *sealed = calloc(1, SEALED + 1);
    assert_non_null(sealed);
    memset(sealed, 'x', SEALED);
    keep_items(1, sealed, digits);
    free(sealed);
    refuse_references(COPIES, digits, 0);
    keep_items(ITEMS, "", digits);
    refuse_references(ITEMS, digits, ITEMS - 1);
}

#define BODIES "coppice_http_body_bytes"

// A GET of a few bytes brings a long answer, which many clients could leave unread.
static void long_kept_responses_wait_for_memory(void **state) {
    (void)state;
    enum { LIMIT = 100 << 10, LONG = 80 << 10, PART = 50000, PARTS = 3 };
    struct server_rig r;
    struct str body = {0};
    char path[96];
    int fds[PARTS];
    server_rig_start(&r, (struct server_options){.name = "tiny", .http = {.bodies_bytes = LIMIT}});
    str_puts(&body, "{\"max_output_tokens\":1," ASK ",\"prompt_cache_key\":\"");
    for (int i = 0; i < LONG; i++)
        str_putc(&body, 'x');
    str_puts(&body, "\"}");
    struct json *kept = server_rig_json(&r, RESPONSES, body.data, 200);
    path_of(path, sizeof path, kept, "");
    str_clear(&body);
    str_printf(&body, "POST /v1/tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n",
               PART + 1);
    for (int i = 0; i < PART; i++)
        str_putc(&body, ' ');
    for (int i = 0; i < PARTS; i++) {
        fds[i] = server_rig_connect(&r);
        peer_send_bytes(fds[i], body.data, body.len);
    }
    WAIT_UNTIL(server_rig_metric(&r, BODIES) >= PARTS * PART);
    json_free(server_rig_json(&r, path, NULL, 503));
    for (int i = 0; i < PARTS; i++)
        close(fds[i]);
    WAIT_UNTIL(server_rig_metric(&r, BODIES) < LIMIT);
    json_free(server_rig_json(&r, path, NULL, 200));
    json_free(kept);
    str_fini(&body);
    server_rig_stop(&r);
}

static void what_is_not_done_says_so(void **state) {
    (void)state;
    char path[128];
    struct json *one = server_rig_json(&rig, RESPONSES, "{\"max_output_tokens\":2," ASK "}", 200);
    struct json *why = server_rig_json(&rig, path_of(path, sizeof path, one, "/cancel"), "{}", 400);
    assert_non_null(strstr(server_rig_text(why, "error.message"), "synchronous"));
    json_free(why);
    json_free(server_rig_json(&rig, RESPONSES "/resp_nobody/cancel", "{}", 404));
    why = server_rig_json(&rig, RESPONSES "/compact", "{}", 404);
    assert_non_null(strstr(server_rig_text(why, "error.message"), "not compacted"));
    json_free(why);
    json_free(server_rig_json(&rig, path_of(path, sizeof path, one, ""), "{}", 405));
    json_free(one);
}

static void refusals_name_the_place(void **state) {
    (void)state;
    static const struct {
        const char *body, *param;
    } cases[] = {
        {"{\"input\":5}", "input"},
        {"{\"input\":[]}", "input"},
        {"{}", "input"},
        {"{\"input\":[7]}", "input[0]"},
        {"{\"input\":[{\"role\":\"king\",\"content\":\"x\"}]}", "input[0]"},
        {"{\"input\":[{\"role\":\"user\",\"content\":4}]}", "input[0]"},
        {"{\"input\":[{\"type\":\"function_call\",\"call_id\":\"c\"}]}", "input[0]"},
        {"{\"input\":[{\"type\":\"function_call_output\",\"call_id\":\"c\"}]}", "input[0]"},
        {"{\"input\":[{\"type\":\"item_reference\",\"id\":\"msg_1\"}]}", "input[0].id"},
        {"{\"input\":\"x\",\"previous_response_id\":\"resp_1\"}", "previous_response_id"},
        {"{\"input\":\"x\",\"conversation\":\"conv_1\"}", "conversation"},
        {"{\"input\":\"x\",\"background\":true}", "background"},
        {"{\"input\":\"x\",\"reasoning\":{\"effort\":4}}", "reasoning.effort"},
        {"{\"input\":[{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\","
         "\"arguments\":{\"a\":1}}]}",
         "input[0].arguments"},
        {"{\"input\":[{\"type\":\"custom_tool_call\",\"call_id\":\"c\",\"name\":\"f\","
         "\"input\":5}]}",
         "input[0].input"},
        {"{\"input\":[{\"type\":\"function_call_output\",\"call_id\":7,\"output\":\"x\"}]}",
         "input[0].call_id"},
        {"{\"input\":[{\"type\":\"reasoning\",\"summary\":\"x\"}]}", "input[0].summary"},
        {"{\"input\":[{\"type\":\"reasoning\",\"summary\":[],\"content\":[\"x\"]}]}",
         "input[0].content"},
        {"{\"input\":\"x\",\"tools\":[{\"type\":\"function\",\"name\":\"f\","
         "\"parameters\":[]}]}",
         "tools[0].parameters"},
        {"{\"input\":\"x\",\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"strict\":1}]}",
         "tools[0].strict"},
        {"{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\"}]}]}",
         "input[0].content[0]"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct json *v = server_rig_json(&rig, RESPONSES, cases[i].body, 400);
        assert_string_equal(server_rig_text(v, "error.param"), cases[i].param);
        json_free(v);
    }
}

// What clients send that means nothing here.
static void unknown_kinds_are_passed_by(void **state) {
    (void)state;
    json_free(server_rig_json(
        &rig, RESPONSES,
        "{\"input\":[{\"type\":\"x_call\",\"call_id\":\"a\",\"action\":{\"n\":1}},{\"type\":"
        "\"x_call_output\",\"call_id\":\"a\",\"output\":\"r\"},{\"type\":\"compaction\","
        "\"encrypted_content\":\"x\"},{\"type\":\"reasoning\",\"summary\":[],\"encrypted_content\":"
        "\"x\"},{\"role\":\"user\",\"content\":\"Hi\"}],\"tools\":[{\"type\":\"function\",\"name\":"
        "\"f\"},{\"type\":\"web_search\"},{"
        "\"type\":\"local_shell\"},{\"type\":\"namespace\",\"name\":\"mcp\",\"tools\":[{\"type\":"
        "\"function\",\"name\":\"f\"}]},{\"type\":\"custom\",\"name\":\"apply_patch\"}],"
        "\"tool_choice\":\"auto\",\"reasoning\":null,\"text\":{\"verbosity\":\"low\"},\"include\":["
        "],\"store\":false,\"prompt_cache_key\":\"k\",\"max_output_tokens\":2,\"x\":1}",
        200));
}

// A call that is requested keeps to the schema of a tool in a group.
static void calls_of_groups_keep_to_their_schema(void **state) {
    (void)state;
    struct json *v = server_rig_json(
        &rig, RESPONSES,
        "{\"input\":\"Go.\",\"tools\":[{\"type\":\"namespace\",\"name\":\"mcp__a\",\"tools\":[{"
        "\"type\":\"function\",\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{"
        "\"n\":{\"enum\":[7]}},\"required\":[\"n\"],\"additionalProperties\":false}}]}],"
        "\"tool_choice\":\"required\",\"parallel_tool_calls\":false,\"max_output_tokens\":60}",
        200);
    const char *arguments = server_rig_text(v, "output.0.arguments");
    struct json *parsed = NULL;
    assert_int_equal(json_parse(&parsed, arguments, strlen(arguments), NULL), 0);
    assert_int_equal(server_rig_int(parsed, "n"), 7);
    assert_string_equal(server_rig_text(v, "output.0.namespace"), "mcp__a");
    assert_string_equal(server_rig_text(v, "output.0.name"), "f");
    json_free(parsed);
    json_free(v);
}

// One answer of all kinds of items, written without an engine.
struct bench {
    struct service s;
    struct server_options o;
    struct completion c;
    struct choice k;
    struct responses_own own;
};

static void set_up(struct bench *b, const char *echo) {
    *b = (struct bench){0};
    b->s.model = (char *)"m";
    b->s.o = &b->o;
    b->c = (struct completion){.s = &b->s, .own = &b->own, .choices = &b->k, .n_choices = 1};
    static const struct dialect d = {.id_prefix = "resp_", .keeps_text = true};
    b->c.d = &d;
    b->own.events = (struct response_events){.w = &b->s.json, .out = &b->s.out, .after = -1};
    b->c.prepared = b->c.streaming = true;
    snprintf(b->c.id, sizeof b->c.id, "resp_0123456789abcdef01234567");
    assert_int_equal(json_parse(&b->own.echo, echo, strlen(echo), NULL), 0);
}

static void say(struct bench *b, enum answer_item_kind kind, const char *name, bool custom,
                const char *text) {
    struct answer_item *it = answer_items_begin(&b->k.items, kind);
    struct item_text p = {.text = {text, strlen(text)}};
    it->custom = custom;
    if (name) {
        str_puts(&it->name, name);
        snprintf(it->id, sizeof it->id, "call_%d", it->index);
    }
    api_responses_dialect.item_begin(&b->c, &b->k, it);
    api_responses_dialect.item_delta(&b->c, &b->k, it, &p);
    str_puts(&it->text, text);
    it->open = false;
    api_responses_dialect.item_end(&b->c, &b->k, it);
}

static void tear_down(struct bench *b) {
    answer_items_fini(&b->k.items);
    json_free(b->own.echo);
    str_fini(&b->s.out);
    str_fini(&b->s.json.out);
}

static void every_kind_of_item_has_its_events(void **state) {
    (void)state;
    struct bench b;
    struct events v;
    struct str names = {0}, opened = {0};
    set_up(&b, "{\"tools\":[{\"type\":\"namespace\",\"name\":\"mcp__a\",\"tools\":[{\"type\":"
               "\"function\",\"name\":\"f\"}]}]}");
    b.own.opaque = true;
    api_responses_dialect.start(&b.c);
    api_responses_dialect.alive(&b.c);
    say(&b, ITEM_REASONING, NULL, false, "h\xc3\xa9");
    say(&b, ITEM_TEXT, NULL, false, "Hi");
    say(&b, ITEM_CALL, "mcp__a__f", false, "{\"n\":1}");
    say(&b, ITEM_CALL, "apply_patch", true, "*** Begin");
    api_responses_dialect.end(&b.c);
    read_events(&v, b.s.out.data);
    names_of(&v, &names);
    assert_string_equal(
        names.data, "created in_progress in_progress "
                    "output_item.added content_part.added reasoning_text.delta reasoning_text.done "
                    "content_part.done output_item.done "
                    "output_item.added content_part.added output_text.delta output_text.done "
                    "content_part.done output_item.done "
                    "output_item.added function_call_arguments.delta function_call_arguments.done "
                    "output_item.done "
                    "output_item.added custom_tool_call_input.delta custom_tool_call_input.done "
                    "output_item.done completed");
    const struct json *r = json_get(v.at[v.n - 1], "response");
    assert_string_equal(server_rig_text(r, "output.0.content.0.text"), "h\xc3\xa9");
    const char *sealed = server_rig_text(r, "output.0.encrypted_content");
    assert_true(opaque_decode(sealed, strlen(sealed), &opened));
    assert_string_equal(opened.data, "h\xc3\xa9");
    assert_string_equal(server_rig_text(r, "output.2.type"), "function_call");
    assert_string_equal(server_rig_text(r, "output.2.call_id"), "call_2");
    assert_string_equal(server_rig_text(r, "output.2.namespace"), "mcp__a");
    assert_string_equal(server_rig_text(r, "output.2.name"), "f");
    assert_string_equal(server_rig_text(r, "output.2.arguments"), "{\"n\":1}");
    assert_string_equal(server_rig_text(r, "output.3.type"), "custom_tool_call");
    assert_string_equal(server_rig_text(r, "output.3.input"), "*** Begin");
    assert_string_equal(server_rig_text(r, "status"), "completed");
    drop_events(&v);
    tear_down(&b);
    str_fini(&names);
    str_fini(&opened);
}

static void reasoning_is_sent_as_a_summary_when_requested(void **state) {
    (void)state;
    struct bench b;
    struct events v;
    struct str names = {0};
    struct api_error why;
    set_up(&b, "{}");
    b.own.summarises = true;
    say(&b, ITEM_REASONING, NULL, false, "hm");
    api_fail(&why, 500, "engine_failed", "it broke");
    api_responses_dialect.error(&b.c, &why);
    read_events(&v, b.s.out.data);
    names_of(&v, &names);
    assert_string_equal(names.data, "output_item.added reasoning_summary_part.added "
                                    "reasoning_summary_text.delta reasoning_summary_text.done "
                                    "reasoning_summary_part.done output_item.done failed");
    assert_string_equal(server_rig_text(v.at[5], "item.summary.0.text"), "hm");
    assert_int_equal(server_rig_int(v.at[2], "summary_index"), 0);
    assert_string_equal(server_rig_text(v.at[6], "response.error.code"), "engine_failed");
    assert_string_equal(server_rig_text(v.at[6], "response.error.message"), "it broke");
    drop_events(&v);
    tear_down(&b);
    str_fini(&names);
}

static void encrypted_reasoning_is_read_back(void **state) {
    (void)state;
    for (size_t n = 0; n < 70; n++) {
        struct str sealed = {0}, opened = {0};
        char text[70] = {0};
        for (size_t i = 0; i < n; i++)
            text[i] = (char)(i * 37 + n);
        opaque_encode(text, n, &sealed);
        assert_true(opaque_decode(sealed.data, sealed.len, &opened));
        assert_int_equal(opened.len, n);
        if (n)
            assert_memory_equal(opened.data, text, n);
        sealed.data[sealed.len - 1] = '!';
        str_clear(&opened);
        assert_false(opaque_decode(sealed.data, sealed.len, &opened));
        assert_int_equal(opened.len, 0);
        str_fini(&sealed);
        str_fini(&opened);
    }
}

static void the_store_keeps_the_newest(void **state) {
    (void)state;
    struct response_store s;
    struct str text = {0}, big = {0}, none = {0};
    char id[RANDOM_ID];
    response_store_init(&s);
    str_puts(&text, "{}");
    for (int i = 0; i < RESPONSE_STORE_MAX + 10; i++) {
        snprintf(id, sizeof id, "resp_%d", i);
        response_store_put(&s, id, &text, &text);
    }
    assert_int_equal(s.n, RESPONSE_STORE_MAX);
    assert_false(response_store_get(&s, "resp_9", NULL, NULL));
    assert_true(response_store_get(&s, "resp_10", &none, NULL));
    assert_string_equal(none.data, "{}");
    for (int i = 0; i < 1 << 20; i++)
        str_puts(&big, "0123456789abcdef0123456789abcde");
    for (int i = 0; i < 4; i++) {
        snprintf(id, sizeof id, "big_%d", i);
        response_store_put(&s, id, &big, &none);
    }
    assert_true(s.bytes <= (size_t)RESPONSE_STORE_BYTES);
    assert_true(response_store_get(&s, "big_3", NULL, NULL));
    assert_true(response_store_drop(&s, "big_3"));
    assert_false(response_store_drop(&s, "big_3"));
    response_store_fini(&s);
    str_fini(&text);
    str_fini(&big);
    str_fini(&none);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_and_whole_answers_agree),
        cmocka_unit_test(kept_responses_can_be_continued),
        cmocka_unit_test(log_probabilities_of_an_item_are_in_its_last_events),
        cmocka_unit_test(kept_responses_are_streamed_again),
        cmocka_unit_test(all_kinds_of_items_are_streamed_again),
        cmocka_unit_test(input_items_come_in_pages),
        cmocka_unit_test(references_are_bounded),
        cmocka_unit_test(long_kept_responses_wait_for_memory),
        cmocka_unit_test(what_is_not_done_says_so),
        cmocka_unit_test(refusals_name_the_place),
        cmocka_unit_test(unknown_kinds_are_passed_by),
        cmocka_unit_test(calls_of_groups_keep_to_their_schema),
        cmocka_unit_test(every_kind_of_item_has_its_events),
        cmocka_unit_test(reasoning_is_sent_as_a_summary_when_requested),
        cmocka_unit_test(encrypted_reasoning_is_read_back),
        cmocka_unit_test(the_store_keeps_the_newest),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
