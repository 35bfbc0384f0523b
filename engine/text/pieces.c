// See pieces.h.
#include "engine/text/pieces.h"
#include "base/err.h"
#include <stdlib.h>

void pieces_release(struct pieces *p) {
    free(p->scores);
    free(p->kinds);
    trie_release(&p->symbols.trie);
    *p = (struct pieces){0};
}

int pieces_push_unknown(const struct pieces *p, const char *text, size_t len, bool *in_run,
                        struct token_list *out) {
    if (!p->byte_fallback) {
        bool again = *in_run;
        *in_run = true;
        return again ? 0 : token_list_push(out, p->unk_id);
    }
    for (size_t i = 0; i < len; i++) TRY(token_list_push(out, p->byte_ids[(unsigned char)text[i]]));
    return 0;
}
