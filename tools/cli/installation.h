#pragma once

#include <string>

namespace plexrl::cli {

/// Where the parts of this PlexRL lie, found from plexrl-run's own place: build tree and installed
/// tree are alike (docs/contract.md, row "build").
struct Installation {
  std::string run;             ///< plexrl-run
  std::string library;         ///< libplexrl.so, which is preloaded
  std::string simgpu_folder;   ///< with libcuda.so.1 and libnvidia-ml.so.1 of the simulated GPU
  std::string manager;         ///< plexrl-nodemgr
  std::string runner;          ///< plexrl-run
  std::string cluster_client;  ///< plexrl-cluster-client, which speaks gRPC for the others
};

/// From the link /proc/self/exe.
Installation this_installation();

}  // namespace plexrl::cli
