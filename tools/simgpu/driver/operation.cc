#include "tools/simgpu/driver/operation.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tools/simgpu/driver/clock.h"
#include "tools/simgpu/driver/context.h"
#include "tools/simgpu/driver/driver.h"
#include "tools/simgpu/driver/stream.h"

namespace plexrl::simgpu {
namespace {

constexpr std::uint64_t kLaunchNs = 5'000;  // what a launch costs beside the kernel itself
constexpr std::uint64_t kSliceBytes = 4ull
                                      << 20;  // a transfer holds the link for so much at a time
constexpr std::uint64_t kBudgetInstructions =
    200'000;  // warp instructions between looks at the clock

std::uint64_t modelled_ns(double bytes, std::uint64_t rate) {
  if (rate == 0) return 0;
  return static_cast<std::uint64_t>(bytes * 1e9 / static_cast<double>(rate) *
                                    driver()->machine->spec().slow);
}

/// One operation's progress against the model: makes it take the modelled time, and counts where
/// this host takes longer.
class Pace {
 public:
  explicit Pace(const RunScope& scope) : scope_(scope) {}
  /// Waits until the modelled end of what is done so far.
  void settle(std::uint64_t end_ns) {
    const std::uint64_t now = now_ns();
    behind_ns_ = now > end_ns ? now - end_ns : 0;
    if (behind_ns_ == 0) sleep_for_device(end_ns);
  }
  /// After the last settle(). Busy time is the model's; the log has the real end, which is later
  /// where the device lags. What the host was behind already at the beginning is the lag of the
  /// work before.
  void finish(std::string_view kind, std::string_view name, std::uint64_t bytes,
              std::uint64_t end_ns) {
    Driver* const d = driver();
    const std::uint64_t before =
        scope_.ready_ns > scope_.start_ns ? scope_.ready_ns - scope_.start_ns : 0;
    const std::uint64_t lag_ns = behind_ns_ > before ? behind_ns_ - before : 0;
    Machine::Counters& counters = d->machine->counters(scope_.context->device);
    counters.busy_ns.fetch_add(end_ns - scope_.start_ns, std::memory_order_relaxed);
    counters.lag_ns.fetch_add(lag_ns, std::memory_order_relaxed);
    if (!d->log.is_open()) return;
    d->log.write({scope_.context->device, scope_.context->id, scope_.stream->id(), kind, name,
                  bytes, scope_.start_ns, std::max(end_ns, now_ns()), lag_ns});
  }

 private:
  const RunScope& scope_;
  std::uint64_t behind_ns_ = 0;
};

/// One side of a copy: walks addresses page by page.
struct Side {
  std::uint64_t address;
  int device;
  bool is_host;

  Side(std::uint64_t start, int on_device)
      : address(start), device(on_device), is_host(!driver()->addresses.in_arena(start)) {}

  std::byte* at(std::uint64_t offset, std::uint64_t* contiguous) const {
    if (is_host) {
      *contiguous = ~0ull;
      return reinterpret_cast<std::byte*>(address + offset);
    }
    return driver()->addresses.translate(device, address + offset, contiguous);
  }
};

CUresult copy_row(const Side& target, std::uint64_t target_offset, const Side& source,
                  std::uint64_t source_offset, std::uint64_t bytes) {
  while (bytes > 0) {
    std::uint64_t readable = 0;
    std::uint64_t writable = 0;
    const std::byte* from = source.at(source_offset, &readable);
    std::byte* to = target.at(target_offset, &writable);
    if (from == nullptr || to == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
    const std::uint64_t part = std::min({bytes, readable, writable});
    std::memmove(to, from, part);
    bytes -= part;
    source_offset += part;
    target_offset += part;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult EmptyOperation::run(const RunScope& scope, std::uint64_t* end_ns) {
  *end_ns = scope.start_ns;
  return CUDA_SUCCESS;
}

void CopyOperation::snapshot_source() {
  auto bytes = std::make_shared<std::vector<std::byte>>();
  bytes->reserve(shape_.width * shape_.height * shape_.depth);
  for (std::size_t z = 0; z < shape_.depth; ++z) {
    for (std::size_t y = 0; y < shape_.height; ++y) {
      const auto* row = reinterpret_cast<const std::byte*>(shape_.source + z * shape_.source_slice +
                                                           y * shape_.source_pitch);
      bytes->insert(bytes->end(), row, row + shape_.width);
    }
  }
  staged_ = std::move(bytes);
  shape_.source = reinterpret_cast<std::uint64_t>(staged_->data());
  shape_.source_pitch = shape_.width;
  shape_.source_slice = shape_.width * shape_.height;
}

CUresult CopyOperation::run(const RunScope& scope, std::uint64_t* end_ns) {
  Pace pace(scope);
  Machine& machine = *driver()->machine;
  const Side source(shape_.source, shape_.source_device);
  const Side target(shape_.target, shape_.target_device);
  const bool crosses_link = source.is_host != target.is_host;
  const Direction direction = source.is_host ? Direction::kToDevice : Direction::kToHost;
  const int link_device = source.is_host ? shape_.target_device : shape_.source_device;
  const std::uint64_t total =
      static_cast<std::uint64_t>(shape_.width) * shape_.height * shape_.depth;
  std::uint64_t end = scope.start_ns;
  std::uint64_t in_slice = 0;
  CUresult result = CUDA_SUCCESS;
  const auto book = [&](std::uint64_t bytes) {
    if (crosses_link) {
      end = machine.book_transfer(link_device, direction, bytes, end);
    } else if (!source.is_host) {
      end += modelled_ns(2.0 * static_cast<double>(bytes), machine.spec().hbm_bytes_per_s);
    }
    pace.settle(end);
  };
  for (std::size_t z = 0; z < shape_.depth && result == CUDA_SUCCESS; ++z) {
    for (std::size_t y = 0; y < shape_.height && result == CUDA_SUCCESS; ++y) {
      const std::uint64_t from = z * shape_.source_slice + y * shape_.source_pitch;
      const std::uint64_t to = z * shape_.target_slice + y * shape_.target_pitch;
      for (std::uint64_t x = 0; x < shape_.width && result == CUDA_SUCCESS && is_ready();) {
        const std::uint64_t part =
            std::min<std::uint64_t>(shape_.width - x, kSliceBytes - in_slice);
        result = copy_row(target, to + x, source, from + x, part);
        x += part;
        in_slice += part;
        if (in_slice == kSliceBytes) {
          book(in_slice);
          in_slice = 0;
        }
      }
    }
  }
  if (in_slice > 0) book(in_slice);
  if (crosses_link) {
    Machine::Counters& counters = machine.counters(link_device);
    (source.is_host ? counters.to_device_bytes : counters.to_host_bytes)
        .fetch_add(total, std::memory_order_relaxed);
  }
  *end_ns = end;
  const char* const kind =
      source.is_host ? (crosses_link ? "h2d" : "h2h") : (crosses_link ? "d2h" : "d2d");
  pace.finish(kind, "", total, end);
  return result;
}

CUresult FillOperation::run(const RunScope& scope, std::uint64_t* end_ns) {
  Pace pace(scope);
  const Side target(shape_.target, shape_.device);
  const std::uint64_t row_bytes = static_cast<std::uint64_t>(shape_.width) * shape_.element_bytes;
  CUresult result = CUDA_SUCCESS;
  for (std::size_t y = 0; y < shape_.height && result == CUDA_SUCCESS; ++y) {
    std::uint64_t at = y * shape_.pitch;
    for (std::uint64_t left = row_bytes; left > 0;) {
      std::uint64_t contiguous = 0;
      std::byte* to = target.at(at, &contiguous);
      if (to == nullptr) {
        result = CUDA_ERROR_ILLEGAL_ADDRESS;
        break;
      }
      const std::uint64_t part =
          std::min(left, contiguous);  // pages are multiples of every element
      if (shape_.element_bytes == 1) {
        std::memset(to, static_cast<int>(shape_.value & 0xff), part);
      } else if (shape_.element_bytes == 2) {
        std::fill_n(reinterpret_cast<std::uint16_t*>(to), part / 2,
                    static_cast<std::uint16_t>(shape_.value));
      } else {
        std::fill_n(reinterpret_cast<std::uint32_t*>(to), part / 4, shape_.value);
      }
      at += part;
      left -= part;
    }
  }
  const std::uint64_t total = row_bytes * shape_.height;
  *end_ns = scope.start_ns +
            modelled_ns(static_cast<double>(total), driver()->machine->spec().hbm_bytes_per_s);
  pace.settle(*end_ns);
  pace.finish("memset", "", total, *end_ns);
  return result;
}

CUresult HostOperation::run(const RunScope& scope, std::uint64_t* end_ns) {
  const std::uint64_t start = std::max(scope.start_ns, now_ns());
  call_();
  *end_ns = std::max(start, now_ns());
  return CUDA_SUCCESS;
}

CUresult CallOperation::run(const RunScope& scope, std::uint64_t* end_ns) {
  const std::uint64_t before = now_ns();
  const CUresult result = call_(scope);
  *end_ns = scope.start_ns + (now_ns() - before);
  return result;
}

CUresult KernelOperation::run_native(const RunScope& scope, std::uint64_t* end_ns) {
  Pace pace(scope);
  const Spec& spec = driver()->machine->spec();
  const int device = scope.context->device;
  NativeTime time;
  const CUresult result = native_->run(scope, config_, &time);
  *end_ns = std::max(scope.start_ns, time.waited_ns) +
            static_cast<std::uint64_t>(kLaunchNs * spec.slow) +
            modelled_ns(static_cast<double>(time.bytes), spec.hbm_bytes_per_s);
  pace.settle(*end_ns);
  driver()->machine->counters(device).kernels.fetch_add(1, std::memory_order_relaxed);
  pace.finish("kernel", ptx::info(*kernel_).name, 0, *end_ns);
  return result;
}

CUresult KernelOperation::run(const RunScope& scope, std::uint64_t* end_ns) {
  if (native_ != nullptr) return run_native(scope, end_ns);
  Pace pace(scope);
  Driver* const d = driver();
  const Spec& spec = d->machine->spec();
  const std::uint64_t number = d->kernels.fetch_add(1) + 1;
  std::unique_lock<std::mutex> alone;
  if (spec.fixed_order) alone = std::unique_lock(d->one_kernel);
  ptx::LaunchConfig config = config_;
  config.memory = d->addresses.view(scope.context->device);
  // A block order of its own for each kernel, the same in each run of the program.
  if (spec.seed != 0 && !spec.fixed_order)
    config.block_order = spec.seed * 0x9e3779b97f4a7c15u + number;
  config.now_ns = [](void*) { return now_ns(); };
  config.print = [](void*, std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
  };
  // A kernel can't begin before the device reaches it: the clocks that it reads are the real ones.
  if (now_ns() < scope.start_ns) sleep_for_device(scope.start_ns);
  ptx::Execution execution(*kernel_, std::move(config));
  CUresult result = CUDA_SUCCESS;
  std::uint64_t slept = 0;
  while (spec.hang_kernel == number && is_ready()) sleep_for_device(now_ns() + 1'000'000'000);
  for (bool done = false; !done && is_ready();) {
    switch (execution.run(kBudgetInstructions)) {
      case ptx::Execution::State::kDone:
        done = true;
        break;
      case ptx::Execution::State::kBudgetUsed:
        break;
      case ptx::Execution::State::kWaiting: {
        const std::uint64_t before = now_ns();
        const std::uint64_t wake = std::max(execution.wake_ns(), before);
        slept += wake - before;
        sleep_for_device(wake);
        break;
      }
      case ptx::Execution::State::kFault: {
        const ptx::Fault& fault = execution.fault();
        std::fprintf(stderr, "simgpu[%d]: kernel %s: %s (PTX line %d)\n", static_cast<int>(d->pid),
                     ptx::info(*kernel_).name.c_str(), fault.text.c_str(), fault.line);
        switch (fault.kind) {
          case ptx::Fault::Kind::kMisalignedAddress:
            result = CUDA_ERROR_MISALIGNED_ADDRESS;
            break;
          case ptx::Fault::Kind::kTrap:
            result = CUDA_ERROR_LAUNCH_FAILED;
            break;
          case ptx::Fault::Kind::kAssert:
            result = CUDA_ERROR_ASSERT;
            break;
          case ptx::Fault::Kind::kIllegalInstruction:
            result = CUDA_ERROR_ILLEGAL_INSTRUCTION;
            break;
          default:
            result = CUDA_ERROR_ILLEGAL_ADDRESS;
        }
        done = true;
      }
    }
  }
  // The model: each multiprocessor issues a warp instruction a nanosecond, and memory moves at
  // `hbm`; what is slower counts.
  const double issue_ns = static_cast<double>(execution.warp_instructions()) / spec.sms * spec.slow;
  const std::uint64_t memory_ns =
      modelled_ns(static_cast<double>(execution.global_bytes()), spec.hbm_bytes_per_s);
  const std::uint64_t launch_ns = static_cast<std::uint64_t>(kLaunchNs * spec.slow);
  *end_ns = scope.start_ns + launch_ns + slept +
            std::max(static_cast<std::uint64_t>(issue_ns), memory_ns);
  pace.settle(*end_ns);
  d->machine->counters(scope.context->device).kernels.fetch_add(1, std::memory_order_relaxed);
  pace.finish("kernel", ptx::info(*kernel_).name, 0, *end_ns);
  return result;
}

}  // namespace plexrl::simgpu
