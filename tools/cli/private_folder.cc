#include "tools/cli/private_folder.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

namespace plexrl::cli {
namespace {

// Who owns "/" can do everything anyway; in a user namespace that may be another number than 0.
bool is_trusted(const struct stat& info) {
  struct stat root {};
  const uid_t owner_of_all = stat("/", &root) == 0 ? root.st_uid : 0;
  return info.st_uid == 0 || info.st_uid == owner_of_all || info.st_uid == geteuid();
}

std::string belongs_to(const std::string& folder, uid_t owner) {
  const passwd* const entry = getpwuid(owner);
  const std::string uid = "uid " + std::to_string(owner);
  return folder + " belongs to " +
         (entry ? std::string("user '") + entry->pw_name + "' (" + uid + ")" : uid) +
         ": have it removed, or set XDG_RUNTIME_DIR to a folder of your own";
}

}  // namespace

std::string folder_of(const std::string& file) {
  const auto slash = file.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : file.substr(0, slash);
}

std::optional<std::string> why_not_private(const std::string& folder) {
  bool is_leaf = true;
  for (std::string at = folder;; at = folder_of(at), is_leaf = false) {
    struct stat entry {};
    // What can't be looked at is behind a folder above, whose turn comes.
    if (lstat(at.c_str(), &entry) == 0) {
      struct stat target = entry;
      if (S_ISLNK(entry.st_mode) && stat(at.c_str(), &target) != 0) target = entry;
      if (!is_trusted(entry)) return belongs_to(at, entry.st_uid);
      if (!is_trusted(target)) return belongs_to(at, target.st_uid);
      const bool may_be_shared = !is_leaf && (target.st_mode & S_ISVTX);
      if ((target.st_mode & S_IWOTH) && S_ISDIR(target.st_mode) && !may_be_shared) {
        return at + " is not a folder that only you can write to: chmod it or choose another";
      }
    }
    if (at == "/" || at == ".") return std::nullopt;
  }
}

}  // namespace plexrl::cli
