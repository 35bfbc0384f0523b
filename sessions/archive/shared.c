// What a session's link shows its readers: the title, and the messages and answers of the current path. Not the model's
// thinking, the system prompt, settings, other versions, numbers or names: an owner who shares a conversation shares
// what was said in it. In pieces, each in a transaction of its own; a link that is taken back ends the next piece. A long
// path is shown in parts, so that neither the server nor the reader has all of it at a time.
#include "base/err.h"
#include "base/json_form.h"
#include "engine/engine.h"
#include "sessions/archive/archive.h"
#include "sessions/archive/turn_pieces.h"
#include "sessions/store/read.h"
#include <stdlib.h>
#include <string.h>

#define PART_TURNS 200               // a part ends behind so many turns, or behind
#define PART_BYTES ((size_t)1 << 20) // the turn that passes this

struct shared {
    struct store_cursor cursor; // first
    char *digest;
    int64_t key;                 // 0: the first piece has not been read
    int64_t *turns;              // (n_turns) of the path, as of the first piece
    size_t n_turns, first, next; // first: of this part
    size_t sent;                 // bytes of the pieces before
    struct turn_pieces pieces;
    bool over;
};

static void shared_free(struct store_cursor *c) {
    struct shared *x = (struct shared *)c;
    free(x->turns);
    free(x->digest);
    free(x);
}

static const char *find(const char *text, size_t len, const char *mark) {
    return mark ? memmem(text, len, mark, strlen(mark)) : NULL;
}

static bool begins(const char *text, size_t len, const char *mark) {
    while (len && strchr(" \t\r\n", *text)) text++, len--;
    return len >= strlen(mark) && memcmp(text, mark, strlen(mark)) == 0;
}

// How the answer marks its thinking. The model may not be served any more, so the text tells.
static struct chat_syntax syntax_of(const char *text, size_t len) {
    if (begins(text, len, "<|channel|>") || begins(text, len, "<|start|>"))
        return (struct chat_syntax){.tools = TOOL_SYNTAX_HARMONY};
    if (find(text, len, "[THINK]") || find(text, len, "[/THINK]"))
        return (struct chat_syntax){.think_open = "[THINK]", .think_close = "[/THINK]"};
    return (struct chat_syntax){.think_open = "<think>", .think_close = "</think>"};
}

// Answers from before schema 10 do not say that the prompt has opened their thinking.
static bool thinks(const struct turn_record *r, struct chat_syntax s, const char *text,
                   size_t len) {
    const char *open = find(text, len, s.think_open), *close = find(text, len, s.think_close);
    return r->thinking || (close && (!open || close < open));
}

// The answer without the model's thinking. A call of a tool stays as the model wrote it.
static int write_answer(struct json_writer *w, const struct stored_turn *t) {
    const char *text = t->tokens.text ? t->tokens.text : "";
    size_t len = t->tokens.text_len;
    struct chat_syntax syntax = syntax_of(text, len);
    struct answer_parser p;
    struct answer_piece piece;
    struct buf said;
    int rc;
    buf_init(&said, TURN_BYTES_MAX);
    answer_parser_init(&p, syntax, NULL, thinks(&t->rec, syntax, text, len));
    answer_parser_feed(&p, text, len);
    answer_parser_end(&p);
    while ((rc = answer_parser_next(&p, &piece)) == 1)
        if (piece.kind == PIECE_TEXT) buf_add(&said, piece.text, piece.len);
    if (rc == 0) rc = said.error;
    if (rc == 0) json_put_text(w, "answer", buf_z(&said), said.len);
    buf_release(&said);
    answer_parser_release(&p);
    return rc;
}

// Input of ids has no text. A turn that continues the answer before it says so.
static int write_turn(struct json_writer *w, const struct stored_turn *t) {
    json_open(w, NULL, '{');
    if (t->rec.kind == INPUT_CONTINUE)
        json_put_bool(w, "continues", true);
    else if (t->rec.input_text)
        json_put_text(w, "input", t->rec.input_text, t->rec.input_text_len);
    int rc = write_answer(w, t);
    json_close(w, '}');
    return rc;
}

// A turn that has not ended is left out, and so is one that has been deleted.
static int next_turn(struct shared *x, struct store_db *db, struct buf *out, struct err *err) {
    int64_t turn = x->turns[x->next];
    struct store_part p = {.key = x->key, .turn = turn, .end = turn + 1};
    struct stored_session *part = NULL;
    TRY(store_read_part(db, &p, &part, err));
    const struct stored_turn *t = part->n_turns == 1 ? &part->turns[0] : NULL;
    bool is_shown = t && t->rec.finish_reason[0] && !turn_was_erased(&t->rec);
    int rc = is_shown ? turn_pieces_next(&x->pieces, write_turn, t, out) : 1;
    if (rc == 1) x->next++;
    stored_session_free(part);
    return rc < 0 ? rc : 0;
}

static int begin(struct shared *x, struct store_db *db, struct buf *out, struct err *err) {
    struct session_record rec = {0};
    struct json_writer w;
    int rc = store_read_row(db, x->key, &rec, err);
    if (rc == 0) rc = store_read_path(db, x->key, &x->turns, &x->n_turns, err);
    if (rc == 0) {
        json_writer_init(&w, out);
        json_form(&w, "{title:%s,turns:[", rec.title);
    }
    if (x->first > x->n_turns) x->first = x->n_turns;
    x->next = x->first;
    session_record_release(&rec);
    return rc;
}

static bool part_is_full(const struct shared *x, const struct buf *out) {
    return x->pieces.skip == 0 &&
           (x->next - x->first >= PART_TURNS || x->sent + out->len >= PART_BYTES);
}

static int read_some(struct shared *x, struct store_db *db, struct buf *out, struct err *err) {
    int64_t key = 0, before = x->key;
    TRY(store_read_shared(db, x->digest, &key, err));
    x->key = key;
    if (!before) TRY(begin(x, db, out, err));
    int rc = 0;
    while (rc == 0 && x->next < x->n_turns && !part_is_full(x, out) && out->len < PIECE_BYTES)
        rc = next_turn(x, db, out, err);
    x->over = x->next == x->n_turns || part_is_full(x, out);
    x->sent += out->len;
    if (rc < 0 || !x->over) return rc;
    return x->next == x->n_turns ? buf_addz(out, "]}") : buf_addf(out, "],\"next\":%zu}", x->next);
}

static int shared_read(struct store_cursor *c, struct store_db *db, struct buf *out,
                       struct err *err) {
    struct shared *x = (struct shared *)c;
    TRY(store_db_exec(db, "BEGIN", err));
    int rc = read_some(x, db, out, err);
    store_db_exec(db, "COMMIT", NULL);
    if (rc < 0 && !err->code) err_set(err, rc, "this conversation cannot be read");
    return rc < 0 ? rc : !x->over;
}

struct store_cursor *archive_shared_begin(const char *digest, size_t first) {
    struct shared *x = calloc(1, sizeof *x);
    if (!x) return NULL;
    x->cursor = (struct store_cursor){shared_read, shared_free};
    x->first = first;
    if ((x->digest = strdup(digest))) return &x->cursor;
    free(x);
    return NULL;
}
