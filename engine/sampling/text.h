// A sampling parameter from text: a value of the ini file, an option, KEY=VALUE.
#pragma once
#include "engine/sampling/rows.h"

// Puts the value into *s and marks it as given. Numbers are written as in JSON, true and false also
// as on and off, a seed also as 0x..., words as one text or as a JSON list of texts and lists of
// ids, biases as JSON. E_INVAL names the parameter and its range, and leaves *s unchanged.
int sampling_text_apply(struct turn_sampling *s, const struct sampling_row *row, const char *text,
                        struct err *err);
