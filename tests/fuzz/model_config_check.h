// Checks that hold for every model_config that a reader accepts, from any source.
#pragma once
#include "engine/model/model_config.h"
#include "tests/fuzz/fuzz.h"
#include <math.h>

static inline void model_config_check(const struct model_config *c) {
    FUZZ_CHECK(c->n_layers > 0 && c->kinds[0].attention.n_heads > 0 &&
               c->kinds[0].attention.n_kv_heads > 0 && c->kinds[0].attention.head_dim > 0);
    const struct experts_config *x = &c->kinds[0].feed.experts;
    FUZZ_CHECK(c->width > 0 && (c->kinds[0].feed.width > 0 || x->n_experts > 0) &&
               c->vocab_size > 0 && c->max_positions > 0);
    FUZZ_CHECK(x->n_chosen <= x->n_experts && x->n_experts <= ROUTE_MAX_EXPERTS);
    FUZZ_CHECK(c->kinds[0].attention.n_heads % c->kinds[0].attention.n_kv_heads == 0);
    FUZZ_CHECK(c->width <= MODEL_MAX_WIDTH && c->kinds[0].feed.width <= 16 * MODEL_MAX_WIDTH);
    FUZZ_CHECK(c->ropes[0].rot_dim >= 0 && c->ropes[0].rot_dim <= MODEL_MAX_ROT &&
               c->ropes[0].rot_dim % 2 == 0);
    FUZZ_CHECK(c->positions != POSITION_ROTARY ||
               c->ropes[0].rot_dim <= c->kinds[0].attention.head_dim);
    for (int i = 0; i < c->ropes[0].rot_dim / 2; i++)
        FUZZ_CHECK(isfinite(c->ropes[0].inv_freq[i]) && c->ropes[0].inv_freq[i] >= 0);
    FUZZ_CHECK(isfinite(c->ropes[0].scale) && isfinite(c->embed_scale));
    FUZZ_CHECK(c->norm_eps >= 0 && isfinite(c->norm_eps));
    FUZZ_CHECK(isfinite(model_config_attention_scale(c, c->n_layers - 1)));
    for (int32_t i = 0; i < c->n_layers; i++)
        FUZZ_CHECK(c->kind_of[i] < c->n_kinds && model_layer(c, i)->attention.window >= 0);
    FUZZ_CHECK(c->n_eos >= 0 && c->n_eos <= MODEL_MAX_EOS);
    FUZZ_CHECK(c->bos_id >= -1 && c->bos_id < c->vocab_size);
    for (int i = 0; i < c->n_eos; i++)
        FUZZ_CHECK(c->eos_ids[i] >= 0 && c->eos_ids[i] < c->vocab_size);
    FUZZ_CHECK(model_config_n_params(c) > 0);
}
