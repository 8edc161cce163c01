#include <algorithm>
#include <cstdlib>
#include <deque>

#include "tools/simgpu/ptx/block_order.h"
#include "tools/simgpu/ptx/kernel.h"
#include "tools/simgpu/ptx/launch.h"
#include "tools/simgpu/ptx/spin.h"

namespace plexrl::simgpu::ptx {
namespace {

constexpr std::uint64_t kWarpTurn =
    1 << 16;  ///< operations of one warp before the next warp of its block
constexpr std::uint64_t kBlockTurn = 1 << 22;  ///< operations of one block before the next block
constexpr std::uint64_t kShortestWaitNs = 5'000;
constexpr std::uint64_t kLongestWaitNs = 1'000'000;

struct WarpTurn {
  enum class State : std::uint8_t { kReady, kBarrier, kSpinning, kSleeping, kDone };
  State state = State::kReady;
  std::uint64_t seen = 0;  ///< Impl::progress when it was found spinning
};

struct ResidentBlock {
  Block block;
  std::vector<WarpTurn> turns;
  std::size_t cursor = 0;  ///< warp whose turn it is
  std::size_t done = 0;    ///< warps
  // What is left of the current turns. Kept when the budget runs out, so that it doesn't matter
  // where that is.
  std::uint64_t warp_turn = 0;
  std::uint64_t block_turn = kBlockTurn;
};

}  // namespace

struct Execution::Impl {
  Launch launch;
  const Kernel& kernel;
  std::uint64_t total_blocks = 0;
  BlockOrder order;
  std::uint64_t next_block = 0;
  std::size_t most_resident = 1;
  std::uint32_t threads = 0;
  std::deque<std::unique_ptr<ResidentBlock>> resident;
  std::vector<std::unique_ptr<ResidentBlock>> spare;
  std::size_t cursor = 0;      ///< block whose turn it is
  std::uint64_t progress = 0;  ///< counts turns that may have changed something
  bool was_waiting = false;
  std::uint64_t waiting_since = 0;  ///< 0: not waiting
  std::uint64_t wake_ns = 0;

  Impl(const Kernel& kernel, LaunchConfig config) : kernel(kernel) {
    launch.config = std::move(config);
    launch.program = kernel.program;
    launch.entry = kernel.code;
    launch.pool = kernel.program->pool.base();
    const LaunchConfig& c = launch.config;
    launch.config.parameters.resize(std::max(c.parameters.size(), kernel.info.parameter_bytes));
    launch.static_shared_bytes = kernel.dynamic_base;
    launch.shared_bytes = c.dynamic_shared_bytes != 0 ? kernel.dynamic_base + c.dynamic_shared_bytes
                                                      : kernel.info.static_shared_bytes;
    total_blocks = std::uint64_t{c.grid[0]} * c.grid[1] * c.grid[2];
    order = BlockOrder(total_blocks, c.block_order);
    threads = c.block[0] * c.block[1] * c.block[2];
    most_resident =
        c.cooperative ? total_blocks : static_cast<std::size_t>(std::max(c.resident_blocks, 1));
    if (c.cooperative) launch.grid_memory.resize(kGridWindowBytes);
  }

  ~Impl() {
    for (auto* list : {&resident}) {
      for (auto& block : *list) free_warps(*block);
    }
    for (auto& block : spare) free_warps(*block);
    for (auto& [code, frames] : launch.free_frames) {
      for (Frame* frame : frames) destroy(frame);
    }
  }

  static void free_warps(ResidentBlock& resident) {
    for (const auto& warp : resident.block.warps) {
      for (std::uint32_t k = 0; k < warp->frame_count; ++k) destroy(warp->frames[k]);
      std::free(warp->frames);
      std::free(warp->local);
    }
  }

  void start_block() {
    std::unique_ptr<ResidentBlock> fresh;
    if (!spare.empty()) {
      fresh = std::move(spare.back());
      spare.pop_back();
    } else {
      fresh = std::make_unique<ResidentBlock>();
      for (std::uint32_t first = 0; first < threads; first += kLanes) {
        fresh->block.warps.push_back(std::make_unique<Warp>());
      }
    }
    Block& block = fresh->block;
    const LaunchConfig& config = launch.config;
    block.launch = &launch;
    const std::uint64_t index = order(next_block++);
    block.index[0] = static_cast<std::uint32_t>(index % config.grid[0]);
    block.index[1] = static_cast<std::uint32_t>(index / config.grid[0] % config.grid[1]);
    block.index[2] =
        static_cast<std::uint32_t>(index / (std::uint64_t{config.grid[0]} * config.grid[1]));
    block.living = threads;
    for (Barrier& barrier : block.barriers) barrier = {};
    block.shared.assign(launch.shared_bytes, std::byte{0});
    for (std::uint32_t w = 0; w < block.warps.size(); ++w) start_warp(block, w);
    fresh->turns.assign(block.warps.size(), {});
    fresh->cursor = 0;
    fresh->done = 0;
    fresh->warp_turn = 0;
    fresh->block_turn = kBlockTurn;
    resident.push_back(std::move(fresh));
  }

  void start_warp(Block& block, std::uint32_t index) {
    Warp& warp = *block.warps[index];
    std::byte* const local = warp.local;
    const std::uint64_t local_stride = warp.local_stride;
    Frame** const frames = warp.frames;
    const std::uint32_t capacity = warp.frame_capacity;
    warp = Warp{};
    warp.local = local;
    warp.local_stride = local_stride;
    warp.frames = frames;
    warp.frame_capacity = capacity;
    warp.base[1] = launch.pool;
    warp.memory = launch.config.memory;
    warp.shared = block.shared.data();
    warp.shared_bytes = block.shared.size();
    warp.kernel_params = launch.config.parameters.data();
    warp.kernel_param_bytes = launch.config.parameters.size();
    warp.grid_memory = launch.grid_memory.empty() ? nullptr : launch.grid_memory.data();
    warp.block = &block;
    warp.launch = &launch;
    warp.index = index;
    const std::uint32_t left = threads - index * kLanes;
    warp.living = left >= kLanes ? kAllLanes : (1u << left) - 1;
    start_counting(warp);
    enter(warp, kernel.code, nullptr, warp.living, 0);
  }

  bool can_run(const Warp& warp, WarpTurn& turn, std::uint64_t now) const {
    switch (turn.state) {
      case WarpTurn::State::kReady:
        return true;
      case WarpTurn::State::kBarrier:
        return (warp.living & ~warp.barred) != 0 || warp.living == 0;
      case WarpTurn::State::kSpinning:
        return turn.seen != progress;
      case WarpTurn::State::kSleeping:
        return warp.wake_ns <= now;
      case WarpTurn::State::kDone:
        return false;
    }
    return false;
  }

  std::uint64_t now() const {
    const LaunchConfig& config = launch.config;
    if (config.now_ns != nullptr) return config.now_ns(config.now_context);
    return UINT64_MAX;  // without a clock nobody sleeps
  }

  /// One turn of one warp. False on a fault.
  bool run_warp(ResidentBlock& home, std::size_t index, std::uint64_t limit, std::uint64_t& used) {
    Warp& warp = *home.block.warps[index];
    WarpTurn& turn = home.turns[index];
    const bool was_spinning = turn.state == WarpTurn::State::kSpinning;
    const std::uint64_t writes = warp.writes;
    const std::uint64_t before = warp.instructions;
    if (was_spinning) resume_spinning(warp);
    const Event event = kernel.run(warp, limit);
    used = warp.instructions - before;
    bool is_progress = true;
    switch (event) {
      case Event::kFault:
        return false;
      case Event::kBarrier:
        turn.state = WarpTurn::State::kBarrier;
        break;
      case Event::kSpin:
        turn.state = WarpTurn::State::kSpinning;
        is_progress = !was_spinning || warp.writes != writes;
        break;
      case Event::kSleep:
        turn.state = WarpTurn::State::kSleeping;
        break;
      case Event::kDone:
        turn.state = WarpTurn::State::kDone;
        ++home.done;
        launch.finished_instructions += warp.instructions;
        launch.finished_global_bytes += warp.global_bytes;
        warp.instructions = 0;
        warp.global_bytes = 0;
        break;
      default:
        turn.state = WarpTurn::State::kReady;
        break;
    }
    if (is_progress) {
      ++progress;
      waiting_since = 0;
    }
    if (turn.state == WarpTurn::State::kSpinning) turn.seen = progress;
    return true;
  }

  enum class BlockResult : std::uint8_t { kDone, kStalled, kTurnOver, kBudget, kFault };

  BlockResult run_block(ResidentBlock& home, std::uint64_t& budget) {
    const std::size_t count = home.turns.size();
    while (home.done < count) {
      if (home.block_turn == 0) {
        home.block_turn = kBlockTurn;
        return BlockResult::kTurnOver;
      }
      if (home.warp_turn == 0) {
        if (!choose_warp(home)) return BlockResult::kStalled;
        home.warp_turn = kWarpTurn;
      }
      if (budget == 0) return BlockResult::kBudget;
      std::uint64_t used = 0;
      if (!run_warp(home, home.cursor, std::min(budget, home.warp_turn), used)) {
        return BlockResult::kFault;
      }
      budget -= used;
      home.warp_turn -= used;
      home.block_turn -= std::min(home.block_turn, std::max<std::uint64_t>(used, 1));
      if (home.turns[home.cursor].state != WarpTurn::State::kReady) home.warp_turn = 0;
      if (home.warp_turn == 0) home.cursor = (home.cursor + 1) % count;
    }
    return BlockResult::kDone;
  }

  /// Moves the cursor to the next warp that can run. False when there is none.
  bool choose_warp(ResidentBlock& home) const {
    const std::uint64_t time = now();
    for (std::size_t tried = 0; tried < home.turns.size(); ++tried) {
      if (can_run(*home.block.warps[home.cursor], home.turns[home.cursor], time)) return true;
      home.cursor = (home.cursor + 1) % home.turns.size();
    }
    return false;
  }

  /// When something can go on, as far as we know.
  void set_wake(std::uint64_t time) {
    if (waiting_since == 0) waiting_since = std::max<std::uint64_t>(time, 1);
    const std::uint64_t step =
        std::clamp((time - std::min(time, waiting_since)) / 8, kShortestWaitNs, kLongestWaitNs);
    wake_ns = time == UINT64_MAX ? 0 : time + kLongestWaitNs;
    for (const auto& home : resident) {
      for (std::size_t w = 0; w < home->turns.size(); ++w) {
        if (home->turns[w].state == WarpTurn::State::kSpinning)
          wake_ns = std::min(wake_ns, time + step);
        if (home->turns[w].state == WarpTurn::State::kSleeping) {
          wake_ns = std::min(wake_ns, home->block.warps[w]->wake_ns);
        }
      }
    }
  }

  void retire(std::size_t index) {
    spare.push_back(std::move(resident[index]));
    resident.erase(resident.begin() + static_cast<std::ptrdiff_t>(index));
    if (cursor >= resident.size()) cursor = 0;
  }

  State run(std::uint64_t budget) {
    if (launch.fault.kind != Fault::Kind::kNone) return State::kFault;
    if (was_waiting) ++progress;
    was_waiting = false;
    std::size_t stalled = 0;  // blocks in a row that could not go on
    for (;;) {
      const bool wants_all = launch.config.cooperative && next_block < total_blocks;
      if (wants_all || (stalled >= resident.size() && next_block < total_blocks &&
                        resident.size() < most_resident)) {
        do start_block();
        while (launch.config.cooperative && next_block < total_blocks);
        cursor = launch.config.cooperative ? 0 : resident.size() - 1;
        stalled = 0;
      }
      if (resident.empty()) return State::kDone;
      if (stalled >= resident.size()) {
        was_waiting = true;
        set_wake(now());
        return State::kWaiting;
      }
      switch (run_block(*resident[cursor], budget)) {
        case BlockResult::kDone:
          retire(cursor);
          stalled = 0;
          break;
        case BlockResult::kStalled:
          ++stalled;
          cursor = (cursor + 1) % resident.size();
          break;
        case BlockResult::kTurnOver:
          stalled = 0;
          if (next_block < total_blocks && resident.size() < most_resident) start_block();
          cursor = (cursor + 1) % resident.size();
          break;
        case BlockResult::kBudget:
          return State::kBudgetUsed;
        case BlockResult::kFault:
          return State::kFault;
      }
    }
  }
};

Execution::Execution(const Kernel& kernel, LaunchConfig config)
    : impl_(std::make_unique<Impl>(kernel, std::move(config))) {}
Execution::~Execution() = default;

Execution::State Execution::run(std::uint64_t warp_instructions) {
  return impl_->run(warp_instructions);
}
std::uint64_t Execution::wake_ns() const { return impl_->wake_ns; }
const Fault& Execution::fault() const { return impl_->launch.fault; }

std::uint64_t Execution::warp_instructions() const {
  std::uint64_t sum = impl_->launch.finished_instructions;
  for (const auto& home : impl_->resident) {
    for (const auto& warp : home->block.warps) sum += warp->instructions;
  }
  return sum;
}

std::uint64_t Execution::global_bytes() const {
  std::uint64_t sum = impl_->launch.finished_global_bytes;
  for (const auto& home : impl_->resident) {
    for (const auto& warp : home->block.warps) sum += warp->global_bytes;
  }
  return sum;
}

}  // namespace plexrl::simgpu::ptx
