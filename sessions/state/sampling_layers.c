// Sampling parameters in layers: a turn's values go over its session's, those over the server's.
// See sampling_layers.h.
#include "sessions/state/sampling_layers.h"
#include "base/err.h"
#include "base/json.h"
#include <stdlib.h>
#include <string.h>

// Nothing is known of a model that is not served: ids are checked when it is.
static int32_t vocab_of(const struct served_model *m) {
    return m ? m->info->n_vocab : INT32_MAX;
}

static void set_defaults(struct turn_sampling *t, const struct served_model *m) {
    if (m)
        t->params = m->sampling;
    else
        sampling_params_init(&t->params);
}

static int no_memory(struct err *err) {
    return err_set(err, E_NOMEM, "the server is out of memory");
}

// What the session sets, parsed once for each change of it.
static int session_layer(struct session *s, struct err *err) {
    if (s->sampling) return 0;
    s->sampling = malloc(sizeof *s->sampling);
    if (!s->sampling) return no_memory(err);
    turn_sampling_init(s->sampling);
    int rc = sampling_json_apply(s->sampling, s->rec.sampling, vocab_of(service_model(s)), err);
    if (rc < 0) layers_changed(s);
    return rc;
}

void layers_changed(struct session *s) {
    turn_sampling_free(s->sampling);
    s->sampling = NULL;
}

int layers_turn(struct session *s, const struct turn_sampling *given, struct turn_sampling *out,
                struct err *err) {
    const struct served_model *m = service_model(s);
    TRY(session_layer(s, err));
    *out = (struct turn_sampling){0};
    set_defaults(out, m);
    turn_sampling_overlay(out, s->sampling);
    if (given) turn_sampling_overlay(out, given);
    return sampling_params_check(&out->params, vocab_of(m), err);
}

const struct grammar_text *layers_grammar(struct session *s, const struct turn_sampling *given) {
    uint64_t keys = sampling_rows_of(SAMPLING_GRAMMAR);
    if (given && given->set & keys) return given->params.grammar;
    return session_layer(s, NULL) == 0 && s->sampling->set & keys ? s->sampling->params.grammar
                                                                  : NULL;
}

char *layers_normal(const struct served_model *m, const struct turn_sampling *given,
                    struct err *err) {
    struct turn_sampling *t = calloc(1, sizeof *t); // large for a stack
    char *text = NULL;
    if (!t) {
        no_memory(err);
        return NULL;
    }
    set_defaults(t, m);
    if (given) turn_sampling_overlay(t, given);
    if (sampling_params_check(&t->params, vocab_of(m), err) == 0)
        text = sampling_json_text(t, t->set, err);
    turn_sampling_free(t);
    return text;
}

// The "sampling" of a recorded request: an object, null, or left out.
static int read_asked(const char *request, int32_t n_vocab, struct turn_sampling *out,
                      struct err *err) {
    const cJSON *asked = NULL;
    if (!request) return 0;
    cJSON *o = json_parse(request, strlen(request), &json_limits_message, err);
    if (!o) return E_INVAL;
    int rc = json_get_object(o, "sampling", &asked, err);
    if (rc >= 0 && asked) rc = sampling_json_read(out, asked, n_vocab, err);
    cJSON_Delete(o);
    return rc < 0 ? rc : 0;
}

int layers_again(const struct session *s, const char *request, const struct turn_sampling *given,
                 struct turn_sampling *out, struct err *err) {
    TRY(read_asked(request, vocab_of(service_model(s)), out, err));
    out->set &=
        ~((uint64_t)1 << (sampling_row_find("seed") - sampling_rows)); // another answer is wanted
    if (given) turn_sampling_overlay(out, given);
    return 0;
}
