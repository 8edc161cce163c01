#include <cstdlib>
#include <cstring>

#include "tools/simgpu/ptx/act.h"

namespace plexrl::simgpu::ptx {

namespace baseline {
extern const Level kLevel;
}
#ifdef PLEXRL_PTX_HAS_V3
namespace v3 {
extern const Level kLevel;
}
#endif

const Level* const* levels(int* count) {
  static const Level* all[2] = {&baseline::kLevel, nullptr};
  static const int number = [] {
    int n = 1;
#ifdef PLEXRL_PTX_HAS_V3
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
        __builtin_cpu_supports("f16c") && __builtin_cpu_supports("lzcnt")) {
      all[n++] = &v3::kLevel;
    }
#endif
    return n;
  }();
  *count = number;
  return all;
}

const Level& best_level() {
  int count = 0;
  const Level* const* const all = levels(&count);
  const char* const wish = std::getenv("PLEXRL_PTX_LEVEL");
  if (wish != nullptr && std::strcmp(wish, "baseline") == 0) return *all[0];
  return *all[count - 1];
}

}  // namespace plexrl::simgpu::ptx
