// SPDX-License-Identifier: Apache-2.0
// See store.h: the way to the backend that a store belongs to.
#include "ops/experts/store.h"

#include "base/num.h"
#include "ops/exec.h"
#include "ops/parking.h"

enum { PART_ALIGN = 128, RECORD_ALIGN = 256 };

static struct expert_store_base *base_of(const struct expert_store *s) {
    return (struct expert_store_base *)s;
}

int64_t exec_expert_bytes(const struct exec *x, const struct tensor *t) {
    int64_t bytes = x && x->experts ? x->experts->bytes(x, t)
                                    : quant_row_bytes(quant_format(t->type), t->ne[0]) * t->ne[1];
    return round_up(bytes, PART_ALIGN);
}

int64_t exec_expert_record(const struct exec *x, const struct tensor *parts) {
    int64_t bytes = 0;
    for (int i = 0; i < EXPERT_PARTS; i++)
        bytes += exec_expert_bytes(x, &parts[i]);
    return round_up(bytes, RECORD_ALIGN);
}

int expert_store_create(struct expert_store **out, struct exec *x, const struct expert_classes *c,
                        int64_t room, struct err *e) {
    *out = NULL;
    if (!x->experts)
        return err_set(e, ERR_UNSUPPORTED,
                       "experts beyond the device's memory need a GPU, and %s is used; leave "
                       "--spark-slots and --spark-vram out",
                       exec_label(x));
    return x->experts->create(out, x, c, room, e);
}

int expert_store_layer(struct expert_store *s, const struct tensor *parts, struct err *e) {
    return base_of(s)->backend->layer(s, parts, e);
}

int expert_store_weight(struct expert_store *s, int part, const struct tensor *t,
                        struct weight **out, struct err *e) {
    return base_of(s)->backend->weight(s, part, t, out, e);
}

int expert_store_finish(struct expert_store *s, const uint32_t *uses, struct err *e) {
    return base_of(s)->backend->finish(s, uses, e);
}

void expert_store_destroy(struct expert_store *s) {
    if (s)
        base_of(s)->backend->destroy(s);
}

const struct expert_classes *expert_store_classes(const struct expert_store *s) {
    return &base_of(s)->classes;
}

void expert_store_stats(const struct expert_store *s, struct expert_stats *out) {
    const volatile struct expert_stats *now = base_of(s)->stats;
    *out = (struct expert_stats){now->hits, now->misses, now->bytes, now->evictions, now->ahead};
}

int expert_store_uses(struct expert_store *s, uint32_t *uses, unsigned char *resident,
                      struct err *e) {
    base_of(s)->backend->uses(s, uses, resident);
    return exec_status(base_of(s)->x, e);
}

int expert_store_room(struct expert_store *s, int64_t bytes, struct err *e) {
    return base_of(s)->backend->room(s, bytes, e);
}

int expert_store_room_end(struct expert_store *s, const struct exec_limits *l, struct err *e) {
    return base_of(s)->backend->room_end(s, l, e);
}

int64_t expert_store_room_lends(const struct expert_store *s, int room) {
    return base_of(s)->lends[room];
}

int expert_store_enter(struct expert_store *s, int room, struct err *e) {
    return base_of(s)->backend->enter(s, room, e);
}

int expert_store_vacate(struct expert_store *s, int room, int64_t *bytes, struct err *e) {
    int64_t all = 0;
    int rc = expert_store_enter(s, room, e);
    if (rc)
        return rc;
    void *p = base_of(s)->backend->room_at(s, room, &all);
    *bytes = exec_park_part(base_of(s)->x, p, all);
    return 0;
}

int expert_store_occupy(struct expert_store *s, struct err *e) {
    int rc = exec_unpark_parts(base_of(s)->x, e);
    return rc ? rc : expert_store_enter(s, 0, e);
}

int64_t exec_room_scratch(const struct exec *x, const struct exec_limits *l) {
    return x && x->experts ? x->experts->room_scratch(x, l) : 0;
}

struct expert_lent expert_store_lent(const struct expert_store *s) {
    return base_of(s)->lent;
}
