#include "engine/grammar/notations.h"
int schema_compile(struct net *net, const char *text, size_t len, struct err *err) {
    return err_set(err, E_UNSUPPORTED, "JSON schemas are not supported yet");
}
