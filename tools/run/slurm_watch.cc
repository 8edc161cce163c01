#include "tools/run/slurm_watch.h"

#include <chrono>
#include <thread>

#include "tools/slurm/slurm_queries.h"

namespace plexrl::run {
namespace {

// Slurm's controller has many to answer: seldom, and ever less.
constexpr std::chrono::seconds kFirstLook{1};
constexpr std::chrono::seconds kLastPause{30};
/// So often it is not there, having been submitted, or having started.
constexpr int kMostMisses = 4;

void watch(const std::string& comment, const std::string& node, const slurm::Ask& ask,
           const std::function<void(const std::string&)>& say) {
  std::string said;
  int misses = 0;
  for (auto pause = kFirstLook; misses < kMostMisses; pause = std::min(2 * pause, kLastPause)) {
    std::this_thread::sleep_for(pause);
    const auto job = slurm::find_pending(ask, comment);
    misses = job ? 0 : misses + 1;
    if (!job) continue;
    const std::string why = slurm::explain_pending(*job, node, slurm::running_on(ask, node));
    if (why != said) say(why);
    said = why;
  }
}

}  // namespace

void watch_slurm_job(const std::string& comment, const std::string& node,
                     std::vector<char*> environment, std::function<void(const std::string&)> say) {
  std::thread([=, environment = std::move(environment), say = std::move(say)] {
    watch(
        comment, node,
        [&](const std::vector<std::string>& words) { return slurm::output_of(words, environment); },
        say);
  }).detach();
}

}  // namespace plexrl::run
