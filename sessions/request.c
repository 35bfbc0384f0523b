// A client's request as data. See request.h.
#include "sessions/request.h"
#include "sessions/store/record.h"
#include <stdlib.h>

struct request *request_copy(const struct request *r) {
    bool failed = false;
    struct request *copy = malloc(sizeof *copy);
    if (!copy) return NULL;
    *copy = *r;
    copy->next = NULL;
    copy->owner = record_strdup(r->owner, &failed);
    copy->id = record_strdup(r->id, &failed);
    copy->title = record_strdup(r->title, &failed);
    copy->sampling = record_strdup(r->sampling, &failed);
    copy->new_id = record_strdup(r->new_id, &failed);
    copy->open.id = copy->id;
    copy->open.model = record_strdup(r->open.model, &failed);
    copy->open.system = record_strdup(r->open.system, &failed);
    copy->open.title = record_strdup(r->open.title, &failed);
    copy->open.sampling = record_strdup(r->open.sampling, &failed);
    copy->input.text = record_memdup(r->input.text, r->input.text_len, &failed);
    copy->input.ids = record_memdup(r->input.ids, r->input.n_ids * sizeof *r->input.ids, &failed);
    if (!failed) return copy;
    request_free(copy);
    return NULL;
}

void request_free(struct request *r) {
    if (!r) return;
    free((char *)r->owner);
    free((char *)r->id);
    free((char *)r->title);
    free((char *)r->sampling);
    free((char *)r->new_id);
    free((char *)r->open.model);
    free((char *)r->open.system);
    free((char *)r->open.title);
    free((char *)r->open.sampling);
    free((char *)r->input.text);
    free((int32_t *)r->input.ids);
    free(r);
}
