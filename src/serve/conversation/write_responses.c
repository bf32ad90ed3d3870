// SPDX-License-Identifier: Apache-2.0
// Writer of conversations of the Responses interface; see responses.h.
#include <string.h>

#include "serve/conversation/responses.h"
#include "serve/conversation/responses_impl.h"

static void put_part(struct json_writer *w, const struct conversation_part *p, bool answer) {
    bool refusal = p->kind == PART_REFUSAL;
    if (p->raw) {
        jw_value(w, p->raw);
        return;
    }
    jw_begin(w, '{');
    jw_key_str(w, "type", refusal ? "refusal" : answer ? "output_text" : "input_text");
    jw_key(w, refusal ? "refusal" : "text");
    jw_str(w, p->text.s ? p->text.s : "", p->text.n);
    extras_put(w, &p->extras, refusal ? responses_of_refusal : responses_of_text);
    jw_end(w, '}');
}

static bool is_content(const struct conversation_part *p) {
    return p->kind != PART_REASONING && p->kind != PART_CALL;
}

static void put_texts(struct json_writer *w, const char *key, const char *type, struct words t) {
    jw_key(w, key);
    jw_begin(w, '[');
    if (t.s) {
        jw_begin(w, '{');
        jw_key_str(w, "type", type);
        words_put(w, "text", t);
        jw_end(w, '}');
    }
    jw_end(w, ']');
}

static void put_reasoning(struct json_writer *w, const struct conversation_part *p) {
    jw_begin(w, '{');
    jw_key_str(w, "type", "reasoning");
    put_texts(w, "summary", "summary_text", p->summary);
    if (p->text.s)
        put_texts(w, "content", "reasoning_text", p->text);
    words_put(w, "encrypted_content", p->signature);
    extras_put(w, &p->extras, responses_of_reasoning);
    jw_end(w, '}');
}

static void put_call(struct json_writer *w, const struct conversation_part *p) {
    jw_begin(w, '{');
    jw_key_str(w, "type", p->custom ? "custom_tool_call" : "function_call");
    words_put(w, "call_id", p->id);
    words_put(w, "name", p->name);
    words_put(w, p->custom ? "input" : "arguments", p->text);
    extras_put(w, &p->extras, p->custom ? responses_of_custom_call : responses_of_call);
    jw_end(w, '}');
}

static void put_result(struct json_writer *w, const struct conversation_part *p) {
    const struct conversation_part *only = p->n_parts == 1 ? p->parts : NULL;
    if (p->kind != PART_RESULT) {
        jw_value(w, p->raw);
        return;
    }
    jw_begin(w, '{');
    jw_key_str(w, "type", p->custom ? "custom_tool_call_output" : "function_call_output");
    words_put(w, "call_id", p->id);
    jw_key(w, "output");
    if (only && only->kind == PART_TEXT && only->extras.n == 0) {
        jw_str(w, only->text.s ? only->text.s : "", only->text.n);
    } else {
        jw_begin(w, '[');
        for (int i = 0; i < p->n_parts; i++)
            put_part(w, &p->parts[i], false);
        jw_end(w, ']');
    }
    if (p->is_error)
        jw_key_bool(w, "is_error", true);
    extras_put(w, &p->extras, responses_of_result);
    jw_end(w, '}');
}

static void put_message(struct json_writer *w, const struct conversation_turn *t) {
    jw_begin(w, '{');
    jw_key_str(w, "type", "message");
    jw_key_str(w, "role", conversation_roles[t->role]);
    jw_key(w, "content");
    jw_begin(w, '[');
    for (int i = 0; i < t->n_parts; i++)
        if (is_content(&t->parts[i]))
            put_part(w, &t->parts[i], t->role == CONVERSATION_ASSISTANT);
    jw_end(w, ']');
    extras_put(w, &t->extras, responses_of_message);
    jw_end(w, '}');
}

// The one part that came as an item of its own, of a kind that is unknown; NULL: there is none.
static const struct conversation_part *loose_of(const struct conversation_turn *t) {
    static const char *const known[] = {"message",          "reasoning",      "function_call",
                                        "custom_tool_call", "item_reference", NULL};
    const struct conversation_part *only = NULL;
    for (int i = 0; i < t->n_parts; i++) {
        if (!is_content(&t->parts[i]))
            continue;
        if (only)
            return NULL;
        only = &t->parts[i];
    }
    if (!only || only->kind != PART_OTHER || t->extras.n)
        return NULL;
    const char *type = json_str(json_get(only->raw, "type"), NULL);
    if (!type || !type[0] || responses_is_result(type))
        return NULL;
    for (int i = 0; known[i]; i++)
        if (!strcmp(type, known[i]))
            return NULL;
    return only;
}

static void put_answer(struct json_writer *w, const struct conversation_turn *t) {
    const struct conversation_part *loose = loose_of(t);
    bool message = t->extras.n || t->n_parts == 0;
    for (int i = 0; i < t->n_parts; i++) {
        message |= is_content(&t->parts[i]);
        if (t->parts[i].kind == PART_REASONING)
            put_reasoning(w, &t->parts[i]);
    }
    if (loose)
        jw_value(w, loose->raw);
    else if (message)
        put_message(w, t);
    for (int i = 0; i < t->n_parts; i++)
        if (t->parts[i].kind == PART_CALL)
            put_call(w, &t->parts[i]);
}

void conversation_write_responses(const struct conversation *v, struct json_writer *w) {
    jw_begin(w, '[');
    for (int i = 0; i < v->n_turns; i++) {
        const struct conversation_turn *t = &v->turns[i];
        if (t->role == CONVERSATION_ASSISTANT)
            put_answer(w, t);
        else if (t->role != CONVERSATION_TOOL)
            put_message(w, t);
        else
            for (int k = 0; k < t->n_parts; k++)
                put_result(w, &t->parts[k]);
    }
    jw_end(w, ']');
}

static void put_tool(struct json_writer *w, const struct conversation_tool *t) {
    bool custom = t->kind == TOOL_CUSTOM;
    if (t->kind == TOOL_OTHER) {
        jw_value(w, t->raw);
        return;
    }
    jw_begin(w, '{');
    jw_key_str(w, "type", custom ? "custom" : "function");
    words_put(w, "name", t->name);
    words_put(w, "description", t->description);
    if (custom ? t->format : t->schema) {
        jw_key(w, custom ? "format" : "parameters");
        jw_value(w, custom ? t->format : t->schema);
    }
    if (t->strict)
        jw_key_bool(w, "strict", t->strict > 0);
    extras_put(w, &t->extras, custom ? responses_of_custom : responses_of_function);
    jw_end(w, '}');
}

void conversation_write_responses_tools(const struct conversation *v, struct json_writer *w) {
    jw_begin(w, '[');
    for (int i = 0; i < v->n_tools; i++)
        put_tool(w, &v->tools[i]);
    jw_end(w, ']');
}

void conversation_write_responses_choice(const struct conversation *v, struct json_writer *w) {
    static const char *const plain[] = {NULL, "auto", "none", "required"};
    switch (v->choice.kind) {
    case CHOICE_NAMED:
        jw_begin(w, '{');
        jw_key_str(w, "type", v->choice.custom ? "custom" : "function");
        words_put(w, "name", v->choice.name);
        jw_end(w, '}');
        break;
    case CHOICE_ALLOWED:
        jw_value(w, v->choice.raw);
        break;
    case CHOICE_UNSAID:
        jw_null(w);
        break;
    default:
        jw_cstr(w, plain[v->choice.kind]);
    }
}
