#include "tools/run/heir.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

namespace plexrl::run {
namespace {

constexpr std::chrono::milliseconds kFirstDelay{20};
constexpr std::chrono::milliseconds kLongestDelay{2000};
constexpr int kMaxFailures = 150;  // in a row

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

}  // namespace plexrl::run
