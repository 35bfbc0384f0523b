// See final_norm.h.
#include "engine/run/final_norm.h"
#include <math.h>
#include <stdlib.h>

static int copy(float **out, const float *weight, int32_t width, struct backend *be,
                struct err *err) {
    size_t bytes = (size_t)width * sizeof **out;
    if (!weight) return 0;
    *out = malloc(bytes);
    if (!*out) return err_set(err, E_NOMEM, "no memory for the final norm");
    int rc = be->ops->mem_read(be, *out, weight, bytes);
    return rc < 0 ? err_set(err, rc, "the final norm cannot be read from the device") : 0;
}

int final_norm_init(struct final_norm *n, const struct model *m, struct backend *be,
                    struct err *err) {
    const struct model_config *c = &m->config;
    *n = (struct final_norm){
        .kind = c->norm, .eps = c->norm_eps, .width = c->width, .none = !c->final_norm};
    if (n->none) return 0;
    int rc = copy(&n->weight, m->final_norm.weight, c->width, be, err);
    if (rc == 0) rc = copy(&n->bias, m->final_norm.bias, c->width, be, err);
    if (rc < 0) final_norm_release(n);
    return rc;
}

void final_norm_release(struct final_norm *n) {
    free(n->weight);
    free(n->bias);
    *n = (struct final_norm){0};
}

bool final_norm_usable(const struct final_norm *n) {
    return n->none || n->weight;
}

// Two passes for layer norm, as kernels/cpu/norm.c.
void final_norm_apply(const struct final_norm *n, float *x) {
    double mean = 0, squares = 0;
    if (n->none) return;
    for (int32_t i = 0; i < n->width && n->kind == NORM_LAYER; i++) mean += (double)x[i] / n->width;
    for (int32_t i = 0; i < n->width; i++) squares += (x[i] - mean) * (x[i] - mean);
    double scale = 1 / sqrt(squares / n->width + (double)n->eps);
    for (int32_t i = 0; i < n->width; i++)
        x[i] = (float)((x[i] - mean) * scale * n->weight[i] + (n->bias ? n->bias[i] : 0));
}
