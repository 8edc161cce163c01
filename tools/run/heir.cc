#include "tools/run/heir.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "nodemgr/job_processes.h"

namespace plexrl::run {
namespace {

constexpr std::chrono::milliseconds kFirstDelay{20};
constexpr std::chrono::milliseconds kLongestDelay{2000};
constexpr int kMaxFailures = 150;  // in a row
constexpr std::chrono::milliseconds kBetweenLooks{100};

// Returns when no process of the job is left; `found_one` is called once, when there is one.
void wait_for_the_last(const std::string& job_id, const std::function<void()>& found_one) {
  using Answer = nodemgr::JobSearch::Answer;
  bool is_first = true;
  for (;;) {
    const nodemgr::JobSearch search = nodemgr::find_process_of(job_id, geteuid());
    if (search.answer == Answer::kNone) return;
    if (search.answer == Answer::kFound) {
      if (std::exchange(is_first, false)) found_one();
      pollfd end{search.pidfd.get(), POLLIN, 0};
      poll(&end, 1, -1);
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

// The manager has taken us for the job's plexrl-run; nothing when it does not answer or won't.
std::optional<ManagerLink> resume_job(const std::string& socket, const wire::JobResume& resume) {
  auto link = ManagerLink::connect(socket);
  if (!link.ok() || !link->resume(resume).ok()) return std::nullopt;
  const auto answer = link->receive();
  if (!answer.ok() || answer->kind != ManagerLink::Answer::Kind::kAdmitted) return std::nullopt;
  return std::move(*link);
}

}  // namespace

void keep_manager_alive(ManagerStart& start) {
  auto delay = kFirstDelay;
  int failures = 0;
  std::error_code error;
  while (std::filesystem::exists(start.socket, error) && failures < kMaxFailures) {
    auto link = connect_or_start(start);
    if (link.ok()) {
      failures = 0;
      delay = kFirstDelay;
      while (link->receive().ok()) {  // it has nothing to say to a stranger, until it ends
      }
    } else {
      ++failures;
    }
    std::this_thread::sleep_for(delay);
    delay = std::min(delay * 2, kLongestDelay);
  }
}

void stand_in_for_runner(const std::string& job_id, Supervisor::Job job,
                         const std::function<void()>& let_go) {
  std::optional<Supervisor> supervisor;
  wait_for_the_last(job_id, [&] {
    auto link = resume_job(job.socket, job.resume);
    supervisor.emplace(std::move(link), std::move(job), [](const std::string&) {});
    supervisor->run_in_background();
    let_go();
  });
  let_go();
  // Not through destructors: the supervisor's thread still uses its object.
  if (supervisor) _exit(0);
}

void keep_manager_alive_for(const std::string& job_id, ManagerStart& start) {
  wait_for_the_last(job_id,
                    [&start] { std::thread([&start] { keep_manager_alive(start); }).detach(); });
}

}  // namespace plexrl::run
