// SPDX-License-Identifier: Apache-2.0
// See constraint_store.h.
#include "engine/session/constraint_store.h"

#include <string.h>

void constraint_store_init(struct constraint_store *s, int most) {
    *s = (struct constraint_store){.most = most};
    pthread_mutex_init(&s->lock, NULL);
}

void constraint_store_fini(struct constraint_store *s) {
    for (int i = 0; i < s->most; i++) {
        constraint_drop(s->kept[i].c);
        str_fini(&s->kept[i].key);
    }
    pthread_mutex_destroy(&s->lock);
}

struct constraint *constraint_store_find(struct constraint_store *s, const struct str *key) {
    struct constraint *found = NULL;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->most && !found; i++) {
        struct constraint_kept *k = &s->kept[i];
        if (!k->c || k->key.len != key->len || memcmp(k->key.data, key->data, key->len) != 0)
            continue;
        k->used = ++s->uses;
        found = constraint_keep(k->c);
    }
    pthread_mutex_unlock(&s->lock);
    return found;
}

void constraint_store_keep(struct constraint_store *s, struct str *key, struct constraint *c) {
    pthread_mutex_lock(&s->lock);
    struct constraint_kept *oldest = &s->kept[0];
    for (int i = 1; i < s->most; i++)
        if (s->kept[i].used < oldest->used)
            oldest = &s->kept[i];
    struct constraint_kept gone = *oldest;
    *oldest = (struct constraint_kept){*key, constraint_keep(c), ++s->uses};
    *key = (struct str){0};
    pthread_mutex_unlock(&s->lock);
    constraint_drop(gone.c); // it may be large
    str_fini(&gone.key);
}
