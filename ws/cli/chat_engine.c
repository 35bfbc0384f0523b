// A chat with an engine in this process. Nothing is stored.
#include "ws/cli/chat.h"
#include <stdlib.h>

struct engine_peer {
    struct chat_peer peer;
    const struct chat_settings *settings;
    struct engine *engine;
    struct token_list log;
    uint64_t sequence, turn;
    char description[256];
};

static int render(struct engine_peer *p, const char *text, struct err *err) {
    struct engine_message messages[2] = {{"system", p->settings->system}, {"user", text}};
    bool first = p->log.len == 0 && p->settings->system[0];
    int32_t last = p->log.len ? p->log.ids[p->log.len - 1] : -1;
    return engine_render_turn(p->engine, first ? messages : messages + 1, first ? 2 : 1, last,
                              &p->log, err);
}

static int submit(struct engine_peer *p, size_t n_before, struct err *err) {
    struct engine_turn turn = {.sequence = p->sequence, .turn = ++p->turn};
    struct turn_sampling sampling = {.params = engine_info(p->engine)->suggested};
    int rc = sampling_options_apply(&p->settings->sampling, SAMPLING_COMMAND, &sampling, err);
    turn.sampling = sampling.params; // without a seed the engine draws one
    turn.n_input = (int64_t)(p->log.len - n_before);
    if (rc == 0)
        rc =
            cli_submit(p->engine, &p->settings->model, &turn, p->log.ids, (int64_t)p->log.len, err);
    turn_sampling_release(&sampling); // the engine has its own hold
    return rc;
}

static void fill_stats(const struct engine_peer *p, const struct engine_event *done,
                       int64_t first_us, struct chat_stats *stats) {
    stats->n_tokens = done->n_generated;
    stats->log_tokens = (int64_t)p->log.len;
    stats->session_len = engine_info(p->engine)->max_session_len;
    stats->first_token_ms = (double)first_us / 1e3;
    stats->tokens_per_second =
        done->decode_us > 0 ? (double)(done->n_generated - 1) * 1e6 / (double)done->decode_us : 0;
    snprintf(stats->finish, sizeof stats->finish, "%s", engine_finish_name(done->finish));
}

static int engine_say(struct chat_peer *peer, struct chat_call *call, struct err *err) {
    struct engine_peer *p = (struct engine_peer *)peer;
    struct engine_event ev;
    size_t n_before = p->log.len;
    bool cancelled = false;
    int rc;
    if ((rc = render(p, call->text, err)) < 0 || (rc = submit(p, n_before, err)) < 0) {
        p->log.len = n_before; // drop the rejected turn
        return rc;
    }
    do {
        rc = engine_wait(p->engine, &ev, 50000);
        if (rc < 0) return err_set(err, rc, "the engine stopped");
        if (*call->interrupted && !cancelled) {
            engine_turn_cancel(p->engine, p->sequence, p->turn);
            cancelled = true;
        }
        if (rc == 0 || (ev.kind != ENGINE_TOKEN && ev.kind != ENGINE_DONE)) continue;
        if (ev.kind == ENGINE_TOKEN && ev.branch > 0) continue;
        call->print(ev.text, ev.kind == ENGINE_DONE && ev.finish == FINISH_ERROR ? 0 : ev.text_len);
        if (ev.kind == ENGINE_TOKEN && ev.id >= 0 && token_list_push(&p->log, ev.id) < 0)
            return err_set(err, E_NOMEM, "out of memory for the conversation");
    } while (rc == 0 || ev.kind != ENGINE_DONE);
    fill_stats(p, &ev, ev.queue_us + ev.prefill_us, &call->stats);
    return cli_check_done(&ev, err);
}

static int engine_renew(struct chat_peer *peer, struct err *err) {
    struct engine_peer *p = (struct engine_peer *)peer;
    engine_sequence_release(p->engine, p->sequence++);
    p->log.len = 0;
    return 0;
}

static const char *engine_describe(struct chat_peer *peer) {
    return ((struct engine_peer *)peer)->description;
}

static void engine_peer_close(struct chat_peer *peer) {
    struct engine_peer *p = (struct engine_peer *)peer;
    engine_close(p->engine);
    token_list_release(&p->log);
    free(p);
}

static const struct chat_peer_ops ops = {.say = engine_say,
                                         .renew = engine_renew,
                                         .describe = engine_describe,
                                         .close = engine_peer_close};

int chat_engine_open(struct chat_peer **out, const struct chat_settings *s, struct err *err) {
    struct engine_peer *p = calloc(1, sizeof *p);
    if (!p) return err_set(err, E_NOMEM, "out of memory");
    *p = (struct engine_peer){.peer.ops = &ops, .settings = s, .sequence = 1};
    token_list_init(&p->log);
    int rc = cli_engine_open(&p->engine, &s->model, 1, err);
    if (rc == 0 && !engine_info(p->engine)->chat_template) {
        rc = err_set(err, E_UNSUPPORTED, "%s", engine_info(p->engine)->template_error);
        engine_close(p->engine);
    }
    if (rc < 0) {
        free(p);
        return rc;
    }
    snprintf(p->description, sizeof p->description, "%s, %s", engine_info(p->engine)->model_name,
             engine_info(p->engine)->backend);
    *out = &p->peer;
    return 0;
}
