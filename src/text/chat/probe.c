// SPDX-License-Identifier: Apache-2.0
// What a template can do with a conversation, found out by rendering small ones: two spellings of
// the same message that give the same text are both understood; words that do not come out, or a
// refusal, show what is not. A template that refuses everything keeps the defaults.
#include "text/chat/impl.h"

#include <stdio.h>
#include <string.h>

// A probe's renderings are tiny; one that is not is a template to keep short.
static const struct jinja_limits probe_limits = {
    .steps = 100000, .depth = 100, .output = 1 << 20, .memory = 16 << 20};

#define WORDS "probe words"
#define PARTS "[{\"type\":\"text\",\"text\":\"" WORDS "\"}]"
#define USER  "{\"role\":\"user\",\"content\":\"a question\"}"

enum { LONG = 4 };

struct probe {
    const struct chat_template *t;
    struct err *e;
    int rc;        // ERR_MEMORY ends the probes
    int long_ones; // renderings beyond the limits; from LONG on nothing is tried any more
    bool undefined_lists, thinking;
};

// Whether all of a text is there. What memory was too short for must not look like a refusal.
static bool is_complete(struct probe *p, const struct str *text) {
    if (text->failed && !p->rc)
        p->rc = err_set(p->e, ERR_MEMORY, "no memory to try a chat template");
    return !text->failed;
}

static int set_trusted_variable(void *arg, const char *key, size_t n, const struct json *v) {
    struct jinja_context *c = arg;
    (void)n;
    jinja_set(c, key, jinja_from_json(c, v, false));
    return 0;
}

static int render_context(struct probe *p, const struct json *variables, struct jinja_output *out,
                          struct err *e) {
    struct jinja_context *c = NULL;
    int rc = jinja_context_create(&c, &probe_limits, e);
    if (rc)
        return rc;
    jinja_context_changes(c);
    jinja_set(c, "bos_token", jinja_string(c, p->t->bos.data, p->t->bos.len, false));
    jinja_set(c, "eos_token", jinja_string(c, p->t->eos.data, p->t->eos.len, false));
    json_each(variables, set_trusted_variable, c);
    rc = jinja_render(p->t->program, c, out, e);
    jinja_context_free(c);
    return rc;
}

// Renders messages, a JSON array, with a tool where `tools`. False when the template refuses them.
static bool render_probe(struct probe *p, const char *messages, bool tools,
                         struct jinja_output *out) {
    static const char tool[] =
        ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"probe_tool\",\"description\":"
        "\"text\",\"parameters\":{\"type\":\"object\",\"properties\":{\"probe_field\":{\"type\":"
        "\"string\",\"description\":\"text\"}},\"required\":[\"probe_field\"]}}}]";
    struct str text = {0};
    struct json *variables = NULL;
    struct err e = {0};
    *out = (struct jinja_output){0};
    if (p->rc || p->long_ones >= LONG)
        return false;
    str_printf(&text, "{\"messages\":%s%s%s%s,\"add_generation_prompt\":false}", messages,
               tools                ? tool
               : p->undefined_lists ? ""
                                    : ",\"tools\":null",
               p->undefined_lists ? "" : ",\"documents\":null",
               p->thinking ? ",\"enable_thinking\":true" : "");
    int rc = text.failed ? err_set(&e, ERR_MEMORY, "no memory to try a chat template")
                         : json_parse(&variables, text.data, text.len, &e);
    if (!rc)
        rc = render_context(p, variables, out, &e);
    json_free(variables);
    str_fini(&text);
    p->long_ones += rc == ERR_LIMIT;
    if (rc == ERR_MEMORY && !p->rc) {
        p->rc = rc;
        err_set(p->e, rc, "%s", e.text);
    }
    return rc == 0;
}

static bool output_has(const struct jinja_output *o, const char *word) {
    return o->text.data && strstr(o->text.data, word);
}

// Whether the rendering holds both words.
static bool shows_both(struct probe *p, const char *messages, bool tools, const char *a,
                       const char *b) {
    struct jinja_output o;
    bool is = render_probe(p, messages, tools, &o) && output_has(&o, a) && output_has(&o, b);
    jinja_output_fini(&o);
    return is;
}

// Contents as strings and as lists of parts; `form` has a place for the content.
static enum chat_parts probe_parts(struct probe *p, const char *before, const char *after) {
    struct str plain = {0}, parts = {0};
    struct jinja_output a = {0}, b = {0};
    enum chat_parts is = CHAT_PARTS_JOIN;
    str_printf(&plain, "[%s\"" WORDS "\"%s]", before, after);
    str_printf(&parts, "[%s" PARTS "%s]", before, after);
    if (is_complete(p, &plain) && is_complete(p, &parts)) {
        bool by_text = render_probe(p, plain.data, false, &a) && output_has(&a, WORDS);
        bool by_parts = render_probe(p, parts.data, false, &b) && output_has(&b, WORDS);
        bool same = by_text && by_parts && a.text.len == b.text.len &&
                    memcmp(a.text.data, b.text.data, a.text.len) == 0;
        if (same)
            is = CHAT_PARTS_KEEP;
        else if (by_parts && !by_text)
            is = CHAT_PARTS_NEED;
    }
    jinja_output_fini(&a);
    jinja_output_fini(&b);
    str_fini(&plain);
    str_fini(&parts);
    return is;
}

static const char long_id[] = "call_0123456789abcdef01234567", short_id[] = "call01234";

// A conversation with a call; `words` is the content besides it as JSON, `extra` more members.
static void call_messages(struct str *out, const struct chat_traits *is, const char *words,
                          const char *extra) {
    str_clear(out);
    str_printf(out,
               "[" USER ",{\"role\":\"assistant\",\"content\":%s,\"tool_calls\":[{\"id\":\"%s\","
               "\"type\":\"function\",\"function\":{\"name\":\"probe_tool\",\"arguments\":%s}}]%s}",
               words, is->short_ids ? short_id : long_id,
               is->text_arguments ? "\"{\\\"probe_key\\\": \\\"probe_value\\\"}\""
                                  : "{\"probe_key\":\"probe_value\"}",
               extra);
}

static const char *no_words(const struct chat_traits *is) {
    return is->null_content ? "null" : "\"\"";
}

static void result_message(struct str *out, const struct chat_traits *is) {
    str_printf(out,
               ",{\"role\":\"tool\",\"tool_call_id\":\"%s\",\"name\":\"probe_tool\",\"content\":",
               is->short_ids ? short_id : long_id);
}

// Finds a way to show calls: arguments as objects or text, empty or no content, long or short ids.
// False where there is none.
static bool probe_calls(struct probe *p, struct chat_traits *is) {
    struct str text = {0};
    bool known = false;
    for (int way = 0; way < 8 && !known; way++) {
        struct chat_traits tried = *is;
        tried.text_arguments = way & 1;
        tried.short_ids = way & 2;
        tried.null_content = way & 4;
        call_messages(&text, &tried, no_words(&tried), "");
        result_message(&text, &tried);
        str_puts(&text, "\"a result\"}]");
        struct jinja_output o = {0};
        known = is_complete(p, &text) && render_probe(p, text.data, true, &o) &&
                output_has(&o, "probe_value") &&
                output_has(&o, tried.text_arguments ? "\"probe_key\"" : "probe_key") &&
                !output_has(&o, "'probe_key'");
        jinja_output_fini(&o);
        if (known)
            *is = tried;
    }
    str_fini(&text);
    return known;
}

// gpt-oss refuses a call that has both content and reasoning.
static void probe_reasoning(struct probe *p, struct chat_traits *is) {
    static const char *const words[] = {"\"\"", "\"" WORDS "\""};
    bool taken[2] = {false};
    for (int i = 0; i < 2; i++) {
        struct str text = {0};
        struct jinja_output o = {0};
        call_messages(&text, is, words[i],
                      ",\"reasoning_content\":\"a thought\",\"thinking\":\"a thought\"");
        str_puts(&text, "]");
        taken[i] = is_complete(p, &text) && render_probe(p, text.data, true, &o);
        jinja_output_fini(&o);
        str_fini(&text);
    }
    is->one_of_both = taken[0] && !taken[1];
}

static void probe_tool_parts(struct probe *p, struct chat_traits *is) {
    struct str before = {0};
    call_messages(&before, is, no_words(is), "");
    result_message(&before, is);
    if (is_complete(p, &before))
        is->parts[CONVERSATION_TOOL] = probe_parts(p, before.data + 1, "}");
    str_fini(&before);
}

static void probe_system(struct probe *p, struct chat_traits *is) {
    static const char twice[] = "[{\"role\":\"system\",\"content\":\"first words\"}," USER
                                ",{\"role\":\"assistant\",\"content\":\"an answer\"},"
                                "{\"role\":\"system\",\"content\":\"other words\"}," USER "]";
    static const char once[] = "[{\"role\":\"system\",\"content\":\"first words\"}," USER "]";
    if (shows_both(p, twice, false, "first words", "other words"))
        is->system = CHAT_SYSTEM_ANYWHERE;
    else if (shows_both(p, once, false, "first words", "a question"))
        is->system = CHAT_SYSTEM_FIRST;
    else if (shows_both(p, "[" USER "]", false, "a question", ""))
        is->system = CHAT_SYSTEM_NEVER;
}

// A turn of a conversation that is tried: its words are those of its number. s, u, a: of the
// system, the user, the assistant; e: of the user and empty; c, d, t: a call, two of them, a
// result.
static void add_turn(struct probe *p, struct str *out, const struct chat_traits *is, char what,
                     int i) {
    enum conversation_role role = what == 's'   ? CONVERSATION_SYSTEM
                                  : what == 'a' ? CONVERSATION_ASSISTANT
                                                : CONVERSATION_USER;
    bool list = is->parts[what == 't' ? CONVERSATION_TOOL : role] == CHAT_PARTS_NEED;
    struct str text = {0};
    str_printf(&text, list ? "[{\"type\":\"text\",\"text\":\"%s%.0d\"}]" : "\"%s%.0d\"",
               what == 'e' ? "" : "some words ", what == 'e' ? 0 : i + 1);
    if (i > 0)
        str_putc(out, ',');
    if (what == 'c' || what == 'd') {
        struct str call = {0};
        call_messages(&call, is, no_words(is), "");
        size_t skip = sizeof("[" USER ",") - 1;
        const char *it = is_complete(p, &call) ? call.data + skip : "",
                   *one = strstr(it, "[{\"id\"");
        if (what == 'd' && one) // the same call again
            str_printf(out, "%.*s,%s", (int)(strlen(it) - 2), it, one + 1);
        else
            str_puts(out, it);
        str_fini(&call);
    } else if (what == 't') {
        struct str result = {0};
        result_message(&result, is);
        if (is_complete(p, &result) && is_complete(p, &text))
            str_printf(out, "%s%s}", result.data + 1, text.data);
        str_fini(&result);
    } else if (is_complete(p, &text)) {
        str_printf(out, "{\"role\":\"%s\",\"content\":%s}", conversation_roles[role], text.data);
    }
    str_fini(&text);
}

enum taken { REFUSED, LOST, TAKEN };

// What becomes of a conversation of such turns: whether all of its words come out.
static enum taken try_turns(struct probe *p, const struct chat_traits *is, const char *turns) {
    struct str text = {0};
    struct jinja_output o = {0};
    bool tools = strpbrk(turns, "cdt") != NULL;
    str_puts(&text, "[");
    for (int i = 0; turns[i]; i++)
        add_turn(p, &text, is, turns[i], i);
    str_puts(&text, "]");
    enum taken result =
        is_complete(p, &text) && render_probe(p, text.data, tools, &o) ? TAKEN : REFUSED;
    for (int i = 0; turns[i] && result == TAKEN; i++) {
        char words[32];
        snprintf(words, sizeof words, "some words %d", i + 1);
        bool silent = strchr("ecd", turns[i]) != NULL;
        result = silent || output_has(&o, words) ? TAKEN : LOST;
    }
    jinja_output_fini(&o);
    str_fini(&text);
    return result;
}

// Which orders of turns the template does not take though it takes what they can be made into.
static void probe_turns(struct probe *p, struct chat_traits *is, bool template_has_calls) {
    bool talks = try_turns(p, is, "uau") == TAKEN;
    is->join_users = try_turns(p, is, "u") == TAKEN && try_turns(p, is, "uu") != TAKEN;
    is->join_answers = talks && try_turns(p, is, "uaau") != TAKEN;
    is->user_first = try_turns(p, is, "au") != TAKEN && try_turns(p, is, "eau") == TAKEN;
    is->lone_system = is->system != CHAT_SYSTEM_NEVER && try_turns(p, is, "s") == LOST;
    is->plain_calls = talks && !template_has_calls;
    is->plain_results = talks && try_turns(p, is, template_has_calls ? "uct" : "uat") != TAKEN;
    is->single_calls = template_has_calls && !is->plain_results &&
                       try_turns(p, is, "uctct") == TAKEN && try_turns(p, is, "udtt") == REFUSED;
    is->user_after = template_has_calls && !is->plain_results &&
                     try_turns(p, is, "uctau") == TAKEN && try_turns(p, is, "uctu") != TAKEN;
}

static bool is_blank_char(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

// The closing mark with blanks on both sides, where nothing but blanks stands before it.
static void take_closing(const char *text, const char *mark, struct str *out) {
    size_t before = 0, len = strlen(mark), after = 0;
    while (is_blank_char(text[before]))
        before++;
    bool is = strncmp(text + before, mark, len) == 0;
    while (is && is_blank_char(text[before + len + after]))
        after++;
    if (is && before + after < 16)
        str_append(out, text, before + len + after);
}

// How reasoning ends, as in a message with reasoning and content. The bare mark where no message
// shows it.
static void probe_closing(struct probe *p, const struct chat_template *t, struct str *out) {
    static const char thought[] = "a thought of this probe";
    static const char message[] =
        "[" USER ",{\"role\":\"assistant\",\"content\":\"" WORDS
        "\",\"reasoning_content\":\"a thought of this probe\",\"reasoning\":\"a thought of this "
        "probe\",\"thinking\":\"a thought of this probe\"}]";
    const char *mark = reasoning_closing(t->family);
    struct jinja_output o = {0};
    p->thinking = true;
    if (mark && render_probe(p, message, false, &o) && output_has(&o, thought))
        take_closing(strstr(o.text.data, thought) + sizeof thought - 1, mark, out);
    if (mark && out->len == 0)
        str_puts(out, mark);
    (void)is_complete(p, out);
    jinja_output_fini(&o);
}

int chat_probe(struct chat_template *t, struct err *e) {
    struct probe p = {.t = t, .e = e};
    struct chat_traits is = {.developer = jinja_mentions(t->program, "developer")};
    if (!shows_both(&p, "[" USER "]", false, "a question", "")) {
        p.undefined_lists = true;
        p.undefined_lists = shows_both(&p, "[" USER "]", false, "a question", "");
    }
    is.undefined_lists = p.undefined_lists;
    probe_system(&p, &is);
    is.parts[CONVERSATION_USER] = probe_parts(&p, "{\"role\":\"user\",\"content\":", "}");
    is.parts[CONVERSATION_SYSTEM] = is.parts[CONVERSATION_DEVELOPER] =
        probe_parts(&p, "{\"role\":\"system\",\"content\":", "}," USER);
    is.parts[CONVERSATION_ASSISTANT] =
        probe_parts(&p, USER ",{\"role\":\"assistant\",\"content\":", "}," USER);
    bool template_has_calls = probe_calls(&p, &is);
    probe_tool_parts(&p, &is);
    probe_turns(&p, &is, template_has_calls);
    probe_reasoning(&p, &is);
    probe_closing(&p, t, &t->closing);
    t->traits = is;
    return p.rc;
}
