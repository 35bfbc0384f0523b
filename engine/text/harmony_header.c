// See harmony_header.h.
#include "engine/text/harmony_header.h"
#include <string.h>

const char *const harmony_ends[HARMONY_ENDS] = {"<|end|>", "<|return|>", "<|call|>", "<|start|>"};

bool harmony_is_header(struct span t) {
    static const char *const words[] = {"<|channel|>", "to=", "assistant", "<|constrain|>",
                                        "<|message|>"};
    for (size_t i = 0; i < HARMONY_ENDS; i++)
        if (span_starts(t, harmony_ends[i]) || span_begins(t, harmony_ends[i])) return true;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (span_starts(t, words[i]) || span_begins(t, words[i])) return true;
    return false;
}

size_t harmony_word(struct span header, const char *mark, const char **word) {
    const size_t at = span_find(header, mark);
    if (at == SIZE_MAX) return 0;
    const struct span t = span_from(header, at + strlen(mark));
    size_t n = 0;
    while (n < t.len && span_is_name(t.s[n])) n++;
    *word = t.s;
    return n;
}
