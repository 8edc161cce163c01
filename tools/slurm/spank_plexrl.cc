// The SPANK plugin (spank(8)): `srun --plexrl`, `sbatch --plexrl`.
//
// The tasks of a step on one node are one PlexRL job, as if one plexrl-run had started them: they
// may share memory, and are promised theirs together. So a plexrl-run beside them gets the job
// admitted
// (--slurm-step, tools/run/slurm_step.h), and stays until they have ended; the tasks wait for its
// answer, which is what their environment has to be, before they execute their program.
//
//   slurmstepd: user_init     makes a memfd for the answer and two pipes
//   task 0:     task_init     starts plexrl-run with them, as the user
//   each task:  task_init     waits until plexrl-run has closed `answered`, and takes the answer
//   slurmstepd: task_exit     closes `alive` when the last task has ended, or dies; plexrl-run ends
//
// This code runs in srun, sbatch, slurmd and slurmstepd: nothing here throws, and nothing but Slurm
// and the C++ library, which is linked in, is needed.
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#pragma GCC visibility push(default)
extern "C" {
#include <slurm/spank.h>
extern const char plugin_name[];
extern const char plugin_type[];
extern const unsigned int plugin_version;
extern const unsigned int spank_plugin_version;
const char plugin_name[] = "plexrl";
const char plugin_type[] = "spank";
const unsigned int plugin_version = SLURM_VERSION_NUMBER;
const unsigned int spank_plugin_version = 1;
}
#pragma GCC visibility pop

#include "tools/slurm/spank_options.h"

namespace {

constexpr int kOk = 0;
constexpr int kFailed = -1;
constexpr int kPlexrlFailed = 125;  // plexrl-run's own status
// Where plexrl-run finds them, beside /dev/null or the task's own standard files.
constexpr int kAnswerFd = 3;
constexpr int kAnsweredFd = 4;
constexpr int kAliveFd = 5;
constexpr int kAboveAll = 16;

bool is_wanted = false;
std::string wanted;    // the option's argument
std::string run_path;  // plexrl-run

struct Step {
  int answer = -1;
  int answered[2] = {-1, -1};
  int alive[2] = {-1, -1};
  int tasks = 0;  // that have not ended
};
Step step;

void close_end(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
}

int take_option(int, const char* argument, int is_remote) {
  is_wanted = true;
  // Slurm gives a missing argument as "(null)" in some places.
  const char* const text = argument != nullptr && strcmp(argument, "(null)") != 0 ? argument : "";
  wanted = text;
  const auto options = plexrl::slurm::parse_spank_options(text);
  if (options.error.empty()) return kOk;
  if (!is_remote) slurm_error("%s", options.error.c_str());
  return kFailed;
}

/// ../../bin/plexrl-run of where this library lies.
std::string beside_this_library() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&take_option), &info) == 0) return "plexrl-run";
  std::string path = info.dli_fname;
  for (int up = 0; up < 3; ++up) path = path.substr(0, path.rfind('/'));
  return path + "/bin/plexrl-run";
}

std::string job_name(spank_t spank) {
  char name[64] = "";
  const spank_err_t found = spank_getenv(spank, "SLURM_JOB_NAME", name, sizeof name);
  return found == ESPANK_SUCCESS && name[0] != '\0' ? name : "slurm";
}

/// Starts plexrl-run as nobody's child, so that no task has to wait for it. A task calls this.
bool start_runner(spank_t spank) {
  auto words = plexrl::slurm::parse_spank_options(wanted).words;
  words.insert(words.begin(), run_path);
  bool is_named = false;
  for (const std::string& word : words) is_named |= word.rfind("--name=", 0) == 0;
  if (!is_named) words.push_back("--name=" + job_name(spank));
  words.insert(words.end(), {"--slurm-step", "--", "tasks"});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  char** environment = nullptr;
  if (spank_get_item(spank, S_JOB_ENV, &environment) != ESPANK_SUCCESS) return false;

  const pid_t between = fork();
  if (between < 0) return false;
  if (between > 0) {
    int status = 0;
    while (waitpid(between, &status, 0) < 0 && errno == EINTR) {
    }
    return status == 0;
  }
  const pid_t last = fork();
  if (last != 0) _exit(last < 0 ? 1 : 0);
  const int high[] = {fcntl(step.answer, F_DUPFD, kAboveAll),
                      fcntl(step.answered[1], F_DUPFD, kAboveAll),
                      fcntl(step.alive[0], F_DUPFD, kAboveAll)};
  const int wanted_fds[] = {kAnswerFd, kAnsweredFd, kAliveFd};
  // The originals have O_CLOEXEC, but for one that lies where a copy shall be.
  for (int i = 0; i < 3; ++i) dup2(high[i], wanted_fds[i]);
  for (const int fd : high) close(fd);
  const int nothing = open("/dev/null", O_RDWR);
  dup2(nothing, STDIN_FILENO);
  dup2(nothing, STDOUT_FILENO);
  if (nothing > kAliveFd) close(nothing);
  execve(run_path.c_str(), argv.data(), environment);
  fprintf(stderr, "plexrl: %s can't be executed: %s\n", run_path.c_str(), strerror(errno));
  _exit(1);
}

/// Entries end with a zero byte: "=NAME=VALUE" to be set, "-NAME" to be unset; the last one is
/// "run", or plexrl-run has said on stderr why not.
bool take_answer(spank_t spank) {
  struct stat answer {};
  if (fstat(step.answer, &answer) != 0 || answer.st_size <= 0) return false;
  std::string text(static_cast<std::size_t>(answer.st_size), '\0');
  if (pread(step.answer, text.data(), text.size(), 0) != answer.st_size) return false;
  for (std::size_t at = 0; at < text.size();) {
    const char* const entry = text.c_str() + at;
    at += strlen(entry) + 1;
    if (strcmp(entry, "run") == 0) return true;
    const char* const equals = entry[0] == '=' ? strchr(entry + 1, '=') : nullptr;
    if (equals != nullptr) {
      spank_setenv(spank, std::string(entry + 1, equals).c_str(), equals + 1, 1);
    } else if (entry[0] == '-') {
      spank_unsetenv(spank, entry + 1);
    }
  }
  return false;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int slurm_spank_init(spank_t spank, int count, char* arguments[]) {
  // Static, because Slurm keeps the pointers.
  static char name[] = "plexrl";
  static char argument[] = "KEY=VALUE,…";
  static char usage[] = "share GPUs by PlexRL; keys as plexrl-run's options";
  static spank_option option = {name, argument,   usage, 2 /* an argument may follow */,
                                0,    take_option};
  constexpr char kRun[] = "run=";
  run_path = beside_this_library();
  for (int i = 0; i < count; ++i) {
    if (strncmp(arguments[i], kRun, sizeof kRun - 1) == 0) {
      run_path = arguments[i] + sizeof kRun - 1;
    } else {
      slurm_error("plexrl: unknown argument '%s' in plugstack.conf; known is run=PATH",
                  arguments[i]);
      return kFailed;
    }
  }
  return spank_option_register(spank, &option) == ESPANK_SUCCESS ? kOk : kFailed;
}

int slurm_spank_user_init(spank_t spank, int, char*[]) {
  if (!is_wanted || spank_remote(spank) != 1) return kOk;
  uint32_t tasks = 0;
  if (spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &tasks) != ESPANK_SUCCESS || tasks == 0)
    tasks = 1;
  step.tasks = static_cast<int>(tasks);
  step.answer = memfd_create("plexrl-answer", MFD_CLOEXEC);
  if (step.answer < 0 || pipe2(step.answered, O_CLOEXEC) != 0 ||
      pipe2(step.alive, O_CLOEXEC) != 0) {
    slurm_error("plexrl: %s", strerror(errno));
    return kFailed;
  }
  return kOk;
}

int slurm_spank_task_init(spank_t spank, int, char*[]) {
  if (!is_wanted || spank_remote(spank) != 1) return kOk;
  int task = 0;
  if (spank_get_item(spank, S_TASK_ID, &task) != ESPANK_SUCCESS) return kFailed;
  bool is_started = true;
  if (task == 0) is_started = start_runner(spank);
  close_end(step.answered[1]);
  close_end(step.alive[1]);
  // Its other end is plexrl-run's alone, and those tasks' that have not come so far.
  pollfd answered = {step.answered[0], POLLIN, 0};
  while (poll(&answered, 1, -1) < 0 && errno == EINTR) {
  }
  // Whatever plugstack.conf says of a plugin that fails: it would have the whole GPU.
  if (!is_started || !take_answer(spank)) _exit(kPlexrlFailed);
  return kOk;
}

int slurm_spank_task_post_fork(spank_t spank, int, char*[]) {
  if (!is_wanted || spank_remote(spank) != 1) return kOk;
  close_end(step.answered[0]);  // all tasks have been forked
  close_end(step.answered[1]);
  close_end(step.alive[0]);
  close_end(step.answer);
  return kOk;
}

int slurm_spank_task_exit(spank_t spank, int, char*[]) {
  if (!is_wanted || spank_remote(spank) != 1) return kOk;
  if (--step.tasks <= 0) close_end(step.alive[1]);
  return kOk;
}

}  // extern "C"
#pragma GCC visibility pop
