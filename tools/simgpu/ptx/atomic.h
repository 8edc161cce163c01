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

/// multimem.red: as red, on the memory of every device behind a multicast address, `count` elements
/// a lane (b, or list when there are several). multimem.ld_reduce: d (or list) gets the elements of
/// all devices, combined in their order. nullptr when PTX has no such operation, or the executor
/// lacks it.
OpFn multimem_red_op(AtomicAct act, Type type);
OpFn multimem_load_op(AtomicAct act, Type type);
/// multimem.st of `count` elements.
OpFn multimem_store_op(Type type);

}  // namespace plexrl::simgpu::ptx
