// Settings made from the rows of sampling parameters. See sampling_options.h.
#include "ws/sampling_options.h"
#include <math.h>

static const char *metavar(enum sampling_type type) {
    switch (type) {
    case SAMPLING_FLOAT:
        return "X";
    case SAMPLING_INT:
    case SAMPLING_SEED:
    case SAMPLING_MS:
        return "N";
    case SAMPLING_BOOL:
    case SAMPLING_WORDS:
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
            .choices = metavar(r->type),
            .fallback = "",
            .help = r->help,
        };
    }
    return n;
}

int sampling_options_apply(const struct sampling_options *o, unsigned place,
                           struct turn_sampling *s, struct err *err) {
    for (int i = 0; i < n_sampling_rows; i++) {
        if (!(sampling_rows[i].places & place) || !o->text[i][0]) continue;
        TRY(sampling_text_apply(s, &sampling_rows[i], o->text[i], err));
    }
    return 0;
}
