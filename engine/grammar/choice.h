// One of several texts.
#pragma once
#include "engine/grammar/net.h"

// Sorts texts (n_texts) in place and emits them. An empty text must be the only one.
void choice_emit(struct net *n, const char **texts, size_t n_texts, int32_t from, int32_t to);
