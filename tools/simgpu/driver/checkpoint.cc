#include "tools/simgpu/driver/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <utility>
#include <vector>

#include "tools/simgpu/driver/clock.h"
#include "tools/simgpu/driver/driver.h"
#include "tools/simgpu/driver/stream.h"

namespace plexrl::simgpu {
namespace {

constexpr std::uint64_t kLookNs = 200'000;  // while a lock waits for calls and work to end

// No call may be inside: then no context comes or goes. Calls lock a context before the driver.
bool has_work() {
  std::vector<Context*> contexts;
  {
    const std::lock_guard lock(driver()->mutex);
    contexts = driver()->contexts;
  }
  for (Context* context : contexts) {
    const std::lock_guard streams(context->mutex);
    for (const Stream* stream : context->streams) {
      if (!stream->is_idle()) return true;
    }
  }
  return false;
}

/// Books the link for all of it and waits for the end, as the driver's copies would, or for exit.
void spend_copies(const std::vector<Machine::Parked>& parked, Direction direction) {
  std::map<int, std::uint64_t> bytes;
  for (const Machine::Parked& one : parked) bytes[one.device] += one.content.size();
  std::uint64_t end = now_ns();
  for (const auto& [device, sum] : bytes) {
    end = std::max(end, driver()->machine->book_transfer(device, direction, sum, now_ns()));
  }
  sleep_for_device(end);
}

/// The orders of one process, carried out one after the other.
class Checkpointer {
 public:
  void serve() {
    Machine& machine = *driver()->machine;
    for (Machine::Order order; machine.next_order(&order);) {
      state_ = order.state;
      const WorkScope work;  // until it is answered
      const CUresult result = work.may_begin() ? carry_out(order) : CUDA_ERROR_DEINITIALIZED;
      machine.answer_order(order, result, state_);
    }
  }

 private:
  CUresult carry_out(const Machine::Order& order) {
    switch (order.what) {
      case ProcessOrder::kNothing:
        return CUDA_SUCCESS;
      case ProcessOrder::kLock:
        return state_ == ProcessState::kRunning ? lock(order.timeout_ms) : CUDA_ERROR_ILLEGAL_STATE;
      case ProcessOrder::kCheckpoint:
        return state_ == ProcessState::kLocked ? checkpoint() : CUDA_ERROR_ILLEGAL_STATE;
      case ProcessOrder::kRestore:
        return state_ == ProcessState::kCheckpointed ? restore() : CUDA_ERROR_ILLEGAL_STATE;
      case ProcessOrder::kUnlock:
        if (state_ != ProcessState::kLocked) return CUDA_ERROR_ILLEGAL_STATE;
        state_ = ProcessState::kRunning;
        release_calls();
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
  }

  CUresult lock(std::uint32_t timeout_ms) {
    const std::uint64_t deadline = now_ns() + std::uint64_t{timeout_ms} * 1'000'000;
    hold_calls();
    while (is_any_call_inside() || has_work()) {
      if (!is_ready()) return CUDA_ERROR_DEINITIALIZED;
      if (timeout_ms != 0 && now_ns() >= deadline) {
        release_calls();
        return CUDA_ERROR_NOT_READY;
      }
      sleep_until_ns(now_ns() + kLookNs);
    }
    state_ = ProcessState::kLocked;
    return CUDA_SUCCESS;
  }

  CUresult checkpoint() {
    Driver& d = *driver();
    if (d.addresses.has(Range::Kind::kManaged) || d.addresses.has(Range::Kind::kIpc) ||
        !d.machine->park(&parked_)) {
      fail();
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    spend_copies(parked_, Direction::kToHost);
    state_ = ProcessState::kCheckpointed;
    return CUDA_SUCCESS;
  }

  CUresult restore() {
    Driver& d = *driver();
    std::map<std::byte*, std::byte*> moved;
    if (!d.machine->unpark(parked_, &moved)) return CUDA_ERROR_OUT_OF_MEMORY;
    for (int device = 0; device < d.machine->spec().gpus; ++device) {
      d.addresses.move_frames(device, moved);
    }
    spend_copies(parked_, Direction::kToDevice);
    parked_.clear();
    state_ = ProcessState::kLocked;
    return CUDA_SUCCESS;
  }

  void fail() {
    state_ = ProcessState::kFailed;
    {
      const std::lock_guard lock(driver()->mutex);
      for (Context* context : driver()->contexts) context->error.store(CUDA_ERROR_UNKNOWN);
    }
    release_calls();
  }

  ProcessState state_ = ProcessState::kRunning;
  std::vector<Machine::Parked> parked_;
};

}  // namespace

void start_checkpoint_thread() {
  // Others may give orders when cuInit has returned, not when the thread gets its first turn.
  std::atomic<bool> begun{false};
  start_quiet_thread("simgpu-restore", [&begun] {
    driver()->machine->begin_orders(gettid());
    begun.store(true);
    begun.notify_one();
    Checkpointer().serve();
  }).detach();
  begun.wait(false);
}

}  // namespace plexrl::simgpu
