#include "tools/ctl/which_gpu.h"

#include "tools/simgpu/driver/spec.h"

namespace plexrl::ctl {

absl::StatusOr<std::optional<std::string>> simulated_gpu(const cli::Env& env,
                                                         const std::string& flag) {
  const char* variable = env("PLEXRL_SIMGPU");
  if (flag.empty() && variable == nullptr) return std::nullopt;
  const std::string spec = flag.empty() ? variable : flag == "true" ? "" : flag;
  simgpu::Spec parsed;
  std::string problem;
  if (simgpu::parse_spec(spec, &parsed, &problem)) return spec;
  return absl::InvalidArgumentError((flag.empty() ? "PLEXRL_SIMGPU: " : "--simgpu: ") + problem);
}

}  // namespace plexrl::ctl
