// Rotary frequencies from config.json, in its two spellings (rope_theta with rope_scaling, or
// rope_parameters), with the scalings default, linear, llama3 and yarn.
#pragma once
#include "engine/model/model_config.h"
#include <cjson/cJSON.h>

// Fills c->rot_dim, c->inv_freq and c->rope_scale; c->head_dim and c->max_positions are set. part:
// the rotated part of a head if json has no partial_rotary_factor; 0 for families that always
// rotate whole heads. Another scaling, or an unknown parameter, is E_UNSUPPORTED by name.
int rope_read(struct model_config *c, double part, const cJSON *json, struct err *err);
// Fills them without scaling, theta 10000; c->rot_dim is set.
int rope_plain(struct model_config *c, struct err *err);
