#include "nodemgr/listener.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "nodemgr/settings/cat.h"
#include "nodemgr/settings/places.h"

namespace plexrl::nodemgr {

std::string default_socket_path() {
  if (::getuid() == 0) return kSystemSocket;
  return user_socket_folder(process_env()) + "/nodemgr.sock";
}

absl::Status prepare_socket_folder(const std::string& socket_path) {
  std::string folder = std::filesystem::path(socket_path).parent_path();
  if (folder.empty()) return invalid("socket '", socket_path, "': write an absolute path");
  ::mkdir(folder.c_str(), ::getuid() == 0 ? 0755 : 0700);
  struct stat info {};
  if (::lstat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    return failed("socket folder '", folder,
                  "': ", errno != 0 ? std::strerror(errno) : "is no folder");
  }
  if (info.st_uid != ::getuid() && info.st_uid != 0) {
    return failed("socket folder '", folder, "' belongs to uid ", info.st_uid,
                  ": name another with PLEXRL_SOCKET");
  }
  return absl::OkStatus();
}

absl::StatusOr<ScopedFd> listen_at(const std::string& path, int type, unsigned int mode) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return invalid("socket '", path, "' is longer than ", sizeof address.sun_path - 1,
                   " bytes: name a shorter one with PLEXRL_SOCKET");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  const auto* generic = reinterpret_cast<sockaddr*>(&address);

  ScopedFd probe(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (::connect(probe.get(), generic, sizeof address) == 0 || errno == EAGAIN) {
    return absl::AlreadyExistsError(cat("another manager answers at '", path, "'"));
  }
  struct stat there {};
  if (::stat(path.c_str(), &there) == 0 && !S_ISSOCK(there.st_mode)) {
    return failed("'", path, "' is there and is no socket: name another with PLEXRL_SOCKET");
  }
  ScopedFd listener(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // Bound under a name of its own and renamed over the old one, so that there is no moment with a
  // socket of the wrong mode or none at all.
  std::string fresh = path + ".new";
  if (fresh.size() >= sizeof address.sun_path) return invalid("socket '", path, "' is too long");
  std::memcpy(address.sun_path, fresh.data(), fresh.size());
  ::unlink(fresh.c_str());
  if (::bind(listener.get(), generic, sizeof address) != 0 || ::chmod(fresh.c_str(), mode) != 0 ||
      ::listen(listener.get(), SOMAXCONN) != 0 || ::rename(fresh.c_str(), path.c_str()) != 0) {
    return failed("listen at '", path, "': ", std::strerror(errno));
  }
  return listener;
}

void give_to_group(const std::string& path, const char* group) {
  const struct group* entry = ::getgrnam(group);
  if (entry == nullptr) return;
  // Only root may; a user's own manager keeps the file in the user's group.
  if (::chown(path.c_str(), static_cast<uid_t>(-1), entry->gr_gid) != 0) return;
}

}  // namespace plexrl::nodemgr
