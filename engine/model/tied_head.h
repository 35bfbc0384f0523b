// Checks whether a head that config.json calls tied equals the embedding.
#pragma once
#include "engine/model/checkpoint.h"
#include "engine/model/model_config.h"

// A checkpoint may hold a head beside the embedding although its config says that the head is tied. The
// head is usually a copy, sometimes trained separately. Transformers up to 4 followed the config;
// version 5 uses the stored head, and so does Parley: if the two tensors differ, c->tied_head becomes
// false, with a warning. Reads and compares both tensors if both are present. For a FasterTransformer
// folder, ft_model_config_load does this.
int tied_head_settle(struct model_config *c, const struct checkpoint *cp, struct err *err);
