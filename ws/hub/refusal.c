// See refusal.h.
#include "ws/hub/refusal.h"
#include <string.h>

static int denied(const struct refusal *r, struct err *err) {
    const char *hub = r->place->endpoint;
    bool has_token = r->place->token[0];
    if (strcmp(r->code, "GatedRepo") == 0)
        return err_set(err, E_DENIED,
                       "%s is gated: accept its terms at %s/%s with your account, then %s", r->repo,
                       hub, r->repo,
                       has_token ? "use a token (HF_TOKEN) of that account"
                                 : "set HF_TOKEN to a token of that account");
    if (strcmp(r->code, "RepoNotFound") == 0 || (r->status == 401 && !has_token))
        return err_set(err, E_NOTFOUND, "%s has no model %s, or it is private or gated: %s (%s/%s)",
                       hub, r->repo,
                       has_token ? "the token of HF_TOKEN may not read it"
                                 : "set HF_TOKEN to a token that may read it",
                       hub, r->repo);
    if (r->status == 401)
        return err_set(err, E_DENIED, "%s does not accept the token of HF_TOKEN", hub);
    return err_set(err, E_DENIED,
                   "%s refuses %s of %s (403%s%.150s): if the model is gated, accept its terms at "
                   "%s/%s and set HF_TOKEN to a token of that account",
                   hub, r->what, r->repo, *r->message ? ", " : "", r->message, hub, r->repo);
}

static int missing(const struct refusal *r, struct err *err) {
    const char *hub = r->place->endpoint;
    if (strcmp(r->code, "RevisionNotFound") == 0)
        return err_set(err, E_NOTFOUND, "%s/%s has no such revision", hub, r->repo);
    if (strcmp(r->code, "EntryNotFound") == 0)
        return err_set(err, E_NOTFOUND, "%s/%s has no %s", hub, r->repo, r->what);
    return err_set(err, E_NOTFOUND, "%s has no model %s", hub, r->repo);
}

int refusal_say(const struct refusal *r, struct err *err) {
    if (r->status == 401 || r->status == 403) return denied(r, err);
    if (r->status == 404 || r->status == 410) return missing(r, err);
    if (r->status == 429)
        return err_set(err, E_BUSY, "%s limits requests (429)%s", r->place->endpoint,
                       r->place->token[0] ? "" : "; with HF_TOKEN the limit is higher");
    return err_set(err, E_IO, "%s: the host answers with status %ld%s%.150s", r->what, r->status,
                   *r->message ? ", " : "", r->message);
}
