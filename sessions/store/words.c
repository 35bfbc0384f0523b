// The index of words, an owner at a time.
//
// A search must take as long as the searcher's own rows take, and a word that only others use must take
// as long as a word that does not occur. So each owner has terms of its own: the tokenizer "owned"
// is FTS5's unicode61 with the owner's tag before every term. The index is sorted by term: an
// owner's terms lie together, also under a prefix, and on disk a page has their common start once.
//
// The tag stands at the start of every indexed text and every query; owner_tag() writes it there.
//
// Scripts without spaces between words (Chinese, Japanese, Thai ...) have no words that unicode61 could find:
// a run of them was one term, found by its beginning alone. So each character of a run is a term, together
// with the character behind it: "abcd" gives "ab", "bc", "cd", "d". A query is cut the same way, its terms
// must follow each other, and its last one is a prefix: it finds the run anywhere. A term's place in the text is
// its first character, so that a mark around a query's terms is as long as the query.
//
// Rows of schemas before 11 were indexed without this. FTS5 cuts a row's old text again when it changes or removes
// the row, and must get the old terms: the first character of a row's tag says how it was cut. tidy.c
// brings the old rows up to date while the server runs; until then searches ask for both.
#include "sessions/store/words.h"
#include "base/siphash.h"
#include "base/utf8.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAG_BYTES STORE_TAG_BYTES
#define TERM_BYTES 32768 // FTS5 cuts off what is longer

// The key is fixed because tags are on disk. A hash keeps tags short for names of any length.
void store_owner_tag(const void *owner, size_t len, char tag[STORE_TAG_BYTES + 1]) {
    static const uint64_t key[2] = {0x7061726c65790003u, 0x6f776e6572746167u};
    snprintf(tag, TAG_BYTES + 1, "%016llx", (unsigned long long)siphash128(key, owner, len).lo);
}

// Of a tag's first hexadecimal digit: the character that stands for it before a text that is cut in pairs.
static char paired_digit(char c) {
    return (char)('g' + (c <= '9' ? c - '0' : c - 'a' + 10));
}

static char plain_digit(char c) {
    return "0123456789abcdef"[c - 'g'];
}

static bool is_paired(char c) {
    return c >= 'g' && c < 'g' + 16;
}

void store_query_tag(const char *owner, bool paired, char tag[STORE_TAG_BYTES + 1]) {
    store_owner_tag(owner, strlen(owner), tag);
    if (paired) tag[0] = paired_digit(tag[0]);
}

// owner_tag(owner) before what is indexed now, plain_tag(owner) as older rows have it.
static void owner_tag(sqlite3_context *ctx, int n, sqlite3_value **values) {
    bool paired = sqlite3_user_data(ctx) != NULL;
    char tag[TAG_BYTES + 1];
    const unsigned char *owner = sqlite3_value_text(values[0]);
    if (!owner) return; // null
    store_owner_tag(owner, (size_t)sqlite3_value_bytes(values[0]), tag);
    if (paired) tag[0] = paired_digit(tag[0]);
    sqlite3_result_text(ctx, tag, TAG_BYTES, SQLITE_TRANSIENT);
}

struct owned {
    fts5_tokenizer unicode;
    Fts5Tokenizer *inner;
};

static void owned_delete(Fts5Tokenizer *tokenizer) {
    struct owned *t = (struct owned *)tokenizer;
    if (t->inner) t->unicode.xDelete(t->inner);
    free(t);
}

static int owned_create(void *ctx, const char **args, int n, Fts5Tokenizer **out) {
    fts5_api *api = ctx;
    void *inner_ctx;
    struct owned *t = calloc(1, sizeof *t);
    if (!t) return SQLITE_NOMEM;
    int rc = api->xFindTokenizer(api, "unicode61", &inner_ctx, &t->unicode);
    if (rc == SQLITE_OK) rc = t->unicode.xCreate(inner_ctx, args, n, &t->inner);
    if (rc == SQLITE_OK)
        *out = (Fts5Tokenizer *)t;
    else
        free(t);
    return rc;
}

typedef int (*take_term)(void *ctx, int flags, const char *term, int len, int start, int end);
struct tagging {
    take_term take;
    void *ctx;
    int from; // of the part that unicode61 cuts, in the text
    char term[TAG_BYTES + TERM_BYTES];
};

static int tag_term(void *ctx, int flags, const char *term, int len, int start, int end) {
    struct tagging *t = ctx;
    if (len > TERM_BYTES) len = TERM_BYTES;
    memcpy(t->term + TAG_BYTES, term, (size_t)len);
    return t->take(t->ctx, flags, t->term, TAG_BYTES + len, start + TAG_BYTES, end + TAG_BYTES);
}

// --- scripts without spaces --------------------------------------------------

// Ascending. Their punctuation is left out: unicode61 skips it. Hangul has spaces.
static const struct {
    uint32_t first, last;
} unspaced[] = {
    {0x0e01, 0x0e3a},   {0x0e40, 0x0e4e},   {0x0e50, 0x0e59}, // Thai
    {0x0e81, 0x0edf},                                         // Lao
    {0x1000, 0x1049},   {0x1050, 0x109d},                     // Myanmar
    {0x1780, 0x17d3},   {0x17dc, 0x17dd},   {0x17e0, 0x17e9}, // Khmer
    {0x1950, 0x19da},   {0x1a20, 0x1a99},                     // Tai Le, New Tai Lue, Tai Tham
    {0x3005, 0x3007},   {0x3041, 0x309a},   {0x309d, 0x309f}, // repetition marks, Hiragana
    {0x30a1, 0x30fa},   {0x30fc, 0x30ff},   {0x3105, 0x312f}, // Katakana, Bopomofo
    {0x31a0, 0x31bf},   {0x31f0, 0x31ff},   {0x3400, 0x4dbf}, // extensions, ideographs
    {0x4e00, 0x9fff},   {0xa000, 0xa48c},   {0xa980, 0xa9c0}, // ideographs, Yi, Javanese
    {0xaa60, 0xaa7f},   {0xf900, 0xfaff},   {0xff66, 0xff9f}, // ideographs again, narrow Katakana
    {0x1b000, 0x1b16f}, {0x20000, 0x323af},                   // older Kana, rare ideographs
};

static uint32_t code_point(const char *s, size_t len) {
    const unsigned char *u = (const unsigned char *)s;
    if (len == 3) return (uint32_t)(u[0] & 15) << 12 | (uint32_t)(u[1] & 63) << 6 | (u[2] & 63);
    return (uint32_t)(u[0] & 7) << 18 | (uint32_t)(u[1] & 63) << 12 | (uint32_t)(u[2] & 63) << 6 |
           (u[3] & 63);
}

size_t store_unspaced(const char *s, size_t len) {
    bool valid;
    if (len < 3 || (unsigned char)*s < 0xe0) return 0;
    size_t n = utf8_next(s, len, &valid);
    if (!valid || n < 3) return 0;
    uint32_t c = code_point(s, n);
    for (size_t i = 0; i < sizeof unspaced / sizeof *unspaced && unspaced[i].first <= c; i++)
        if (c <= unspaced[i].last) return n;
    return 0;
}

struct text {
    struct owned *tokenizer;
    struct tagging tagging;
    const char *s; // behind the tag
    int len, flags;
};

static int spaced_term(void *ctx, int flags, const char *term, int len, int start, int end) {
    struct tagging *t = ctx;
    return tag_term(t, flags, term, len, start + t->from, end + t->from);
}

// What lies between two runs.
static int cut_spaced(struct text *t, int from, int to) {
    struct owned *o = t->tokenizer;
    if (from == to) return SQLITE_OK;
    t->tagging.from = from;
    return o->unicode.xTokenize(o->inner, &t->tagging, t->flags, t->s + from, to - from,
                                spaced_term);
}

// A text that begins with unspaced text at `from`; *end: where the run ends.
static int cut_run(struct text *t, int from, int *end) {
    int rc = SQLITE_OK;
    int n = (int)store_unspaced(t->s + from, (size_t)(t->len - from));
    while (rc == SQLITE_OK && n > 0) {
        int next = from + n, n_next = (int)store_unspaced(t->s + next, (size_t)(t->len - next));
        rc = tag_term(&t->tagging, 0, t->s + from, n + n_next, from, next);
        from = next;
        n = n_next;
    }
    *end = from;
    return rc;
}

static int cut_pairs(struct text *t) {
    int rc = SQLITE_OK, from = 0, at = 0;
    while (rc == SQLITE_OK && at < t->len) {
        if (store_unspaced(t->s + at, (size_t)(t->len - at)) == 0) {
            at++;
            continue;
        }
        rc = cut_spaced(t, from, at);
        if (rc == SQLITE_OK) rc = cut_run(t, at, &at);
        from = at;
    }
    return rc == SQLITE_OK ? cut_spaced(t, from, t->len) : rc;
}

// A text without a tag, in a damaged file, has no terms.
static int owned_tokenize(Fts5Tokenizer *tokenizer, void *ctx, int flags, const char *text, int len,
                          take_term take) {
    struct text t = {.tokenizer = (struct owned *)tokenizer,
                     .tagging = {.take = take, .ctx = ctx},
                     .s = text + TAG_BYTES,
                     .len = len - TAG_BYTES,
                     .flags = flags};
    if (len <= TAG_BYTES) return SQLITE_OK;
    bool paired = is_paired(text[0]);
    memcpy(t.tagging.term, text, TAG_BYTES);
    if (paired) t.tagging.term[0] = plain_digit(text[0]); // terms of both lie together
    return paired ? cut_pairs(&t) : cut_spaced(&t, 0, t.len);
}

static fts5_api *find_fts5(sqlite3 *sql) {
    fts5_api *api = NULL;
    sqlite3_stmt *s;
    if (sqlite3_prepare_v2(sql, "SELECT fts5(?1)", -1, &s, NULL) != SQLITE_OK) return NULL;
    sqlite3_bind_pointer(s, 1, &api, "fts5_api_ptr", NULL);
    sqlite3_step(s);
    sqlite3_finalize(s);
    return api;
}

int store_words_register(sqlite3 *sql) {
    static fts5_tokenizer owned = {owned_create, owned_delete, owned_tokenize};
    fts5_api *api = find_fts5(sql);
    if (!api) return SQLITE_ERROR;
    int rc = api->xCreateTokenizer(api, "owned", api, &owned, NULL);
    if (rc != SQLITE_OK) return rc;
    const int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_DIRECTONLY;
    rc = sqlite3_create_function_v2(sql, "plain_tag", 1, flags, NULL, owner_tag, NULL, NULL, NULL);
    if (rc != SQLITE_OK) return rc;
    return sqlite3_create_function_v2(sql, "owner_tag", 1, flags, api, owner_tag, NULL, NULL, NULL);
}

int store_words_clear(struct store_db *db, struct err *err) {
    return store_db_exec(
        db,
        "DROP TABLE IF EXISTS search;"
        // A title's row is minus its session's key, a turn's is the turn's key, which leads to its
        // session without a look into the text. One column: others take two bytes for each entry.
        "CREATE VIRTUAL TABLE search USING fts5(words, columnsize = 0, tokenize = 'owned "
        "remove_diacritics 2')",
        err);
}

int store_words_fill(struct store_db *db, struct err *err) {
    return store_db_exec(db,
                         "INSERT INTO search (rowid, words) SELECT -s.key, " STORE_TITLE_WORDS
                         " FROM sessions s;"
                         "INSERT INTO search (rowid, words) SELECT t.key, " STORE_TURN_WORDS
                         " FROM turns t JOIN sessions s ON s.key = t.session",
                         err);
}

// --- rows of older schemas ---------------------------------------------------

int store_words_mark_old(struct store_db *db, struct err *err) {
    return store_db_run(db,
                        "INSERT INTO state (name, value) VALUES ('unpaired', ?1) ON CONFLICT "
                        "(name) DO UPDATE SET value = ?1",
                        NUMBERS(INT64_MIN), err);
}

int store_words_have_old(struct store_db *db, bool *out, struct err *err) {
    int64_t n = 0;
    TRY(store_db_int(db, "SELECT count(*) FROM state WHERE name = 'unpaired'", &n, err));
    *out = n > 0;
    return 0;
}

// The last row of the next ROWS that together have at most about BYTES; the first one always.
#define RENEW_ROWS 64
#define RENEW_BYTES 65536
static int next_rows(struct store_db *db, int64_t after, int64_t *last, struct err *err) {
    static const char sql[] =
        "SELECT id, length(c0) FROM search_content WHERE id > ?1 ORDER BY id LIMIT ?2";
    sqlite3_stmt *s = store_db_bind(db, sql, NUMBERS(after, RENEW_ROWS), err);
    int64_t bytes = 0;
    int rc = 0;
    *last = after;
    if (!s) return err->code;
    while (store_db_row(db, s, &rc, err)) {
        bytes += sqlite3_column_int64(s, 1);
        if (*last != after && bytes > RENEW_BYTES) continue;
        *last = sqlite3_column_int64(s, 0);
    }
    return rc;
}

int store_words_renew(struct store_db *db, bool *done, struct err *err) {
    int64_t after = 0, last;
    TRY(store_db_int(db, "SELECT value FROM state WHERE name = 'unpaired'", &after, err));
    TRY(next_rows(db, after, &last, err));
    *done = last == after;
    if (*done) return store_db_run(db, "DELETE FROM state WHERE name = 'unpaired'", NULL, 0, err);
    // A digit before 'g': not in pairs yet. plain_digit() and paired_digit() in SQL.
    TRY(store_db_run(db,
                     "UPDATE search SET words = char(103 + instr('123456789abcdef', substr(words, "
                     "1, 1))) || substr(words, 2) WHERE rowid > ?1 AND rowid <= ?2 AND words < 'g' "
                     "AND length(words) > 16",
                     NUMBERS(after, last), err));
    return store_db_run(db, "UPDATE state SET value = ?1 WHERE name = 'unpaired'", NUMBERS(last),
                        err);
}
