// Rows whose values come from the host instead of the model: embeddings of virtual tokens (prompt tuning), and a
// prefix's keys and values (forward_prefix in forward.h). They are copied a run of rows at a time, through f->staged.
#pragma once
#include "engine/run/forward.h"

// Puts the embeddings of b's virtual tokens over those of their rows in y (n_rows, embed_width).
int virtual_rows_embed(struct forward *f, void *y, const struct batch *b);
