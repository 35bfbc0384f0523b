// Searches, in slices. See search.h.
//
// A search of fourteen words over 26,000 sessions takes 140 ms, in which other owners' lists would
// wait. So a search runs in slices: a slice looks up at most SLICE_ROWS rows of one word, and the reader
// serves other owners before the next slice. Between slices, the search keeps two lists: the sessions that have all
// earlier words, and the sessions found so far that have the current word. Each slice sees the database of its moment.
//
// The last word is a prefix, whose look-up cannot be cut: FTS5 collects all rows of a prefix first.
#include "sessions/store/search.h"
#include "base/err.h"
#include "sessions/store/words.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WORDS 16
#define SLICE_ROWS 8192 // 2 ms
#define WORDS_BYTES 65536

struct found {
    struct hit {
        int64_t key, row; // the session; a row of the index: its turn's key, or below 0: its title
    } * hits;
    size_t n, cap;
};
struct store_search {
    struct buf terms; // n_terms, each NUL-terminated
    int n_terms, at;
    size_t term;            // where the current term, number `at`, begins
    int64_t after;          // the current term's last row that has been looked up
    struct found all, here; // sessions with all earlier terms; with the current term
};

// Of a blank at p its bytes, else 0; also the blank of Chinese and Japanese, U+3000.
static size_t blank_bytes(const char *p) {
    if (*p == ' ' || (*p >= '\t' && *p <= '\r')) return 1;
    return strncmp(p, "\xe3\x80\x80", 3) == 0 ? 3 : 0;
}

static const char *skip_blanks(const char *p) {
    for (size_t n; (n = blank_bytes(p)) > 0;) p += n;
    return p;
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
// the statement. The last word is a prefix, and so is one that ends in a script without spaces.
static int add_term(struct buf *out, const char *word, size_t len, bool prefix) {
    for (size_t i = 0; i < len; i++) {
        if (word[i] == '"') buf_addc(out, '"');
        buf_addc(out, word[i]);
    }
    return buf_addz(out, prefix ? "\"*" : "\"");
}

// A script without spaces: the last term is one character, and terms have that and the next (words.c).
static bool ends_unspaced(const char *word, size_t len) {
    size_t n = len < 4 ? len : 4;
    return (n > 2 && store_unspaced(word + len - 3, 3) == 3) ||
           (n > 3 && store_unspaced(word + len - 4, 4) == 4);
}

// Splits the query into terms, each NUL-terminated in *out.
static int split_query(const char *query, struct buf *out, int *n_terms, struct err *err) {
    *n_terms = 0;
    for (const char *p = query; *p;) {
        const char *start = p = skip_blanks(p);
        while (*p && !blank_bytes(p)) p++;
        size_t len = (size_t)(p - start);
        if (!is_searchable(start, len)) continue;
        if (++*n_terms > MAX_WORDS)
            return err_set(err, E_INVAL, "query has more than %d words", MAX_WORDS);
        bool prefix = *skip_blanks(p) == '\0' || ends_unspaced(start, len);
        add_term(out, start, len, prefix);
        buf_addc(out, '\0');
    }
    return out->error ? err_set(err, out->error, "query is too long") : 0;
}

// --- sets of sessions --------------------------------------------------------

static int found_add(struct found *f, int64_t key, int64_t row) {
    if (f->n == f->cap) {
        size_t cap = f->cap ? f->cap * 2 : 256;
        struct hit *hits = realloc(f->hits, cap * sizeof *hits);
        if (!hits) return E_NOMEM;
        f->hits = hits;
        f->cap = cap;
    }
    f->hits[f->n++] = (struct hit){key, row};
    return 0;
}

static int by_key_and_row(const void *a, const void *b) {
    const struct hit *x = a, *y = b;
    if (x->key != y->key) return (x->key > y->key) - (x->key < y->key);
    return (x->row > y->row) - (x->row < y->row);
}

// Where the session's rows end that begin at `at`.
static size_t end_of_session(const struct found *f, size_t at) {
    size_t end = at;
    while (end < f->n && f->hits[end].key == f->hits[at].key) end++;
    return end;
}

// A session that has the current word and all earlier words: keeps the rows that have both or, if no row has both, the
// rows that had most of the earlier words. Writes over all->hits, never more rows than it has read there.
static size_t join_session(struct hit *out, const struct hit *before, size_t n_before,
                           const struct hit *here, size_t n_here) {
    size_t n = 0, k = 0;
    for (size_t i = 0; i < n_before; i++) {
        while (k < n_here && here[k].row < before[i].row) k++;
        if (k < n_here && here[k].row == before[i].row) out[n++] = before[i];
    }
    if (n > 0) return n;
    if (n_before == 1 && before[0].row < 0) { // the title had the words before: a turn has this one
        *out = here[n_here - 1];
        return 1;
    }
    memmove(out, before, n_before * sizeof *out);
    return n_before;
}

// The current word's rows have all been read: s->all becomes the sessions that have the word and all earlier words,
// sorted by key and row.
static void end_word(struct store_search *s) {
    struct found *all = &s->all, *here = &s->here;
    size_t n = 0;
    if (here->n > 0) qsort(here->hits, here->n, sizeof *here->hits, by_key_and_row);
    if (s->at == 0) {
        struct found old = *all;
        *all = *here;
        *here = old;
        n = all->n;
    }
    for (size_t i = 0, k = 0; s->at > 0 && i < all->n && k < here->n;) {
        size_t end = end_of_session(all, i), end_here = end_of_session(here, k);
        int64_t key = all->hits[i].key, other = here->hits[k].key;
        if (key == other)
            n += join_session(all->hits + n, all->hits + i, end - i, here->hits + k, end_here - k);
        if (key <= other) i = end;
        if (other <= key) k = end_here;
    }
    all->n = n;
    here->n = 0;
    s->term += strlen(buf_z(&s->terms) + s->term) + 1;
    s->after = INT64_MIN;
    s->at = n > 0 ? s->at + 1 : s->n_terms; // none is left
}

// --- one slice ---------------------------------------------------------------

// Other words have the same terms in all rows.
static bool has_other_terms_in_old_rows(const char *term) {
    for (; *term; term++)
        if ((unsigned char)*term >= 0x80) return true;
    return false;
}

// A session has the word if one of its rows in the owner's part of the index has it (words.c). Tools that
// list all owners' sessions look in each part, in one slice.
static int prepare_word(struct store_db *db, const struct store_list *l, bool cut,
                        sqlite3_stmt **out, struct err *err) {
    const struct store_search *s = l->search;
    char sql[640];
    bool old = has_other_terms_in_old_rows(buf_z(&s->terms) + s->term);
    if (old) TRY(store_words_have_old(db, &old, err));
    snprintf(sql, sizeof sql,
             "SELECT search.rowid, iif(search.rowid < 0, -search.rowid, (SELECT session FROM turns "
             "WHERE key = search.rowid)) FROM (%s) o CROSS JOIN search WHERE search MATCH '\"' || "
             "owner_tag(o.owner) || ?2%s%s",
             l->owner ? "SELECT ?1 AS owner" : "SELECT DISTINCT owner FROM sessions",
             old ? " || ' OR \"' || plain_tag(o.owner) || ?2" : "",
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
    const char *term = buf_z(&s->terms) + s->term;
    bool cut = l->owner && s->at < s->n_terms && term[strlen(term) - 1] != '*';
    sqlite3_stmt *stmt;
    int rc = 0, n = 0;
    TRY(prepare_word(db, l, cut, &stmt, err));
    while (store_db_row(db, stmt, &rc, err)) {
        n++;
        s->after = sqlite3_column_int64(stmt, 0);
        if (sqlite3_column_type(stmt, 1) != SQLITE_NULL)
            rc = found_add(&s->here, sqlite3_column_int64(stmt, 1), s->after);
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

// The newest turn among the session's rows; 0: only its title has the words.
static int64_t newest_row(const struct found *f, size_t at) {
    int64_t row = f->hits[end_of_session(f, at) - 1].row;
    return row > 0 ? row : 0;
}

bool store_search_has(const struct store_search *s, int64_t key, int64_t *row) {
    *row = 0;
    if (!s || s->n_terms == 0) return true;
    size_t from = 0, to = s->all.n;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (s->all.hits[middle].key < key)
            from = middle + 1;
        else
            to = middle;
    }
    if (from == s->all.n || s->all.hits[from].key != key) return false;
    *row = newest_row(&s->all, from);
    return true;
}

// --- where -------------------------------------------------------------------

// Any of the words, as one expression of FTS5; each with its owner's tag.
static int put_any(struct buf *out, const char *tag, struct buf *terms, int n_terms) {
    const char *term = buf_z(terms);
    for (int i = 0; i < n_terms; i++, term += strlen(term) + 1) {
        buf_addz(out, out->len ? " OR \"" : "\"");
        buf_addz(out, tag);
        buf_addz(out, term);
    }
    return out->error;
}

static int read_place(struct store_db *db, sqlite3_stmt *s, struct stored_place *out,
                      struct err *err) {
    int rc = 0;
    while (store_db_row(db, s, &rc, err)) {
        const char *text = (const char *)sqlite3_column_text(s, 1);
        if (text && text[0] != '\xe2')
            text += strnlen(text, STORE_TAG_BYTES); // it begins with the tag
        out->turn = sqlite3_column_int64(s, 0);
        out->text = text ? strdup(text) : NULL;
        if (text && !out->text) rc = err_set(err, E_NOMEM, "no memory for a search");
    }
    sqlite3_finalize(s);
    return rc;
}

int store_search_place(struct store_db *db, const char *query, const char *owner, int64_t row,
                       struct stored_place *out, struct err *err) {
    static const char sql[] =
        "SELECT (SELECT turn FROM turns WHERE key = ?1), snippet(search, 0, char(1), char(2), "
        "char(8230), 24) FROM search WHERE search MATCH ?2 AND rowid = ?1";
    struct buf terms, any;
    char tag[STORE_TAG_BYTES + 1];
    sqlite3_stmt *s;
    bool old;
    int n_terms, rc;
    TRY(store_words_have_old(db, &old, err));
    buf_init(&terms, WORDS_BYTES);
    buf_init(&any, 4 * WORDS_BYTES);
    rc = split_query(query, &terms, &n_terms, err);
    for (int paired = 1; rc == 0 && paired >= (old ? 0 : 1); paired--) {
        store_query_tag(owner, paired, tag);
        if (put_any(&any, tag, &terms, n_terms) < 0)
            rc = err_set(err, any.error, "no memory for a search");
    }
    if (rc == 0) rc = store_db_prepare(db, sql, 0, &s, err);
    if (rc == 0) {
        sqlite3_bind_int64(s, 1, row);
        sqlite3_bind_text(s, 2, buf_z(&any), -1, SQLITE_STATIC);
        rc = read_place(db, s, out, err);
    }
    buf_release(&any);
    buf_release(&terms);
    return rc;
}

void store_search_free(struct store_search *s) {
    if (!s) return;
    buf_release(&s->terms);
    free(s->all.hits);
    free(s->here.hits);
    free(s);
}
