// Rotary frequencies from config.json: its two spellings and the scalings default, linear, llama3
// and yarn.
#pragma once
#include "engine/model/model_config.h"
#include <cjson/cJSON.h>

// Fills c->rot_dim, c->inv_freq and c->rope_scale; c->head_dim and c->max_positions are set. part:
// how much of a head turns where json does not say it (partial_rotary_factor); 0 for families that
// turn whole heads whatever it says. Another scaling, or a parameter of it that is not understood,
// is E_UNSUPPORTED by name.
int rope_read(struct model_config *c, double part, const cJSON *json, struct err *err);
// No scaling, theta 10000; c->rot_dim is set.
int rope_plain(struct model_config *c, struct err *err);
