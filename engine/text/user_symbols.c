// See user_symbols.h.
#include "engine/text/user_symbols.h"
#include "engine/text/char_class.h"

bool user_symbol_is_blank(const char *symbol, size_t len) {
    for (const char *p = symbol; p < symbol + len; p += char_utf8_len(p)) {
        uint32_t c = char_decode(p);
        if (c != 0x2581 && !char_is_space(c)) return false;
    }
    return true;
}

size_t user_symbols_find(const struct user_symbols *u, const char *text, size_t len, size_t room,
                         int32_t *id) {
    size_t longest = 0;
    uint32_t node = 0;
    if (u->trie.n_nodes == 0) return 0;
    for (size_t i = 0; i < len; i++) {
        node = trie_step(&u->trie, node, (unsigned char)text[i]);
        if (node == 0) break;
        int32_t value = u->trie.nodes[node].value;
        if (value < 0 || (i + 1 > room && !user_symbol_is_blank(text, i + 1))) continue;
        longest = i + 1;
        *id = value;
    }
    return longest;
}
