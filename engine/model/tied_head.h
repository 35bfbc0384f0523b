// Checks whether a head that config.json calls tied equals the embedding.
#pragma once
#include "engine/model/checkpoint.h"
#include "engine/model/model_config.h"

// A checkpoint may hold a head beside the embedding although its config says tied: usually a copy,
// sometimes a head that was trained separately. Up to transformers 4 the config decided; version 5
// uses the stored head. So does Parley: where the two differ, c->tied_head becomes false, with a
// warning. Reads and compares both tensors if both are present. FasterTransformer folders are checked when their
// config is read.
int tied_head_settle(struct model_config *c, const struct checkpoint *cp, struct err *err);
