// The engine's grammars: see engine/grammar/README.md.
#include "engine/engine_internal.h"

int engine_grammar_get(const struct engine *e, const struct grammar_text *text,
                       struct grammar **out, struct err *err) {
    if (!e->tokenizer)
        return err_set(err, E_UNSUPPORTED,
                       "%s: the model has no tokenizer, so its tokens are no text",
                       grammar_kind_name(grammar_text_kind(text)));
    return grammars_get(e->grammars, text, out, err);
}

int engine_grammar_prepare(const struct engine *e, const struct grammar_text *text,
                           struct err *err) {
    struct grammar *g;
    TRY(engine_grammar_get(e, text, &g, err));
    grammar_free(g);
    return 0;
}

bool engine_grammar_is_ready(const struct engine *e, const struct grammar_text *text) {
    return grammars_has(e->grammars, text);
}

// A special token or one that ends answers stands for no text.
const char *engine_text_of_token(void *ctx, int32_t id, size_t *len) {
    const struct engine *e = ctx;
    for (int32_t i = 0; i < e->n_eos; i++)
        if (e->eos_ids[i] == id) return NULL;
    const char *bytes = tokenizer_bytes(e->tokenizer, id, len);
    return bytes && !tokenizer_is_special(e->tokenizer, id) ? bytes : NULL;
}
