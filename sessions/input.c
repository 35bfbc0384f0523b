// A turn's input: from what a request brings to the ids that continue the log, and what keeps it
// from doing so. See service.h.
#include "base/err.h"
#include "sessions/service.h"
#include "sessions/tree.h"
#include <string.h>

static int render_content(const struct session *s, const struct turn_record *r,
                          struct token_list *out, struct err *err) {
    const struct sessions *ss = s->service;
    struct engine_message messages[2];
    size_t n = 0;
    if (!ss->info->chat_template)
        return err_set(err, E_UNSUPPORTED, "%s",
                       ss->info->template_error ? ss->info->template_error
                                                : "the model has no chat template");
    if (s->rec.system && !tree_chat_begun(s, r->parent))
        messages[n++] = (struct engine_message){"system", s->rec.system};
    messages[n++] = (struct engine_message){"user", r->input_text};
    return engine_render_turn(ss->engine, messages, n, s->n_log ? s->log[s->n_log - 1] : -1, out,
                              err);
}

int input_check_ids(const struct sessions *ss, const int32_t *ids, size_t n, struct err *err) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= ss->info->n_vocab)
            return err_set(err, E_INVAL, "input.ids has %d; ids go from 0 to %d", ids[i],
                           ss->info->n_vocab - 1);
    return 0;
}

int input_make(const struct session *s, const struct turn_record *r, int32_t **ids, size_t *n,
               struct err *err) {
    const struct sessions *ss = s->service;
    bool failed = false;
    if (r->kind == INPUT_CONTINUE) return 0;
    if (r->kind == INPUT_IDS) {
        *n = r->n_input_ids;
        *ids = record_memdup(r->input_ids, *n * sizeof **ids, &failed);
        return failed ? err_set(err, E_NOMEM, "the server is out of memory") : 0;
    }
    if (!ss->info->tokenizer)
        return err_set(err, E_UNSUPPORTED, "the model has no tokenizer: it takes ids only");
    struct token_list list;
    token_list_init(&list);
    int rc = r->kind == INPUT_CONTENT
                 ? render_content(s, r, &list, err)
                 : engine_tokenize_after(ss->engine, s->n_log ? s->log[s->n_log - 1] : -1,
                                         r->input_text, r->input_text_len, &list, err);
    if (rc == 0) {
        *ids = token_list_take(&list, n);
        if (!*ids && *n) rc = err_set(err, E_NOMEM, "the server is out of memory");
    }
    token_list_release(&list);
    return rc;
}

int input_check_room(const struct session *s, const struct turn *t, size_t n, struct err *err) {
    if (n == 0 && t->rec.kind != INPUT_CONTINUE)
        return err_set(err, E_INVAL, "the input has no tokens");
    if ((int64_t)(s->n_log + n) < s->rec.session_len) return 0;
    int64_t most = s->rec.session_len, left = most - 1 - (int64_t)s->n_log;
    if ((int64_t)n >= most)
        return err_set(err, E_FULL,
                       "the message has %zu tokens, a whole session %lld (session_len): shorten it",
                       n, (long long)most);
    return err_set(err, E_FULL,
                   "the message has %zu tokens; the session's log has %zu of at most %lld "
                   "(session_len): %lld are left",
                   n, s->n_log, (long long)most, (long long)(left > 0 ? left : 0));
}

int input_check_continue(const struct session *s, const struct turn *t, struct err *err) {
    const struct turn *before = session_turn(s, t->rec.parent);
    if (t->rec.kind != INPUT_CONTINUE) return 0;
    if (!before) return err_set(err, E_INVAL, "the log is empty: there is no answer to go on with");
    if (before->rec.log_first < 0 && before->state == TURN_DONE)
        return err_set(err, E_INVAL, "turn %lld never began: there is no answer to go on with",
                       (long long)before->rec.turn);
    if (before->state == TURN_DONE && strcmp(before->rec.finish_reason, "eos") == 0)
        return err_set(err, E_INVAL, "the answer of turn %lld is complete: it ended by itself",
                       (long long)before->rec.turn);
    return 0;
}
