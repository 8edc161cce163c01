#include "tools/run/cluster_place.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tools/cli/socket_path.h"

namespace plexrl::run {
namespace {

/// The job begins all the same, and is counted as any other.
constexpr int kMostWaitMs = 10'000;

std::vector<std::string> client_command(const Options& options,
                                        const cli::Installation& installation,
                                        const std::vector<std::string>& only_gpus,
                                        const EnvBlock& env) {
  std::vector<std::string> words = {installation.cluster_client,
                                    "place",
                                    absl::StrCat("--cluster=", options.cluster),
                                    absl::StrCat("--name=", options.name),
                                    absl::StrCat("--gpus=", options.gpus),
                                    absl::StrCat("--nodes=", options.nodes),
                                    absl::StrCat("--memory-bytes=", options.memory_bytes),
                                    absl::StrCat("--max-slowdown=", options.max_slowdown)};
  if (!options.team.empty()) words.push_back(absl::StrCat("--team=", options.team));
  if (options.no_wait) words.emplace_back("--no-wait");
  for (const std::string& name : options.apart_from) {
    words.push_back(absl::StrCat("--apart-from=", name));
  }
  for (const std::string& gpu : only_gpus) words.push_back(absl::StrCat("--only-gpu=", gpu));
  if (!options.placement.empty()) words.push_back(absl::StrCat("--id=", options.placement));
  const cli::Env lookup = [&env](const char* name) { return env.get(name); };
  for (const cli::SocketPath& place : cli::socket_paths(lookup, options.simgpu)) {
    words.push_back(absl::StrCat("--admin-socket=", cli::admin_socket_path(place.path)));
  }
  return words;
}

struct Client {
  ScopedFd to, from;
};

[[noreturn]] void become_client(std::vector<std::string>& words, EnvBlock& env, int input,
                                int output) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  execve(argv[0], argv.data(), env.pointers().data());
  const std::string text =
      absl::StrCat("failed ", argv[0], " can't be started: ", std::strerror(errno), "\n");
  [[maybe_unused]] const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
  _exit(1);
}

/// It is the child of one that has ended, so that nobody has to wait for it.
absl::StatusOr<Client> start_client(std::vector<std::string> words, EnvBlock env) {
  int in[2];  // a socket, which can be written to without a signal when nobody reads
  int out[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) != 0) {
    return absl::ErrnoToStatus(errno, "socketpair");
  }
  Client client{ScopedFd(in[1]), ScopedFd()};
  const ScopedFd input(in[0]);
  if (pipe2(out, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  client.from = ScopedFd(out[0]);
  const ScopedFd output(out[1]);
  const pid_t between = fork();
  if (between < 0) return absl::ErrnoToStatus(errno, "fork");
  if (between == 0) {
    const pid_t last = fork();
    if (last == 0) become_client(words, env, input.get(), output.get());
    _exit(last < 0 ? 1 : 0);
  }
  int status = 0;
  while (waitpid(between, &status, 0) < 0 && errno == EINTR) {
  }
  if (status != 0) return absl::InternalError("fork failed");
  return client;
}

/// The next line without its end; empty at the end of all.
std::string read_line(int fd) {
  std::string line;
  char c = 0;
  for (;;) {
    const ssize_t got = read(fd, &c, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0 || c == '\n') return line;
    line.push_back(c);
  }
}

}  // namespace

absl::StatusOr<std::vector<std::string>> gpus_to_choose_from(const char* visible) {
  if (visible == nullptr) return std::vector<std::string>{};
  const std::vector<std::string> gpus = absl::StrSplit(visible, ',');
  for (const std::string& gpu : gpus) {
    if (gpu.starts_with("GPU-")) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "CUDA_VISIBLE_DEVICES=", visible, " does not name GPUs by UUID, and the cluster manager ",
        "chooses from those of all machines: unset it, or name them as `nvidia-smi -L` does"));
  }
  return gpus;
}

absl::StatusOr<ClusterPlace> ClusterPlace::ask(const Options& options,
                                               const cli::Installation& installation,
                                               const EnvBlock& env,
                                               const std::function<void(const std::string&)>& say) {
  // Where it has its place already nothing is chosen any more.
  const auto only_gpus =
      gpus_to_choose_from(options.placement.empty() ? env.get("CUDA_VISIBLE_DEVICES") : nullptr);
  if (!only_gpus.ok()) return only_gpus.status();
  EnvBlock client_env = env;
  leave_job(client_env);
  auto client =
      start_client(client_command(options, installation, *only_gpus, env), std::move(client_env));
  if (!client.ok()) return client.status();
  for (;;) {
    const std::string line = read_line(client->from.get());
    const std::pair<std::string, std::string> parts = absl::StrSplit(line, absl::MaxSplits(' ', 1));
    const auto& [word, text] = parts;
    if (word == "queued") {
      say("waiting for a place: " + text);
    } else if (word == "refused") {
      return absl::ResourceExhaustedError("refused: " + text);
    } else if (word == "failed") {
      return absl::UnavailableError(text);
    } else if (word != "placed") {
      return absl::UnavailableError(installation.cluster_client + " ended without an answer");
    } else {
      const std::vector<std::string> words = absl::StrSplit(text, ' ');
      if (words.size() != 4) {
        return absl::InternalError("plexrl-cluster-client is of another version");
      }
      ClusterPlace place;
      place.to_client_ = std::move(client->to);
      place.from_client_ = std::move(client->from);
      place.is_taken_over_ = !options.placement.empty();
      place.is_here_ = words[0] == "here";
      place.node_ = words[1];
      place.gpus_ = words[2];
      place.id_ = words[3];
      return place;
    }
  }
}

// Where the client has died the node's reports tell of the job as of any other.
void ClusterPlace::started(const std::string& job_id) {
  tell("job " + job_id);
  if (!is_taken_over_) return;
  pollfd end = {from_client_.get(), POLLIN, 0};  // it ends when the cluster manager knows
  poll(&end, 1, kMostWaitMs);
}

void ClusterPlace::submitted(const std::string& slurm_job) { tell("slurm " + slurm_job); }

void ClusterPlace::share_with_children() { fcntl(to_client_.get(), F_SETFD, 0); }

void ClusterPlace::tell(const std::string& line) {
  const std::string text = line + "\n";
  [[maybe_unused]] const ssize_t sent =
      send(to_client_.get(), text.data(), text.size(), MSG_NOSIGNAL);
  to_client_.reset();
}

}  // namespace plexrl::run
