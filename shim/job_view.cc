#include "shim/job_view.h"

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "shim/allocation_ends.h"
#include "shim/contexts.h"
#include "shim/hooks.h"
#include "shim/process.h"
#include "shim/suballocator.h"

namespace plexrl::shim {
namespace {

constexpr std::uint64_t kNothing = ~std::uint64_t{0};
constexpr std::uint64_t kPage = std::uint64_t{2} << 20;

double unit_bytes(std::string_view unit) noexcept {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr Unit kUnits[] = {{"", 1},         {"B", 1},        {"KiB", 0x1p10}, {"MiB", 0x1p20},
                             {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"KB", 1e3},     {"kB", 1e3},
                             {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
  for (const Unit& known : kUnits) {
    if (known.name == unit) return known.bytes;
  }
  return 0;
}

std::uint64_t read_promise() noexcept {
  const char* const text = std::getenv("PLEXRL_MEMORY");
  if (text == nullptr || std::getenv("PLEXRL_JOB_ID") == nullptr) return kNothing;
  const int saved_errno = errno;
  char* end = nullptr;
  const double number = std::strtod(text, &end);
  errno = saved_errno;
  const double bytes = number * unit_bytes(end);
  if (end == text || bytes < 1 || bytes >= 0x1p63) return kNothing;
  // As the manager does: whole pages of the driver's.
  const auto promised = static_cast<std::uint64_t>(bytes);
  return promised < kPage ? promised : promised / kPage * kPage;
}

constexpr std::uint64_t rounded_up(std::uint64_t bytes) noexcept {
  constexpr std::uint64_t kUnit = Suballocator::kAlignment;
  return (bytes + kUnit - 1) / kUnit * kUnit;
}

/// Where this thread's last copies went: most go there again, and find it without a lock. Good as
/// long as no allocation has ended since.
struct Known {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  std::uint64_t ends = 0;  ///< `allocation_ends` before it was looked up
};
constexpr unsigned kRecent = 4;
constinit thread_local Known recent[kRecent]{};
constinit thread_local unsigned next_recent = 0;

}  // namespace

std::uint64_t as_the_job_knows(std::uint64_t address) {
  constexpr std::uint64_t kNowhere = 8;
  return Process::started() != nullptr && ranges().reserves(address) ? kNowhere : address;
}

bool is_outside(std::uint64_t address, std::uint64_t bytes) noexcept {
  Process* const process = Process::started();
  if (process == nullptr || !ranges().may_reserve(address)) return false;
  const std::uint64_t ends = allocation_ends.load(std::memory_order_acquire);
  for (const Known& known : recent) {
    if (known.ends == ends && address >= known.start && address < known.end) {
      if (bytes <= known.end - address) return false;
    }
  }
  const auto found = process->find(address);
  const std::uint64_t end = found ? found->start + rounded_up(found->bytes) : 0;
  if (found && bytes <= end - address) {
    recent[next_recent++ % kRecent] = {found->start, end, ends};
    return false;
  }
  return (found || ranges().reserves(address)) && context_error() == CUDA_SUCCESS;
}

std::uint64_t promise_from_environment() noexcept {
  static const std::uint64_t promise = read_promise();
  return promise;
}

}  // namespace plexrl::shim
