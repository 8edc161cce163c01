#include "tools/cli/socket_path.h"

#include <cctype>
#include <filesystem>

namespace plexrl::cli {
namespace {

using nodemgr::kSystemSocket;
using nodemgr::kSystemState;

std::string value_of(const Env& env, const char* name) {
  const char* value = env(name);
  return value ? value : "";
}

}  // namespace

std::string simgpu_name(const std::string& spec) {
  std::string name;
  for (size_t begin = 0; begin < spec.size();) {
    size_t end = spec.find_first_of(", \t\n", begin);
    if (end == std::string::npos) end = spec.size();
    const std::string item = spec.substr(begin, end - begin);
    if (item.rfind("name=", 0) == 0) name = item.substr(5);
    begin = end + 1;
  }
  if (name.empty()) return "default";
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.') c = '_';
  }
  return name;
}

std::vector<SocketPath> socket_paths(const Env& env, const std::optional<std::string>& simgpu) {
  if (const std::string given = value_of(env, "PLEXRL_SOCKET"); !given.empty()) {
    return {{given, given == kSystemSocket}};
  }
  const std::string folder = nodemgr::user_socket_folder(env);
  if (simgpu) return {{folder + "/simgpu-" + simgpu_name(*simgpu) + "/nodemgr.sock", false}};
  return {{kSystemSocket, true}, {folder + "/nodemgr.sock", false}};
}

std::string admin_socket_path(const std::string& job_socket) {
  const auto slash = job_socket.rfind('/');
  return slash == std::string::npos ? "admin.sock" : job_socket.substr(0, slash + 1) + "admin.sock";
}

std::string state_folder(const Env& env, const std::optional<std::string>& simgpu) {
  // What the user names is meant as it is, for the simulated GPU too.
  if (const std::string data = value_of(env, "PLEXRL_DATA"); !data.empty()) return data;
  const std::string base = nodemgr::default_state_folder(env);
  return simgpu ? base + "/simgpu-" + simgpu_name(*simgpu) : base;
}

std::vector<std::string> state_folders(const Env& env) {
  const std::string own = state_folder(env, std::nullopt);
  std::vector<std::string> folders = {own};
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(own, error)) {
    if (entry.path().filename().string().rfind("simgpu-", 0) == 0) folders.push_back(entry.path());
  }
  if (own != kSystemState) folders.push_back(kSystemState);
  return folders;
}

}  // namespace plexrl::cli
