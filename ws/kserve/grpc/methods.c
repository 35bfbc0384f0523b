// The table of methods, and their answers. See methods.h.
#include "ws/kserve/grpc/methods.h"
#include "ws/health.h"
#include "ws/kserve/grpc/exchange.h"
#include "ws/kserve/grpc/inference.pb-c.h"
#include "ws/kserve/grpc/message.h"
#include "ws/kserve/infer_inputs.h"
#include "ws/kserve/infer_outputs.h"
#include "ws/kserve/kserve.h"
#include "ws/service.h"
#include "ws/version.h"
#include <stdio.h>
#include <string.h>

#define ANSWER_MAX_BYTES (1 << 20)
#define FIELDS_MAX 128 // of a model's inputs, or outputs
#define MODELS_MAX 64  // in a list

// --- small messages ---

static void reply(struct rpc *r, const void *message) {
    struct buf out;
    buf_init(&out, ANSWER_MAX_BYTES);
    message_pack(message, &out);
    if (out.error)
        rpc_fail(r, KSERVE_UNAVAILABLE, "no memory for the answer", 0);
    else
        rpc_reply(r, &out);
    buf_release(&out);
}

static void refuse_malformed(struct rpc *r) {
    rpc_fail(r, KSERVE_INVALID, "the message is malformed", 0);
}

// All requests that name a model begin with the same two members, so one type reads them.
typedef Inference__ModelReadyRequest named;

static void *decode_named(const struct service *s, const void *bytes, size_t len) {
    named *m = message_unpack(&inference__model_ready_request__descriptor, bytes, len);
    static named malformed; // its name is NULL
    return m ? m : &malformed;
}

static void release_named(void *decoded) {
    if (((named *)decoded)->name) message_free(decoded);
}

static bool find(struct rpc *r, const named *m, enum infer_model *model) {
    char text[160];
    if (!m->name) {
        refuse_malformed(r);
        return false;
    }
    if (kserve_find_model(r->service, m->name, m->version, model)) return true;
    snprintf(text, sizeof text, "Request for unknown model: '%.64s' is not found", m->name);
    rpc_fail(r, KSERVE_NOT_FOUND, text, 0);
    return false;
}

// --- health ---

static void handle_live(struct rpc *r, void *decoded) {
    Inference__ServerLiveResponse m = INFERENCE__SERVER_LIVE_RESPONSE__INIT;
    m.live = health_is_live(r->service);
    reply(r, &m);
}

static void handle_ready(struct rpc *r, void *decoded) {
    Inference__ServerReadyResponse m = INFERENCE__SERVER_READY_RESPONSE__INIT;
    m.ready = health_is_ready(r->service);
    reply(r, &m);
}

static void handle_model_ready(struct rpc *r, void *decoded) {
    Inference__ModelReadyResponse m = INFERENCE__MODEL_READY_RESPONSE__INIT;
    const named *asked = decoded;
    enum infer_model model;
    m.ready = asked->name && kserve_find_model(r->service, asked->name, asked->version, &model) &&
              health_is_ready(r->service);
    reply(r, &m);
}

static void handle_check(struct rpc *r, void *decoded) {
    Inference__HealthCheckResponse m = INFERENCE__HEALTH_CHECK_RESPONSE__INIT;
    m.status = health_is_ready(r->service) ? 1 : 2;
    reply(r, &m);
}

// --- metadata ---

static void handle_server(struct rpc *r, void *decoded) {
    Inference__ServerMetadataResponse m = INFERENCE__SERVER_METADATA_RESPONSE__INIT;
    m.name = "parley";
    m.version = PARLEY_VERSION;
    m.extensions = (char **)kserve_extensions;
    while (kserve_extensions[m.n_extensions]) m.n_extensions++;
    reply(r, &m);
}

// The fields of a model: inputs, or outputs.
static size_t fields_of(enum infer_model model, bool inputs,
                        const struct infer_field *out[FIELDS_MAX]) {
    const struct infer_field *f;
    size_t n = 0;
    for (size_t i = 0; inputs && (f = infer_input(i)) && n < FIELDS_MAX; i++)
        if (f->models & 1u << model) out[n++] = f;
    for (int o = 0; !inputs && o < INFER_OUTPUTS; o++)
        if (infer_outputs[o].field.models & 1u << model) out[n++] = &infer_outputs[o].field;
    return n;
}

typedef Inference__ModelMetadataResponse__TensorMetadata tensor_metadata;
struct metadata {
    tensor_metadata messages[FIELDS_MAX], *list[FIELDS_MAX];
    int64_t shapes[FIELDS_MAX][4];
    size_t n;
};

static void put_metadata(struct metadata *d, enum infer_model model, bool inputs) {
    const struct infer_field *fields[FIELDS_MAX];
    d->n = fields_of(model, inputs, fields);
    for (size_t i = 0; i < d->n; i++) {
        const struct infer_field *f = fields[i];
        tensor_metadata *m = d->list[i] = &d->messages[i];
        inference__model_metadata_response__tensor_metadata__init(m);
        m->name = (char *)f->name;
        m->datatype = (char *)tensor_type_name(f->type);
        m->shape = d->shapes[i];
        m->shape[m->n_shape++] = -1; // the batch
        for (int k = 0; k < f->n_dims; k++) m->shape[m->n_shape++] = f->shape[k];
    }
}

static void handle_metadata(struct rpc *r, void *decoded) {
    Inference__ModelMetadataResponse m = INFERENCE__MODEL_METADATA_RESPONSE__INIT;
    struct metadata inputs, outputs;
    const named *asked = decoded;
    enum infer_model model;
    char *versions[] = {"1"};
    if (find(r, asked, &model)) {
        put_metadata(&inputs, model, true);
        put_metadata(&outputs, model, false);
        m.name = asked->name;
        m.platform = "parley";
        m.n_versions = 1;
        m.versions = versions;
        m.n_inputs = inputs.n;
        m.inputs = inputs.list;
        m.n_outputs = outputs.n;
        m.outputs = outputs.list;
        reply(r, &m);
    }
}

// --- configuration ---

static const Inference__DataType data_types[TENSOR_TYPES] = {
    [TENSOR_BOOL] = INFERENCE__DATA_TYPE__TYPE_BOOL,
    [TENSOR_UINT8] = INFERENCE__DATA_TYPE__TYPE_UINT8,
    [TENSOR_UINT16] = INFERENCE__DATA_TYPE__TYPE_UINT16,
    [TENSOR_UINT32] = INFERENCE__DATA_TYPE__TYPE_UINT32,
    [TENSOR_UINT64] = INFERENCE__DATA_TYPE__TYPE_UINT64,
    [TENSOR_INT8] = INFERENCE__DATA_TYPE__TYPE_INT8,
    [TENSOR_INT16] = INFERENCE__DATA_TYPE__TYPE_INT16,
    [TENSOR_INT32] = INFERENCE__DATA_TYPE__TYPE_INT32,
    [TENSOR_INT64] = INFERENCE__DATA_TYPE__TYPE_INT64,
    [TENSOR_FP16] = INFERENCE__DATA_TYPE__TYPE_FP16,
    [TENSOR_FP32] = INFERENCE__DATA_TYPE__TYPE_FP32,
    [TENSOR_FP64] = INFERENCE__DATA_TYPE__TYPE_FP64,
    [TENSOR_BYTES] = INFERENCE__DATA_TYPE__TYPE_STRING,
    [TENSOR_BF16] = INFERENCE__DATA_TYPE__TYPE_BF16,
};

static void handle_config(struct rpc *r, void *decoded) {
    Inference__ModelConfigResponse m = INFERENCE__MODEL_CONFIG_RESPONSE__INIT;
    Inference__ModelConfig c = INFERENCE__MODEL_CONFIG__INIT;
    Inference__ModelSequenceBatching batching = INFERENCE__MODEL_SEQUENCE_BATCHING__INIT;
    Inference__ModelTransactionPolicy policy = INFERENCE__MODEL_TRANSACTION_POLICY__INIT;
    Inference__ModelInput inputs[FIELDS_MAX], *input_list[FIELDS_MAX];
    Inference__ModelOutput outputs[FIELDS_MAX], *output_list[FIELDS_MAX];
    const struct infer_field *fields[FIELDS_MAX];
    const struct serve_config *config = r->service->config;
    enum infer_model model;
    named *asked = decoded;
    if (!find(r, asked, &model)) {
        return;
    }
    c.n_input = fields_of(model, true, fields);
    for (size_t i = 0; i < c.n_input; i++) {
        Inference__ModelInput *in = input_list[i] = &inputs[i];
        inference__model_input__init(in);
        in->name = (char *)fields[i]->name;
        in->data_type = data_types[fields[i]->type];
        in->n_dims = (size_t)fields[i]->n_dims;
        in->dims = (int64_t *)fields[i]->shape;
        in->optional = fields[i]->optional;
    }
    c.n_output = fields_of(model, false, fields);
    for (size_t i = 0; i < c.n_output; i++) {
        Inference__ModelOutput *out = output_list[i] = &outputs[i];
        inference__model_output__init(out);
        out->name = (char *)fields[i]->name;
        out->data_type = data_types[fields[i]->type];
        out->n_dims = (size_t)fields[i]->n_dims;
        out->dims = (int64_t *)fields[i]->shape;
    }
    c.name = asked->name;
    c.backend = "parley";
    c.max_batch_size = INFER_ROWS_MAX;
    c.input = input_list;
    c.output = output_list;
    batching.max_sequence_idle_microseconds = (uint64_t)config->max_sequence_idle_microseconds;
    c.sequence_batching = &batching;
    policy.decoupled = config->decoupled;
    c.model_transaction_policy = &policy;
    m.config = &c;
    reply(r, &m);
}

// --- statistics ---

struct statistics {
    Inference__ModelStatistics model;
    Inference__InferStatistics infer;
    Inference__StatisticDuration success, fail, queue, compute;
};

static void put_duration(Inference__StatisticDuration *d, Inference__StatisticDuration **at,
                         int64_t n, int64_t us) {
    inference__statistic_duration__init(d);
    d->count = (uint64_t)n;
    d->ns = (uint64_t)us * 1000;
    *at = d;
}

static void put_statistics(struct statistics *s, const char *name, const struct kserve_stats *k) {
    inference__model_statistics__init(&s->model);
    inference__infer_statistics__init(&s->infer);
    s->model.name = (char *)name;
    s->model.version = "1";
    s->model.last_inference = (uint64_t)k->last_ms;
    s->model.inference_count = s->model.execution_count = (uint64_t)k->n_done;
    s->model.inference_stats = &s->infer;
    put_duration(&s->success, &s->infer.success, k->n_done, k->done_us);
    put_duration(&s->fail, &s->infer.fail, k->n_failed, 0);
    put_duration(&s->queue, &s->infer.queue, k->n_done, k->queue_us);
    put_duration(&s->compute, &s->infer.compute_infer, k->n_done, k->infer_us);
}

static void handle_statistics(struct rpc *r, void *decoded) {
    Inference__ModelStatisticsResponse m = INFERENCE__MODEL_STATISTICS_RESPONSE__INIT;
    struct statistics models[MODELS_MAX];
    Inference__ModelStatistics *list[MODELS_MAX];
    const named *asked = decoded;
    const char *name;
    enum infer_model model = MODEL_IDS;
    bool all = asked->name && !*asked->name;
    if (all || find(r, asked, &model)) {
        for (size_t i = 0; (name = kserve_model_name(r->service, i)) && i < MODELS_MAX; i++) {
            if (all) kserve_find_model(r->service, name, NULL, &model);
            put_statistics(&models[i], all ? name : asked->name, &r->service->kserve->stats[model]);
            list[m.n_model_stats++] = &models[i].model;
            if (!all) break;
        }
        m.model_stats = list;
        reply(r, &m);
    }
}

static void handle_index(struct rpc *r, void *decoded) {
    Inference__RepositoryIndexResponse m = INFERENCE__REPOSITORY_INDEX_RESPONSE__INIT;
    Inference__RepositoryIndexResponse__ModelIndex models[MODELS_MAX], *list[MODELS_MAX];
    const char *name;
    for (size_t i = 0; (name = kserve_model_name(r->service, i)) && i < MODELS_MAX; i++) {
        Inference__RepositoryIndexResponse__ModelIndex *row = list[m.n_models++] = &models[i];
        inference__repository_index_response__model_index__init(row);
        row->name = (char *)name;
        row->version = "1";
        row->state = "READY";
    }
    m.models = list;
    reply(r, &m);
}

// --- extensions that Parley lacks ---

static void refuse_absent(struct rpc *r, enum kserve_lacking what) {
    rpc_fail(r, kserve_absences[what].code, kserve_absences[what].message, 0);
}

static void handle_load(struct rpc *r, void *decoded) {
    refuse_absent(r, LACKS_LOADING);
}

static void handle_trace(struct rpc *r, void *decoded) {
    refuse_absent(r, LACKS_TRACING);
}

static void handle_log(struct rpc *r, void *decoded) {
    refuse_absent(r, LACKS_LOGGING);
}

static void handle_register(struct rpc *r, void *decoded) {
    refuse_absent(r, LACKS_REGIONS);
}

// No region is ever registered: unregistering has nothing to do, and a list is empty.
static void handle_unregister(struct rpc *r, void *decoded) {
    Inference__ServerLiveRequest nothing = INFERENCE__SERVER_LIVE_REQUEST__INIT;
    reply(r, &nothing);
}

static void handle_regions(struct rpc *r, void *decoded) {
    const named *asked = decoded;
    if (!asked->name || !*asked->name) {
        handle_unregister(r, decoded);
        return;
    }
    rpc_fail(r, KSERVE_NOT_FOUND, "Unable to find shared memory region", 0);
}

// --- the table ---

static void nothing(struct rpc *r) {}

#define SMALL(prefix, method, is_guarded, function)                                                \
    {                                                                                              \
        .path = prefix method, .guarded = is_guarded, .decode = decode_named,                      \
        .release = release_named, .handle = function, .gone = nothing                              \
    }
#define KSERVE "/inference.GRPCInferenceService/"
static const struct rpc_method methods[] = {
    {.path = KSERVE "ModelInfer",
     .guarded = true,
     .decode = exchange_decode,
     .release = exchange_release,
     .handle = exchange_handle,
     .gone = exchange_gone},
    {.path = KSERVE "ModelStreamInfer",
     .guarded = true,
     .streams = true,
     .decode = stream_decode,
     .release = exchange_release,
     .handle = stream_handle,
     .ended = stream_ended,
     .writable = stream_writable,
     .closing = stream_closing,
     .gone = stream_gone},
    SMALL(KSERVE, "ServerLive", false, handle_live),
    SMALL(KSERVE, "ServerReady", false, handle_ready),
    SMALL(KSERVE, "ModelReady", true, handle_model_ready),
    SMALL(KSERVE, "ServerMetadata", true, handle_server),
    SMALL(KSERVE, "ModelMetadata", true, handle_metadata),
    SMALL(KSERVE, "ModelConfig", true, handle_config),
    SMALL(KSERVE, "ModelStatistics", true, handle_statistics),
    SMALL(KSERVE, "RepositoryIndex", true, handle_index),
    SMALL(KSERVE, "RepositoryModelLoad", true, handle_load),
    SMALL(KSERVE, "RepositoryModelUnload", true, handle_load),
    SMALL(KSERVE, "TraceSetting", true, handle_trace),
    SMALL(KSERVE, "LogSettings", true, handle_log),
    SMALL(KSERVE, "SystemSharedMemoryStatus", true, handle_regions),
    SMALL(KSERVE, "SystemSharedMemoryRegister", true, handle_register),
    SMALL(KSERVE, "SystemSharedMemoryUnregister", true, handle_unregister),
    SMALL(KSERVE, "CudaSharedMemoryStatus", true, handle_regions),
    SMALL(KSERVE, "CudaSharedMemoryRegister", true, handle_register),
    SMALL(KSERVE, "CudaSharedMemoryUnregister", true, handle_unregister),
    SMALL("/grpc.health.v1.Health/", "Check", false, handle_check),
};

const struct rpc_method *method_find(const char *path, size_t len) {
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (strlen(methods[i].path) == len && memcmp(methods[i].path, path, len) == 0)
            return &methods[i];
    return NULL;
}
