#include "tools/slurm/program_output.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace plexrl::slurm {
namespace {

constexpr std::size_t kMostText = std::size_t{1} << 20;
constexpr int kNotExecutable = 127;

int status_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

absl::StatusOr<ProgramOutput> output_of(const std::vector<std::string>& words,
                                        const std::vector<char*>& environment) {
  std::vector<std::string> copies = words;
  std::vector<char*> argv;
  for (std::string& word : copies) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  pid_t pid = -1;
  const int problem =
      posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  ProgramOutput output;
  if (problem != 0) {
    close(ends[0]);
    if (problem != ENOENT && problem != EACCES) return absl::ErrnoToStatus(problem, words[0]);
    output.status = kNotExecutable;
    output.text = words[0] + " can't be executed";
    return output;
  }
  std::array<char, 4096> bytes{};
  for (;;) {
    const ssize_t got = read(ends[0], bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    if (output.text.size() < kMostText) {
      output.text.append(bytes.data(), static_cast<std::size_t>(got));
    }
  }
  close(ends[0]);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  output.status = status_of(status);
  return output;
}

}  // namespace plexrl::slurm
