// SPDX-License-Identifier: Apache-2.0
// Anthropic's interface: its bodies as the messages of a chat, its answers as content blocks,
// streamed and whole, with and without thinking, its refusals.
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "serve/api/handlers.h"
#include "serve/conversation/interfaces.h"
#include "serve/conversation/plain.h"
#include "serve/request/body.h"
#include "server_rig.h"
#include "support/conversation_words.h"

#define MESSAGES "/v1/messages"

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

// What a template gets of a body, or the refusal's place and sentence.
static void read_body(const char *body, struct json_writer *w) {
    struct json *v = NULL;
    struct conversation c = {0};
    struct api_error x = {0};
    assert_true(body_parse(body, strlen(body), &v, &x));
    if (conversation_read_messages(&c, v, &x) && conversation_plain(&c, &x)) {
        conversation_write_chat(&c, w);
    } else {
        assert_int_equal(x.status, 400);
        str_printf(&w->out, "%s: %s", x.param, x.text);
    }
    conversation_fini(&c);
    json_free(v);
}

static void reads(const char *body, const char *wanted) {
    struct json_writer w = {0};
    read_body(body, &w);
    assert_string_equal(w.out.data, wanted);
    str_fini(&w.out);
}

#define USER(content) "{\"messages\":[{\"role\":\"user\",\"content\":" content "}]}"
#define CALLS                                                                                      \
    "{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"f\","     \
    "\"input\":{"                                                                                  \
    "}},{\"type\":\"tool_use\",\"id\":\"b\",\"name\":\"g\"}]}"
#define CALLED                                                                                     \
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"a\",\"type\":"             \
    "\"function\","                                                                                \
    "\"function\":{\"name\":\"f\",\"arguments\":{}}},{\"id\":\"b\",\"type\":\"function\","         \
    "\"function\":{"                                                                               \
    "\"name\":\"g\",\"arguments\":\"{}\"}}]}"
#define TEXT(words) "{\"type\":\"text\",\"text\":\"" words "\"}"

static void conversations_are_read(void **state) {
    (void)state;
    reads(USER("\"Hi\""), "[{\"role\":\"user\",\"content\":\"Hi\"}]");
    reads(USER("[]"), "[{\"role\":\"user\",\"content\":null}]");
    reads("{\"system\":[" TEXT("x-anthropic-billing-header: cch=1;") "," TEXT("One.") "," TEXT(
              "Two.") "],\"messages\":[]}",
          "[{\"role\":\"system\",\"content\":[" TEXT("One.") "," TEXT("Two.") "]}]");
    reads("{\"system\":\"x-anthropic-billing-header: cch=1;\\nOne.\",\"messages\":[]}",
          "[{\"role\":\"system\",\"content\":\"One.\"}]");
    reads("{\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":"
          "\"hm\",\"signature\":\"s\"},{\"type\":\"redacted_thinking\",\"data\":\"x\"}," TEXT(
              "Look.") ",{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"f\",\"input\":{\"n\":1.0,"
                       "\"big\":123456789012345678901234567890}},{\"type\":\"tool_use\",\"id\":"
                       "\"b\",\"name\":\"g\"}]}]}",
          "[{\"role\":\"assistant\",\"reasoning_content\":\"hm\",\"content\":\"Look.\","
          "\"tool_calls\":[{\"id\":\"a\",\"type\":\"function\",\"function\":{\"name\":\"f\","
          "\"arguments\":{\"n\":1.0,\"big\":123456789012345678901234567890}}},{\"id\":\"b\","
          "\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}}]}]");
    reads("{\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"a\","
          "\"name\":\"g\",\"custom\":true}]}]}",
          "[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"a\",\"type\":"
          "\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"{\\\"input\\\":\\\"\\\"}\"}}]}"
          "]");
    // What a signature holds is what was thought ("hm"), whatever stands next to it.
    static const char *const next_to[] = {"", "a note of the client's"};
    for (int i = 0; i < 2; i++) {
        char body[300];
        snprintf(body, sizeof body,
                 "{\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\","
                 "\"thinking\":\"%s\",\"signature\":\"coppice-1.aG0=\"}," TEXT("Look.") "]}]}",
                 next_to[i]);
        reads(body,
              "[{\"role\":\"assistant\",\"reasoning_content\":\"hm\",\"content\":\"Look.\"}]");
    }
    reads("{\"messages\":[" CALLS ",{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\","
          "\"tool_use_id\":\"a\",\"is_error\":true,\"content\":["
          "" TEXT("one") ",{\"type\":\"image\",\"source\":{}}]},{\"type\":"
                         "\"tool_result\",\"tool_use_id\":\"b\"}," TEXT("Go on.") "]}]}",
          "[" CALLED
          ",{\"role\":\"tool\",\"tool_call_id\":\"a\",\"is_error\":true,\"content\":[" TEXT(
              "one") "," TEXT("[image]") "]},{\"role\":\"tool\",\"tool_call_id\":\"b\",\"content\":"
                                         "null},{\"role\":\"user\",\"content\":\"Go on.\"}]");
    reads(USER("[{\"type\":\"document\",\"title\":\"T\",\"source\":{\"type\":\"text\",\"data\":"
               "\"words\"}},{\"type\":\"search_result\",\"source\":\"u\",\"content\":[" TEXT(
                   "found") "]},{\"type\":\"web_search_tool_result\",\"content\":[]}]"),
          "[{\"role\":\"user\",\"content\":[" TEXT("T\\nwords") "," TEXT("u\\nfound") "," TEXT(
              "[web_search_tool_result]") "]}]");
}

#define NOTE "{\"role\":\"system\",\"content\":\"n\",\"clear_at\":\"next_user_message\"}"
#define HI   "{\"role\":\"user\",\"content\":\"Hi\"}"

// Turns of the system that are for one turn of the user, and such as say nothing.
static void system_turns_come_and_go(void **state) {
    (void)state;
    reads("{\"messages\":[" HI "," NOTE ",{\"role\":\"assistant\",\"content\":\"Yes?\"}]}",
          "[" HI "," NOTE ",{\"role\":\"assistant\",\"content\":\"Yes?\"}]");
    reads("{\"messages\":[" HI "," NOTE "," HI "," NOTE "]}", "[" HI "," HI "," NOTE "]");
    reads("{\"messages\":[" CALLS "," NOTE ",{\"role\":\"user\",\"content\":[{\"type\":"
          "\"tool_result\",\"tool_use_id\":\"a\",\"content\":\"one\"}]}]}",
          "[" CALLED ",{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":\"one\"}]");
    reads("{\"messages\":[" HI ",{\"role\":\"system\",\"output_config\":{\"effort\":\"low\"}}]}",
          "[" HI "]");
    reads("{\"messages\":[" HI ",{\"role\":\"system\",\"output_config\":{}}]}",
          "messages[1]: messages[1].content is missing and must be a string or an array of blocks");
}

static void contradictory_fields_are_refused(void **state) {
    (void)state;
    reads(USER("[{\"type\":\"image\",\"source\":{}}]"),
          "messages[0].content[0]: messages[0].content[0] is an image, and this model reads text "
          "only");
    reads(USER("[{\"type\":\"document\",\"source\":{\"type\":\"base64\"}}]"),
          "messages[0].content[0]: messages[0].content[0] is a document, and this model reads text "
          "only");
    reads(USER("[null]"), "messages[0].content[0]: messages[0].content[0] is null and must be a "
                          "block");
    reads("{\"messages\":[null]}", "messages[0]: messages[0] is null and must be an object");
    reads(USER("[{\"type\":\"thinking\",\"thinking\":\"x\"}]"),
          "messages[0].content[0]: messages[0].content[0] is of type thinking, which stands in "
          "messages of the assistant only");
    reads("{\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{"
          "\"type\":\"tool_result\"}]}]}",
          "messages[0].content[1]: messages[0].content[1] is of type tool_result, which stands in "
          "messages of the user only");
    reads(USER("[5]"), "messages[0].content[0]: messages[0].content[0] is a number and must be a "
                       "block");
    reads(USER("[{\"type\":\"tool_result\"}]"),
          "messages[0].content[0]: messages[0].content[0].tool_use_id is missing and must be a "
          "string");
    reads(USER("7"), "messages[0]: messages[0].content is a number and must be a string or an "
                     "array of blocks");
    reads("{\"messages\":[{\"role\":\"tool\",\"content\":\"x\"}]}",
          "messages[0]: messages[0].role is 'tool' and must be user or assistant");
    reads("{\"system\":5,\"messages\":[]}",
          "system: system is a number and must be a string or an array of text blocks");
}

// What is of another kind than it is read as would be dropped.
static void members_of_another_kind_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *body, *message;
    } cases[] = {
        {"[{\"type\":\"document\",\"title\":5,\"source\":{\"type\":\"text\",\"data\":\"x\"}}]",
         "messages[0].content[0].title is a number and must be a string"},
        {"[{\"type\":\"tool_result\",\"tool_use_id\":\"a\",\"is_error\":\"yes\"}]",
         "messages[0].content[0].is_error is a string and must be true or false"},
        {"[{\"type\":\"thinking\",\"thinking\":\"x\",\"signature\":{\"a\":1}}]",
         "messages[0].content[0].signature is an object and must be a string"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char body[400];
        snprintf(body, sizeof body,
                 "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":%s}]}",
                 cases[i].body);
        struct json *v = server_rig_json(&rig, "/v1/messages", body, 400);
        assert_string_equal(server_rig_text(v, "error.message"), cases[i].message);
        json_free(v);
    }
}

static void tools_are_read(void **state) {
    (void)state;
    static const char body[] =
        "{\"messages\":[],\"tools\":[{\"name\":\"f\",\"description\":\"d\",\"input_schema\":{"
        "\"type\":"
        "\"object\"},\"strict\":true},{\"type\":\"web_search_20260209\",\"name\":\"web_search\"},{"
        "\"type\":\"bash_20250124\",\"name\":\"bash\"}],\"tool_choice\":{\"type\":\"tool\","
        "\"name\":"
        "\"f\",\"disable_parallel_tool_use\":true}}";
    struct json *v = NULL;
    struct conversation c = {0};
    struct api_error x = {0};
    assert_int_equal(json_parse(&v, body, sizeof body - 1, NULL), 0);
    conversation_read_messages_tools(&c, v);
    assert_int_equal(c.n_tools, 3);
    assert_int_equal(c.choice.kind, CHOICE_NAMED);
    assert_true(words_equal(c.choice.name, "f") && c.parallel == -1);
    assert_true(conversation_know_tools(&c, &x));
    assert_true(conversation_plain(&c, &x));
    struct json *tools = conversation_tools_of_template(&c);
    assert_int_equal(json_len(tools), 2);
    assert_string_equal(server_rig_text(tools, "0.function.name"), "f");
    assert_string_equal(server_rig_text(tools, "0.function.parameters.type"), "object");
    assert_string_equal(server_rig_text(tools, "1.function.name"), "bash");
    assert_non_null(server_rig_at(tools, "1.function.parameters.properties.command"));
    json_free(tools);
    conversation_fini(&c);
    json_free(v);
    reads("{\"messages\":[],\"tools\":[{\"input_schema\":{}}]}",
          "tools: tools[0] must have a name and an object as input_schema");
}

// The names of the tools that a template gets of f and g and turns of the system.
static void offers(const char *turns, const char *wanted) {
    struct str body = {0}, names = {0};
    struct json *v = NULL;
    struct conversation c = {0};
    struct api_error x = {0};
    str_printf(&body,
               "{\"tools\":[{\"name\":\"f\",\"input_schema\":{}},{\"name\":\"g\",\"input_schema\":"
               "{}}],\"messages\":[" HI ",%s]}",
               turns);
    assert_int_equal(json_parse(&v, body.data, body.len, NULL), 0);
    assert_true(conversation_read_messages(&c, v, &x));
    conversation_read_messages_tools(&c, v);
    assert_true(conversation_plain(&c, &x));
    struct json *tools = conversation_tools_of_template(&c);
    for (size_t i = 0; i < json_len(tools); i++) {
        const struct json *f = json_get(json_at(tools, i), "function");
        str_printf(&names, "%s:%s ", json_str(json_get(f, "name"), NULL),
                   json_str(json_get(f, "description"), NULL) ? "new" : "");
    }
    assert_string_equal(names.data ? names.data : "", wanted);
    json_free(tools);
    assert_int_equal(c.n_turns, strstr(turns, "\"text\"") ? 2 : 1);
    conversation_fini(&c);
    json_free(v);
    str_fini(&body);
    str_fini(&names);
}

#define SYSTEM(blocks) "{\"role\":\"system\",\"content\":[" blocks "]}"
#define ADDED(tool)    "{\"type\":\"tool_addition\",\"tool\":" tool "}"
#define REMOVED(name)  "{\"type\":\"tool_removal\",\"tool\":" NAMED(name) "}"
#define NAMED(name)    "{\"type\":\"tool_reference\",\"name\":\"" name "\"}"
#define DEFINED(name)                                                                              \
    "{\"type\":\"tool_definition\",\"definition\":{\"name\":\"" name "\",\"description\":\"d\","   \
    "\"input_schema\":{}}}"

static void turns_of_the_system_change_tools(void **state) {
    (void)state;
    offers(SYSTEM(ADDED(DEFINED("h"))), "f: g: h:new ");
    offers(SYSTEM(REMOVED("f")), "g: ");
    offers(SYSTEM(REMOVED("f") "," REMOVED("g")), "");
    offers(SYSTEM(REMOVED("f")) "," SYSTEM(ADDED(NAMED("f")) "," REMOVED("k")), "f: g: ");
    offers(SYSTEM(ADDED(DEFINED("f"))), "g: f:new ");
    offers(SYSTEM(ADDED(DEFINED("h")) "," TEXT("h is new.")) "", "f: g: h:new ");
    offers(SYSTEM("{\"type\":\"tool_addition\",\"tool\":3},{\"type\":\"tool_removal\"}"), "f: g: ");
    reads("{\"messages\":[" HI "," SYSTEM(ADDED("{\"definition\":{\"input_schema\":{}}}")) "]}",
          "messages[1].content[0]: messages[1].content[0].tool.definition must have a name and an "
          "object as input_schema");
}

// The data of the events of a stream, whose names must be those of their data.
struct events {
    struct json *at[400];
    int n;
};

static void read_events(struct events *v, const struct str *body) {
    const char *at = body->data;
    v->n = 0;
    while (*at) {
        char name[64] = "";
        const char *data = strstr(at, "\ndata: "), *end = strstr(at, "\n\n");
        assert_true(v->n < 400 && data && end && sscanf(at, "event: %63s", name) == 1);
        data += 7;
        assert_int_equal(json_parse(&v->at[v->n], data, (size_t)(end - data), NULL), 0);
        assert_string_equal(server_rig_text(v->at[v->n++], "type"), name);
        at = end + 2;
    }
}

static void drop_events(struct events *v) {
    for (int i = 0; i < v->n; i++)
        json_free(v->at[i]);
}

// Puts the blocks of a stream together as clients do: no block overlaps another, indices have no
// gaps. -> the end: stop_reason of message_delta.
static void assemble(const struct events *v, struct str *thinking, struct str *text,
                     const char **stop_reason) {
    int block = -1, open = 0;
    assert_string_equal(server_rig_text(v->at[0], "type"), "message_start");
    assert_string_equal(server_rig_text(v->at[v->n - 1], "type"), "message_stop");
    for (int i = 0; i < v->n; i++) {
        const struct json *e = v->at[i];
        const char *type = server_rig_text(e, "type");
        if (!strcmp(type, "content_block_start")) {
            assert_int_equal(server_rig_int(e, "index"), ++block);
            assert_int_equal(open++, 0);
        } else if (!strcmp(type, "content_block_stop")) {
            assert_int_equal(server_rig_int(e, "index"), block);
            assert_int_equal(open--, 1);
        } else if (!strcmp(type, "content_block_delta")) {
            const char *kind = server_rig_text(e, "delta.type");
            assert_true(open == 1 && server_rig_int(e, "index") == block);
            if (!strcmp(kind, "text_delta"))
                str_puts(text, server_rig_text(e, "delta.text"));
            if (!strcmp(kind, "thinking_delta"))
                str_puts(thinking, server_rig_text(e, "delta.thinking"));
        } else if (!strcmp(type, "message_delta")) {
            *stop_reason = server_rig_text(e, "delta.stop_reason");
        }
    }
    assert_int_equal(open, 0);
}

#define ASK                                                                                        \
    "\"system\":\"Be brief.\",\"messages\":[{\"role\":\"user\",\"content\":\"Tell me of a "        \
    "fox.\"}],\"temperature\":0,\"max_tokens\":40"

static void streams_and_whole_answers_agree(void **state) {
    (void)state;
    struct str out = {0}, thinking = {0}, text = {0};
    struct events v;
    const char *why = NULL;
    struct json *one = server_rig_json(&rig, MESSAGES, "{" ASK "}", 200);
    assert_int_equal(server_rig_ask(&rig, MESSAGES "?beta=true", "{\"stream\":true," ASK "}", &out),
                     200);
    read_events(&v, &out);
    assemble(&v, &thinking, &text, &why);
    assert_string_equal(text.data, server_rig_text(one, "content.0.text"));
    assert_string_equal(why, server_rig_text(one, "stop_reason"));
    assert_int_equal(server_rig_int(one, "usage.input_tokens") +
                         server_rig_int(one, "usage.cache_read_input_tokens"),
                     server_rig_int(v.at[0], "message.usage.input_tokens"));
    assert_string_equal(server_rig_text(one, "model"), "tiny");
    assert_int_equal(thinking.len, 0);
    struct json *count = server_rig_json(&rig, MESSAGES "/count_tokens", "{" ASK "}", 200);
    assert_int_equal(server_rig_int(count, "input_tokens"),
                     server_rig_int(v.at[0], "message.usage.input_tokens"));
    drop_events(&v);
    json_free(count);
    json_free(one);
    str_fini(&out);
    str_fini(&text);
    str_fini(&thinking);
}

// Its tokens are not counted of a request that would not be answered.
static void counting_takes_what_answering_takes(void **state) {
    (void)state;
    static const struct {
        const char *more;
        int status;
    } table[] = {{"\"tool_choice\":{\"type\":\"any\"}", 400},
                 {"\"tools\":[],\"tool_choice\":{\"type\":\"tool\",\"name\":\"f\"}", 400},
                 {"\"tools\":[{\"name\":\"g\",\"input_schema\":{}}],"
                  "\"tool_choice\":{\"type\":\"tool\",\"name\":\"f\"}",
                  400},
                 {"\"tools\":[{\"name\":\"g\",\"input_schema\":{}}],"
                  "\"tool_choice\":{\"type\":\"tool\"}",
                  400},
                 {"\"tools\":[{\"name\":\"<g>\",\"input_schema\":{}}]", 400},
                 {"\"tool_choice\":{\"type\":\"none\"}", 200},
                 {"\"tools\":[{\"name\":\"g\",\"input_schema\":{}}],"
                  "\"tool_choice\":{\"type\":\"tool\",\"name\":\"g\"}",
                  200}};
    char body[512];
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        snprintf(body, sizeof body, "{" ASK ",%s}", table[i].more);
        struct json *answer = server_rig_json(&rig, MESSAGES, body, table[i].status);
        struct json *count = server_rig_json(&rig, MESSAGES "/count_tokens", body, table[i].status);
        if (table[i].status == 400)
            assert_string_equal(server_rig_text(count, "error.message"),
                                server_rig_text(answer, "error.message"));
        json_free(answer);
        json_free(count);
    }
}

// A turn of a thread is not taken for the whole conversation.
static void threads_are_refused_in_their_words(void **state) {
    (void)state;
    static const char *const threads[] = {
        "{\"type\":\"create\"}", "{\"type\":\"continue\",\"previous_message_id\":\"msg_1\"}"};
    char body[512];
    for (int i = 0; i < 2; i++) {
        snprintf(body, sizeof body, "{" ASK ",\"thread\":%s}", threads[i]);
        struct json *v = server_rig_json(&rig, MESSAGES, body, 400);
        assert_string_equal(server_rig_text(v, "error.details.error_code"),
                            "thread_unsupported_request");
        json_free(v);
    }
    json_free(server_rig_json(&rig, MESSAGES, "{" ASK ",\"thread\":null}", 200));
}

static void ends_have_their_reason(void **state) {
    (void)state;
    struct json *v = server_rig_json(&rig, MESSAGES, "{" ASK ",\"max_tokens\":4}", 400);
    assert_string_equal(server_rig_text(v, "error.type"), "invalid_request_error");
    json_free(v);
    v = server_rig_json(&rig, MESSAGES, "{" ASK "}", 200);
    char word[5] = "", body[400];
    memcpy(word, server_rig_text(v, "content.0.text") + 5, 4);
    json_free(v);
    snprintf(body, sizeof body, "{" ASK ",\"stop_sequences\":[\"nothing of it\",\"%s\"]}", word);
    v = server_rig_json(&rig, MESSAGES, body, 200);
    assert_string_equal(server_rig_text(v, "stop_reason"), "stop_sequence");
    assert_string_equal(server_rig_text(v, "stop_sequence"), word);
    json_free(v);
}

static void refusals_have_their_form(void **state) {
    (void)state;
    static const struct {
        const char *body, *words;
    } cases[] = {
        {"{\"messages\":[]}", "messages is empty"},
        {"{}", "messages is missing"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"thinking\":{}}", "thinking.type"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"thinking\":{\"type\":"
         "\"adaptive\","
         "\"display\":\"none\"}}",
         "thinking.display is 'none' and must be summarized or omitted"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"thinking\":{\"type\":"
         "\"adaptive\","
         "\"display\":true}}",
         "thinking.display is a boolean and must be"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"thinking\":{\"type\":"
         "\"disabled\","
         "\"display\":\"omitted\"}}",
         "thinking.type is disabled: leave display out"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"compaction\":{\"type\":"
         "\"summarize\"}}",
         "compaction is not supported"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tool_choice\":{\"type\":\"x\"}}",
         "tool_choice.type"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"system\":1}", "system is a"},
        {"[]", "must be a JSON object"},
        {"{", "the body:"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct json *v = server_rig_json(&rig, MESSAGES, cases[i].body, 400);
        assert_string_equal(server_rig_text(v, "type"), "error");
        assert_string_equal(server_rig_text(v, "error.type"), "invalid_request_error");
        assert_non_null(strstr(server_rig_text(v, "error.message"), cases[i].words));
        assert_non_null(server_rig_at(v, "request_id"));
        json_free(v);
    }
    struct str body = {0};
    str_puts(&body, "{\"messages\":[{\"role\":\"user\",\"content\":\"");
    for (int i = 0; i < 5000; i++)
        str_puts(&body, "fox ");
    str_puts(&body, "\"}]}");
    struct json *v = server_rig_json(&rig, MESSAGES, body.data, 400);
    assert_non_null(strstr(server_rig_text(v, "error.message"), "prompt is too long: "));
    assert_non_null(strstr(server_rig_text(v, "error.message"), " > 4096 maximum"));
    json_free(v);
    str_fini(&body);
}

// What clients send that this server has no use for.
static void unknown_things_are_taken(void **state) {
    (void)state;
    static const char body[] =
        "{\"max_tokens\":4,\"metadata\":{\"user_id\":\"u\"},\"service_tier\":\"auto\","
        "\"context_management\":{},\"container\":null,\"mcp_servers\":[],\"cache_control\":{"
        "\"type\":\"ephemeral\"},\"top_k\":null,\"stop_sequences\":null,\"thinking\":{\"type\":"
        "\"between_tools\"},\"output_config\":{\"effort\":\"xhigh\"},\"tools\":[{\"type\":"
        "\"tool_of_tomorrow\"}],\"tool_choice\":{\"type\":\"auto\"},\"messages\":[{\"role\":"
        "\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Hi\",\"cache_control\":{\"type\":"
        "\"ephemeral\"},\"citations\":null},{\"type\":\"block_of_tomorrow\"}]}]}";
    struct json *v = server_rig_json(&rig, MESSAGES, body, 200);
    assert_string_equal(server_rig_text(v, "type"), "message");
    json_free(v);
}

static void thinking_is_a_block(void **state) {
    (void)state;
    static const char template[] =
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "<|im_start|>assistant\n{% if enable_thinking is not defined or enable_thinking %}<think>\n"
        "{% else %}<think>\n\n</think>\n\n{% endif %}";
    char path[] = "/tmp/coppice-template-XXXXXX";
    struct server_rig small;
    struct str out = {0}, thinking = {0}, text = {0};
    struct events v;
    const char *why = NULL;
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, template, sizeof template - 1) == sizeof template - 1);
    close(fd);
    server_rig_start(&small, (struct server_options){.template_file = path});
    unlink(path);
    struct json *one = server_rig_json(&small, MESSAGES, "{" ASK "}", 200);
    assert_string_equal(server_rig_text(one, "content.0.type"), "text");
    json_free(one);
    one = server_rig_json(&small, MESSAGES, "{\"thinking\":{\"type\":\"adaptive\"}," ASK "}", 200);
    assert_string_equal(server_rig_text(one, "content.0.type"), "thinking");
    assert_string_equal(server_rig_text(one, "content.0.signature"), server_rig_text(one, "id"));
    server_rig_ask(&small, MESSAGES,
                   "{\"stream\":true,\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":2000}"
                   "," ASK "}",
                   &out);
    read_events(&v, &out);
    assemble(&v, &thinking, &text, &why);
    // The budget ends it within max_tokens: the same words, perhaps fewer.
    assert_true(thinking.len > 0);
    assert_int_equal(
        strncmp(thinking.data, server_rig_text(one, "content.0.thinking"), thinking.len), 0);
    bool signature = false;
    for (int i = 0; i < v.n; i++)
        signature |= server_rig_at(v.at[i], "delta.signature") != NULL;
    assert_true(signature);
    drop_events(&v);
    json_free(one);
    server_rig_stop(&small);
    str_fini(&out);
    str_fini(&text);
    str_fini(&thinking);
}

// A stream whose thinking is omitted: the block, nothing but signatures in it, the newest of which
// holds all of it.
static void omitted_thinking_is_sent_encrypted(void **state) {
    (void)state;
    static const struct dialect d = {.endpoint = ENDPOINT_ANTHROPIC};
    struct service s = {.model = (char *)"m"};
    struct choice k = {0};
    struct completion c = {.s = &s, .d = &d, .choices = &k, .n_choices = 1, .prepared = true};
    struct item_text p = {.text = {"hm", 2}};
    struct events v;
    c.p.omits_thinking = true;
    struct answer_item *it = answer_items_begin(&k.items, ITEM_REASONING);
    api_messages_dialect.item_begin(&c, &k, it);
    api_messages_dialect.item_delta(&c, &k, it, &p);
    str_puts(&it->text, "hm");
    api_messages_dialect.alive(&c);
    it->open = false;
    api_messages_dialect.item_end(&c, &k, it);
    read_events(&v, &s.out);
    assert_int_equal(v.n, 5); // start, ping and an empty piece, signature, stop
    assert_string_equal(server_rig_text(v.at[0], "content_block.thinking"), "");
    assert_string_equal(server_rig_text(v.at[1], "type"), "ping");
    for (int i = 2; i < 4; i++) {
        assert_string_equal(server_rig_text(v.at[i], "delta.type"), "signature_delta");
        assert_string_equal(server_rig_text(v.at[i], "delta.signature"),
                            i == 2 ? "" : "coppice-1.aG0=");
    }
    assert_string_equal(server_rig_text(v.at[4], "type"), "content_block_stop");
    drop_events(&v);
    answer_items_fini(&k.items);
    str_fini(&s.out);
    str_fini(&s.json.out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversations_are_read),
        cmocka_unit_test(system_turns_come_and_go),
        cmocka_unit_test(contradictory_fields_are_refused),
        cmocka_unit_test(members_of_another_kind_are_refused),
        cmocka_unit_test(tools_are_read),
        cmocka_unit_test(turns_of_the_system_change_tools),
        cmocka_unit_test(streams_and_whole_answers_agree),
        cmocka_unit_test(counting_takes_what_answering_takes),
        cmocka_unit_test(threads_are_refused_in_their_words),
        cmocka_unit_test(ends_have_their_reason),
        cmocka_unit_test(refusals_have_their_form),
        cmocka_unit_test(unknown_things_are_taken),
        cmocka_unit_test(thinking_is_a_block),
        cmocka_unit_test(omitted_thinking_is_sent_encrypted),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
