#include "tools/simgpu/ptx/type.h"

#include <array>
#include <utility>

namespace plexrl::simgpu::ptx {

Type type_from_name(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, Type>, 19> kNames = {{
      {"pred", Type::kPred}, {"b8", Type::kB8},         {"b16", Type::kB16},
      {"b32", Type::kB32},   {"b64", Type::kB64},       {"u8", Type::kU8},
      {"u16", Type::kU16},   {"u32", Type::kU32},       {"u64", Type::kU64},
      {"s8", Type::kS8},     {"s16", Type::kS16},       {"s32", Type::kS32},
      {"s64", Type::kS64},   {"f16", Type::kF16},       {"f16x2", Type::kF16x2},
      {"bf16", Type::kBf16}, {"bf16x2", Type::kBf16x2}, {"f32", Type::kF32},
      {"f64", Type::kF64},
  }};
  for (const auto& [text, type] : kNames) {
    if (text == name) return type;
  }
  return Type::kNone;
}

}  // namespace plexrl::simgpu::ptx
