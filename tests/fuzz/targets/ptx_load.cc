// PTX text from a job: loading may refuse it, with a message, and must not crash or hang.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tools/simgpu/ptx/executor.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using plexrl::simgpu::ptx::LoadError;
  using plexrl::simgpu::ptx::Module;
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  LoadError error = LoadError::kNone;
  std::string log;
  const auto module = Module::load({&source, 1}, 75, &error, &log);
  if (module == nullptr && (error == LoadError::kNone || log.empty())) std::abort();
  return 0;
}
