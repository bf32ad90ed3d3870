// SPDX-License-Identifier: Apache-2.0
// Items that a kept response answered; see input_items.h.
#include "serve/conversation/input_items.h"

#include <stdio.h>
#include <string.h>

enum { ITEM_ID = 96 };

// What ids of that kind of item begin with; NULL: kinds that are unknown stay as they came.
static const char *prefix_of(const struct json *item) {
    static const struct {
        const char *type, *prefix;
    } table[] = {{"message", "msg"},          {"reasoning", "rs"},
                 {"function_call", "fc"},     {"function_call_output", "fco"},
                 {"custom_tool_call", "ctc"}, {"custom_tool_call_output", "ctco"}};
    struct words type = words_of(json_get(item, "type"));
    for (size_t i = 0; type.s && i < sizeof table / sizeof table[0]; i++)
        if (words_equal(type, table[i].type))
            return table[i].prefix;
    return NULL;
}

// The id of item i: its own, or one made in `made`; NULL: it has none.
static const char *id_of(const struct json *items, const char *response, size_t i,
                         char made[static ITEM_ID]) {
    const struct json *item = json_at(items, i);
    const char *own = json_str(json_get(item, "id"), NULL), *prefix = prefix_of(item);
    const char *digits = strchr(response, '_');
    if (own || !prefix)
        return own;
    snprintf(made, ITEM_ID, "%s_%.40s_i%zu", prefix, digits ? digits + 1 : response, i);
    return made;
}

static int put_member(void *arg, const char *key, size_t n, const struct json *v) {
    (void)n;
    if (!strcmp(key, "id")) // written already, or null
        return 0;
    jw_key(arg, key);
    jw_value(arg, v);
    return 0;
}

static void put_item(const struct json *item, const char *id, struct json_writer *w) {
    if (!id || json_kind_of(item) != JSON_OBJECT || json_get(item, "id")) {
        jw_value(w, item);
        return;
    }
    jw_begin(w, '{');
    jw_key_str(w, "id", id);
    json_each(item, put_member, w);
    jw_end(w, '}');
}

static void put_end(struct json_writer *w, const char *key, const char *id) {
    jw_key(w, key);
    if (id && id[0])
        jw_cstr(w, id);
    else
        jw_null(w);
}

// Items from `from` on, in the order of the page.
static void put_page(const struct json *items, const struct input_page *page, size_t from,
                     struct json_writer *w) {
    size_t n = json_len(items), end = page->limit < n - from ? from + page->limit : n;
    char made[ITEM_ID], first[ITEM_ID] = "", last[ITEM_ID] = "";
    jw_begin(w, '{');
    jw_key_str(w, "object", "list");
    jw_key(w, "data");
    jw_begin(w, '[');
    for (size_t k = from; k < end; k++) {
        size_t i = page->ascending ? k : n - 1 - k;
        const char *id = id_of(items, page->response, i, made);
        put_item(json_at(items, i), id, w);
        snprintf(last, sizeof last, "%s", id ? id : "");
        if (k == from)
            memcpy(first, last, sizeof first);
    }
    jw_end(w, ']');
    put_end(w, "first_id", first);
    put_end(w, "last_id", last);
    jw_key_bool(w, "has_more", end < n);
    jw_end(w, '}');
}

// The place of the item of that id; the number of items: there is none.
static size_t find(const struct json *items, const char *response, struct words id) {
    char made[ITEM_ID];
    size_t n = json_len(items), i = 0;
    for (; i < n; i++) {
        const char *is = id_of(items, response, i, made);
        if (is && words_equal(id, is))
            break;
    }
    return i;
}

bool input_items_write(const struct json *items, const struct input_page *page,
                       struct json_writer *w) {
    size_t n = json_len(items), from = 0;
    if (page->after.s) {
        size_t at = find(items, page->response, page->after);
        if (at == n)
            return false;
        from = (page->ascending ? at : n - 1 - at) + 1;
    }
    put_page(items, page, from, w);
    return true;
}

bool input_items_find(const struct json *items, const char *response, struct words id,
                      struct json_writer *w) {
    char made[ITEM_ID];
    size_t i = find(items, response, id);
    if (i == json_len(items))
        return false;
    put_item(json_at(items, i), id_of(items, response, i, made), w);
    return true;
}
