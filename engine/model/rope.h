// Rotary frequencies from config.json, in its spellings (rope_theta with rope_scaling, or rope_parameters, which may
// have an object for each kind of layers), with the scalings default, linear, llama3, yarn, longrope, dynamic and
// proportional.
#pragma once
#include "engine/model/model_config.h"
#include <cjson/cJSON.h>

struct rope_request {
    int32_t head_dim;
    // The rotated part of a head if json has no partial_rotary_factor; 0: always whole heads.
    double part;
    double theta; // if json has none
    // Its key beside the objects: "rope_theta", Gemma 3's "rope_local_base_freq".
    const char *theta_key;
    const char *ropes;  // see rope_default
    const char *layers; // the object to read, "full_attention" ...; NULL: there is one for all
    bool unscaled;      // rope_scaling is not about these layers
};

// Fills out but for its style; c->max_positions is set. Another scaling, or an unknown parameter, is
// E_UNSUPPORTED by name. queries: receives the scale of queries by position; NULL: the family has none.
int rope_read(const struct model_config *c, struct rope *out, const struct rope_request *r,
              const cJSON *json, struct attention_config *queries, struct err *err);
// Some classes scale a model whose config.json mentions neither rope_scaling nor rope_parameters (null is a mention).
// ropes: their parameters as JSON, or NULL. out: the object to read then, which the caller deletes; NULL: json decides.
int rope_default(const char *ropes, const cJSON *json, cJSON **out, struct err *err);
// Fills it without scaling, theta 10000; out->rot_dim is set.
int rope_plain(struct rope *out, struct err *err);
