#include "tools/run/heir.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
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

void keep_manager_alive_for(const std::string& job_id, ManagerStart& start) {
  wait_for_the_last(job_id,
                    [&start] { std::thread([&start] { keep_manager_alive(start); }).detach(); });
}

}  // namespace plexrl::run
