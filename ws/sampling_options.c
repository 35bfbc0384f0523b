// Settings made from the rows of sampling parameters. See sampling_options.h.
#include "ws/sampling_options.h"
#include "base/buf.h"
#include <math.h>

// A schema, unless it is written out, and a GBNF grammar are in files.
static bool may_be_file(const struct sampling_row *r) {
    if (r->type != SAMPLING_GRAMMAR) return false;
    enum grammar_kind kind = sampling_row_kind(r);
    return kind == GRAMMAR_JSON_SCHEMA || kind == GRAMMAR_GBNF;
}

static const char *metavar(const struct sampling_row *r) {
    if (may_be_file(r)) return "FILE";
    switch (r->type) {
    case SAMPLING_FLOAT:
        return "X";
    case SAMPLING_INT:
    case SAMPLING_SEED:
    case SAMPLING_MS:
        return "N";
    case SAMPLING_BOOL:
    case SAMPLING_WORDS:
    case SAMPLING_GRAMMAR:
        return "TEXT";
    case SAMPLING_BIASES:
        return "JSON";
    }
    return NULL;
}

int sampling_option_keys(struct config_key *out, unsigned place, size_t offset) {
    int n = 0;
    for (int i = 0; i < n_sampling_rows; i++) {
        const struct sampling_row *r = &sampling_rows[i];
        if (!(r->places & place)) continue;
        bool number = r->type == SAMPLING_FLOAT || r->type == SAMPLING_INT;
        out[n++] = (struct config_key){
            .section = "sampling",
            .name = place == SAMPLING_COMMAND ? sampling_row_option(r) : r->name,
            .type = r->type == SAMPLING_BOOL ? CONFIG_SWITCH : CONFIG_STRING,
            .offset = offset + offsetof(struct sampling_options, text[i]),
            .min = number ? r->min : 0,
            .max = !number               ? 0
                   : r->max == INT32_MAX ? INFINITY
                                         : r->max,
            .choices = metavar(r),
            .fallback = "",
            .help = r->help,
        };
    }
    return n;
}

static int apply_file(struct turn_sampling *s, const struct sampling_row *r, const char *path,
                      struct err *err) {
    struct buf text;
    int rc = buf_read_file_or_pipe(&text, path, GRAMMAR_TEXT_MAX, 10000, err);
    if (rc == 0) rc = sampling_text_apply(s, r, buf_z(&text), err);
    buf_release(&text);
    return rc;
}

int sampling_options_apply(const struct sampling_options *o, unsigned place,
                           struct turn_sampling *s, struct err *err) {
    for (int i = 0; i < n_sampling_rows; i++) {
        if (!(sampling_rows[i].places & place) || !o->text[i][0]) continue;
        const struct sampling_row *r = &sampling_rows[i];
        bool is_file = place == SAMPLING_COMMAND && may_be_file(r) && o->text[i][0] != '{';
        TRY((is_file ? apply_file : sampling_text_apply)(s, r, o->text[i], err));
    }
    return 0;
}
