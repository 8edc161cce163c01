#include "tools/checkpoint/gang.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "nodemgr/process_identity.h"

namespace plexrl::checkpoint {
namespace {

bool lives(const Target& target) {
  return nodemgr::start_time_of(target.pid).value_or(0) == target.start_ticks;
}

}  // namespace

bool parse_target(const std::string& text, Target* target) {
  char* end = nullptr;
  const long pid = std::strtol(text.c_str(), &end, 10);
  if (pid <= 0 || *end != ':') return false;
  const char* const start = end + 1;
  target->pid = static_cast<pid_t>(pid);
  target->start_ticks = std::strtoull(start, &end, 10);
  return end != start && *end == '\0';
}

std::string Gang::text(const Target& target, const char* call, CUresult result) const {
  const char* name = nullptr;
  const std::string error = driver_.error_name(result, &name) == CUDA_SUCCESS && name != nullptr
                                ? name
                                : std::to_string(result);
  return "process " + std::to_string(target.pid) + ": " + call + ": " + error;
}

std::string Gang::leave(unsigned lock_timeout_ms) {
  std::string why;
  for (const Target& target : targets_) {
    CUprocessState state{};
    CUresult result = lives(target) ? driver_.state(target.pid, &state) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && state != CU_PROCESS_STATE_RUNNING) {
      result = CUDA_ERROR_ILLEGAL_STATE;
    }
    if (result != CUDA_SUCCESS) return text(target, "cuCheckpointProcessGetState", result);
  }
  for (const Target& target : targets_) {
    CUcheckpointLockArgs args{};
    args.timeoutMs = lock_timeout_ms;
    const CUresult result = driver_.lock(target.pid, &args);
    if (result == CUDA_SUCCESS) continue;
    why = text(target, "cuCheckpointProcessLock", result);
    break;
  }
  for (const Target& target : targets_) {
    if (!why.empty()) break;
    const CUresult result = driver_.checkpoint(target.pid, nullptr);
    if (result != CUDA_SUCCESS) why = text(target, "cuCheckpointProcessCheckpoint", result);
  }
  if (why.empty()) return why;
  const std::string not_undone = come_back();
  if (!lost_.empty()) why += "; " + lost_;
  return not_undone.empty() ? why : why + "; " + not_undone;
}

std::string Gang::come_back() {
  std::string why;
  for (const Target& target : targets_) {
    const std::string problem = bring_back(target);
    if (!problem.empty()) why += (why.empty() ? "" : "; ") + problem;
  }
  return why;
}

std::string Gang::bring_back(const Target& target) {
  if (!lives(target)) return "";
  CUprocessState state{};
  CUresult result = driver_.state(target.pid, &state);
  if (result == CUDA_ERROR_INVALID_VALUE)
    return "";  // it has ended, as far as the driver is concerned
  if (result != CUDA_SUCCESS) return text(target, "cuCheckpointProcessGetState", result);
  if (state == CU_PROCESS_STATE_FAILED) {
    lost_ += (lost_.empty() ? "process " : ", process ") + std::to_string(target.pid) +
             " has failed for good, as the driver says";
    return "";
  }
  if (state == CU_PROCESS_STATE_CHECKPOINTED) {
    result = driver_.restore(target.pid, nullptr);
    if (result != CUDA_SUCCESS)
      return lives(target) ? text(target, "cuCheckpointProcessRestore", result) : "";
    state = CU_PROCESS_STATE_LOCKED;
  }
  if (state != CU_PROCESS_STATE_LOCKED) return "";
  result = driver_.unlock(target.pid, nullptr);
  if (result == CUDA_SUCCESS || !lives(target)) return "";
  return text(target, "cuCheckpointProcessUnlock", result);
}

}  // namespace plexrl::checkpoint
