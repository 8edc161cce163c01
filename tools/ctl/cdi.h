#pragma once

#include <string>

#include "absl/status/status.h"
#include "tools/ctl/answer.h"

namespace plexrl::ctl {

/// What a container needs of this machine's PlexRL, as paths here.
struct CdiPlaces {
  std::string run;      ///< plexrl-run
  std::string library;  ///< libplexrl.so
  std::string socket;   ///< where jobs connect to the node manager
};

/// What is wrong with them, and what to do about it.
[[nodiscard]] absl::Status check_places(const CdiPlaces& places);

/// The specification for container runtimes (Container Device Interface, SPEC.md of
/// github.com/cncf-tags/container-device-interface): one device, `plexrl.local/share=node`, by
/// which a container gets plexrl-run in its PATH, the preload beside it, and the job socket. Never
/// the socket for administration: single files are mounted, not the folder of both. Pure.
Json cdi_spec(const CdiPlaces& places);

/// The verb `cdi` with its command line, `argv[0]` the program. Returns the exit status.
int run_cdi(int argc, char** argv);

}  // namespace plexrl::ctl
