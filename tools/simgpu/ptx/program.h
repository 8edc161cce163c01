#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tools/simgpu/ptx/executor.h"

/// A decoded program: what the decoder writes and the interpreter reads. Immutable once loaded, but
/// for the pool slots that hold addresses of variables.
namespace plexrl::simgpu::ptx {

struct Op;
struct Warp;
struct Code;

inline constexpr int kLanes = 32;
inline constexpr std::uint32_t kAllLanes = 0xffffffffu;

/// Executes one operation for the lanes in `mask` (never 0) and returns the operation that follows.
using OpFn = const Op* (*)(Warp& warp, const Op* op, std::uint32_t mask);

/// No operand. (Operands are byte offsets; see Op.)
inline constexpr std::int32_t kNoOperand = INT32_MIN;
/// Set in an operand that is in the pool of constants, not in the register file.
inline constexpr std::int32_t kInPool = INT32_MIN;

/// One operation. Operands are byte offsets of arrays with one element for each lane: into the
/// frame's registers or, with the sign bit set, into the program's pool of constants (broadcast to
/// all lanes, so that no operation needs a second form for immediates). Predicates are one 32-bit
/// word, a bit for each lane.
///
/// d and e are written, a, b and c are read. `list` has more operands: the first `list_results` are
/// written.
struct Op {
  OpFn fn = nullptr;
  std::int32_t guard = kNoOperand;
  std::uint32_t guard_flip = 0;  ///< all ones for `@!p`
  std::int32_t d = kNoOperand;
  std::int32_t e = kNoOperand;
  std::int32_t a = kNoOperand;
  std::int32_t b = kNoOperand;
  std::int32_t c = kNoOperand;
  std::int32_t target =
      0;  ///< branches: how many operations to go, forwards or (negative) backwards
  std::int64_t imm = 0;
  const void* extra = nullptr;  ///< CallSite, branch table or the like
  const std::int32_t* list = nullptr;
  std::uint8_t list_results = 0;
  std::uint8_t list_size = 0;
  std::uint8_t mode = 0;   ///< per operation
  std::uint8_t count = 1;  ///< elements of a memory access
  std::int32_t line = 0;
};

/// Bytes in a frame's parameter block.
struct ParamRange {
  std::uint32_t offset = 0;
  std::uint32_t bytes = 0;
};

struct CallSite {
  const Code* callee = nullptr;  ///< nullptr: through a function pointer
  std::vector<ParamRange> arguments;
  std::vector<ParamRange> results;
};

/// One function.
struct Code {
  std::string name;
  bool is_entry = false;
  int source_line = 0;
  std::vector<Op> ops;
  std::deque<std::vector<std::int32_t>> lists;
  std::deque<CallSite> call_sites;
  std::uint32_t register_bytes = 0;
  std::uint32_t param_bytes = 0;  ///< of one lane: formals and the arguments of its calls
  std::uint32_t local_bytes = 0;  ///< of one lane
  std::vector<ParamRange> results;
  std::vector<ParamRange> parameters;
};

/// Constants, each broadcast to 32 lanes.
class Pool {
 public:
  /// Offset (with kInPool set) of a constant that is `width` bytes for each lane; equal constants
  /// share a slot.
  std::int32_t constant(std::uint64_t bits, int width);
  /// A 64- or 32-bit slot for the address of a symbol, written by `set_symbol`.
  std::int32_t symbol(const std::string& name, std::int64_t addend, int width);
  /// A predicate word.
  std::int32_t predicate(bool value) { return constant(value ? kAllLanes : 0, 4); }

  void freeze();  ///< no new constants from here on; `base` is valid
  void set_symbol(const std::string& name, std::uint64_t address);
  const std::byte* base() const { return base_; }

 private:
  struct SymbolSlot {
    std::size_t offset;
    std::int64_t addend;
    int width;
  };
  std::size_t allocate(int width);
  void fill(std::size_t offset, std::uint64_t bits, int width);

  static constexpr std::int32_t kHeaderBytes = 64;  ///< unused: offset 0 would read as kNoOperand

  std::vector<std::byte> bytes_;    ///< while loading
  std::vector<std::byte> storage_;  ///< when frozen
  std::byte* base_ = nullptr;       ///< 64-byte aligned, in storage_
  std::unordered_map<std::uint64_t, std::int32_t> constants_[3];
  std::unordered_map<std::string, std::vector<SymbolSlot>> symbols_;
};

/// Where the windows of the generic address space lie; outside every address that a driver hands
/// out. The function window holds no memory: a function's address is its number in it.
inline constexpr std::uint64_t kWindowBytes = 1ull << 32;
inline constexpr std::uint64_t kSharedWindow = 0x0100'0000'0000'0000ull;
inline constexpr std::uint64_t kLocalWindow = 0x0200'0000'0000'0000ull;
inline constexpr std::uint64_t kParamWindow = 0x0300'0000'0000'0000ull;
/// The memory of a grid barrier (%envreg1, %envreg2): one page for each execution.
inline constexpr std::uint64_t kGridWindow = 0x0040'0000'0000'0000ull;
inline constexpr std::uint64_t kGridWindowBytes = 4096;
inline constexpr std::uint64_t kFunctionWindow = 0x0400'0000'0000'0000ull;
inline constexpr std::uint64_t kFunctionStep = 64;

struct Program {
  Pool pool;
  std::vector<std::unique_ptr<Code>> functions;
  std::vector<const Code*> by_address;  ///< index: (address - kFunctionWindow) / kFunctionStep
};

}  // namespace plexrl::simgpu::ptx
