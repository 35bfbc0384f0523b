// One of several texts.
#pragma once
#include "engine/grammar/net.h"

// texts (n_texts) are sorted; none is empty unless it is the only way through.
void choice_emit(struct net *n, const char **texts, size_t n_texts, int32_t from, int32_t to);
