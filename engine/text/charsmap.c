// See charsmap.h. The bits of a unit: 0-7 label, 8 "has a value", 9 the offset's scale, 10-30 the
// offset. The unit of a value has bit 31 set; bits 0-30 are the value.
#include "engine/text/charsmap.h"
#include "base/utf8.h"
#include <stdlib.h>
#include <string.h>

static size_t offset_of(uint32_t unit) {
    return (size_t)(unit >> 10) << ((unit & (1u << 9)) >> 6);
}

static bool has_value(uint32_t unit) {
    return unit >> 8 & 1;
}

static bool is_child(uint32_t unit, unsigned label) {
    return (unit & (1u << 31 | 0xff)) == label;
}

static bool is_inside(char byte) { // of a character
    return ((unsigned char)byte & 0xc0) == 0x80;
}

static size_t root_of(const struct charsmap *c) {
    return offset_of(c->units[0]);
}

// Visits every node that some text leads to. Paths may share nodes or run in circles in a damaged
// file: each node is visited once.
static int check(const struct charsmap *c, struct err *err) {
    uint32_t *waiting = malloc(c->n_units * sizeof *waiting);
    bool *seen = calloc(c->n_units, 1);
    size_t n = 0;
    bool root = true; // the root as a starting point; as a child it is a normal node
    int rc = waiting && seen ? 0 : err_set(err, E_NOMEM, "no memory to check precompiled_charsmap");
    if (rc == 0) waiting[n++] = 0;
    while (rc == 0 && n > 0) {
        uint32_t at = waiting[--n];
        size_t base = at ^ offset_of(c->units[at]);
        if (base >= c->n_units || (base | 0xff) >= c->n_units) {
            rc = err_set(err, E_FORMAT, "precompiled_charsmap: unit %u points past the table", at);
            break;
        }
        if (!root && has_value(c->units[at]) && (c->units[base] & 0x7fffffff) >= c->n_strings) {
            rc = err_set(err, E_FORMAT,
                         "precompiled_charsmap: unit %zu names a string past the table", base);
            break;
        }
        if (!root && has_value(c->units[at]) &&
            is_inside(c->strings[c->units[base] & 0x7fffffff])) {
            rc = err_set(err, E_FORMAT,
                         "precompiled_charsmap: unit %zu names a part of a character", base);
            break;
        }
        root = false;
        for (unsigned label = 1; label < 256; label++) {
            size_t child = base ^ label;
            if (!is_child(c->units[child], label) || seen[child]) continue;
            seen[child] = true;
            waiting[n++] = (uint32_t)child;
        }
    }
    free(waiting);
    free(seen);
    return rc;
}

int charsmap_init(struct charsmap *c, const char *blob, size_t len, struct err *err) {
    uint32_t size = 0;
    *c = (struct charsmap){0};
    if (len >= 4) memcpy(&size, blob, 4);
    if (len < 4 || size % 4 || size < 1024 || size > len - 4)
        return err_set(err, E_FORMAT, "precompiled_charsmap: %zu bytes hold no trie of %u", len,
                       size);
    c->n_units = size / 4;
    c->n_strings = len - 4 - size;
    c->units = malloc(size);
    c->strings = malloc(c->n_strings + 1);
    if (!c->units || !c->strings)
        return err_set(err, E_NOMEM, "no memory for a charsmap of %zu bytes", len);
    memcpy(c->units, blob + 4, size);
    memcpy(c->strings, blob + 4 + size, c->n_strings);
    c->strings[c->n_strings] = '\0';
    if (!utf8_valid(c->strings, c->n_strings))
        return err_set(err, E_FORMAT, "precompiled_charsmap: its strings are not UTF-8");
    TRY(check(c, err));
    for (unsigned label = 1; label < 256; label++)
        c->begins[label] = is_child(c->units[root_of(c) ^ label], label);
    return 0;
}

void charsmap_release(struct charsmap *c) {
    free(c->units);
    free(c->strings);
    *c = (struct charsmap){0};
}

const char *charsmap_find(const struct charsmap *c, const char *text, size_t len, bool longest,
                          size_t *key_len) {
    const char *found = NULL;
    size_t at = root_of(c);
    for (size_t i = 0; i < len && text[i] != '\0'; i++) {
        unsigned label = (unsigned char)text[i];
        at ^= label;
        uint32_t unit = c->units[at];
        if (!is_child(unit, label)) break;
        at ^= offset_of(unit);
        // A key that ends inside a character of the text would leave the rest of it behind.
        if (!has_value(unit) || (i + 1 < len && is_inside(text[i + 1]))) continue;
        found = c->strings + (c->units[at] & 0x7fffffff);
        *key_len = i + 1;
        if (!longest) break;
    }
    return found;
}
