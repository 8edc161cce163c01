#include "tools/simgpu/ptx/level/level.h"

namespace PLEXRL_PTX_LEVEL_NAMESPACE {

namespace {

OpFn floating_or_integral(Act act, Type type) {
  const OpFn fn = floating(act, type);
  return fn != nullptr ? fn : integral(act, type);
}

#define PLEXRL_TEXT_OF(x) #x
#define PLEXRL_TEXT(x) PLEXRL_TEXT_OF(x)

}  // namespace

extern const Level kLevel;
const Level kLevel = {PLEXRL_TEXT(PLEXRL_PTX_LEVEL),
                      run,
                      integer,
                      floating_or_integral,
                      directed,
                      extend,
                      clamp,
                      convert,
                      load,
                      store,
                      branch,
                      shuffle,
                      mma};

}  // namespace PLEXRL_PTX_LEVEL_NAMESPACE
