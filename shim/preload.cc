// The exported functions of libplexrl.so: expanded here, where the gate's fast path can be inlined.
#include "shim/hooks.h"
// clang-format off
#include "interpose/wrappers.inc"
// clang-format on
