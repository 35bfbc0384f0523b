// The engine's grammars: see engine/grammar/README.md.
#include "engine/engine_internal.h"

static int get(const struct engine *e, uint64_t owner, const struct grammar_text *text,
               struct grammar **out, struct err *err) {
    if (!e->tokenizer)
        return err_set(err, E_UNSUPPORTED,
                       "%s: the model has no tokenizer, so its tokens are no text",
                       grammar_kind_name(grammar_text_kind(text)));
    return grammars_get(e->grammars, owner, text, out, err);
}

// The bytes that a token adds to an answer under a grammar (token_bytes_fn); ctx: the engine. NULL: none, for a
// special token and one that ends answers.
static const char *text_of_token(void *ctx, int32_t id, size_t *len) {
    const struct engine *e = ctx;
    for (int32_t i = 0; i < e->n_eos; i++)
        if (e->eos_ids[i] == id) return NULL;
    const char *bytes = tokenizer_bytes(e->tokenizer, id, len);
    return bytes && !tokenizer_is_special(e->tokenizer, id) ? bytes : NULL;
}

int engine_open_grammars(struct engine *e, struct err *err) {
    if (!e->tokenizer) return 0;
    TRY(grammars_new(&e->grammars, e->config->vocab_size, text_of_token, e, err));
    e->info.vocabulary = grammars_vocabulary(e->grammars);
    return 0;
}

int engine_grammar_prepare(const struct engine *e, uint64_t owner, const struct grammar_text *text,
                           struct grammar **out, struct err *err) {
    return get(e, owner, text, out, err);
}

struct grammar *engine_grammar_find(const struct engine *e, uint64_t owner,
                                    const struct grammar_text *text) {
    return e->grammars ? grammars_find(e->grammars, owner, text) : NULL;
}

void engine_grammar_release(struct grammar *g) {
    grammar_free(g);
}

// --- turns ---------------------------------------------------------------------------------------

// The turn follows the model's thinking where that ends its tokens or begins its grammar.
static int take_thinking(const struct engine *e, struct live_turn *t, struct err *err) {
    const struct sampling_params *p = &t->spec.sampling;
    const bool harmony = engine_syntax(e).tools == TOOL_SYNTAX_HARMONY;
    if (!p->grammar && p->thinking_budget < 0) return 0;
    // A grammar describes harmony's channels too.
    t->thinking = harmony && !p->grammar ? e->channel : e->thinking;
    if (harmony && p->grammar && p->thinking_budget > 0)
        return err_set(err, E_UNSUPPORTED,
                       "thinking_budget: a grammar decides where this model's thinking ends");
    if (t->thinking || (harmony && p->grammar) || p->thinking_budget < 0 ||
        !engine_syntax(e).think_close)
        return 0;
    return err_set(err, E_UNSUPPORTED,
                   "thinking_budget: the tokenizer cannot write the end of the model's thinking");
}

bool engine_begins_thinking(const struct engine *e, const int32_t *log, int64_t n, bool goes_on) {
    struct thinking now = {0};
    if (e->thinking) thinking_begin(&now, e->thinking, log, n, goes_on);
    return now.state == THINKING_OPEN;
}

int engine_grammar_take(const struct engine *e, struct live_turn *t, struct err *err) {
    const struct sampling_params *p = &t->spec.sampling;
    struct grammar *compiled = t->spec.compiled;
    t->spec.compiled = NULL; // borrowed for this call
    if (t->spec.score_only) return 0;
    t->form = (struct answer_form){.thinking = e->thinking, .syntax = engine_syntax(e)};
    TRY(take_thinking(e, t, err));
    if (!p->grammar) return 0;
    const char *name = grammar_kind_name(grammar_text_kind(p->grammar));
    if (e->n_eos == 0 && p->end_id < 0)
        return err_set(err, E_INVAL, "%s: the model has no token that ends an answer", name);
    if (compiled && e->grammars && grammars_fit(e->grammars, compiled, p->grammar))
        t->grammar = grammar_hold(compiled);
    else
        TRY(get(e, t->spec.owner, p->grammar, &t->grammar, err));
    t->grammar_room = live_turn_planned(&t->spec);
    int64_t least = (int64_t)grammar_least_tokens(t->grammar) + 1;
    bool thinks = engine_begins_thinking(e, t->spec.ids, t->spec.n_ids, t->spec.goes_on);
    if (thinks) least += t->thinking->longest_close;
    // No answer fits: the turn ends with `length`, as it would without a grammar.
    if (t->grammar_room < least) t->grammar_room = GRAMMAR_NO_END;
    return 0;
}
