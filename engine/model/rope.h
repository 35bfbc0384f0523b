// Rotary frequencies from config.json: its two spellings and the scalings default, linear, llama3
// and yarn.
#pragma once
#include "engine/model/model_config.h"
#include <cjson/cJSON.h>

// Fills c->inv_freq and c->rope_scale; c->rot_dim and c->max_positions are set. Another scaling, or
// a parameter of it that is not understood, is E_UNSUPPORTED by name.
int rope_read(struct model_config *c, const cJSON *json, struct err *err);
