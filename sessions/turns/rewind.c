// Moving the head to another turn for a client. See rewind.h, head.h.
#include "sessions/turns/rewind.h"
#include "base/err.h"
#include "sessions/clients/deliver.h"
#include "sessions/saving/head.h"
#include "sessions/saving/save.h"
#include "sessions/state/tree.h"
#include <utlist.h>

// The head is there already. If the move that brought it there is not committed yet, the answer waits for it.
static int answer_in_place(struct session *s, struct pending *p) {
    p->repeated = true;
    p->seq = event_log_seq(&s->events);
    if (p->seq > s->saved_seq) return 0;
    DL_DELETE(s->pending, p);
    deliver_committed(s, p);
    return 0;
}

int rewind_start(struct session *s, const struct request *r) {
    int64_t to = r->turn;
    if (!head_can_move(s, r, to)) return 0;
    if (r->leaf) to = tree_newest_below(s, to);
    struct pending *p = to < TURN_NONE ? NULL : save_pending(s, PENDING_REWIND, r, 0);
    if (!p) return E_NOMEM;
    if (to == s->head) return answer_in_place(s, p);
    if (head_move(s, to, NULL, p) < 0) {
        pending_drop(&s->pending, p);
        return E_NOMEM;
    }
    p->seq = p->rewound_seq;
    save_now(s);
    return 0;
}
