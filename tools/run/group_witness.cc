#include "tools/run/group_witness.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

#include "nodemgr/job_processes.h"

namespace plexrl::run {
namespace {

constexpr int kLookAgainMs = 100;
constexpr int kLooksAtEnd = 30;
constexpr int kLooksWithoutEnd = INT_MAX;

std::uint64_t bit(int signal) { return std::uint64_t{1} << (signal - 1); }

constexpr char kQuestion = '?';
constexpr char kFarewell = '.';

// The witness's life: one question (a byte), one answer (the mask), until it is dismissed or the
// other end closes.
[[noreturn]] void witness(int socket, const GroupWitness::Inherit& inherit) {
  prctl(PR_SET_NAME, "plexrl-witness");
  nodemgr::leave_job_environment();
  const int inherited = fcntl(socket, F_DUPFD, 3);
  dup2(inherited, 0);
  close_range(1, ~0U, 0);
  for (int fd = 1; fd <= 2; ++fd) open("/dev/null", O_RDWR);
  sigset_t all;
  sigfillset(&all);
  const int signals = signalfd(-1, &all, SFD_NONBLOCK | SFD_CLOEXEC);
  const auto parent = static_cast<std::uint32_t>(getppid());
  char question = 0;
  if (send(0, &question, 1, MSG_NOSIGNAL) != 1) _exit(0);
  while (recv(0, &question, 1, 0) == 1 && question != kFarewell) {
    std::uint64_t seen = 0;
    signalfd_siginfo info;
    while (read(signals, &info, sizeof info) == sizeof info) {
      // plexrl-run's own is for the witness alone.
      const bool is_ours = info.ssi_code == SI_USER && info.ssi_pid == parent;
      if (!is_ours) seen |= bit(static_cast<int>(info.ssi_signo));
    }
    if (send(0, &seen, sizeof seen, MSG_NOSIGNAL) != sizeof seen) break;
  }
  close(signals);
  inherit(question != kFarewell, [] { dup2(1, 0); });
  _exit(0);
}

}  // namespace

GroupWitness::GroupWitness(const Inherit& inherit) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
  ScopedFd ours(ends[0]), its(ends[1]);
  pid_ = fork();
  if (pid_ == 0) {
    ours.reset();
    witness(its.get(), inherit);
  }
  if (pid_ <= 0) return;
  // Before it has begun nobody may be killed: it would pass for a process of the job around us.
  its.reset();
  char begun;
  if (recv(ours.get(), &begun, 1, 0) == 1) socket_ = std::move(ours);
}

void GroupWitness::dismiss() {
  if (socket_ && send(socket_.get(), &kFarewell, 1, MSG_NOSIGNAL) == 1) await_answer(kLooksAtEnd);
  socket_.reset();
}

GroupWitness::~GroupWitness() {
  dismiss();
  if (pid_ <= 0) return;
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

bool GroupWitness::group_got(int signal) {
  seen_ |= ask();
  const bool group_got_it = (seen_ & bit(signal)) != 0;
  seen_ &= ~bit(signal);
  // A stop signal discards a pending SIGCONT and the other way round (signal(7)), so we never take
  // those.
  const std::uint64_t stops = bit(SIGTSTP) | bit(SIGTTIN) | bit(SIGTTOU);
  if (signal == SIGCONT) seen_ &= ~stops;
  if (bit(signal) & stops) seen_ &= ~bit(SIGCONT);
  return group_got_it;
}

std::uint64_t GroupWitness::ask() {
  std::uint64_t seen = 0;
  if (!socket_ || send(socket_.get(), &kQuestion, 1, MSG_NOSIGNAL) != 1) return 0;
  await_answer(kLooksWithoutEnd);
  return recv(socket_.get(), &seen, sizeof seen, 0) == sizeof seen ? seen : 0;
}

void GroupWitness::await_answer(int looks) {
  pollfd answer{socket_.get(), POLLIN, 0};
  do {
    siginfo_t info{};
    const bool is_stopped =
        waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid == pid_;
    if (is_stopped) kill(pid_, SIGCONT);
    // Without an answer so far it may have been stopped since we looked.
  } while (poll(&answer, 1, kLookAgainMs) == 0 && --looks > 0);
}

}  // namespace plexrl::run
