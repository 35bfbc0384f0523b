// See tied_head.h.
#include "engine/model/tied_head.h"
#include "base/log.h"
#include "engine/model/families.h"
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES ((size_t)1 << 20)

static const struct tensor *find(const struct model_config *c, const struct checkpoint *cp,
                                 const char *stem) {
    char name[TENSOR_NAME_MAX];
    return checkpoint_find(cp, family_tensor_name(name, family_tensors_of(c), -1, stem, "weight"));
}

static bool same_form(const struct tensor *a, const struct tensor *b) {
    if (a->dtype != b->dtype || a->n_dims != b->n_dims) return false;
    return memcmp(a->shape, b->shape, (size_t)a->n_dims * sizeof *a->shape) == 0;
}

static int compare(const struct checkpoint *cp, const struct tensor *a, const struct tensor *b,
                   bool *equal, struct err *err) {
    char *block = malloc(2 * BLOCK_BYTES);
    int rc = 0;
    if (!block) return err_set(err, E_NOMEM, "no memory to compare head and embedding");
    for (size_t at = 0, n; *equal && at < a->bytes; at += n) {
        n = a->bytes - at < BLOCK_BYTES ? a->bytes - at : BLOCK_BYTES;
        TRY_GOTO(out, checkpoint_read(cp, a, at, block, n, err));
        TRY_GOTO(out, checkpoint_read(cp, b, at, block + BLOCK_BYTES, n, err));
        *equal = memcmp(block, block + BLOCK_BYTES, n) == 0;
    }
out:
    free(block);
    return rc;
}

int tied_head_settle(struct model_config *c, const struct checkpoint *cp, struct err *err) {
    char quoted[TENSOR_NAME_MAX];
    if (c->format == FORMAT_FASTERTRANSFORMER) return 0;
    const struct family_tensors *names = family_tensors_of(c);
    const struct tensor *head = find(c, cp, names->head), *embed = find(c, cp, names->embed);
    if (c->no_head && !head) c->tied_head = true;
    if (!c->tied_head) return 0;
    if (!head || !embed || head == embed) return 0;
    bool equal = same_form(head, embed);
    TRY(compare(cp, head, embed, &equal, err));
    if (equal) return 0;
    log_warn("model.head_not_tied",
             "head=%s reason=\"config.json calls it tied, but it is not "
             "the embedding\"",
             log_quote(quoted, sizeof quoted, head->name));
    c->tied_head = false;
    return 0;
}
