// Tensors of messages. See tensor_message.h.
#include "ws/kserve/grpc/tensor_message.h"
#include "ws/kserve/grpc/inference.pb-c.h"
#include "ws/kserve/grpc/message.h"

typedef Inference__ModelInferRequest request_message;
typedef Inference__ModelInferRequest__InferInputTensor input_message;
typedef Inference__InferTensorContents contents_message;

// --- typed contents ---

// The member that has a type's elements: how many there are, and how to read one. The other members are empty.
struct contents {
    const contents_message *m;
    size_t n;
    int (*put)(struct tensor *t, size_t i, const contents_message *m, struct err *err);
};

#define PUT(name, call)                                                                            \
    static int name(struct tensor *t, size_t i, const contents_message *m, struct err *err) {      \
        return call;                                                                               \
    }
#define MAGNITUDE(v) ((v) < 0 ? -(uint64_t)(v) : (uint64_t)(v))
PUT(put_bool, tensor_set_number(t, i, m->bool_contents[i] != 0, err))
PUT(put_int, tensor_set_number(t, i, m->int_contents[i], err))
PUT(put_uint, tensor_set_number(t, i, m->uint_contents[i], err))
PUT(put_fp32, tensor_set_number(t, i, (double)m->fp32_contents[i], err))
PUT(put_fp64, tensor_set_number(t, i, m->fp64_contents[i], err))
PUT(put_uint64, tensor_set_integer(t, i, m->uint64_contents[i], false, err))
PUT(put_int64,
    tensor_set_integer(t, i, MAGNITUDE(m->int64_contents[i]), m->int64_contents[i] < 0, err))
PUT(put_bytes,
    tensor_set_text(t, i, (const char *)m->bytes_contents[i].data, m->bytes_contents[i].len, err))

static struct contents contents_of(enum tensor_type type, const contents_message *m) {
    switch (type) {
    case TENSOR_BOOL:
        return (struct contents){m, m->n_bool_contents, put_bool};
    case TENSOR_INT8:
    case TENSOR_INT16:
    case TENSOR_INT32:
        return (struct contents){m, m->n_int_contents, put_int};
    case TENSOR_UINT8:
    case TENSOR_UINT16:
    case TENSOR_UINT32:
        return (struct contents){m, m->n_uint_contents, put_uint};
    case TENSOR_INT64:
        return (struct contents){m, m->n_int64_contents, put_int64};
    case TENSOR_UINT64:
        return (struct contents){m, m->n_uint64_contents, put_uint64};
    case TENSOR_FP32:
        return (struct contents){m, m->n_fp32_contents, put_fp32};
    case TENSOR_FP64:
        return (struct contents){m, m->n_fp64_contents, put_fp64};
    case TENSOR_BYTES:
        return (struct contents){m, m->n_bytes_contents, put_bytes};
    default:
        return (struct contents){m, 0, NULL};
    }
}

static int read_contents(struct tensor *t, const contents_message *m, struct err *err) {
    if (!m) return err_set(err, E_INVAL, "input '%s' has no data", t->name);
    struct contents c = contents_of(t->type, m);
    if (!c.put)
        return err_set(err, E_INVAL, "input '%s': %s data is accepted in raw_input_contents only",
                       t->name, tensor_type_name(t->type));
    if (c.n != t->n)
        return err_set(err, E_INVAL, "input '%s' has %zu elements of type %s, its shape needs %zu",
                       t->name, c.n, tensor_type_name(t->type), t->n);
    TRY(tensor_allocate(t, c.n, err));
    for (size_t i = 0; i < c.n; i++) TRY(c.put(t, i, m, err));
    return 0;
}

// --- inputs ---

static int read_input(struct tensors *all, const input_message *m, const ProtobufCBinaryData *raw,
                      struct err *err) {
    struct tensor *t;
    TRY(message_check_text("an input's name", m->name, err));
    for (size_t i = 0; i < m->n_parameters; i++)
        TRY(tensor_check_parameter(m->name, m->parameters[i]->key, err));
    TRY(tensors_add(all, m->name, m->datatype, &t, err));
    for (size_t i = 0; i < m->n_shape; i++) TRY(tensor_add_dim(t, (double)m->shape[i], err));
    if (!raw) return read_contents(t, m->contents, err);
    if (m->contents)
        return err_set(err, E_INVAL,
                       "contents field must not be specified when using raw_input_contents for "
                       "input '%s'",
                       m->name);
    return tensor_set_raw(t, raw->len ? (const char *)raw->data : "", raw->len, err);
}

int tensors_of_message(struct tensors *all, const request_message *m, struct err *err) {
    TRY(tensors_init(all, m->n_inputs, err));
    if (m->n_raw_input_contents && m->n_raw_input_contents != m->n_inputs)
        return err_set(err, E_INVAL,
                       "raw_input_contents has %zu entries, but the request has %zu inputs",
                       m->n_raw_input_contents, m->n_inputs);
    for (size_t i = 0; i < m->n_inputs; i++)
        TRY(read_input(all, m->inputs[i],
                       m->n_raw_input_contents ? &m->raw_input_contents[i] : NULL, err));
    return 0;
}
