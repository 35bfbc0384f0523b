// From messages to requests. See request.h.
#include "ws/kserve/grpc/request.h"
#include "base/utf8.h"
#include "ws/kserve/grpc/inference.pb-c.h"
#include "ws/kserve/grpc/message.h"
#include "ws/kserve/grpc/tensor_message.h"
#include "ws/kserve/kserve.h"
#include "ws/service.h"
#include <limits.h>
#include <string.h>

typedef Inference__ModelInferRequest request_message;

// --- parameters ---

static int read_parameter(struct infer_request *r, const char *key,
                          const Inference__InferParameter *p, struct err *err) {
    struct infer_value v = {.kind = VALUE_OTHER};
    switch (p ? p->parameter_choice_case : INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE__NOT_SET) {
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM:
        v.kind = VALUE_BOOL;
        v.flag = p->bool_param != 0;
        break;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM:
        v.kind = p->int64_param >= 0 ? VALUE_INTEGER : VALUE_NUMBER;
        v.integer = (uint64_t)p->int64_param;
        break;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_UINT64_PARAM:
        v.kind = VALUE_INTEGER;
        v.integer = p->uint64_param;
        break;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_DOUBLE_PARAM:
        v.kind = VALUE_NUMBER;
        break;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM:
        TRY(message_check_text("a parameter", p->string_param, err));
        v.kind = VALUE_STRING;
        v.text = p->string_param;
        v.len = strlen(p->string_param);
        break;
    default:
        break;
    }
    if (strcmp(key, "binary_data_output") != 0) return infer_request_set(r, key, &v, err);
    if (v.kind != VALUE_BOOL)
        return err_set(err, E_INVAL, "parameter 'binary_data_output' must be true or false");
    r->binary = v.flag ? UINT_MAX : 0;
    return 0;
}

static int read_parameters(struct infer_request *r, const request_message *m, struct err *err) {
    TRY(message_check_text("id", m->id, err));
    if (*m->id && !(r->id = strdup(m->id))) return kserve_no_memory(err);
    r->binary = UINT_MAX;
    for (size_t i = 0; i < m->n_parameters; i++)
        TRY(read_parameter(r, m->parameters[i]->key, m->parameters[i]->value, err));
    return 0;
}

// --- outputs ---

static int read_wanted(const struct infer_request *r, const request_message *m,
                       struct infer_wanted wanted[TENSOR_MAX_INPUTS], struct err *err) {
    if (m->n_outputs > TENSOR_MAX_INPUTS)
        return err_set(err, E_INVAL, "there are more than %d outputs", TENSOR_MAX_INPUTS);
    for (size_t i = 0; i < m->n_outputs; i++) {
        const Inference__ModelInferRequest__InferRequestedOutputTensor *o = m->outputs[i];
        TRY(message_check_text("an output's name", o->name, err));
        for (size_t p = 0; p < o->n_parameters; p++)
            TRY(tensor_check_parameter(o->name, o->parameters[p]->key, err));
        wanted[i] = (struct infer_wanted){o->name, r->binary != 0};
    }
    return 0;
}

// --- the whole ---

static int read_all(struct infer_request *r, const request_message *m, struct err *err) {
    struct infer_wanted wanted[TENSOR_MAX_INPUTS];
    struct tensors inputs = {0};
    TRY(read_parameters(r, m, err));
    TRY(read_wanted(r, m, wanted, err));
    int rc = tensors_of_message(&inputs, m, err);
    if (rc == 0) rc = infer_request_tensors(r, &inputs, wanted, m->n_outputs, err);
    tensors_release(&inputs);
    return rc;
}

struct infer_request *infer_message_read(const struct service *s, enum infer_form form,
                                         const void *bytes, size_t len) {
    request_message *m = message_unpack(&inference__model_infer_request__descriptor, bytes, len);
    enum infer_model model = MODEL_IDS;
    const char *name = m ? m->model_name : "";
    bool known = m && kserve_find_model(s, name, m->model_version, &model);
    const struct served_model *served =
        known ? service_hold_model(s, kserve_served_name(name)) : NULL;
    struct infer_request *r = infer_request_new(form, model, name, served);
    known = served;
    if (r && !m) {
        r->code = KSERVE_INVALID;
        err_set(&r->err, E_FORMAT, "the message is not a valid ModelInferRequest");
    } else if (r && !known) {
        r->code = KSERVE_NOT_FOUND;
        err_set(&r->err, E_NOTFOUND, "Request for unknown model: '%.64s' is not found",
                utf8_valid(name, strlen(name)) ? name : "");
        if (utf8_valid(m->id, strlen(m->id))) r->id = strdup(m->id);
    } else if (r && read_all(r, m, &r->err) < 0) {
        r->code = kserve_code_of_err(&r->err);
    }
    if (!r) placement_drop(served);
    message_free(m);
    return r;
}
