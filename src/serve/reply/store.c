// SPDX-License-Identifier: Apache-2.0
// Responses that are kept; see store.h.
#include "serve/reply/store.h"

#include <stdlib.h>
#include <string.h>

struct stored_response {
    struct stored_response *older;
    char id[RANDOM_ID];
    struct str response, input;
};

static size_t stored_size(const struct stored_response *r) {
    return sizeof *r + r->response.cap + r->input.cap;
}

void response_store_init(struct response_store *s) {
    *s = (struct response_store){0};
    pthread_mutex_init(&s->lock, NULL);
}

// Takes the one that *at points at out of the list, to be freed without the lock.
static struct stored_response *unlink_stored(struct response_store *s,
                                             struct stored_response **at) {
    struct stored_response *r = *at;
    *at = r->older;
    r->older = NULL;
    s->n--;
    s->bytes -= stored_size(r);
    return r;
}

static void free_stored(struct stored_response *r) {
    while (r) {
        struct stored_response *older = r->older;
        str_fini(&r->response);
        str_fini(&r->input);
        free(r);
        r = older;
    }
}

void response_store_fini(struct response_store *s) {
    free_stored(s->newest);
    pthread_mutex_destroy(&s->lock);
}

static struct stored_response **find_stored(struct response_store *s, const char *id) {
    struct stored_response **at = &s->newest;
    while (*at && strcmp((*at)->id, id) != 0)
        at = &(*at)->older;
    return at;
}

static struct stored_response *take_oldest(struct response_store *s) {
    struct stored_response **at = &s->newest;
    while ((*at)->older)
        at = &(*at)->older;
    return unlink_stored(s, at);
}

void response_store_put(struct response_store *s, const char *id, const struct str *response,
                        const struct str *input) {
    struct stored_response *r = calloc(1, sizeof *r), *gone = NULL;
    if (!r)
        return;
    strncpy(r->id, id, sizeof r->id - 1);
    str_append(&r->response, response->data, response->len);
    str_append(&r->input, input->data, input->len);
    if (r->response.failed || r->input.failed || stored_size(r) > (size_t)RESPONSE_STORE_BYTES) {
        str_fini(&r->response);
        str_fini(&r->input);
        free(r);
        return;
    }
    pthread_mutex_lock(&s->lock);
    r->older = s->newest;
    s->newest = r;
    s->n++;
    s->bytes += stored_size(r);
    while (s->n > RESPONSE_STORE_MAX || s->bytes > (size_t)RESPONSE_STORE_BYTES) {
        struct stored_response *oldest = take_oldest(s);
        oldest->older = gone;
        gone = oldest;
    }
    pthread_mutex_unlock(&s->lock);
    free_stored(gone);
}

bool response_store_get(struct response_store *s, const char *id, struct str *response,
                        struct str *input) {
    pthread_mutex_lock(&s->lock);
    const struct stored_response *r = *find_stored(s, id);
    if (r && response)
        str_append(response, r->response.data, r->response.len);
    if (r && input)
        str_append(input, r->input.data, r->input.len);
    pthread_mutex_unlock(&s->lock);
    return r != NULL;
}

size_t response_store_size(struct response_store *s, const char *id) {
    pthread_mutex_lock(&s->lock);
    const struct stored_response *r = *find_stored(s, id);
    size_t n = r ? stored_size(r) : 0;
    pthread_mutex_unlock(&s->lock);
    return n;
}

bool response_store_drop(struct response_store *s, const char *id) {
    pthread_mutex_lock(&s->lock);
    struct stored_response **at = find_stored(s, id);
    struct stored_response *gone = *at ? unlink_stored(s, at) : NULL;
    pthread_mutex_unlock(&s->lock);
    bool found = gone != NULL;
    free_stored(gone);
    return found;
}
