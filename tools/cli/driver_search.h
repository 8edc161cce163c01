#pragma once

#include <string>

namespace plexrl::cli {

/// The file that a program would load as libcuda.so.1, looked for as ld.so(8) does: `library_path`
/// ($LD_LIBRARY_PATH, may be null), the loader's cache, the usual folders. Empty: there is none.
/// Nothing is loaded: NVIDIA's library starts threads and opens devices only when it is called, but
/// a parent that stays around should not carry it.
std::string find_cuda_driver(const char* library_path,
                             const std::string& loader_cache = "/etc/ld.so.cache");

}  // namespace plexrl::cli
