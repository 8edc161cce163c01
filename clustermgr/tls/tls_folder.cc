#include "clustermgr/tls/tls_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "clustermgr/tls/verifier.h"
#include "nodemgr/scoped_fd.h"
#include "nodemgr/settings/cat.h"

namespace plexrl::clustermgr::tls {
namespace {

using nodemgr::cat;
using nodemgr::failed;
using nodemgr::invalid;

absl::Status check_is_secret(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return absl::OkStatus();  // reading it says why
  if ((status.st_mode & (S_IRWXO)) == 0) return absl::OkStatus();
  return invalid(path, ": everybody on this machine may read this private key: chmod 600 it");
}

absl::Status write_all(int fd, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t wrote = ::write(fd, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return failed(std::strerror(errno));
    done += static_cast<std::size_t>(wrote);
  }
  return ::fsync(fd) == 0 ? absl::OkStatus() : failed(std::strerror(errno));
}

}  // namespace

absl::StatusOr<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file || !text) return invalid(path, ": can't be read: ", std::strerror(errno));
  return std::move(text).str();
}

absl::Status write_file(const std::string& path, const std::string& text, unsigned mode) {
  const std::string fresh = path + ".new";
  ::unlink(fresh.c_str());
  const nodemgr::ScopedFd file(
      ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  absl::Status status = file.is_open() ? write_all(file.get(), text) : failed(std::strerror(errno));
  if (status.ok() && ::rename(fresh.c_str(), path.c_str()) != 0) {
    status = failed(std::strerror(errno));
  }
  if (status.ok()) return status;
  ::unlink(fresh.c_str());
  return failed(path, ": can't be written: ", nodemgr::message_of(status));
}

absl::StatusOr<TlsFiles> read_tls_folder(const std::string& folder) {
  TlsFiles files;
  struct File {
    const char* name;
    std::string* text;
  };
  for (const File& file :
       {File{"ca.pem", &files.authorities}, File{"cert.pem", &files.own.certificate},
        File{"key.pem", &files.own.key}}) {
    absl::StatusOr<std::string> text = read_file(cat(folder, "/", file.name));
    if (!text.ok()) {
      return invalid(
          nodemgr::message_of(text.status()),
          "; `plexrl-ctl tls init DIR` makes certificates, docs/cluster.md says where they go");
    }
    *file.text = *std::move(text);
  }
  absl::Status status = check_is_secret(folder + "/key.pem");
  if (!status.ok()) return status;
  status = check_key(files.own.certificate, files.own.key);
  if (!status.ok()) return invalid(folder, "/key.pem: ", nodemgr::message_of(status));
  const absl::StatusOr<Verifier> verifier = Verifier::make(files.authorities);
  if (!verifier.ok()) return invalid(folder, "/ca.pem: ", nodemgr::message_of(verifier.status()));
  return files;
}

}  // namespace plexrl::clustermgr::tls
