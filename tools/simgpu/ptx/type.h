#pragma once

#include <cstdint>
#include <string_view>

/// The scalar types of the PTX ISA ("Fundamental Types") and what the decoder asks about them.
namespace plexrl::simgpu::ptx {

enum class Type : std::uint8_t {
  kNone,
  kPred,
  kB8,
  kB16,
  kB32,
  kB64,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kF16,
  kF16x2,
  kBf16,
  kBf16x2,
  kF32,
  kF64,
};

/// From the suffix without its dot, for example "u32"; kNone when it is no type.
Type type_from_name(std::string_view name);

/// Size of a value in memory. A predicate has none: 0.
constexpr int bytes_of(Type type) {
  switch (type) {
    case Type::kB8:
    case Type::kU8:
    case Type::kS8:
      return 1;
    case Type::kB16:
    case Type::kU16:
    case Type::kS16:
    case Type::kF16:
    case Type::kBf16:
      return 2;
    case Type::kB32:
    case Type::kU32:
    case Type::kS32:
    case Type::kF32:
    case Type::kF16x2:
    case Type::kBf16x2:
      return 4;
    case Type::kB64:
    case Type::kU64:
    case Type::kS64:
    case Type::kF64:
      return 8;
    default:
      return 0;
  }
}

/// Bytes that one lane of a register takes: 8-bit registers are kept in two bytes, predicates are
/// one bit of a word.
constexpr int register_width(Type type) { return bytes_of(type) == 1 ? 2 : bytes_of(type); }

constexpr bool is_signed(Type type) { return type >= Type::kS8 && type <= Type::kS64; }
constexpr bool is_float(Type type) { return type >= Type::kF16; }
constexpr bool is_integer(Type type) { return type >= Type::kB8 && type <= Type::kS64; }

/// The unsigned integer type of that many bytes (1, 2, 4, 8).
constexpr Type unsigned_of(int bytes) {
  return bytes == 1 ? Type::kU8 : bytes == 2 ? Type::kU16 : bytes == 4 ? Type::kU32 : Type::kU64;
}

}  // namespace plexrl::simgpu::ptx
