#include "nodemgr/gpu_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr {
namespace {

std::string holder_text(int fd) {
  char text[512];
  ssize_t got = ::pread(fd, text, sizeof text, 0);
  std::string line(text, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  line = line.substr(0, line.find('\n'));
  return line.empty() ? "another manager" : cat("the manager with ", line);
}

/// Opens without O_CREAT first: in a sticky folder that is refused for files of other users
/// (fs.protected_regular, proc_sys_fs(5)).
ScopedFd open_lock_file(const std::string& path) {
  ScopedFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file.is_open() && errno == ENOENT) {
    file.reset(::open(path.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  }
  return file;
}

void write_holder(const std::string& path, const std::string& socket) {
  ScopedFd file(::open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOFOLLOW));
  if (!file.is_open()) return;  // the file of another user: then nobody is named
  std::string line = cat("pid ", ::getpid(), ", uid ", ::getuid(), ", socket ", socket, "\n");
  if (::write(file.get(), line.data(), line.size()) < 0) return;
}

absl::StatusOr<ScopedFd> lock_by_socket(const std::string& uuid) {
  ScopedFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::string name = cat("plexrl-", uuid);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof address.sun_path) return invalid("UUID '", uuid, "' is too long");
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) {
    if (errno == EADDRINUSE) {
      return absl::AlreadyExistsError(cat(uuid, " is managed by another manager"));
    }
    return failed("lock ", uuid, ": ", std::strerror(errno));
  }
  return socket;
}

}  // namespace

absl::StatusOr<ScopedFd> lock_gpu(const std::string& uuid, const std::string& folder,
                                  const std::string& socket) {
  if (uuid.find('/') != std::string::npos) return invalid("UUID '", uuid, "' has a slash");
  if (::mkdir(folder.c_str(), 01777) == 0) ::chmod(folder.c_str(), 01777);
  std::string path = cat(folder, "/", uuid);
  ScopedFd file = open_lock_file(path);
  if (!file.is_open()) return lock_by_socket(uuid);
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return failed("lock ", path, ": ", std::strerror(errno));
    return absl::AlreadyExistsError(cat(uuid, " is managed by ", holder_text(file.get())));
  }
  write_holder(path, socket);
  return file;
}

}  // namespace plexrl::nodemgr
