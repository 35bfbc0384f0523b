// Long inputs and imports, by a worker. See preparing.h.
#include "sessions/turns/preparing.h"
#include "base/err.h"
#include "sessions/archive/archive.h"
#include "sessions/clients/clients.h"
#include "sessions/state/sampling_layers.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

// Rendering and tokenizing takes some 30 ms a megabyte. Shorter inputs take less than 0.2 ms and are
// made at once.
#define INLINE_BYTES 4096
// Lanes of sessions and of imports; those of connections are below.
#define LANE_SESSION ((uint64_t)1 << 63)
#define LANE_IMPORT ((uint64_t)3 << 62)

// --- on the worker's thread --------------------------------------------------

static int read_import(struct preparation *p) {
    const struct request *r = p->import;
    const struct archive_import as = {.new_id = true, .owner = r->owner};
    TRY(archive_read(&p->imported, r->import.archive, r->import.archive_len, p->now_ms, &p->err));
    return archive_rename(&p->imported->rec, &as, &p->err);
}

static int make_input(struct preparation *p) {
    if (p->grammar)
        TRY(engine_grammar_prepare(p->model->engine, p->work.group, p->grammar, &p->compiled,
                                   &p->err));
    if (p->replay || !turn_input_has_text(p->source.kind)) return 0;
    return input_encode(p->model->engine, &p->source, &p->made, &p->err);
}

static void make(struct preparation *p) {
    p->rc = p->import ? read_import(p) : make_input(p);
}

static void run(struct work *work) {
    make((struct preparation *)((char *)work - offsetof(struct preparation, work)));
}

// --- on the net thread -------------------------------------------------------

void preparing_free(struct preparation *p) {
    if (!p) return;
    input_ids_release(&p->made);
    grammar_text_free(p->grammar);
    engine_grammar_release(p->compiled);
    stored_session_free(p->imported);
    request_free(p->import);
    free((char *)p->source.text);
    free((char *)p->source.system);
    free((char *)p->source.answer);
    placement_drop(p->model);
    free(p);
}

void preparing_forget(struct preparation *p) {
    struct sessions *ss = p->ss;
    if (p->ended) {
        DL_DELETE(ss->prepared, p);
        preparing_free(p);
    } else { // done() frees it
        DL_DELETE(ss->outstanding, p);
        p->ss = NULL;
    }
}

static void end(struct preparation *p) {
    p->ended = true;
    DL_APPEND(p->ss->prepared, p);
}

static void done(struct work *work) {
    struct preparation *p =
        (struct preparation *)((char *)work - offsetof(struct preparation, work));
    struct sessions *ss = p->ss;
    if (!ss) {
        preparing_free(p);
        return;
    }
    DL_DELETE(ss->outstanding, p);
    end(p);
    if (ss->o.wake) ss->o.wake(ss->o.wake_ctx);
}

// Takes p.
static int submit(struct preparation *p, const char *owner, uint64_t lane, struct err *err) {
    struct sessions *ss = p->ss;
    const struct owner *o = owners_get(ss->owners, owner);
    p->work = (struct work){.group = o ? o->number : 0, .lane = lane, .run = run, .done = done};
    p->rc = err_set(&p->err, E_CLOSED, "the server is shutting down"); // if it is not run
    if (workers_submit(ss->o.workers, &p->work) == 0) {
        DL_APPEND(ss->outstanding, p);
        return 0;
    }
    preparing_free(p);
    return err_set(err, E_BUSY, "the server has too many long messages to read");
}

static struct preparation *preparation_new(struct sessions *ss, struct err *err) {
    struct preparation *p = calloc(1, sizeof *p);
    if (p)
        *p = (struct preparation){.ss = ss};
    else
        err_set(err, E_NOMEM, "the server is out of memory");
    return p;
}

bool preparing_wanted(const struct session *s, const struct turn_input *in, int64_t parent,
                      const struct input_ids *made) {
    if (!s->service->o.workers || !turn_input_has_text(in->kind) || input_is_given(in))
        return false;
    struct input_source source = input_source_of(s, in, parent);
    size_t n_bytes = in->text_len + in->answer_len + (source.system ? strlen(source.system) : 0);
    if (n_bytes <= INLINE_BYTES) return false;
    return !made || !input_suits(made, &source);
}

bool preparing_compiles(struct session *s, const struct turn_sampling *given,
                        struct grammar **compiled) {
    const struct served_model *m = service_model(s);
    const struct grammar_text *t = m && s->service->o.workers ? layers_grammar(s, given) : NULL;
    *compiled = t ? engine_grammar_find(m->engine, s->owner->number, t) : NULL;
    return t && !*compiled;
}

// in: NULL: only the grammar is wanted.
static struct preparation *prepare_input(struct session *s, const struct turn_input *in,
                                         int64_t parent, int64_t turn,
                                         const struct grammar_text *grammar, struct err *err) {
    bool failed = false;
    struct preparation *p = preparation_new(s->service, err);
    if (!p) return NULL;
    p->model = placement_keep(service_model(s));
    p->key = s->rec.key;
    p->turn = turn;
    p->grammar = grammar_text_hold(grammar);
    p->source.kind = INPUT_IDS;
    if (in) {
        p->source = input_source_of(s, in, parent);
        p->source.text = record_memdup(in->text, in->text_len, &failed);
        p->source.system = record_strdup(p->source.system, &failed);
        p->source.answer = record_memdup(in->answer, in->answer_len, &failed);
    }
    if (failed) {
        preparing_free(p);
        err_set(err, E_NOMEM, "the server is out of memory");
        return NULL;
    }
    return submit(p, s->rec.owner, LANE_SESSION | (uint64_t)s->rec.key, err) < 0 ? NULL : p;
}

int preparing_request(struct session *s, const struct request *r, int64_t parent,
                      const struct grammar_text *grammar, struct err *err) {
    struct request *copy = request_copy(r);
    if (!copy || clients_defer(s->service, r->client) < 0) {
        request_free(copy);
        return err_set(err, E_NOMEM, "the server is out of memory");
    }
    bool has_input = r->kind != REQUEST_OPEN && r->kind != REQUEST_UPDATE;
    struct preparation *p =
        prepare_input(s, has_input ? &r->input : NULL, parent, TURN_NONE, grammar, err);
    if (!p) {
        clients_resume(s->service, r->client);
        request_free(copy);
        return err->code;
    }
    s->preparing = copy;
    s->preparation = p;
    return 0;
}

int preparing_grammar(struct session *s, const struct request *r, struct err *err) {
    const struct preparation *made = s->preparation;
    const struct turn_sampling *given = r->sampling;
    struct grammar *compiled = NULL;
    if (made && made->aborted)
        return err_set(err, E_BUSY, "the request was dropped for a later one that ends all turns");
    if (made) return made->rc < 0 ? (*err = made->err, made->rc) : 0;
    if (!given || !(given->set & sampling_rows_of(SAMPLING_GRAMMAR))) return 0;
    bool compiles = preparing_compiles(s, given, &compiled);
    engine_grammar_release(compiled);
    if (!compiles) return 0;
    TRY(preparing_request(s, r, TURN_NONE, given->params.grammar, err));
    return 1;
}

int preparing_turn(struct session *s, struct turn *t, struct err *err) {
    const struct turn_record *r = &t->rec;
    struct turn_input in = {.kind = r->kind, .text = r->input_text, .text_len = r->input_text_len};
    struct preparation *p =
        prepare_input(s, &in, r->parent, r->turn, layers_grammar(s, t->sampling), err);
    if (!p) return err->code;
    t->preparation = p;
    turn_set(t, TURN_PREPARING);
    return 0;
}

int preparing_replay(struct sessions *ss, uint64_t replay, int64_t key, const char *owner,
                     const struct served_model *m, const struct grammar_text *grammar,
                     struct err *err) {
    struct preparation *p = preparation_new(ss, err);
    if (!p) return err->code;
    p->model = placement_keep(m);
    p->replay = replay;
    p->grammar = grammar_text_hold(grammar);
    return submit(p, owner, LANE_SESSION | (uint64_t)key, err);
}

int preparing_import(struct sessions *ss, const struct request *r, struct err *err) {
    struct preparation *p = preparation_new(ss, err);
    if (!p) return err->code;
    p->import = request_copy(r);
    p->now_ms = service_now_ms(ss);
    if (!p->import) {
        preparing_free(p);
        return err_set(err, E_NOMEM, "the server is out of memory");
    }
    if (ss->o.workers) return submit(p, r->owner, LANE_IMPORT | r->client, err);
    make(p);
    end(p);
    return 0;
}

void preparing_close(struct sessions *ss) {
    while (ss->outstanding) preparing_forget(ss->outstanding);
    while (ss->prepared) preparing_forget(ss->prepared);
}
