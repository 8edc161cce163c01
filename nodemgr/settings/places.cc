#include "nodemgr/settings/places.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {
namespace {

/// "" for what is unset or no absolute path.
std::string folder_in(const Env& env, const char* name) {
  const char* const value = env(name);
  return value != nullptr && value[0] == '/' ? value : "";
}

std::string temporary_folder() { return cat("/tmp/plexrl-", ::getuid()); }

/// The service's, which runs as a user of its own (tools/package).
bool is_anothers(const char* folder) {
  struct stat info {};
  return ::stat(folder, &info) == 0 && info.st_uid != ::getuid();
}

}  // namespace

Env process_env() {
  return [](const char* name) { return std::getenv(name); };
}

std::string user_socket_folder(const Env& env) {
  const std::string runtime = folder_in(env, "XDG_RUNTIME_DIR");
  return runtime.empty() ? temporary_folder() : runtime + "/plexrl";
}

std::string default_state_folder(const Env& env) {
  if (const std::string state = folder_in(env, "XDG_STATE_HOME"); !state.empty()) {
    return state + "/plexrl";
  }
  if (::getuid() == 0 && !is_anothers(kSystemState)) return kSystemState;
  const std::string home = folder_in(env, "HOME");
  return home.empty() ? temporary_folder() : home + "/.local/state/plexrl";
}

}  // namespace plexrl::nodemgr
