#include "nodemgr/disk/spill_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "nodemgr/settings/cat.h"

namespace plexrl::nodemgr::disk {
namespace {

constexpr mode_t kMode = 0600;

/// For file systems that have no O_TMPFILE.
ScopedFd create_and_unlink(const std::string& folder) {
  std::string path = folder + "/plexrl-spill-XXXXXX";
  ScopedFd fd(::mkostemp(path.data(), O_CLOEXEC));
  if (fd.is_open() && ::unlink(path.c_str()) != 0) fd.reset();
  return fd;
}

absl::Status system_error(const std::string& what) {
  return absl::UnknownError(cat(what, ": ", std::generic_category().message(errno)));
}

}  // namespace

SpillFile::SpillFile(ScopedFd fd, std::unique_ptr<ChunkKey> key)
    : fd_(std::move(fd)), key_(std::move(key)) {
  // Not everywhere (tmpfs before Linux 6.6, some network file systems).
  const int flags = ::fcntl(fd_.get(), F_GETFL);
  if (flags >= 0) ::fcntl(fd_.get(), F_SETFL, flags | O_DIRECT);
}

absl::StatusOr<std::unique_ptr<SpillFile>> SpillFile::create(const std::string& folder,
                                                             bool has_tmpfile) {
  auto key = ChunkKey::random();
  if (!key.ok()) return key.status();
  ScopedFd fd;
  if (has_tmpfile) {
    fd.reset(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, kMode));
    has_tmpfile = fd.is_open() || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL);
  }
  if (!has_tmpfile) fd = create_and_unlink(folder);
  if (!fd.is_open()) return system_error(cat("can't make a file in ", folder));
  return std::unique_ptr<SpillFile>(new SpillFile(std::move(fd), *std::move(key)));
}

absl::StatusOr<std::unique_ptr<SpillFile>> SpillFile::reopen(int name, std::uint64_t inode,
                                                             const std::string& folder,
                                                             std::span<const std::uint8_t> key) {
  struct stat file {};
  struct stat in {};
  if (::fstat(name, &file) != 0 || ::stat(folder.c_str(), &in) != 0) {
    return system_error(cat("can't look at a file in ", folder));
  }
  const bool is_ours = S_ISREG(file.st_mode) && file.st_nlink == 0 && file.st_uid == ::geteuid() &&
                       file.st_dev == in.st_dev && (inode == 0 || file.st_ino == inode);
  if (!is_ours) return absl::PermissionDeniedError("it is not the file of the manager before");
  auto copy = ChunkKey::copy_of(key);
  if (!copy.ok()) return copy.status();
  ScopedFd fd(::open(cat("/proc/self/fd/", name).c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.is_open()) return system_error(cat("can't open a file in ", folder, " again"));
  return std::unique_ptr<SpillFile>(new SpillFile(std::move(fd), *std::move(copy)));
}

absl::StatusOr<ScopedFd> SpillFile::name() const {
  ScopedFd name(::open(cat("/proc/self/fd/", fd_.get()).c_str(), O_PATH | O_CLOEXEC));
  if (!name.is_open()) return system_error("can't name a file");
  return name;
}

std::uint64_t SpillFile::inode() const {
  struct stat file {};
  return ::fstat(fd_.get(), &file) == 0 ? file.st_ino : 0;
}

void SpillFile::each_written(const std::function<void(std::uint64_t, std::uint64_t)>& visit) const {
  off_t at = 0;
  while ((at = ::lseek(fd_.get(), at, SEEK_DATA)) >= 0) {
    const off_t end = ::lseek(fd_.get(), at, SEEK_HOLE);
    if (end <= at) return;
    visit(static_cast<std::uint64_t>(at), static_cast<std::uint64_t>(end - at));
    at = end;
  }
}

bool SpillFile::is_direct() const { return (::fcntl(fd_.get(), F_GETFL) & O_DIRECT) != 0; }

void SpillFile::leave_direct() {
  const int flags = ::fcntl(fd_.get(), F_GETFL);
  if (flags >= 0) ::fcntl(fd_.get(), F_SETFL, flags & ~O_DIRECT);
}

absl::Status SpillFile::take(std::uint64_t offset, std::uint64_t bytes) {
  while (::fallocate(fd_.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0) {
    if (errno == EINTR) continue;
    if (errno == EOPNOTSUPP || errno == ENOSYS) return absl::OkStatus();  // writing will tell
    if (errno == ENOSPC || errno == EDQUOT) {
      return absl::ResourceExhaustedError(
          cat("the file system is full: ", std::generic_category().message(errno)));
    }
    return system_error("can't get room in the file system");
  }
  return absl::OkStatus();
}

void SpillFile::give_back(std::uint64_t offset, std::uint64_t bytes) {
  // A file system that can't leaves the room to the file, which writes there again.
  [[maybe_unused]] const int result =
      ::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                  static_cast<off_t>(bytes));
}

}  // namespace plexrl::nodemgr::disk
