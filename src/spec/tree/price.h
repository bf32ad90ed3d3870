// SPDX-License-Identifier: Apache-2.0
// What passes and drafts cost on one device with one model, in milliseconds: verify passes by their
// rows and sequences, drafts by members and reach. Nothing is measured for its own sake: a price
// begins with the shape that such costs have on devices of its kind, and every step corrects it,
// nearby row counts included. What was learnt can be kept in a small file. Only speed depends on
// this, never the output. One price serves all members of a batch, and all requests of a model on a
// device.
#ifndef COPPICE_SPEC_TREE_PRICE_H
#define COPPICE_SPEC_TREE_PRICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

enum price_kind { PRICE_CPU, PRICE_GPU };

// Reaches of a draft: 0 is the whole depth that it was trained for, 1 half of it, 2 a quarter. Of
// one with a pass for each depth there are more: up to six depths, the first ones among them.
enum { PRICE_REACHES = 3, PRICE_DEPTHS = 6 };

enum { PRICE_DRAFTS = 3 }; // that may be loaded together, each with times of its own

enum { PRICE_STEPS = 16 }; // that means of recent times, walks and gains remember

struct price;

// What a model's experts are: rows go through different ones, so that a pass of many rows reads
// more of them than a pass of one.
struct price_experts {
    int experts, used; // 0: none
    double share;      // of the bytes that one row reads, 0 to 1: those of its experts
};
// What is known of drafts before any was measured. One of those is there at least.
struct price_draft { // with a pass for each depth
    int depth;       // of its deepest guess; 0: it has one pass for all
    double share;    // of the bytes that a row of the target reads: those that such a pass reads
};
struct price_drafts {
    int n;
    struct price_draft of[PRICE_DRAFTS];
};
// experts: NULL, or what the model has. drafts: NULL: one, of which nothing is known.
int price_create(struct price **out, enum price_kind kind, const struct price_experts *experts,
                 const struct price_drafts *drafts, struct err *e);
void price_destroy(struct price *p); // NULL is allowed

// Whether a pass has been noted yet, or loaded; before, only ratios of prices mean anything.
bool price_ready(const struct price *p);
// Whether one has, or drafts and rows are cheap on such devices anyway.
bool price_settled(const struct price *p);
bool price_learnt(const struct price *p); // whether anything was noted since it began or was loaded
bool price_draft_ready(const struct price *p, int which); // has its time been noted, or loaded?
int price_drafts_of(const struct price *p);               // how many there are, 1 at least

// A pass of `rows` >= 1 rows in all, of `seqs` >= 1 sequences. Rises with both.
double price_pass_ms(const struct price *p, int64_t rows, int seqs);
// The same for choosing rows: less where little is known compared with the newest pass, so that
// what may be cheaper is tried.
double price_optimistic_ms(const struct price *p, int64_t rows, int seqs);
// And more where little is known compared with a plain pass, by a standard deviation, so that what
// may be dear is not bought.
double price_cautious_ms(const struct price *p, int64_t rows, int seqs);
// The most rows that a pass has been noted of, or nearly so; 0 before any.
int price_known_rows(const struct price *p);
// One draft for all of `members` >= 1 sequences. which: 0 .. price_drafts_of - 1.
double price_draft_ms(const struct price *p, int which, int members, int reach);

// And more where little is known of it compared with a plain pass, by a standard deviation.
double price_cautious_draft_ms(const struct price *p, int which, int members, int reach);

// Depth of the guesses of a reach, of a draft that goes as deep as `max`; 0: there is no such
// reach. Of one with one pass, and of one of the price's own.
int price_depth(int max, int reach);
int price_depth_of(const struct price *p, int which, int max, int reach);

// A pass, or a draft, took that long. Times of 0 or less are not taken.
void price_note_pass(struct price *p, int64_t rows, int seqs, double ms);
void price_note_draft(struct price *p, int which, int members, int reach, double ms);

// The file of a key in a folder: FOLDER/price-HASH.json.
void price_path(struct str *out, const char *folder, const char *key);
// Writes what is known to `path`, by way of a temporary file next to it. `key` names everything
// that prices depend on: the model, its types, the device, threads, the build.
int price_save(const struct price *p, const char *path, const char *key, struct err *e);
// Begins with what such a file says. On any failure (there is none, damaged, of another key or
// version) *p stays as it was, *e says why, and nothing is lost but a head start.
int price_load(struct price *p, const char *path, const char *key, struct err *e);

#endif
