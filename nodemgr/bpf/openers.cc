#include "nodemgr/bpf/openers.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>

#include "nodemgr/settings/cat.h"

namespace plexrl::observer {
namespace {

using nodemgr::cat;
namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "nvidia";

std::optional<pid_t> pid_of(const fs::path& folder) {
  const std::string name = folder.filename();
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
  const bool is_pid = error == std::errc() && end == name.data() + name.size();
  return is_pid ? std::optional(pid) : std::nullopt;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

/// Files that may be a GPU's, by their name: to look at any file could wait for a file system.
bool may_be_device(const std::string& link) {
  const std::string name = link.substr(link.rfind('/') + 1);
  return link.starts_with("/dev/") || name.starts_with(kPrefix);
}

std::set<std::string> files_of(const std::string& folder, const GpuFiles& files) {
  std::set<std::string> found;
  std::error_code error;
  fs::directory_iterator entries(folder + "/fd", error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    char link[256];
    const ssize_t length = ::readlink(entries->path().c_str(), link, sizeof link);
    if (length <= 0 || !may_be_device(std::string(link, static_cast<std::size_t>(length)))) {
      continue;
    }
    struct stat info {};
    if (::stat(entries->path().c_str(), &info) != 0 || !S_ISCHR(info.st_mode)) continue;
    const auto file = files.find(info.st_rdev);
    if (file != files.end()) found.insert(file->second);
  }
  return found;
}

bool is_preloaded(const std::string& folder) {
  std::string environment(1, '\0');
  environment += text_of(folder + "/environ");
  const auto has = [&](std::string_view variable) {
    return environment.find(std::string(1, '\0').append(variable)) != std::string::npos;
  };
  if (!has("PLEXRL_JOB_ID=") || has("PLEXRL_DISABLE=1")) return false;
  return text_of(folder + "/maps").find("/libplexrl.so") != std::string::npos;
}

}  // namespace

GpuFiles gpu_files(const std::string& folder) {
  GpuFiles files;
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    const std::string name = entries->path().filename();
    struct stat info {};
    if (!name.starts_with(kPrefix) || ::stat(entries->path().c_str(), &info) != 0) continue;
    if (S_ISCHR(info.st_mode)) files[info.st_rdev] = name;
  }
  return files;
}

std::vector<Opener> find_openers(const GpuFiles& files, const std::string& proc) {
  std::vector<Opener> openers;
  if (files.empty()) return openers;
  std::error_code error;
  fs::directory_iterator processes(proc, error);
  for (; !error && processes != fs::directory_iterator(); processes.increment(error)) {
    const std::optional<pid_t> pid = pid_of(processes->path());
    if (!pid) continue;
    const std::string folder = cat(proc, "/", *pid);
    const std::set<std::string> open = files_of(folder, files);
    if (open.empty()) continue;
    struct stat info {};
    if (::stat(folder.c_str(), &info) != 0) continue;  // it has ended
    Opener opener;
    opener.process = *pid;
    opener.user = info.st_uid;
    opener.command = text_of(folder + "/comm");
    while (!opener.command.empty() && opener.command.back() == '\n') opener.command.pop_back();
    opener.files.assign(open.begin(), open.end());
    opener.is_preloaded = is_preloaded(folder);
    openers.push_back(std::move(opener));
  }
  std::sort(openers.begin(), openers.end());
  return openers;
}

}  // namespace plexrl::observer
