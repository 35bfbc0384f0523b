// Whether a head that config.json calls tied is the embedding indeed.
#pragma once
#include "engine/model/checkpoint.h"
#include "engine/model/model_config.h"

// A checkpoint may hold a head beside the embedding although its config says tied: mostly a copy,
// which changes nothing; but also one that was trained apart. Up to transformers 4 the config had
// the last word, version 5 takes the head that is there, and so do we: c->tied_head becomes false,
// with a warning. Compares the two tensors where both are there (it reads them then). Folders of
// FasterTransformer have been settled when their config was read.
int tied_head_settle(struct model_config *c, const struct checkpoint *cp, struct err *err);
