// The index of words, an owner at a time.
//
// A search must take as long as the searcher's own rows take, and a word that only others use must take
// as long as a word that does not occur. So each owner has terms of its own: the tokenizer "owned"
// is FTS5's unicode61 with the owner's tag before every term. The index is sorted by term: an
// owner's terms lie together, also under a prefix, and on disk a page has their common start once.
//
// The tag stands at the start of every indexed text and every query; owned() writes it there.
#include "base/siphash.h"
#include "sessions/store/db.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAG_BYTES STORE_TAG_BYTES
#define TERM_BYTES 32768 // FTS5 cuts off what is longer

// A fixed key: the tags are on disk. It keeps them short for names of any length.
void store_owner_tag(const void *owner, size_t len, char tag[STORE_TAG_BYTES + 1]) {
    static const uint64_t key[2] = {0x7061726c65790003u, 0x6f776e6572746167u};
    snprintf(tag, TAG_BYTES + 1, "%016llx", (unsigned long long)siphash128(key, owner, len).lo);
}

static void owner_tag(sqlite3_context *ctx, int n, sqlite3_value **values) {
    char tag[TAG_BYTES + 1];
    const unsigned char *owner = sqlite3_value_text(values[0]);
    if (!owner) return; // null
    store_owner_tag(owner, (size_t)sqlite3_value_bytes(values[0]), tag);
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
    char term[TAG_BYTES + TERM_BYTES];
};

static int tag_term(void *ctx, int flags, const char *term, int len, int start, int end) {
    struct tagging *t = ctx;
    if (len > TERM_BYTES) len = TERM_BYTES;
    memcpy(t->term + TAG_BYTES, term, (size_t)len);
    return t->take(t->ctx, flags, t->term, TAG_BYTES + len, start + TAG_BYTES, end + TAG_BYTES);
}

// A text without a tag, in a damaged file, has no terms.
static int owned_tokenize(Fts5Tokenizer *tokenizer, void *ctx, int flags, const char *text, int len,
                          take_term take) {
    struct owned *t = (struct owned *)tokenizer;
    struct tagging tagging = {.take = take, .ctx = ctx};
    if (len <= TAG_BYTES) return SQLITE_OK;
    memcpy(tagging.term, text, TAG_BYTES);
    return t->unicode.xTokenize(t->inner, &tagging, flags, text + TAG_BYTES, len - TAG_BYTES,
                                tag_term);
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
    return sqlite3_create_function_v2(sql, "owner_tag", 1,
                                      SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_DIRECTONLY, NULL,
                                      owner_tag, NULL, NULL, NULL);
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
