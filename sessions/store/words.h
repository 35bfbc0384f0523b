// The index of words.
#pragma once
#include "sessions/store/db.h"

// Of the connection: owner_tag(owner), plain_tag(owner), and the tokenizer of the index. Returns
// SQLite's code.
int store_words_register(sqlite3 *sql);
// The index, made anew: without a row; with all. Within a transaction.
int store_words_clear(struct store_db *db, struct err *err);
int store_words_fill(struct store_db *db, struct err *err);
// Length in bytes of the character at the start of s if its script has no spaces, else 0.
size_t store_unspaced(const char *s, size_t len);
// Rows from before schema 11 have whole runs of such scripts as terms. Within a transaction: notes that there may be
// some; brings the next few up to date, *done: there are no more.
int store_words_mark_old(struct store_db *db, struct err *err);
int store_words_renew(struct store_db *db, bool *done, struct err *err);
// Whether there may be some: a search asks for both kinds of terms then.
int store_words_have_old(struct store_db *db, bool *out, struct err *err);
// What the index has of a session s, and of its turn t. Rows with old terms differ in the first character.
#define STORE_TITLE_WORDS "owner_tag(s.owner) || s.title"
#define STORE_TURN_WORDS                                                                           \
    "owner_tag(s.owner) || coalesce(CAST(t.input_text AS TEXT), '') || char(10) || "               \
    "coalesce((SELECT group_concat(CAST(p.text AS TEXT), '') FROM (SELECT text FROM tokens "       \
    "WHERE session = t.session AND turn = t.turn ORDER BY first) p), '')"

// What the owner's terms begin with, NUL-terminated.
#define STORE_TAG_BYTES 16
void store_owner_tag(const void *owner, size_t len, char tag[STORE_TAG_BYTES + 1]);
// What a query's words begin with: they are cut in pairs, or as in rows from before schema 11.
void store_query_tag(const char *owner, bool paired, char tag[STORE_TAG_BYTES + 1]);
