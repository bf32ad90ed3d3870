// SPDX-License-Identifier: Apache-2.0
// JSON Schema (draft 2020-12) to a grammar. What is made into a rule is never one schema but a
// conjunction: the list of schemas that must all hold at a place. $ref and allOf make the list
// longer, anyOf and oneOf make alternatives of it, and the keywords of all of its members meet
// where a type is written. Equal lists are one rule, so recursion needs nothing of its own; rules
// are written one after another from a list of open ones, never by recursion.
#ifndef COPPICE_GRAMMAR_SCHEMA_SCHEMA_H
#define COPPICE_GRAMMAR_SCHEMA_SCHEMA_H

#include "base/map.h"
#include "base/memory/arena.h"
#include "grammar/expression/expr.h"

// Choices that were made already; a member that says what another one must not be; the first member
// of a conjunction whose strings are bare.
enum { SCHEMA_ANY_OF = 1, SCHEMA_ONE_OF = 2, SCHEMA_NEGATED = 4, SCHEMA_BARE = 8 };
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
    uint32_t done;             // SCHEMA_...
    int32_t from;              // the member that it is a part of by $ref, allOf or a choice, or -1
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

// Schemas that say in choices what a keyword requires.
enum schema_words {
    WORDS_NOT,       // of the schema after `not`
    WORDS_IF,        // of one with if, then and else
    WORDS_DEPENDENT, // of one with dependentRequired, dependentSchemas, dependencies
    WORDS_TAG, // of an alternative that a property distinguishes from the others: it must be there
};
struct worded {
    struct json *doc;
    const struct json *of;
    enum schema_words what;
};

// A property that distinguishes the alternatives of a oneOf, though not all of them require it.
struct tag {
    const char *name;  // NULL: there is none
    const char *value; // what it must be in the alternative at hand; NULL: as its schema says
};

struct schema {
    struct build *b;
    const struct json *root;
    struct map rules; // a conjunction's members -> rule
    struct arena arena;
    struct open_rule *open;
    int64_t open_count, open_cap;
    struct worded *worded; // made once for each schema
    int64_t worded_count, worded_cap;
    size_t worded_bytes;
    int64_t made;             // rules
    int64_t looked;           // values that were looked at for the places of rules
    bool lowered;             // a maxLength together with a pattern
    const struct json *never; // the first place where nothing can hold
    struct tag tag;           // what WORDS_TAG writes
    const char *bare;         // what a bare string does not hold; NULL: there is none
    unsigned others;          // TOOL_... that it must not look like
};

// Adds a schema and what it takes in by $ref, allOf and what is said in other words. conj_choose:
// as an alternative of member `from`.
void conj_add(struct schema *s, struct conj *c, const struct json *v);
void conj_choose(struct schema *s, struct conj *c, const struct json *v, int64_t from);
// Is member i a part of member u in place, so that what it says of properties and items counts as
// said by u?
bool conj_within(const struct conj *c, int64_t i, int64_t u);
void conj_fini(struct conj *c);
// A call of the rule of a conjunction, which it takes over.
uint32_t schema_rule(struct schema *s, struct conj *c);

// Writes a schema that holds where v does not; depth: references that led here.
enum { SCHEMA_DEEPEST = 24 };
void schema_negate(struct schema *s, struct json_writer *w, const struct json *v, int depth);
// NULL after an error. WORDS_NOT: v is what must not hold.
const struct json *schema_in_words(struct schema *s, enum schema_words what, const struct json *v);
void schema_words_fini(struct schema *s);
// {"type": "string", "not": {"enum": strings}}, or a pattern there: nothing has to be said of it.
bool schema_plain_not(const struct json *v);

// Keeps an error with the place of a schema, or of its keyword where that is not NULL.
uint32_t schema_fail(struct schema *s, int code, const struct json *at, const char *keyword,
                     const char *what);
void schema_place(struct schema *s, const struct json *at, struct str *path); // its JSON pointer
// As JSON Schema compares: 1 is 1.0. False after an error, too.
bool json_same(struct build *build, const struct json *a, const struct json *b);
const struct json *schema_target(struct schema *s, const struct json *at, const char *ref);
int schema_types(struct schema *s, const struct conj *c); // TYPE_...
int schema_type_of(const struct json *v);                 // of a value
// A number, whole ones of 64 bits exactly (doubles end at 2^53); `otherwise`: no number.
long double schema_real(const struct json *v, long double otherwise);

// A whole number from a keyword: the largest (or least) of all members'; `otherwise` where none has
// it. Refuses what is no such number.
int64_t schema_count(struct schema *s, const struct conj *c, const char *keyword, bool largest,
                     int64_t otherwise);

// One type each.
uint32_t schema_string(struct schema *s, const struct conj *c);
uint32_t schema_string_text(struct schema *s, const struct conj *c);   // between its quotes
uint32_t schema_escaped(struct schema *s, const char *text, size_t n); // one such text
bool schema_is_bare(const struct conj *c);
uint32_t schema_marked(struct schema *s, const struct conj *c); // one between how.marks
uint32_t schema_bare(struct schema *s, const struct conj *c);   // such a string, and one of them:
uint32_t schema_bare_value(struct schema *s, const struct conj *c, const char *text, size_t n);
uint32_t schema_number(struct schema *s, const struct conj *c, bool integer);
uint32_t schema_array(struct schema *s, const struct conj *c);
// The content of the brackets under contains or uniqueItems.
uint32_t schema_counted(struct schema *s, const struct conj *c, int64_t min, int64_t max);
const struct json *schema_prefix(const struct json *v); // items by their place, or NULL
// What the item at a place must be; after all prefixes when it is -1. To be finished, or made a
// rule.
void schema_item(struct schema *s, const struct conj *c, int64_t place, struct conj *item);
uint32_t schema_object(struct schema *s, const struct conj *c);
uint32_t schema_values(struct schema *s, const struct conj *c, int types); // const and enum
// One value that member `from` names, if all others allow it, or BUILD_NEVER.
uint32_t schema_value(struct schema *s, const struct conj *c, int types, const struct json *from,
                      const struct json *v);
// Do const and enum of a schema leave room for this text?
bool schema_listed(struct schema *s, const struct json *schema, const char *text, size_t n);
// The property that distinguishes all alternatives of a oneOf which are objects, by values of its
// own in each of them or as `discriminator` maps them; NULL: none does, or others overlap.
const char *schema_tag(struct schema *s, const struct json *v, const struct json *list);
// What must hold in addition of an alternative, so that the property is there; NULL: nothing, or an
// error.
const struct json *schema_tagged(struct schema *s, const struct json *v, const struct json *one,
                                 const char *name);
// Can both hold for one value? When in doubt, they can. The places are two alternatives of a oneOf.
bool schema_overlap(struct schema *s, const struct json *a, const struct json *b);
bool schema_number_ok(const struct conj *c, const struct json *v); // within the bounds
uint32_t schema_regex(struct schema *s, const struct json *at, const char *text, size_t n,
                      bool anchored, enum build_coding coding);
uint32_t schema_text(struct schema *s); // any text inside of a string, escaped where it must be

#endif
