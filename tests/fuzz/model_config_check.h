// Checks that hold for every model_config that a reader accepts, from any source.
#pragma once
#include "engine/model/model_config.h"
#include "tests/fuzz/fuzz.h"
#include <math.h>

static inline void model_config_check(const struct model_config *c) {
    FUZZ_CHECK(c->n_layers > 0 && c->n_heads > 0 && c->n_kv_heads > 0 && c->head_dim > 0);
    FUZZ_CHECK(c->width > 0 && c->ffn_width > 0 && c->vocab_size > 0 && c->max_positions > 0);
    FUZZ_CHECK(c->n_heads % c->n_kv_heads == 0);
    FUZZ_CHECK(c->width <= MODEL_MAX_WIDTH && c->ffn_width <= 16 * MODEL_MAX_WIDTH);
    FUZZ_CHECK(c->rot_dim >= 0 && c->rot_dim <= MODEL_MAX_ROT && c->rot_dim % 2 == 0);
    FUZZ_CHECK(c->positions != POSITION_ROTARY || c->rot_dim <= c->head_dim);
    for (int i = 0; i < c->rot_dim / 2; i++)
        FUZZ_CHECK(isfinite(c->inv_freq[i]) && c->inv_freq[i] >= 0);
    FUZZ_CHECK(isfinite(c->rope_scale) && isfinite(c->embed_scale));
    FUZZ_CHECK(c->norm_eps >= 0 && isfinite(c->norm_eps));
    FUZZ_CHECK(isfinite(model_config_attention_scale(c, c->n_layers - 1)));
    FUZZ_CHECK(model_config_window(c, 0) >= 0 && model_config_window(c, c->n_layers - 1) >= 0);
    FUZZ_CHECK(c->n_eos >= 0 && c->n_eos <= MODEL_MAX_EOS);
    FUZZ_CHECK(c->bos_id >= -1 && c->bos_id < c->vocab_size);
    for (int i = 0; i < c->n_eos; i++)
        FUZZ_CHECK(c->eos_ids[i] >= 0 && c->eos_ids[i] < c->vocab_size);
    FUZZ_CHECK(model_config_n_params(c) > 0);
}
