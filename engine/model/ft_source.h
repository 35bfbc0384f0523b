// Finds the values of a FasterTransformer array in another checkpoint and reads them line by line.
// Only ft_export.c includes it.
#pragma once
#include "engine/model/ft_layout.h"
#include "engine/model/parts.h"

struct ft_source_model {
    struct model_config config;
    struct checkpoint *cp;
    const struct family_tensors *names;
};

// The origin of an array's values. No parts: zeros. rows: the rows of one part, unchanged. Otherwise the
// parts side by side, each transposed to (inputs, outputs).
struct ft_source {
    const struct ft_source_model *m;
    struct part parts[3];
    const struct tensor *tensors[3];
    int n_parts;
    int64_t first_row; // with rows: the first one used (2 in OPT's position table)
    bool rows;
    // OPT-350m's embedding has another width: its rows are multiplied by this projection.
    struct part fold;
    const struct tensor *fold_tensor; // or NULL
    // In memory after ft_source_open.
    char *staged[3];
    float *projection; // (embed_width, width)
};

// Finds and checks the tensors; reads nothing.
int ft_source_find(struct ft_source *s, const struct ft_source_model *m, const struct ft_array *a,
                   struct err *err);
// Reads what must be in memory as a whole: matrices to transpose, a projection.
int ft_source_open(struct ft_source *s, struct err *err);
void ft_source_close(struct ft_source *s);
// Reads rows [first, first + n) of the array, a matrix (inputs, outputs), into out (n, outputs) as dtype.
// The outputs of FT_QKV are those of q, then of k, then of v. E_UNSUPPORTED if a value does not fit the
// dtype.
int ft_source_read(const struct ft_source *s, const struct ft_array *a, int64_t first, int64_t n,
                   enum dtype dtype, void *out, struct err *err);
// The stored dtype; F32 if values are computed or the tensors' dtypes differ.
enum dtype ft_source_dtype(const struct ft_source *s);
