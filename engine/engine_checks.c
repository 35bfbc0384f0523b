// What a turn must be, as far as the owner's thread can tell: checked before it is queued.
#include "engine/engine_internal.h"
#include <string.h>

static int check_log(const struct engine *e, const struct engine_turn *t, struct err *err) {
    if (!t->ids || t->n_ids < 1)
        return err_set(err, E_INVAL, "ids: a turn needs a log of at least one token");
    int64_t given = t->n_ids - t->n_drawn;
    if (t->n_drawn < 0 || given < 1 || t->n_input < 0 || t->n_input > given)
        return err_set(err, E_INVAL, "n_input %lld, n_drawn %lld: in a log of %lld tokens",
                       (long long)t->n_input, (long long)t->n_drawn, (long long)t->n_ids);
    if (t->n_drawn > 0 && (t->score_only || branches_wanted(&t->sampling) > 1))
        return err_set(err, E_INVAL, "n_drawn: only a turn with one answer can continue");
    // Length first: it bounds the loop below.
    int64_t room = t->session_len - t->n_ids;
    if (room < 0 || (room == 0 && !t->score_only)) {
        return err_set(err, E_FULL,
                       "a log of %lld tokens leaves no room to generate in a session of %lld",
                       (long long)t->n_ids, (long long)t->session_len);
    }
    for (int64_t i = 0; i < t->n_ids; i++) {
        if (prompt_allows(t->prompt, i, t->ids[i])) continue;
        if (t->ids[i] < 0 || t->ids[i] >= e->info.n_vocab) {
            return err_set(err, E_INVAL, "ids: %d at position %lld is not in the vocabulary of %d",
                           t->ids[i], (long long)i, e->info.n_vocab);
        }
    }
    return 0;
}

static int check_prompt(const struct engine *e, const struct engine_turn *t, struct err *err) {
    const struct prompt *p = t->prompt;
    if (!p) return 0;
    if (p->width != prompt_width(e->config, p->kind))
        return err_set(err, E_INVAL, "prompt: made for another model");
    for (int32_t i = 0; i < prompt_n_prefix(p); i++)
        if (i >= t->n_ids - 1 || t->ids[i] != PROMPT_ID_FIRST + i)
            return err_set(err, E_INVAL,
                           "ids: a log with a prefix begins with its %d virtual tokens, and has "
                           "more tokens than those",
                           p->n_rows);
    return 0;
}

int engine_prompt_load(const struct engine *e, const char *dir, struct prompt **out,
                       struct err *err) {
    return prompt_load(out, e->config, dir, err);
}

int64_t engine_prompt_width(const struct engine *e, enum prompt_kind kind) {
    return prompt_width(e->config, kind);
}

int engine_turn_check(const struct engine *e, const struct engine_turn *t, struct err *err) {
    if (t->sequence == 0) return err_set(err, E_INVAL, "sequence: 0 names no sequence");
    if (t->session_len < 1 || t->session_len > e->info.max_session_len)
        return err_set(err, E_INVAL, "session_len: %lld is not in 1 .. %lld",
                       (long long)t->session_len, (long long)e->info.max_session_len);
    if (t->memory_len < 1 || t->memory_len > e->info.max_memory_len)
        return err_set(err, E_INVAL, "memory_len: %d is not in 1 .. %d", t->memory_len,
                       e->info.max_memory_len);
    if (t->sink_len < 0 || t->sink_len >= t->memory_len)
        return err_set(err, E_INVAL, "sink_len: %d is not in 0 .. %d, below memory_len",
                       t->sink_len, t->memory_len - 1);
    if (t->on_logits && e->process)
        return err_set(err, E_UNSUPPORTED, "on_logits: not from an engine process");
    if (t->share_group > INT64_MAX)
        return err_set(err, E_INVAL, "share_group: larger than %lld", (long long)INT64_MAX);
    if (t->sampling.stop.n_texts > 0 && !e->tokenizer)
        return err_set(err, E_INVAL,
                       "stop: the model has no tokenizer, so its tokens have no text to stop at");
    if (t->sampling.bad_words.n_texts > 0 && !e->tokenizer)
        return err_set(
            err, E_INVAL,
            "bad_words: the model has no tokenizer, so words must be lists of token ids");
    if (t->lasting_id && strlen(t->lasting_id) > KV_SNAPSHOT_ID_MAX)
        return err_set(err, E_INVAL, "lasting_id: longer than %d characters", KV_SNAPSHOT_ID_MAX);
    if (t->origin_id && strlen(t->origin_id) > KV_SNAPSHOT_ID_MAX)
        return err_set(err, E_INVAL, "origin_id: longer than %d characters", KV_SNAPSHOT_ID_MAX);
    TRY(sampling_params_check(&t->sampling, e->info.n_vocab, err));
    TRY(branches_check(t, e->n_eos, err));
    if (e->info.embeds_only && !t->sampling.context_embedding)
        return err_set(err, E_UNSUPPORTED,
                       "%s is an embedding model: it gives embeddings (/v1/embeddings) and no text",
                       e->info.model_name);
    if (t->sampling.context_embedding && t->sampling.context_pooling != POOLING_SUM &&
        !e->has_final_norm)
        return err_set(err, E_UNSUPPORTED,
                       "context_pooling: the final norm is on another rank of this instance");
    TRY(check_log(e, t, err));
    TRY(drafts_check(t->expected, t->n_expected, e->info.n_vocab, err));
    return check_prompt(e, t, err);
}
