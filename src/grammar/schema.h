// SPDX-License-Identifier: Apache-2.0
// JSON Schema (draft 2020-12) to a grammar. What is made into a rule is never one schema but a
// conjunction: the list of schemas that must all hold at a place. $ref and allOf make the list
// longer, anyOf and oneOf make alternatives of it, and the keywords of all of its members meet
// where a type is written. Equal lists are one rule, so recursion needs nothing of its own; rules
// are written one after another from a list of open ones, never by recursion.
#ifndef COPPICE_GRAMMAR_SCHEMA_H
#define COPPICE_GRAMMAR_SCHEMA_H

#include "base/arena.h"
#include "base/map.h"
#include "grammar/grammar_impl.h"

enum { SCHEMA_ANY_OF = 1, SCHEMA_ONE_OF = 2 }; // choices that were made already
enum {
    TYPE_NULL = 1,
    TYPE_BOOL = 2,
    TYPE_INT = 4,
    TYPE_FRACTION = 8, // numbers that are no integers
    TYPE_STRING = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64,
    TYPE_ANY = 127,
    TYPE_NUMBER = TYPE_INT | TYPE_FRACTION,
};

struct member {
    const struct json *schema; // an object
    uint64_t done;             // SCHEMA_ANY_OF, SCHEMA_ONE_OF
};
struct conj {
    struct member *list;
    int64_t count, cap;
    bool never; // one of them is false
};
struct open_rule {
    struct conj c;
    uint32_t rule;
};

struct schema {
    struct build *b;
    const struct json *root;
    struct map rules; // a conjunction's members -> rule
    struct arena arena;
    struct open_rule *open;
    int64_t open_count, open_cap;
    int64_t made;             // rules
    const struct json *never; // the first place where nothing can hold
};

// Adds a schema and what it takes in by $ref and allOf.
void conj_add(struct schema *s, struct conj *c, const struct json *v);
void conj_fini(struct conj *c);
// A call of the rule of a conjunction, which it takes over.
uint32_t schema_rule(struct schema *s, struct conj *c);

// Keeps an error with the place of a schema, or of its keyword where that is not NULL.
uint32_t schema_fail(struct schema *s, int code, const struct json *at, const char *keyword,
                     const char *what);
void schema_place(struct schema *s, const struct json *at, struct str *path); // its JSON pointer
bool json_has(const struct json *object, const char *key);                    // null counts
bool json_same(const struct json *a, const struct json *b); // as JSON Schema compares: 1 is 1.0
const struct json *schema_target(struct schema *s, const struct json *at, const char *ref);
int schema_types(struct schema *s, const struct conj *c); // TYPE_...
int schema_type_of(const struct json *v);                 // of a value

// A whole number from a keyword: the largest (or least) of all members'; `otherwise` where none has
// it. Refuses what is no such number.
int64_t schema_count(struct schema *s, const struct conj *c, const char *keyword, bool largest,
                     int64_t otherwise);

// One type each.
uint32_t schema_string(struct schema *s, const struct conj *c);
uint32_t schema_number(struct schema *s, const struct conj *c, bool integer);
uint32_t schema_array(struct schema *s, const struct conj *c);
uint32_t schema_object(struct schema *s, const struct conj *c);
uint32_t schema_values(struct schema *s, const struct conj *c, int types); // const and enum
const char *schema_format(const char *name); // a regular expression, NULL: not known
// Can both hold for one value? When in doubt, they can. The places are two alternatives of a oneOf.
bool schema_overlap(struct schema *s, const struct json *a, const struct json *b);
bool schema_number_ok(const struct conj *c, const struct json *v); // within the bounds
uint32_t schema_regex(struct schema *s, const struct json *at, const char *text, size_t n,
                      bool anchored);
uint32_t schema_text(struct schema *s); // any text inside of a string, escaped where it must be

#endif
