// See device.h. The only file that knows whether this build has CUDA.
#include "engine/device.h"

#include "base/log.h"
#include "engine/model/checkpoint.h"
#include "engine/model/families.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICE_AUTO = -2, DEVICE_CPU = -1 }; // else a GPU's number

static int parse_device(const char *word, int *out, struct err *err) {
    char *end;
    if (!word || strcmp(word, "auto") == 0) return *out = DEVICE_AUTO, 0;
    if (strcmp(word, "cpu") == 0) return *out = DEVICE_CPU, 0;
    if (strcmp(word, "cuda") == 0) return *out = 0, 0;
    if (strncmp(word, "cuda:", 5) == 0 && word[5] >= '0' && word[5] <= '9') {
        long n = strtol(word + 5, &end, 10);
        if (*end == '\0' && n < DEVICE_MAX_GPUS) return *out = (int)n, 0;
    }
    return err_set(err, E_INVAL, "device: \"%.60s\" is none of auto, cpu, cuda:0, cuda:1 ...",
                   word);
}

static int parse_compute(const char *word, enum dtype model, enum dtype *out, struct err *err) {
    *out = model == DTYPE_F16 || model == DTYPE_BF16 ? model : DTYPE_F32;
    if (!word || strcmp(word, "auto") == 0) return 0;
    if (dtype_parse(word, out) == 0 &&
        (*out == DTYPE_F32 || *out == DTYPE_F16 || *out == DTYPE_BF16))
        return 0;
    return err_set(err, E_INVAL, "compute_dtype: \"%.60s\" is none of auto, f32, f16, bf16", word);
}

// The word at `place` of a list; *n becomes their number. E_INVAL: too long.
static int list_word(char out[DEVICE_WORD_BYTES], const char *list, int32_t place, int32_t *n,
                     struct err *err) {
    *n = 0;
    out[0] = '\0';
    for (const char *at = list;; at++) {
        const size_t len = strcspn(at, ",");
        if (len >= DEVICE_WORD_BYTES)
            return err_set(err, E_INVAL, "device: \"%.60s\" is too long", at);
        if ((*n)++ == place) {
            memcpy(out, at, len);
            out[len] = '\0';
        }
        at += len;
        if (!*at) return 0;
    }
}

int device_of_rank(char out[DEVICE_WORD_BYTES], const char *device, int32_t place, int32_t n,
                   struct err *err) {
    int first, n_gpus;
    int32_t n_words;
    if (!device) device = "auto";
    TRY(list_word(out, device, strchr(device, ',') ? place : 0, &n_words, err));
    if (n_words > 1 && n_words != n)
        return err_set(err, E_INVAL, "device names %d devices, and this machine has %d rank%s",
                       n_words, n, n > 1 ? "s" : "");
    if (n_words > 1 || n == 1) return 0;
    TRY(parse_device(out, &first, err));
    if (first == DEVICE_CPU) return 0;
    n_gpus = backend_cuda_count();
    if (first == DEVICE_AUTO && n_gpus == 0) return strcpy(out, "cpu"), 0;
    if (first == DEVICE_AUTO) first = 0;
    if (first + n > n_gpus)
        return err_set(err, E_NOTFOUND,
                       "device %s: %d ranks need as many GPUs, and CUDA finds %d; choose cpu, or "
                       "name a device for each rank",
                       device, n, n_gpus);
    snprintf(out, DEVICE_WORD_BYTES, "cuda:%d", first + place);
    return 0;
}

// Instances of n, each with the words [i * n_ranks, (i + 1) * n_ranks) of the list, that use the GPU of instance i that
// most use.
static int32_t sharing(const char *list, int32_t i, int32_t n, int32_t n_ranks, struct err *err) {
    char mine[DEVICE_WORD_BYTES], other[DEVICE_WORD_BYTES];
    int32_t most = 0, n_words;
    for (int32_t r = i * n_ranks; r < (i + 1) * n_ranks; r++) {
        int a, b;
        int32_t n_users = 0, last = -1;
        TRY(list_word(mine, list, r, &n_words, err));
        TRY(parse_device(mine, &a, err));
        for (int32_t k = 0; k < n * n_ranks && a >= 0; k++) {
            TRY(list_word(other, list, k, &n_words, err));
            TRY(parse_device(other, &b, err));
            if (b != a || k / n_ranks == last) continue;
            last = k / n_ranks;
            n_users++;
        }
        if (n_users > most) most = n_users;
    }
    return most;
}

static int part_of_list(char out[DEVICE_LIST_BYTES], const char *list, int32_t first, int32_t n,
                        struct err *err) {
    char word[DEVICE_WORD_BYTES];
    size_t len = 0;
    int32_t n_words;
    out[0] = '\0';
    for (int32_t r = first; r < first + n; r++) {
        TRY(list_word(word, list, r, &n_words, err));
        int more = snprintf(out + len, DEVICE_LIST_BYTES - len, "%s%s", r > first ? "," : "", word);
        len += (size_t)more;
        if (len >= DEVICE_LIST_BYTES)
            return err_set(err, E_INVAL, "device: \"%.60s\" is too long", list);
    }
    return 0;
}

int device_of_instance(char out[DEVICE_LIST_BYTES], const char *device, int32_t i, int32_t n,
                       int32_t n_ranks, int32_t n_gpus, int32_t *n_sharing, struct err *err) {
    char word[DEVICE_WORD_BYTES];
    int32_t n_words, n_groups = n_gpus / n_ranks;
    int which;
    *n_sharing = 0;
    if (!device) device = "auto";
    TRY(list_word(word, device, 0, &n_words, err));
    TRY(parse_device(word, &which, err));
    if (n_words == 1 && which == DEVICE_AUTO && n_groups > 0) {
        snprintf(out, DEVICE_LIST_BYTES, "cuda:%d", i % n_groups * n_ranks);
        *n_sharing = n / n_groups + (i % n_groups < n % n_groups);
        return 0;
    }
    if (n_words == 1 || n_words == n_ranks) {
        if (snprintf(out, DEVICE_LIST_BYTES, "%s", device) >= DEVICE_LIST_BYTES)
            return err_set(err, E_INVAL, "device: \"%.60s\" is too long", device);
        for (int32_t k = 0; k < n_words && *n_sharing == 0; k++) {
            TRY(list_word(word, device, k, &n_words, err));
            TRY(parse_device(word, &which, err));
            if (which >= 0) *n_sharing = n;
        }
        return 0;
    }
    if (n_words != n * n_ranks)
        return err_set(err, E_INVAL,
                       "device names %d devices, and %d instances of %d rank%s take %d of them, or "
                       "%d for all",
                       n_words, n, n_ranks, n_ranks > 1 ? "s" : "", n * n_ranks, n_ranks);
    int32_t most = sharing(device, i, n, n_ranks, err);
    TRY(most);
    *n_sharing = most;
    return part_of_list(out, device, i * n_ranks, n_ranks, err);
}

int device_gpus(const char *device, int32_t n, bool used[DEVICE_MAX_GPUS]) {
    char word[DEVICE_WORD_BYTES];
    struct err err;
    int which = DEVICE_CPU, n_used = 0;
    for (int32_t i = 0; i < n && i < DEVICE_MAX_GPUS; i++) {
        if (device_of_rank(word, device, i, n, &err) < 0) return n_used;
        if (parse_device(word, &which, &err) < 0) return n_used;
        if (which == DEVICE_AUTO) which = backend_cuda_count() > 0 ? 0 : DEVICE_CPU;
        if (which < 0 || which >= DEVICE_MAX_GPUS || used[which]) continue;
        used[which] = true;
        n_used++;
    }
    return n_used;
}

int device_check(const char *device, const char *compute_dtype, struct err *err) {
    int which;
    int32_t n = 1;
    enum dtype t;
    char word[DEVICE_WORD_BYTES];
    for (int32_t i = 0; i < n; i++) {
        TRY(list_word(word, device ? device : "auto", i, &n, err));
        TRY(parse_device(word, &which, err));
    }
    return parse_compute(compute_dtype, DTYPE_F32, &t, err);
}

#ifdef PARLEY_CUDA
#define NO_GPU "\"CUDA finds none\""
static int open_gpu(struct backend **out, const struct device_options *o, int n, struct err *err) {
    struct backend_cuda_options c = {
        .device = n, .deterministic = o->deterministic, .fp8_activations = o->fp8_activations};
    TRY(parse_compute(o->compute_dtype, o->model_dtype, &c.compute, err));
    return backend_cuda_open(out, &c, err);
}
const char *device_cuda_archs(void) {
    return PARLEY_CUDA_ARCHS;
}
#else
#define NO_GPU "\"built without CUDA\""
static int open_gpu(struct backend **out, const struct device_options *o, int n, struct err *err) {
    return err_set(err, E_UNSUPPORTED,
                   "device: this program was built without CUDA, so there is no "
                   "cuda:%d; build it with nvcc at hand, or use cpu",
                   n);
}
int backend_cuda_count(void) {
    return 0;
}
void backend_cuda_look(struct backend_cuda_look *out) {
    *out = (struct backend_cuda_look){.problem = "this program was built without CUDA"};
}
const char *device_cuda_archs(void) {
    return NULL;
}
#endif

static int open_cpu(struct backend **out, const struct device_options *o, struct err *err) {
    enum dtype compute = DTYPE_F32;
    if (o->fp8_activations)
        return err_set(err, E_UNSUPPORTED,
                       "fp8_activations needs a GPU, and the model would run on the CPU; turn it "
                       "off");
    if (o->compute_dtype && strcmp(o->compute_dtype, "auto") == 0 && o->bf16_matrices) {
        struct err why = {0};
        int rc = backend_cpu_open_for(out, DTYPE_BF16, o->n_threads, o->isa, &why);
        // bf16 is unsupported. If there is another reason, opening with F32 reports it below.
        if (rc != E_UNSUPPORTED) return rc < 0 ? err_set(err, rc, "%s", why.text) : 0;
    } else {
        TRY(parse_compute(o->compute_dtype, DTYPE_F32, &compute, err));
    }
    return backend_cpu_open_for(out, compute, o->n_threads, o->isa, err);
}

// Whether a tensor's name is "LAYERS.NUMBER.stem.weight".
static bool is_named(const struct tensor *t, const char *stem) {
    char end[128];
    if (!stem) return false;
    const int n = snprintf(end, sizeof end, ".%s.weight", stem);
    const size_t len = strlen(t->name);
    return len > (size_t)n && strcmp(t->name + len - n, end) == 0;
}

// A router, or the row that gates a shared expert. Files keep these in F32 beside matrices in bf16 (GGUF's all do), and
// they are multiplied so.
static bool is_router(const struct model_config *mc, const struct tensor *t) {
    const struct family_tensors *names = family_tensors_of(mc);
    return is_named(t, names->router) || is_named(t, names->shared_switch);
}

// Which matrices a folder has, but for routers. Integers and bytes are masks and so on.
struct matrices {
    bool f32, f16, bf16, few_bits, eight_bits;
};

// model_load reports a folder that cannot be read; it has none here.
static struct matrices matrices_of(const struct model_config *mc, const char *model_dir) {
    struct checkpoint *cp;
    struct err why = {0};
    struct matrices m = {0};
    if (checkpoint_open(&cp, model_dir, &why) < 0) return m;
    for (size_t i = 0; i < checkpoint_count(cp); i++) {
        const struct tensor *t = checkpoint_at(cp, i);
        struct group_format few;
        if (t->n_dims < 2 || (t->dtype == DTYPE_F32 && is_router(mc, t))) continue;
        if (checkpoint_groups(cp, t, &few))
            m.few_bits = true; // shown as F32
        else if (t->dtype == DTYPE_I8 || t->dtype == DTYPE_F8_E4M3)
            m.eight_bits = true;
        else
            m.f32 |= t->dtype == DTYPE_F32, m.f16 |= t->dtype == DTYPE_F16,
                m.bf16 |= t->dtype == DTYPE_BF16;
    }
    checkpoint_close(cp);
    return m;
}

void device_fit(struct device_options *o, const struct model_config *mc, const char *model_dir,
                enum weight_format weights) {
    const struct matrices m = matrices_of(mc, model_dir);
    const bool quantised = m.few_bits || m.eight_bits;
    o->model_dtype = mc->dtype;
    // A GGUF file of few bits names no dtype, and a folder need not.
    if (mc->dtype == DTYPE_F32 && !m.f32 && (quantised || m.f16 || m.bf16))
        o->model_dtype = m.f16 ? DTYPE_F16 : DTYPE_BF16;
    o->bf16_matrices = weights == WEIGHTS_OWN && !mc->int8 && !mc->fp8 && (m.bf16 || m.few_bits) &&
                       !m.f32 && !m.f16 && !m.eight_bits;
}

int device_open(struct backend **out, const struct device_options *o, struct err *err) {
    int n = DEVICE_CPU;
    TRY(parse_device(o->device, &n, err));
    if (n >= 0) return open_gpu(out, o, n, err);
    if (n == DEVICE_AUTO && backend_cuda_count() > 0) {
        struct err why = {0};
        char quoted[300];
        int rc = open_gpu(out, o, 0, &why);
        if (rc == 0 || (rc != E_UNSUPPORTED && rc != E_NOTFOUND))
            return rc < 0 ? err_set(err, rc, "%s", why.text) : 0;
        log_warn("engine.no_gpu", "device=cpu why=%s", log_quote(quoted, sizeof quoted, why.text));
    } else if (n == DEVICE_AUTO) {
        log_info("engine.no_gpu", "device=cpu why=" NO_GPU);
    }
    return open_cpu(out, o, err);
}

int device_n_gpus(void) {
    return backend_cuda_count();
}
