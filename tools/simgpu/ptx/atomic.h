#pragma once

#include "tools/simgpu/ptx/program.h"
#include "tools/simgpu/ptx/type.h"

namespace plexrl::simgpu::ptx {

enum class AtomicAct : std::uint8_t {
  kAdd,
  kMin,
  kMax,
  kAnd,
  kOr,
  kXor,
  kExchange,
  kCompareSwap,
  kIncrement,
  kDecrement
};

/// atom and red: a is the address (as for loads), b the operand, c the new value of cas, d the old
/// value (absent for red). Lanes take turns in order, each with an atomic operation of the host,
/// because other threads and processes may share the memory. nullptr when PTX has no such
/// operation.
OpFn atomic_op(AtomicAct act, Type type);

}  // namespace plexrl::simgpu::ptx
