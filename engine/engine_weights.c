// What a model folder says of its weights, without an engine.
#include "engine/engine.h"
#include "engine/model/packed_tensors.h"

void engine_weights_name(char out[ENGINE_WEIGHTS_NAME], const char *model_dir) {
    _Static_assert((int)ENGINE_WEIGHTS_NAME >= PACKED_NAME, "a name fits");
    enum packed_format format;
    out[0] = '\0';
    (void)packed_format_of(model_dir, &format, out,
                           NULL); // a name also where nothing here loads it
}
