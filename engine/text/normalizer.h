// Unicode normalisation forms over utf8proc's tables. Linear in the text: a text of nothing but
// combining marks, which makes utf8proc's own reordering quadratic, is sorted here.
#pragma once
#include "engine/text/tokenizer.h"

#define NORMALIZER_MAX_FORMS 8

enum normal_form { NORMAL_NFC, NORMAL_NFD, NORMAL_NFKC, NORMAL_NFKD };

struct normalizer {
    enum normal_form forms[NORMALIZER_MAX_FORMS]; // applied in order
    int n_forms;
};

// Replaces *out by the normalised text. spans (ascending, disjoint, of text) are moved to where
// their bytes went; where a border falls inside characters that were joined or reordered, the span
// grows to hold them all.
int normalizer_apply(const struct normalizer *n, const char *text, size_t len, struct buf *out,
                     struct text_span *spans, size_t n_spans, struct err *err);
