// The tree of turns under test: what must always hold of it, and short ways to say things to it.
#pragma once
#pragma GCC diagnostic ignored "-Wunused-function" // no test needs all of it
#include "sessions/archive/archive.h"
#include "sessions/archive/check.h"
#include "sessions/state/tree.h"
#include "tests/unit/sessions_fixture.h"

// --- what must always hold ---------------------------------------------------

static void check_children(const struct session *s, const struct turn_children *c, int64_t parent) {
    int64_t n = 0, before = TURN_NONE, i;
    for (i = c->first; i != TURN_NONE; before = i, i = s->turns[i]->newer, n++) {
        assert_int_equal(s->turns[i]->rec.parent, parent);
        assert_int_equal(s->turns[i]->older, before);
        assert_true(i > before);
    }
    assert_int_equal(c->last, before);
    assert_int_equal(c->n, n);
}

static void check_tree(const char *id) {
    const struct session *s = fx_session(id);
    size_t n_on_path = 0, n_marked = 0;
    if (!s) return;
    check_children(s, &s->roots, TURN_NONE);
    for (size_t i = 0; i < s->n_turns; i++) {
        check_children(s, &s->turns[i]->children, (int64_t)i);
        n_marked += s->turns[i]->on_path;
    }
    for (int64_t i = s->head; i != TURN_NONE; i = s->turns[i]->rec.parent, n_on_path++) {
        const struct turn *t = s->turns[i];
        assert_true(t->on_path);
        if (t->rec.log_first < 0 || t->storage == TURN_SLIM) continue;
        assert_memory_equal(s->log + t->rec.log_first, t->rec.input_ids, t->rec.n_input * 4);
        if (t->out.n)
            assert_memory_equal(s->log + t->rec.log_first + t->rec.n_input, t->out.ids,
                                t->out.n * 4);
    }
    assert_int_equal(n_marked, n_on_path);
    assert_int_equal(s->n_log, tree_log_end(s, s->head));
}

static struct stored_session *load(const char *path, const char *id) {
    struct archive *a;
    struct stored_session *s = NULL;
    struct err err = {0};
    if (archive_open(&a, path, &err) < 0) fail_msg("%s", err.text);
    if (archive_load(a, NULL, id, &s, &err) < 0 || stored_session_check(s, &err) < 0)
        fail_msg("%s", err.text);
    archive_close(a);
    return s;
}

static void remove_database(const char *path) {
    static const char *const suffixes[] = {"", "-wal", "-shm", ".lock", ".tail"};
    char file[320];
    for (int i = 0; i < 5; i++) {
        snprintf(file, sizeof file, "%s%s", path, suffixes[i]);
        unlink(file);
    }
}

// --- saying things -----------------------------------------------------------

static void rewind_to(uint64_t client, const char *id, int64_t turn, bool leaf, const char *q) {
    struct request r = fx_request(client, q);
    ask_rewind(fx.ss, &r, id, turn, leaf);
}
static void say_after(const char *id, int64_t after, const char *text, const char *q) {
    struct request r = fx_request(1, q);
    struct turn_input in = {.kind = INPUT_CONTENT, .text = text, .text_len = strlen(text)};
    ask_start(fx.ss, &r, id, after, &in, NULL, false);
}
static void go_on(const char *id, int64_t after, const char *q) {
    struct request r = fx_request(1, q);
    struct turn_input in = {.kind = INPUT_CONTINUE};
    ask_start(fx.ss, &r, id, after, &in, NULL, false);
}
static void again(const char *id, int64_t turn, const char *sampling, const char *q) {
    struct request r = fx_request(1, q);
    ask_again(fx.ss, &r, id, turn, sampling);
}
static void edit(const char *id, int64_t turn, const char *text, const char *q) {
    struct request r = fx_request(1, q);
    r.kind = REQUEST_EDIT;
    r.session = id;
    r.turn = turn;
    r.input = (struct turn_input){.kind = INPUT_TEXT, .text = text, .text_len = strlen(text)};
    sessions_submit(fx.ss, &r);
}
static void erase(const char *id, int64_t turn, const char *q) {
    struct request r = fx_request(1, q);
    r.kind = REQUEST_ERASE;
    r.session = id;
    r.turn = turn;
    sessions_submit(fx.ss, &r);
}
static void fork_at(const char *id, int64_t turn, const char *new_id, const char *q) {
    struct request r = fx_request(1, q);
    if (new_id) fx_follower(1, new_id);
    ask_fork(fx.ss, &r, id, turn, new_id, NULL);
}
