#include "tools/cli/installation.h"

#include <filesystem>

namespace plexrl::cli {

Installation this_installation() {
  std::error_code error;
  const auto bin = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const std::string libraries = (bin.parent_path() / "lib" / "plexrl").string();
  return {.run = (bin / "plexrl-run").string(),
          .library = libraries + "/libplexrl.so",
          .simgpu_folder = libraries + "/simgpu",
          .manager = (bin / "plexrl-nodemgr").string(),
          .runner = (bin / "plexrl-run").string(),
          .cluster_client = libraries + "/plexrl-cluster-client"};
}

}  // namespace plexrl::cli
