// SPDX-License-Identifier: Apache-2.0
// Messages of Anthropic's interface; see anthropic_read.h.
#include "serve/anthropic_read.h"

#include <stdio.h>
#include <string.h>

#include "serve/fields.h"
#include "serve/messages.h"
#include "serve/noise.h"

// The message of a chat that is being written: turns are split where a chat has several messages.
struct writing {
    struct json_writer w;
    struct api_error *x;
    const char *role; // of the turn
    bool open;        // a message of it has begun
    bool words;       // its content has been opened
    bool calls;       // its calls have been opened
    struct str thought;
};

struct place {
    char text[64];
};

static struct place block_at(size_t m, size_t i) {
    struct place p;
    snprintf(p.text, sizeof p.text, "messages[%zu].content[%zu]", m, i);
    return p;
}

static bool wrong(struct api_error *x, const char *place, const char *member, const struct json *v,
                  const char *wanted) {
    return api_refuse(x, place, "%s%s is %s and must be %s", place, member,
                      v ? fields_kind_name(v) : "missing", wanted);
}

static void open_message(struct writing *s) {
    if (s->open)
        return;
    s->open = true;
    s->words = s->calls = false;
    str_clear(&s->thought);
    jw_begin(&s->w, '{');
    jw_key_str(&s->w, "role", s->role);
}

static void close_words(struct writing *s) {
    if (s->words)
        jw_end(&s->w, ']');
    s->words = false;
}

static void close_message(struct writing *s) {
    if (!s->open)
        return;
    bool words = s->words;
    close_words(s);
    if (s->calls)
        jw_end(&s->w, ']');
    else if (!words)
        jw_key_str(&s->w, "content", "");
    if (s->thought.len) {
        jw_key(&s->w, "reasoning_content");
        jw_str(&s->w, s->thought.data, s->thought.len);
    }
    jw_end(&s->w, '}');
    s->open = false;
}

static void put_words(struct writing *s, const char *text, size_t n) {
    if (s->open && s->calls) // words behind a call: the next message
        close_message(s);
    open_message(s);
    if (!s->words) {
        jw_key(&s->w, "content");
        jw_begin(&s->w, '[');
        s->words = true;
    }
    jw_begin(&s->w, '{');
    jw_key_str(&s->w, "type", "text");
    jw_key(&s->w, "text");
    jw_str(&s->w, text, n);
    jw_end(&s->w, '}');
}

static void put_call(struct writing *s, const struct json *block) {
    open_message(s);
    close_words(s);
    if (!s->calls) {
        jw_key(&s->w, "tool_calls");
        jw_begin(&s->w, '[');
        s->calls = true;
    }
    jw_begin(&s->w, '{');
    jw_key(&s->w, "id");
    jw_value(&s->w, json_get(block, "id"));
    jw_key_str(&s->w, "type", "function");
    jw_key(&s->w, "function");
    jw_begin(&s->w, '{');
    jw_key(&s->w, "name");
    jw_value(&s->w, json_get(block, "name"));
    jw_key(&s->w, "arguments");
    if (json_get(block, "input")) {
        jw_value(&s->w, json_get(block, "input"));
    } else {
        jw_begin(&s->w, '{');
        jw_end(&s->w, '}');
    }
    jw_end(&s->w, '}');
    jw_end(&s->w, '}');
}

static bool take_call(struct writing *s, const struct json *block, const char *place) {
    const struct json *input = json_get(block, "input");
    if (!json_str(json_get(block, "id"), NULL))
        return wrong(s->x, place, ".id", json_get(block, "id"), "a string");
    if (!json_str(json_get(block, "name"), NULL))
        return wrong(s->x, place, ".name", json_get(block, "name"), "a string");
    if (input && json_kind_of(input) != JSON_OBJECT)
        return wrong(s->x, place, ".input", input, "an object");
    put_call(s, block);
    return true;
}

static bool is(const char *type, const char *what) {
    return type && !strcmp(type, what);
}

static const char *type_of(const struct json *block) {
    return json_str(json_get(block, "type"), NULL);
}

// What stands for a block that cannot be read: "[web_search_tool_result]".
static void put_name(struct str *out, const char *type) {
    str_printf(out, "[%.60s]", type);
}

static void add_line(struct str *out, const struct json *text) {
    size_t n;
    const char *s = json_str(text, &n);
    if (!s || n == 0)
        return;
    if (out->len)
        str_putc(out, '\n');
    str_append(out, s, n);
}

static void add_words(struct str *out, const struct json *content, int depth);

// The words of a block of a result, or of a source: as much as there is of them.
static void add_block(struct str *out, const struct json *block, int depth) {
    const char *type = type_of(block);
    const struct json *source = json_get(block, "source");
    if (json_str(json_get(block, "text"), NULL)) {
        add_line(out, json_get(block, "text"));
        return;
    }
    size_t before = out->len;
    add_line(out, json_get(block, "title"));
    if (json_kind_of(source) == JSON_STRING)
        add_line(out, source);
    if (is(type_of(source), "text"))
        add_line(out, json_get(source, "data"));
    add_words(out, json_get(source, "content"), depth + 1);
    add_words(out, json_get(block, "content"), depth + 1);
    if (out->len > before)
        return;
    if (out->len)
        str_putc(out, '\n');
    put_name(out, type ? type : "block");
}

static void add_words(struct str *out, const struct json *content, int depth) {
    if (json_kind_of(content) == JSON_STRING)
        add_line(out, content);
    for (size_t i = 0; depth < 8 && json_kind_of(content) == JSON_ARRAY && i < json_len(content);
         i++)
        add_block(out, json_at(content, i), depth);
}

static bool take_result(struct writing *s, const struct json *block, const char *place) {
    const struct json *id = json_get(block, "tool_use_id"), *content = json_get(block, "content");
    enum json_kind k = json_kind_of(content);
    bool failed = json_bool(json_get(block, "is_error"), false);
    struct str words = {0};
    if (!json_str(id, NULL))
        return wrong(s->x, place, ".tool_use_id", id, "a string");
    if (k != JSON_STRING && k != JSON_ARRAY && k != JSON_NULL)
        return wrong(s->x, place, ".content", content, "a string or an array of blocks");
    close_message(s);
    add_words(&words, content, 0);
    jw_begin(&s->w, '{');
    jw_key_str(&s->w, "role", "tool");
    jw_key(&s->w, "tool_call_id");
    jw_value(&s->w, id);
    if (failed)
        jw_key_bool(&s->w, "is_error", true);
    jw_key(&s->w, "content");
    jw_str(&s->w, words.data ? words.data : "", words.len);
    jw_end(&s->w, '}');
    s->w.out.failed |= words.failed;
    str_fini(&words);
    return true;
}

// A block of the user's that a text model cannot do without.
static bool take_media(struct writing *s, const struct json *block, const char *place) {
    const char *type = type_of(block);
    const char *source = type_of(json_get(block, "source"));
    struct str words = {0};
    if (is(type, "image") || (!is(source, "text") && !is(source, "content")))
        return api_refuse(s->x, place, "%s is %s %.40s, and this model reads text only", place,
                          is(type, "image") ? "an" : "a", type);
    add_block(&words, block, 0);
    put_words(s, words.data ? words.data : "", words.len);
    s->w.out.failed |= words.failed;
    str_fini(&words);
    return true;
}

static bool take_thought(struct writing *s, const struct json *block, const char *place) {
    size_t n;
    const char *text = json_str(json_get(block, "thinking"), &n);
    if (!text)
        return wrong(s->x, place, ".thinking", json_get(block, "thinking"), "a string");
    if (s->open && s->calls)
        close_message(s);
    open_message(s);
    if (s->thought.len && n)
        str_puts(&s->thought, "\n\n");
    str_append(&s->thought, text, n);
    return true;
}

static bool take_block(struct writing *s, const struct json *block, const char *place) {
    const char *type = type_of(block);
    bool assistant = !strcmp(s->role, "assistant");
    struct str words = {0};
    size_t n;
    if (json_kind_of(block) != JSON_OBJECT)
        return wrong(s->x, place, "", block, "a block");
    if (!type)
        return wrong(s->x, place, ".type", json_get(block, "type"), "a string");
    if (is(type, "text")) {
        const char *text = json_str(json_get(block, "text"), &n);
        if (!text)
            return wrong(s->x, place, ".text", json_get(block, "text"), "a string");
        put_words(s, text, n);
        return true;
    }
    if (assistant && is(type, "tool_use"))
        return take_call(s, block, place);
    if (assistant && is(type, "thinking"))
        return take_thought(s, block, place);
    if (is(type, "redacted_thinking")) // only Anthropic's servers can read it
        return true;
    if (!assistant && is(type, "tool_result"))
        return take_result(s, block, place);
    if (!assistant && (is(type, "image") || is(type, "document")))
        return take_media(s, block, place);
    add_block(&words, block, 0);
    put_words(s, words.data ? words.data : "", words.len);
    s->w.out.failed |= words.failed;
    str_fini(&words);
    return true;
}

static bool take_turn(struct writing *s, const struct json *message, size_t m) {
    static const char *const roles[] = {"user", "assistant", "system"};
    const struct json *content = json_get(message, "content");
    const char *role = json_str(json_get(message, "role"), NULL), *text;
    char place[48];
    size_t n;
    snprintf(place, sizeof place, "messages[%zu]", m);
    if (json_kind_of(message) != JSON_OBJECT)
        return wrong(s->x, place, "", message, "an object");
    if (!role)
        return wrong(s->x, place, ".role", json_get(message, "role"), "a string");
    s->role = NULL;
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
        if (!strcmp(role, roles[i]))
            s->role = roles[i];
    if (!s->role)
        return api_refuse(s->x, place, "%s.role is '%.40s' and must be user or assistant", place,
                          role);
    if ((text = json_str(content, &n)) != NULL) {
        put_words(s, text, n);
    } else if (json_kind_of(content) == JSON_ARRAY) {
        for (size_t i = 0; i < json_len(content); i++)
            if (!take_block(s, json_at(content, i), block_at(m, i).text))
                return false;
        if (json_len(content) == 0)
            open_message(s);
    } else {
        return wrong(s->x, place, ".content", content, "a string or an array of blocks");
    }
    close_message(s);
    return true;
}

// The instructions: one text, without what is noise in front.
static bool take_system(struct writing *s, const struct json *system) {
    struct str words = {0};
    size_t n;
    bool ok = true;
    enum json_kind k = json_kind_of(system);
    if (k == JSON_NULL)
        return true;
    if (k != JSON_STRING && k != JSON_ARRAY)
        return wrong(s->x, "system", "", system, "a string or an array of text blocks");
    for (size_t i = 0; ok && i < (k == JSON_ARRAY ? json_len(system) : 1); i++) {
        const struct json *block = k == JSON_ARRAY ? json_at(system, i) : NULL;
        const char *text = json_str(block ? json_get(block, "text") : system, &n);
        ok = text || api_refuse(s->x, "system", "system[%zu] is no text block", i);
        size_t from = text ? noise_length(text, n) : 0;
        if (!text || from == n)
            continue;
        if (words.len)
            str_putc(&words, '\n');
        str_append(&words, text + from, n - from);
    }
    if (ok && words.len) {
        jw_begin(&s->w, '{');
        jw_key_str(&s->w, "role", "system");
        jw_key(&s->w, "content");
        jw_str(&s->w, words.data, words.len);
        jw_end(&s->w, '}');
    }
    s->w.out.failed |= words.failed;
    str_fini(&words);
    return ok;
}

// What was written, read again; the texts were read before, so that it is large at most.
static bool parse(struct json_writer *w, struct json **out, struct api_error *x) {
    static const struct json_rules rules = {.depth = 300, .big_integers = true};
    struct err e = {0};
    bool ok = !w->out.failed && !json_parse_with(out, w->out.data, w->out.len, &rules, &e);
    if (!ok)
        api_fail(x, 503, NULL, "no memory for the conversation");
    return ok;
}

bool anthropic_read_messages(const struct json *body, struct json **messages, struct api_error *x) {
    const struct json *turns = json_get(body, "messages");
    struct writing s = {.x = x};
    size_t n = json_len(turns);
    *messages = NULL;
    if (n > MESSAGES_MAX)
        return api_refuse(x, "messages", "messages has %zu elements and may have %d at most", n,
                          MESSAGES_MAX);
    jw_begin(&s.w, '[');
    bool ok = take_system(&s, json_get(body, "system"));
    for (size_t i = 0; i < n && ok; i++)
        ok = take_turn(&s, json_at(turns, i), i);
    jw_end(&s.w, ']');
    s.w.out.failed |= s.thought.failed;
    ok = ok && parse(&s.w, messages, x);
    str_fini(&s.thought);
    str_fini(&s.w.out);
    return ok;
}
