#include "tools/run/target.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <optional>
#include <sstream>
#include <vector>

#include "tools/run/scoped_fd.h"

namespace plexrl::run {
namespace {

constexpr int kMaxInterpreters = 4;  // the kernel's own limit for nested "#!" is 4 (execve(2))

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#endif

bool is_regular(const std::string& file) {
  struct stat info;
  return stat(file.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

// Like execvp: a file that is there but can't be executed is remembered while the search goes on.
void find_in_path(const std::string& command, const char* path, Target& target) {
  std::vector<std::string> places;
  if (command.find('/') != std::string::npos) {
    places.push_back(command);
  } else {
    std::istringstream folders(path ? path : "/bin:/usr/bin");
    for (std::string folder; std::getline(folders, folder, ':');) {
      places.push_back((folder.empty() ? "." : folder) + "/" + command);
    }
  }
  for (const std::string& place : places) {
    if (!is_regular(place)) {
      if (access(place.c_str(), F_OK) == 0 && command.find('/') != std::string::npos) {
        target.found = Target::Found::kNotExecutable;
        target.path = place;
      }
      continue;
    }
    target.path = place;
    if (access(place.c_str(), X_OK) == 0) {
      target.found = Target::Found::kYes;
      return;
    }
    target.found = Target::Found::kNotExecutable;
  }
}

// The command that a "#!" line starts; nothing if it is not a script.
std::optional<std::string> interpreter_of(const std::string& head) {
  if (head.rfind("#!", 0) != 0) return std::nullopt;
  std::istringstream line(head.substr(2, head.find('\n') - 2));
  std::string program, word;
  line >> program;
  if (program.substr(program.rfind('/') + 1) != "env") return program;
  while (line >> word) {  // env [-S] [NAME=VALUE] program
    if (word[0] != '-' && word.find('=') == std::string::npos) return word;
  }
  return program;
}

bool changes_user(int fd, const struct stat& info) {
  const bool set_uid = (info.st_mode & S_ISUID) && info.st_uid != geteuid();
  const bool set_gid = (info.st_mode & S_ISGID) && info.st_gid != getegid();
  const bool capabilities = geteuid() != 0 && fgetxattr(fd, "security.capability", nullptr, 0) > 0;
  return set_uid || set_gid || capabilities;
}

// True, also when it can't be told, unless the headers say that no interpreter (ld.so) is asked
// for.
bool is_dynamic(int fd, const Elf64_Ehdr& header) {
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    const off_t at = static_cast<off_t>(header.e_phoff) + i * header.e_phentsize;
    if (pread(fd, &segment, sizeof segment, at) != sizeof segment) return true;
    if (segment.p_type == PT_INTERP) return true;
  }
  return false;
}

void inspect_elf(int fd, const std::string& file, const std::string& head, Target& target) {
  Elf64_Ehdr header;
  if (head.size() < sizeof header) return;
  std::memcpy(&header, head.data(), sizeof header);
  struct stat info;
  if (fstat(fd, &info) == 0 && changes_user(fd, info)) {
    target.obstacle = file + " runs with other privileges (set-user-ID), so it can't be caught";
    target.children_can_be_caught = false;
  } else if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != kMachine) {
    target.obstacle = file + " is built for another architecture, so it can't be caught";
    target.children_can_be_caught = false;
  } else if (!is_dynamic(fd, header)) {
    target.obstacle = file + " is statically linked, so it can't be caught itself";
  }
}

}  // namespace

Target inspect_target(const std::string& command, const char* path) {
  Target target;
  find_in_path(command, path, target);
  if (target.found != Target::Found::kYes) return target;
  std::string file = target.path;
  for (int depth = 0; depth <= kMaxInterpreters; ++depth) {
    ScopedFd fd(open(file.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) return target;
    std::array<char, 256> bytes;
    const ssize_t size = pread(fd.get(), bytes.data(), bytes.size(), 0);
    const std::string head(bytes.data(), size > 0 ? static_cast<size_t>(size) : 0);
    if (head.rfind(ELFMAG, 0) == 0) {
      inspect_elf(fd.get(), file, head, target);
      return target;
    }
    const auto interpreter = interpreter_of(head);
    if (!interpreter) return target;
    Target next;
    find_in_path(*interpreter, path, next);
    if (next.found != Target::Found::kYes) return target;
    file = next.path;
  }
  return target;
}

}  // namespace plexrl::run
