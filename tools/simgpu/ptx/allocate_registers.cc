#include <algorithm>
#include <bit>

#include "tools/simgpu/ptx/decoder.h"
#include "tools/simgpu/ptx/launch.h"

/// Slots for registers by live ranges. Compilers declare hundreds of registers, each written once:
/// without sharing, a warp's registers would not fit the CPU's caches.
///
/// Liveness is a data-flow analysis over basic blocks for one lane; lanes that wait elsewhere are
/// no matter, because an operation writes the elements of active lanes only. A register's range is
/// the hull of all places where it is live. Operands and results of one operation never share,
/// because an operation may write before it has read all lanes.
namespace plexrl::simgpu::ptx {
namespace {

using Bits = std::vector<std::uint64_t>;

template <typename F>
void each_use(const Op& op, F f) {
  for (std::int32_t reg : {op.guard, op.a, op.b, op.c}) {
    if (reg >= 0) f(reg);
  }
  for (int i = op.list_results; i < op.list_size; ++i) {
    if (op.list[i] >= 0) f(op.list[i]);
  }
}

template <typename F>
void each_result(const Op& op, F f) {
  for (std::int32_t reg : {op.d, op.e}) {
    if (reg >= 0) f(reg);
  }
  for (int i = 0; i < op.list_results; ++i) {
    if (op.list[i] >= 0) f(op.list[i]);
  }
}

struct BasicBlock {
  std::size_t begin, end;
  std::vector<std::size_t> next;
  Bits live_in, live_out, used, defined;
};

class Allocator {
 public:
  Allocator(Code& code, const std::vector<Type>& registers) : code_(code), types_(registers) {}

  void run() {
    number_registers();
    find_blocks();
    solve();
    find_ranges();
    assign();
    rewrite();
  }

 private:
  struct Range {
    std::int64_t first = INT64_MAX, last = -1;
    void include(std::int64_t at) {
      first = std::min(first, at);
      last = std::max(last, at);
    }
  };

  std::vector<std::size_t> targets(std::size_t at) const {
    const Op& op = code_.ops[at];
    if (op.fn == indexed_branch_op()) {
      std::vector<std::size_t> out;
      for (std::int32_t step : *static_cast<const std::vector<std::int32_t>*>(op.extra)) {
        out.push_back(static_cast<std::size_t>(static_cast<std::int64_t>(at) + step));
      }
      return out;
    }
    if (op.target != 0)
      return {static_cast<std::size_t>(static_cast<std::int64_t>(at) + op.target)};
    return {};
  }

  bool ends_block(const Op& op) const {
    return op.target != 0 || op.fn == indexed_branch_op() || op.fn == return_op() ||
           op.fn == exit_op() || op.fn == trap_op();
  }

  /// Declared registers are often more than used ones: the sets are of used ones.
  void number_registers() {
    std::vector<Type> used;
    std::vector<std::int32_t> number(types_.size(), -1);
    auto renumber = [&](std::int32_t& reg) {
      if (reg < 0) return;
      std::int32_t& known = number[static_cast<std::size_t>(reg)];
      if (known < 0) {
        known = static_cast<std::int32_t>(used.size());
        used.push_back(types_[static_cast<std::size_t>(reg)]);
      }
      reg = known;
    };
    each_operand(renumber);
    types_ = std::move(used);
    words_ = (types_.size() + 63) / 64;
  }

  template <typename F>
  void each_operand(F f) {
    for (Op& op : code_.ops) {
      for (std::int32_t* operand : {&op.guard, &op.a, &op.b, &op.c, &op.d, &op.e}) f(*operand);
      // The list belongs to the code, which is ours to change.
      for (int i = 0; i < op.list_size; ++i) f(const_cast<std::int32_t&>(op.list[i]));
    }
  }

  void find_blocks() {
    const std::size_t count = code_.ops.size();
    std::vector<bool> starts(count + 1, false);
    starts[0] = true;
    for (std::size_t i = 0; i < count; ++i) {
      if (!ends_block(code_.ops[i])) continue;
      starts[i + 1] = true;
      for (std::size_t target : targets(i)) starts[target] = true;
    }
    std::vector<std::size_t> block_of(count + 1, 0);
    for (std::size_t i = 0; i < count; ++i) {
      if (starts[i])
        blocks_.push_back({i, i, {}, Bits(words_), Bits(words_), Bits(words_), Bits(words_)});
      block_of[i] = blocks_.size() - 1;
      blocks_.back().end = i + 1;
    }
    for (BasicBlock& block : blocks_) {
      const std::size_t last = block.end - 1;
      // A block goes on to the next unless its last operation always leaves; that a guarded one may
      // fall through is covered.
      if (block.end < count) block.next.push_back(block_of[block.end]);
      for (std::size_t target : targets(last)) {
        if (target < count) block.next.push_back(block_of[target]);
      }
      for (std::size_t i = block.begin; i < block.end; ++i) summarize(block, code_.ops[i]);
    }
  }

  void summarize(BasicBlock& block, const Op& op) {
    each_use(op, [&](std::int32_t reg) {
      if (!has(block.defined, reg)) set(block.used, reg);
    });
    // A guarded write leaves the old value in some lanes: no definition.
    if (op.guard >= 0) return;
    each_result(op, [&](std::int32_t reg) {
      if (!has(block.used, reg)) set(block.defined, reg);
    });
  }

  void solve() {
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t b = blocks_.size(); b > 0; --b) {
        BasicBlock& block = blocks_[b - 1];
        for (std::size_t w = 0; w < words_; ++w) {
          std::uint64_t out = 0;
          for (std::size_t next : block.next) out |= blocks_[next].live_in[w];
          block.live_out[w] = out;
          const std::uint64_t in = block.used[w] | (out & ~block.defined[w]);
          changed |= in != block.live_in[w];
          block.live_in[w] = in;
        }
      }
    }
  }

  void find_ranges() {
    ranges_.resize(types_.size());
    for (const BasicBlock& block : blocks_) {
      include_all(block.live_in, static_cast<std::int64_t>(block.begin));
      include_all(block.live_out, static_cast<std::int64_t>(block.end - 1));
      for (std::size_t i = block.begin; i < block.end; ++i) {
        auto include = [&](std::int32_t reg) {
          ranges_[static_cast<std::size_t>(reg)].include(static_cast<std::int64_t>(i));
        };
        each_use(code_.ops[i], include);
        each_result(code_.ops[i], include);
      }
    }
  }

  void include_all(const Bits& bits, std::int64_t at) {
    for (std::size_t w = 0; w < words_; ++w) {
      for (std::uint64_t left = bits[w]; left != 0; left &= left - 1) {
        ranges_[w * 64 + static_cast<std::size_t>(std::countr_zero(left))].include(at);
      }
    }
  }

  static std::size_t slot_bytes(Type type) {
    return type == Type::kPred ? 4 : static_cast<std::size_t>(register_width(type)) * kLanes;
  }

  void assign() {
    std::vector<std::int32_t> order;
    for (std::size_t reg = 0; reg < ranges_.size(); ++reg) {
      if (ranges_[reg].last >= 0) order.push_back(static_cast<std::int32_t>(reg));
    }
    std::sort(order.begin(), order.end(), [this](std::int32_t a, std::int32_t b) {
      return ranges_[static_cast<std::size_t>(a)].first <
             ranges_[static_cast<std::size_t>(b)].first;
    });
    struct Slot {
      std::size_t index;
      std::int64_t busy_until;
    };
    // Slots of one size; places are given out when their number is known. Sizes 4, 64, 128, 256.
    std::vector<std::pair<std::size_t, std::vector<Slot>>> classes = {
        {256, {}}, {128, {}}, {64, {}}, {4, {}}};
    std::vector<std::pair<std::size_t, std::size_t>> chosen(types_.size());
    for (std::int32_t reg : order) {
      const Range& range = ranges_[static_cast<std::size_t>(reg)];
      const std::size_t bytes = slot_bytes(types_[static_cast<std::size_t>(reg)]);
      for (std::size_t c = 0; c < classes.size(); ++c) {
        if (classes[c].first != bytes) continue;
        std::vector<Slot>& slots = classes[c].second;
        auto free = std::find_if(slots.begin(), slots.end(),
                                 [&](const Slot& s) { return s.busy_until < range.first; });
        if (free == slots.end()) {
          slots.push_back({slots.size(), range.last});
          free = slots.end() - 1;
        }
        free->busy_until = range.last;
        chosen[static_cast<std::size_t>(reg)] = {c, free->index};
      }
    }
    std::size_t base[4], end = 0;
    for (std::size_t c = 0; c < classes.size(); ++c) {
      base[c] = end;
      end += classes[c].first * classes[c].second.size();
    }
    code_.register_bytes = static_cast<std::uint32_t>(end);
    offsets_.assign(types_.size(), 0);
    for (std::int32_t reg : order) {
      const auto& [c, index] = chosen[static_cast<std::size_t>(reg)];
      offsets_[static_cast<std::size_t>(reg)] =
          static_cast<std::int32_t>(base[c] + index * classes[c].first);
    }
  }

  void rewrite() {
    auto map = [this](std::int32_t& operand) {
      if (operand >= 0) operand = offsets_[static_cast<std::size_t>(operand)];
    };
    each_operand(map);
  }

  static bool has(const Bits& bits, std::int32_t reg) {
    return bits[static_cast<std::size_t>(reg) / 64] >> (reg % 64) & 1;
  }
  static void set(Bits& bits, std::int32_t reg) {
    bits[static_cast<std::size_t>(reg) / 64] |= 1ull << (reg % 64);
  }

  Code& code_;
  std::vector<Type> types_;  ///< by register number
  std::size_t words_ = 0;
  std::vector<BasicBlock> blocks_;
  std::vector<Range> ranges_;
  std::vector<std::int32_t> offsets_;
};

}  // namespace

void allocate_registers(Code& code, const std::vector<Type>& registers) {
  Allocator(code, registers).run();
}

}  // namespace plexrl::simgpu::ptx
