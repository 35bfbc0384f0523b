#include "engine/model/family_rows.h"
const struct family_list families_gemma = {NULL, 0};
