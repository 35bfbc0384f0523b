// Encoding sampled tokens: turn.delta and turn.sample. turn.delta is written once per token and client, so
// its constant parts are copied, not built. See protocol.h.
#include "ws/parley/protocol.h"

#define ADD(out, literal) buf_add(out, literal, sizeof(literal) - 1)

static void put_alternatives(struct json_writer *w, const struct session_event *ev,
                             const struct engine *engine) {
    json_open(w, "top_logprobs", '[');
    for (size_t i = 0; i < ev->n_ids; i++) {
        json_open(w, NULL, '[');
        for (int32_t k = 0; k < ev->n_alternatives; k++) {
            const struct engine_alternative *a =
                &ev->alternatives[i * (size_t)ev->n_alternatives + (size_t)k];
            if (a->id < 0) break; // fewer than asked for
            size_t len = 0;
            const char *bytes = engine ? engine_token_bytes(engine, a->id, &len) : NULL;
            json_open(w, NULL, '{');
            json_put_int(w, "id", a->id);
            json_put_text(w, "text", bytes ? bytes : "", bytes ? len : 0);
            json_put_double(w, "logprob", (double)a->logprob);
            json_close(w, '}');
        }
        json_close(w, ']');
    }
    json_close(w, ']');
}

static void put_tokens(struct json_writer *w, const struct session_event *ev,
                       const struct engine *engine) {
    json_put_text(w, "text", ev->text ? ev->text : "", ev->text ? ev->text_len : 0);
    json_put_ids(w, "ids", ev->ids, ev->n_ids);
    if (ev->logprobs) json_put_floats(w, "logprobs", ev->logprobs, ev->n_ids);
    if (ev->alternatives && ev->n_alternatives > 0) put_alternatives(w, ev, engine);
}

void protocol_write_delta(struct buf *out, const struct session_event *ev, const char *session,
                          const struct engine *engine) {
    struct json_writer w;
    json_writer_init(&w, out);
    ADD(out, "{\"type\":\"turn.delta\",\"session\":\""); // an id needs no escapes
    buf_addz(out, session);
    ADD(out, "\"");
    w.comma = true;
    json_put_int(&w, "seq", ev->seq);
    json_put_int(&w, "first_seq", ev->first_seq);
    json_put_int(&w, "turn", ev->delta_turn);
    put_tokens(&w, ev, engine);
    ADD(out, "}");
}

void protocol_write_sample(struct buf *out, const struct session_event *ev, const char *session,
                           const struct engine *engine) {
    struct json_writer w;
    json_writer_init(&w, out);
    json_writer_init(&w, out);
    json_open(&w, NULL, '{');
    json_put_string(&w, "type", "turn.sample");
    json_put_string(&w, "session", session);
    json_put_int(&w, "turn", ev->delta_turn);
    json_put_int(&w, "branch", ev->branch);
    json_put_int(&w, "first_token", ev->first_token);
    put_tokens(&w, ev, engine);
    json_close(&w, '}');
}
