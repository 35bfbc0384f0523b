// Answers as messages. See reply.h.
#include "ws/kserve/grpc/reply.h"
#include "ws/kserve/grpc/inference.pb-c.h"
#include "ws/kserve/grpc/message.h"
#include <stdlib.h>

typedef Inference__ModelInferResponse response_message;
typedef Inference__ModelInferResponse__InferOutputTensor output_message;

// --- outputs ---

struct encoding { // (n) of each; what the message points into
    const struct tensors_out *outputs;
    output_message *messages, **list;
    Inference__InferTensorContents *contents;
    ProtobufCBinaryData *raw;
    struct buf *bytes;
    void **elements;
    bool fits;
};

static bool encoding_init(struct encoding *g, const struct tensors_out *outputs) {
    size_t n = outputs->n + 1;
    *g = (struct encoding){.outputs = outputs, .fits = true};
    g->messages = calloc(n, sizeof *g->messages);
    g->list = calloc(n, sizeof *g->list);
    g->contents = calloc(n, sizeof *g->contents);
    g->raw = calloc(n, sizeof *g->raw);
    g->bytes = calloc(n, sizeof *g->bytes);
    g->elements = calloc(n, sizeof *g->elements);
    return g->messages && g->list && g->contents && g->raw && g->bytes && g->elements;
}

static void encoding_release(struct encoding *g) {
    for (size_t i = 0; i < g->outputs->n; i++) {
        if (g->bytes) buf_release(&g->bytes[i]);
        if (g->elements) free(g->elements[i]);
    }
    free(g->messages);
    free(g->list);
    free(g->contents);
    free(g->raw);
    free(g->bytes);
    free(g->elements);
}

static void put_raw(struct encoding *g, size_t i) {
    struct buf *b = &g->bytes[i];
    buf_init(b, REPLY_MESSAGE_MAX_BYTES);
    tensor_out_raw(&g->outputs->list[i], b);
    if (b->error) g->fits = false;
    g->raw[i] = (ProtobufCBinaryData){b->len, (uint8_t *)b->data};
}

// BOOL, UINT32 and INT32 are all 4 bytes in memory, as protobuf-c has them.
static void put_typed(struct encoding *g, size_t i) {
    const struct tensor_out *t = &g->outputs->list[i];
    Inference__InferTensorContents *c = &g->contents[i];
    size_t n = tensor_out_count(t);
    inference__infer_tensor_contents__init(c);
    g->messages[i].contents = c;
    if (t->floats) {
        c->n_fp32_contents = n;
        c->fp32_contents = t->floats;
        return;
    }
    void *elements = calloc(n + 1, t->texts ? sizeof(ProtobufCBinaryData) : sizeof(int32_t));
    g->elements[i] = elements;
    g->fits &= elements != NULL;
    for (size_t at = 0; elements && at < n; at++) {
        if (t->texts)
            ((ProtobufCBinaryData *)elements)[at] =
                (ProtobufCBinaryData){t->texts[at].len, (uint8_t *)t->texts[at].bytes};
        else
            ((int32_t *)elements)[at] = (int32_t)t->ints[at];
    }
    if (t->texts) {
        c->n_bytes_contents = n;
        c->bytes_contents = elements;
    } else if (t->type == TENSOR_BOOL) {
        c->n_bool_contents = n;
        c->bool_contents = elements;
    } else if (t->type == TENSOR_UINT32) {
        c->n_uint_contents = n;
        c->uint_contents = elements;
    } else {
        c->n_int_contents = n;
        c->int_contents = elements;
    }
}

static void put_output(struct encoding *g, size_t i, bool raw) {
    const struct tensor_out *t = &g->outputs->list[i];
    output_message *m = &g->messages[i];
    inference__model_infer_response__infer_output_tensor__init(m);
    m->name = (char *)t->name;
    m->datatype = (char *)tensor_type_name(t->type);
    m->n_shape = (size_t)t->n_dims;
    m->shape = (int64_t *)t->shape;
    g->list[i] = m;
    if (raw)
        put_raw(g, i);
    else
        put_typed(g, i);
}

static void pack(response_message *m, enum reply_kind kind, struct buf *out) {
    Inference__ModelStreamInferResponse stream = INFERENCE__MODEL_STREAM_INFER_RESPONSE__INIT;
    stream.infer_response = m;
    message_pack(kind == REPLY_ONLY ? (void *)m : (void *)&stream, out);
}

bool reply_outputs(const struct infer_request *r, enum reply_kind kind,
                   const struct tensors_out *outputs, struct buf *out) {
    Inference__InferParameter final = INFERENCE__INFER_PARAMETER__INIT;
    Inference__ModelInferResponse__ParametersEntry entry =
        INFERENCE__MODEL_INFER_RESPONSE__PARAMETERS_ENTRY__INIT;
    Inference__ModelInferResponse__ParametersEntry *entries[] = {&entry};
    response_message m = INFERENCE__MODEL_INFER_RESPONSE__INIT;
    struct encoding g;
    bool fits = encoding_init(&g, outputs);
    for (size_t i = 0; fits && i < outputs->n; i++) put_output(&g, i, r->binary != 0);
    m.model_name = (char *)r->name;
    m.model_version = "1";
    if (r->id) m.id = r->id;
    m.n_outputs = outputs->n;
    m.outputs = g.list;
    m.n_raw_output_contents = r->binary ? outputs->n : 0;
    m.raw_output_contents = g.raw;
    final.parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM;
    final.bool_param = kind == REPLY_FINAL;
    entry.key = "triton_final_response";
    entry.value = &final;
    m.n_parameters = kind != REPLY_ONLY;
    m.parameters = entries;
    fits = fits && g.fits;
    if (fits) pack(&m, kind, out);
    encoding_release(&g);
    return fits && !out->error;
}

// --- errors ---

bool reply_stream_error(const char *id, const char *message, struct buf *out) {
    Inference__ModelStreamInferResponse stream = INFERENCE__MODEL_STREAM_INFER_RESPONSE__INIT;
    response_message m = INFERENCE__MODEL_INFER_RESPONSE__INIT;
    if (id) m.id = (char *)id;
    stream.error_message = (char *)message;
    stream.infer_response = &m;
    message_pack(&stream, out);
    return !out->error;
}

int reply_retry_details(int status, const char *message, int64_t retry_after_ms, struct buf *out) {
    Inference__Duration delay = INFERENCE__DURATION__INIT;
    Inference__RetryInfo retry = INFERENCE__RETRY_INFO__INIT;
    Inference__Any any = INFERENCE__ANY__INIT, *details[] = {&any};
    Inference__Status s = INFERENCE__STATUS__INIT;
    struct buf packed;
    delay.seconds = retry_after_ms / 1000;
    delay.nanos = (int32_t)(retry_after_ms % 1000 * 1000000);
    retry.retry_delay = &delay;
    buf_init(&packed, 64);
    message_pack(&retry, &packed);
    any.type_url = "type.googleapis.com/google.rpc.RetryInfo";
    any.value = (ProtobufCBinaryData){packed.len, (uint8_t *)packed.data};
    s.code = status;
    s.message = (char *)message;
    s.n_details = 1;
    s.details = details;
    message_pack(&s, out);
    int rc = packed.error ? packed.error : out->error;
    buf_release(&packed);
    return rc;
}
