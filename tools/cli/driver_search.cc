#include "tools/cli/driver_search.h"

#include <unistd.h>

#include <fstream>
#include <sstream>

namespace plexrl::cli {
namespace {

constexpr char kDriver[] = "libcuda.so.1";

bool is_there(const std::string& file) { return access(file.c_str(), R_OK) == 0; }

// The cache is a table of NUL-terminated strings, among them the full path of each library; finding
// the path needs no knowledge of the rest of its layout.
std::string find_in_cache(const std::string& cache_file) {
  std::ifstream file(cache_file, std::ios::binary);
  std::stringstream contents;
  contents << file.rdbuf();
  const std::string cache = contents.str();
  const std::string tail = std::string("/") + kDriver + '\0';
  for (size_t at = cache.find(tail); at != std::string::npos; at = cache.find(tail, at + 1)) {
    const size_t begin = cache.rfind('\0', at) + 1;
    const std::string path = cache.substr(begin, at - begin + tail.size() - 1);
    if (is_there(path)) return path;
  }
  return "";
}

}  // namespace

std::string find_cuda_driver(const char* library_path, const std::string& loader_cache) {
  std::istringstream folders(library_path ? library_path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = (folder.empty() ? "." : folder) + "/" + kDriver;
    if (is_there(file)) return file;
  }
  if (const std::string file = find_in_cache(loader_cache); !file.empty()) return file;
  for (const char* folder : {"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64",
                             "/usr/lib64", "/lib", "/usr/lib", "/usr/lib/wsl/lib"}) {
    const std::string file = std::string(folder) + "/" + kDriver;
    if (is_there(file)) return file;
  }
  return "";
}

}  // namespace plexrl::cli
