// The text of PLEXRL_SIMGPU: refused with a message, or a machine that makes sense.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tools/simgpu/driver/spec.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plexrl::simgpu;
  Spec spec;
  std::string error;
  if (!parse_spec({reinterpret_cast<const char*>(data), size}, &spec, &error)) {
    if (error.empty()) std::abort();
    return 0;
  }
  if (spec.gpus < 1 || spec.memory_bytes == 0 || spec.sms < 1) std::abort();
  // The name becomes a folder's.
  if (spec.name.empty() || spec.name.find('/') != std::string::npos) std::abort();
  if (state_folder(spec).empty() || spec.device_part().empty()) std::abort();
  return 0;
}
