// Searches, in slices. See db.h.
//
// A search of fourteen words over 26,000 sessions takes 140 ms, in which no other owner's list
// would be read. So it is a job of many turns: a slice looks up at most SLICE_ROWS rows of one word,
// and the reader serves other owners before the next slice. Kept in between are the sessions that
// have all words before, and those found so far that have this one. Each slice sees the database
// as it is then.
//
// A prefix, which the last word is, cannot be cut: FTS5 collects all of its rows first.
#include "base/err.h"
#include "sessions/store/db.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WORDS 16
#define SLICE_ROWS 8192 // 2 ms
#define WORDS_BYTES 65536

struct found { // sessions, by key
    int64_t *keys;
    size_t n, cap;
};
struct store_search {
    struct buf terms; // n_terms, each NUL-terminated
    int n_terms, at;
    size_t term;            // where the one at `at` begins
    int64_t after;          // of its rows, those up to this one have been looked up
    struct found all, here; // with all words before; with this one
};

static bool is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

// A word without a letter or digit (any byte above ASCII counts) matches nothing and would empty
// the search.
static bool is_searchable(const char *word, size_t len) {
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)word[i];
        if (c >= 0x80 || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z'))
            return true;
    }
    return false;
}

// Quoted for FTS5, so that no character is an operator; the first quote and the owner's tag stand in
// the statement. The last word is a prefix.
static int add_term(struct buf *out, const char *word, size_t len, bool prefix) {
    for (size_t i = 0; i < len; i++) {
        if (word[i] == '"') buf_addc(out, '"');
        buf_addc(out, word[i]);
    }
    return buf_addz(out, prefix ? "\"*" : "\"");
}

// Splits the query into terms, each NUL-terminated in *out.
static int split_query(const char *query, struct buf *out, int *n_terms, struct err *err) {
    *n_terms = 0;
    for (const char *p = query; *p;) {
        while (is_blank(*p)) p++;
        const char *start = p;
        while (*p && !is_blank(*p)) p++;
        size_t len = (size_t)(p - start);
        if (!is_searchable(start, len)) continue;
        if (++*n_terms > MAX_WORDS)
            return err_set(err, E_INVAL, "query has more than %d words", MAX_WORDS);
        const char *rest = p;
        while (is_blank(*rest)) rest++;
        add_term(out, start, len, *rest == '\0');
        buf_addc(out, '\0');
    }
    return out->error ? err_set(err, out->error, "query is too long") : 0;
}

// --- sets of sessions --------------------------------------------------------

static int found_add(struct found *f, int64_t key) {
    if (f->n == f->cap) {
        size_t cap = f->cap ? f->cap * 2 : 256;
        int64_t *keys = realloc(f->keys, cap * sizeof *keys);
        if (!keys) return E_NOMEM;
        f->keys = keys;
        f->cap = cap;
    }
    f->keys[f->n++] = key;
    return 0;
}

static int by_key(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static bool found_has(const struct found *f, int64_t key) {
    return f->n > 0 && bsearch(&key, f->keys, f->n, sizeof key, by_key);
}

// A word is over: those that have it and all before, sorted, each once.
static void end_word(struct store_search *s) {
    size_t n = 0;
    if (s->here.n > 0) qsort(s->here.keys, s->here.n, sizeof *s->here.keys, by_key);
    for (size_t i = 0; i < s->here.n; i++) {
        int64_t key = s->here.keys[i];
        bool again = n > 0 && s->here.keys[n - 1] == key;
        if (!again && (s->at == 0 || found_has(&s->all, key))) s->here.keys[n++] = key;
    }
    s->here.n = n;
    struct found old = s->all;
    s->all = s->here;
    s->here = old;
    s->here.n = 0;
    s->term += strlen(buf_z(&s->terms) + s->term) + 1;
    s->after = INT64_MIN;
    s->at = n > 0 ? s->at + 1 : s->n_terms; // none is left
}

// --- one slice ---------------------------------------------------------------

// A session has the word where one of its rows in the owner's part of the index has (words.c). Tools
// that list all owners' sessions look in each part, in one slice.
static int prepare_word(struct store_db *db, const struct store_list *l, bool cut,
                        sqlite3_stmt **out, struct err *err) {
    const struct store_search *s = l->search;
    char sql[512];
    snprintf(sql, sizeof sql,
             "SELECT search.rowid, iif(search.rowid < 0, -search.rowid, (SELECT session FROM turns "
             "WHERE key = search.rowid)) FROM (%s) o CROSS JOIN search WHERE search MATCH '\"' || "
             "owner_tag(o.owner) || ?2%s",
             l->owner ? "SELECT ?1 AS owner" : "SELECT DISTINCT owner FROM sessions",
             cut ? " AND search.rowid > ?3 ORDER BY search.rowid LIMIT ?4" : "");
    TRY(store_db_prepare(db, sql, 0, out, err));
    if (l->owner) sqlite3_bind_text(*out, 1, l->owner, -1, SQLITE_STATIC);
    sqlite3_bind_text(*out, 2, buf_z(&s->terms) + s->term, -1, SQLITE_STATIC);
    if (cut) sqlite3_bind_int64(*out, 3, s->after);
    if (cut) sqlite3_bind_int64(*out, 4, SLICE_ROWS);
    return 0;
}

static int slice(struct store_db *db, const struct store_list *l, struct err *err) {
    struct store_search *s = l->search;
    bool cut = l->owner && s->at < s->n_terms - 1;
    sqlite3_stmt *stmt;
    int rc = 0, n = 0;
    TRY(prepare_word(db, l, cut, &stmt, err));
    while (store_db_row(db, stmt, &rc, err)) {
        n++;
        s->after = sqlite3_column_int64(stmt, 0);
        if (sqlite3_column_type(stmt, 1) != SQLITE_NULL)
            rc = found_add(&s->here, sqlite3_column_int64(stmt, 1));
    }
    sqlite3_finalize(stmt);
    if (rc == E_NOMEM) return err_set(err, rc, "no memory for a search");
    if (rc == 0 && (!cut || n < SLICE_ROWS)) end_word(s);
    return rc;
}

static int begin(struct store_list *l, struct err *err) {
    struct store_search *s = calloc(1, sizeof *s);
    if (!s) return err_set(err, E_NOMEM, "no memory for a search");
    l->search = s;
    s->after = INT64_MIN;
    buf_init(&s->terms, WORDS_BYTES);
    return split_query(l->query, &s->terms, &s->n_terms, err);
}

int store_search_step(struct store_db *db, struct store_list *l, struct err *err) {
    if (!l->search) TRY(begin(l, err));
    struct store_search *s = l->search;
    do {
        if (s->at < s->n_terms) TRY(slice(db, l, err));
    } while (!l->sliced && s->at < s->n_terms);
    return s->at < s->n_terms;
}

bool store_search_has(const struct store_search *s, int64_t key) {
    return !s || s->n_terms == 0 || found_has(&s->all, key);
}

void store_search_free(struct store_search *s) {
    if (!s) return;
    buf_release(&s->terms);
    free(s->all.keys);
    free(s->here.keys);
    free(s);
}
