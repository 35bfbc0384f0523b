// See gguf_plan.h.
#include "engine/convert/gguf_plan.h"
#include "engine/convert/block_encode.h"
#include "engine/model/families.h"
#include "engine/model/model.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_BYTES 256

struct planning {
    struct gguf_plan *plan;
    const struct gguf_arch *arch;
    const struct model_config *c;
    struct checkpoint *cp;
    enum gguf_weights weights;
    uint8_t *roles; // (tensors of cp) enum tensor_role; those with a place become TENSOR_UNUSED
    struct err *err;
};

// --- types ---

static uint32_t stored_type(const struct tensor *t) {
    return t->dtype == DTYPE_F16 ? BLOCK_F16 : t->dtype == DTYPE_BF16 ? BLOCK_BF16 : BLOCK_F32;
}

static bool is_table(const char *name) {
    return strcmp(name, "token_embd.weight") == 0 || strcmp(name, "output.weight") == 0;
}

static bool is_mxfp4(const struct planning *p, const struct tensor *t) {
    struct group_format f;
    return checkpoint_groups(p->cp, t, &f) && f.book == group_book_e2m1 && f.group == 32;
}

// Routers stay as they are, since a small change of their logits chooses other experts. Matrices of MXFP4 keep it.
static uint32_t type_of(const struct planning *p, const struct tensor *t, int64_t cols,
                        const char *name) {
    static const uint32_t ids[] = {[GGUF_Q8_0] = BLOCK_Q8_0,
                                   [GGUF_Q4_0] = BLOCK_Q4_0,
                                   [GGUF_F16] = BLOCK_F16,
                                   [GGUF_BF16] = BLOCK_BF16};
    uint32_t id = ids[p->weights];
    if (t->n_dims < 2 || strstr(name, "ffn_gate_inp") || strstr(name, ".bias")) return BLOCK_F32;
    if (is_mxfp4(p, t)) return BLOCK_MXFP4;
    if (id == BLOCK_Q4_0 && is_table(name)) id = BLOCK_Q8_0;
    return cols % block_type_find(id)->values == 0 ? id : stored_type(t);
}

// --- the list ---

static int make_room(struct gguf_plan *plan, struct err *err) {
    if (plan->n < plan->room) return 0;
    const size_t room = plan->room * 2 + 64;
    struct gguf_out_tensor *tensors = realloc(plan->tensors, room * sizeof *tensors);
    if (tensors) plan->tensors = tensors;
    struct gguf_source *sources = tensors ? realloc(plan->sources, room * sizeof *sources) : NULL;
    if (sources) plan->sources = sources;
    if (!tensors || !sources) return err_set(err, E_NOMEM, "no memory for %zu tensors", room);
    plan->room = room;
    return 0;
}

int gguf_plan_add_row(struct gguf_plan *plan, const char *name, int64_t n, struct err *err) {
    TRY(make_room(plan, err));
    struct gguf_out_tensor *t = &plan->tensors[plan->n];
    *t = (struct gguf_out_tensor){.type = block_type_find(BLOCK_F32), .n_dims = 1, .shape = {n}};
    snprintf(t->name, sizeof t->name, "%s", name);
    plan->sources[plan->n++] = (struct gguf_source){.n_from = 0};
    return 0;
}

static int pair_rows(const struct planning *p, const struct gguf_tensor_name *row,
                     const struct tensor *t, struct gguf_source *s) {
    const struct attention_config *a = &p->c->kinds[0].attention;
    const int32_t heads = row->by_kv_head ? a->n_kv_heads : a->n_heads;
    s->head_rows = t->shape[0] / heads;
    if (t->shape[0] % heads == 0 && s->head_rows % 2 == 0) return 0;
    return err_set(p->err, E_UNSUPPORTED, "the tensor '%s' has no heads of pairs", t->name);
}

// from: (n_from) tensors of one shape and type; moves into the plan.
static int add_take(const struct planning *p, const struct gguf_tensor_name *row, const char *name,
                    const struct tensor **from, int32_t n_from) {
    struct gguf_plan *plan = p->plan;
    const struct tensor *first = from[0];
    const bool experts = strchr(row->hf, '#') != NULL;
    const int n_dims = first->n_dims + experts;
    int rc = make_room(plan, p->err);
    struct gguf_out_tensor *t = rc == 0 ? &plan->tensors[plan->n] : NULL;
    if (rc == 0 && (n_dims < 1 || n_dims > GGUF_WRITER_MAX_DIMS || strlen(name) >= sizeof t->name))
        rc = err_set(p->err, E_UNSUPPORTED, "the tensor '%s' has %d dimensions", first->name,
                     first->n_dims);
    if (rc < 0) {
        free(from);
        return rc;
    }
    const int64_t cols = first->shape[first->n_dims - 1];
    *t = (struct gguf_out_tensor){.type = block_type_find(type_of(p, first, cols, name)),
                                  .n_dims = n_dims};
    memcpy(t->name, name, strlen(name) + 1);
    if (experts) t->shape[0] = n_from;
    for (int d = 0; d < first->n_dims; d++) t->shape[d + experts] = first->shape[d];
    struct gguf_source *s = &plan->sources[plan->n++];
    *s = (struct gguf_source){
        .from = from, .n_from = n_from, .change = row->change, .is_matrix = first->n_dims > 1};
    plan->n_matrices += s->is_matrix ? n_from : 0;
    for (int32_t i = 0; i < n_from; i++) {
        plan->bytes_before += (int64_t)from[i]->bytes;
        p->roles[checkpoint_index(p->cp, from[i])] = TENSOR_UNUSED;
    }
    return row->change == GGUF_PAIRED_ROWS ? pair_rows(p, row, first, s) : 0;
}

// --- names ---

static const struct tensor *find_used(const struct planning *p, const char *name) {
    const struct tensor *t = checkpoint_find(p->cp, name);
    return t && p->roles[checkpoint_index(p->cp, t)] != TENSOR_UNUSED ? t : NULL;
}

static const struct tensor *find_part(const struct planning *p, const struct gguf_tensor_name *row,
                                      int32_t layer, int32_t expert, const char *suffix) {
    char name[NAME_MAX_BYTES], at[48] = "", number[16] = "";
    const char *mark = strchr(row->hf, '#');
    const int before = (int)(mark ? mark - row->hf : (long)strlen(row->hf));
    if (layer >= 0) snprintf(at, sizeof at, "model.layers.%d.", layer);
    if (mark) snprintf(number, sizeof number, "%d", expert);
    snprintf(name, sizeof name, "%s%.*s%s%s%s", at, before, row->hf, number, mark ? mark + 1 : "",
             suffix);
    return find_used(p, name);
}

static bool same_form(const struct tensor *a, const struct tensor *b) {
    if (a->n_dims != b->n_dims || a->dtype != b->dtype) return false;
    for (int d = 0; d < a->n_dims; d++)
        if (a->shape[d] != b->shape[d]) return false;
    return true;
}

// Matrices and biases of experts that folders may have in one tensor of all, (experts, rows of all parts, columns) or
// (experts, values of all parts). gpt-oss's parts alternate, and its matrices, where they are floats, are turned.
static const struct stack {
    const char *hf, *stacked; // as rows of the table have them, without ".weight"
    int part, n_parts;
} stacks[] = {
    {"block_sparse_moe.experts.#.w1", "block_sparse_moe.input_linear", 0, 2},
    {"block_sparse_moe.experts.#.w3", "block_sparse_moe.input_linear", 1, 2},
    {"block_sparse_moe.experts.#.w2", "block_sparse_moe.output_linear", 0, 1},
    {"block_sparse_moe.experts.#.w1", "block_sparse_moe.experts.gate_up_proj", 0, 2},
    {"block_sparse_moe.experts.#.w3", "block_sparse_moe.experts.gate_up_proj", 1, 2},
    {"block_sparse_moe.experts.#.w2", "block_sparse_moe.experts.down_proj", 0, 1},
    {"mlp.experts.#.gate_proj", "mlp.experts.gate_up_proj", 0, 2},
    {"mlp.experts.#.up_proj", "mlp.experts.gate_up_proj", 1, 2},
    {"mlp.experts.#.down_proj", "mlp.experts.down_proj", 0, 1},
    {"mlp.experts.gate_proj_bias", "mlp.experts.gate_up_proj_bias", 0, 2},
    {"mlp.experts.up_proj_bias", "mlp.experts.gate_up_proj_bias", 1, 2},
};

static const struct tensor *find_stack(const struct planning *p, const struct stack *stack,
                                       int32_t layer, bool *bare) {
    char name[NAME_MAX_BYTES];
    snprintf(name, sizeof name, "model.layers.%d.%s.weight", layer, stack->stacked);
    const struct tensor *t = checkpoint_find(p->cp, name);
    *bare = t == NULL;
    if (t) return t;
    snprintf(name, sizeof name, "model.layers.%d.%s", layer, stack->stacked);
    return checkpoint_find(p->cp, name);
}

// The part of each expert's values, of biases, or of its rows.
static void take_part(const struct planning *p, const struct stack *stack, const struct tensor *t,
                      bool bare) {
    struct gguf_out_tensor *to = &p->plan->tensors[p->plan->n - 1];
    struct gguf_source *s = &p->plan->sources[p->plan->n - 1];
    const bool alternate = family_tensors_of(p->c)->experts_turned;
    const int64_t step = alternate ? stack->n_parts : 1;
    if (t->n_dims == 2) {
        to->shape[1] = t->shape[1] / stack->n_parts;
        s->col_step = step;
        s->first_col = alternate ? stack->part : stack->part * to->shape[1];
        return;
    }
    s->turned = alternate && bare;
    s->stack_rows = t->shape[s->turned ? 2 : 1];
    s->matrix_rows = to->shape[1] = s->stack_rows / stack->n_parts;
    to->shape[2] = t->shape[s->turned ? 1 : 2];
    s->first_row = alternate ? stack->part : stack->part * s->matrix_rows;
    s->row_step = step;
    to->type = block_type_find(type_of(p, t, to->shape[2], to->name));
    p->plan->n_matrices += t->shape[0] - 1;
}

static int add_stacked(const struct planning *p, const struct stack *stack,
                       const struct gguf_tensor_name *row, int32_t layer, const char *suffix) {
    struct gguf_tensor_name whole = {row->gguf, stack->stacked, GGUF_AS_IS, false};
    char name[NAME_MAX_BYTES];
    bool bare;
    const struct tensor *t = find_stack(p, stack, layer, &bare);
    if (!t) return 0;
    if (t->n_dims != (*suffix ? 3 : 2) || t->shape[1] % stack->n_parts != 0 ||
        t->shape[t->n_dims - 1] % stack->n_parts != 0)
        return err_set(p->err, E_UNSUPPORTED, "the tensor '%s' has no matrices of experts",
                       t->name);
    const struct tensor **from = calloc(1, sizeof(const struct tensor *));
    if (!from) return err_set(p->err, E_NOMEM, "no memory for the list of tensors");
    from[0] = t;
    snprintf(name, sizeof name, "blk.%d.%s%s", layer, row->gguf, suffix);
    TRY(add_take(p, &whole, name, from, 1));
    take_part(p, stack, t, bare);
    if (stack->part > 0) p->plan->bytes_before -= (int64_t)t->bytes; // it is counted already
    return 0;
}

static int add_stack_of(const struct planning *p, const struct gguf_tensor_name *row, int32_t layer,
                        const char *suffix) {
    for (size_t i = 0; i < sizeof stacks / sizeof *stacks; i++)
        if (layer >= 0 && strcmp(stacks[i].hf, row->hf) == 0 && row->change == GGUF_AS_IS)
            TRY(add_stacked(p, &stacks[i], row, layer, suffix));
    return 0;
}

static bool has_word(const char *words, const char *word) {
    const size_t n = strlen(word);
    for (const char *at = words; at && (at = strstr(at, word)); at += n)
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0')) return true;
    return false;
}

// llama.cpp refuses a file that has a tensor it does not load.
static int check_bias(const struct planning *p, const struct gguf_tensor_name *row,
                      const struct tensor *bias) {
    if (has_word("attn_q attn_k attn_v attn_qkv", row->gguf) ||
        has_word(p->arch->biases, row->gguf))
        return 0;
    return err_set(p->err, E_UNSUPPORTED,
                   "llama.cpp loads no '%s.bias' in the architecture '%s' and would refuse the "
                   "file: the tensor '%s' has no place in it",
                   row->gguf, p->arch->name, bias->name);
}

// The tensor of this row and suffix, if the model has it.
static int add_row(const struct planning *p, const struct gguf_tensor_name *row, int32_t layer,
                   const char *suffix) {
    char name[NAME_MAX_BYTES];
    const struct tensor *first = find_part(p, row, layer, 0, suffix);
    const int32_t n_experts =
        strchr(row->hf, '#') ? model_layer(p->c, layer)->feed.experts.n_experts : 1;
    if (!first && strcmp(suffix, ".bias") != 0) return add_stack_of(p, row, layer, suffix);
    if (!first || n_experts < 1) return 0;
    if (strcmp(suffix, ".bias") == 0) TRY(check_bias(p, row, first));
    const struct tensor **from = calloc((size_t)n_experts, sizeof(const struct tensor *));
    if (!from) return err_set(p->err, E_NOMEM, "no memory for the list of tensors");
    for (int32_t i = 0; i < n_experts; i++) {
        from[i] = i == 0 ? first : find_part(p, row, layer, i, suffix);
        if (from[i] && same_form(first, from[i])) continue;
        free(from);
        return err_set(p->err, E_UNSUPPORTED, "the experts of layer %d have different forms",
                       layer);
    }
    if (layer >= 0)
        snprintf(name, sizeof name, "blk.%d.%s%s", layer, row->gguf, suffix);
    else
        snprintf(name, sizeof name, "%s%s", row->gguf, suffix);
    return add_take(p, row, name, from, n_experts);
}

// A row that names an ending has the whole of both names.
static bool has_ending(const char *name) {
    static const char *const endings[] = {".weight", ".bias", ".scale"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof endings / sizeof *endings; i++)
        if (strcmp(dot, endings[i]) == 0) return true;
    return false;
}

static int add_rows(const struct planning *p, const struct gguf_tensor_name *rows, int32_t layer) {
    for (; rows->gguf; rows++) {
        if (has_ending(rows->gguf)) {
            TRY(add_row(p, rows, layer, ""));
        } else {
            TRY(add_row(p, rows, layer, ".weight"));
            TRY(add_row(p, rows, layer, ".bias"));
        }
    }
    return 0;
}

static int check_all_placed(const struct planning *p) {
    for (size_t i = 0; i < checkpoint_count(p->cp); i++)
        if (p->roles[i] != TENSOR_UNUSED)
            return err_set(p->err, E_UNSUPPORTED,
                           "the tensor '%s' has no place in a GGUF file of the architecture '%s'",
                           checkpoint_at(p->cp, i)->name, p->arch->name);
    return 0;
}

// Values that the file has as metadata (to_gguf.c).
static void leave_values(const struct planning *p) {
    char name[NAME_MAX_BYTES];
    for (const struct gguf_layer_value *v = p->arch->values; v && v->gguf; v++)
        for (int32_t i = 0; i < p->c->n_layers && v->hf; i++) {
            snprintf(name, sizeof name, "model.layers.%d.%s", i, v->hf);
            const struct tensor *t = checkpoint_find(p->cp, name);
            if (t) p->roles[checkpoint_index(p->cp, t)] = TENSOR_UNUSED;
        }
}

static int make(const struct planning *p) {
    TRY(model_tensor_roles(p->c, p->cp, p->roles, NULL, p->err));
    TRY(add_rows(p, p->arch->outer ? p->arch->outer : gguf_outer_names, -1));
    for (int32_t i = 0; i < p->c->n_layers; i++) TRY(add_rows(p, p->arch->layer, i));
    leave_values(p);
    return check_all_placed(p);
}

int gguf_plan_make(struct gguf_plan *plan, const struct gguf_arch *arch,
                   const struct model_config *c, struct checkpoint *cp, enum gguf_weights weights,
                   struct err *err) {
    struct planning p = {
        .plan = plan, .arch = arch, .c = c, .cp = cp, .weights = weights, .err = err};
    p.roles = calloc(checkpoint_count(cp) + 1, sizeof *p.roles);
    const int rc = p.roles ? make(&p) : err_set(err, E_NOMEM, "no memory for the tensors");
    free(p.roles);
    return rc;
}

void gguf_plan_release(struct gguf_plan *plan) {
    for (size_t i = 0; i < plan->n; i++) free(plan->sources[i].from);
    free(plan->tensors);
    free(plan->sources);
}
