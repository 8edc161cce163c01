#include "tools/simgpu/ptx/decoder.h"
#include "tools/simgpu/ptx/texture_ops.h"

/// Texture fetches and surface accesses by object ("indirect" access; references by name have gone
/// from what CUDA 12 compiles).
namespace plexrl::simgpu::ptx {
namespace {

Geometry take_geometry(Words& words, bool* is_known) {
  const std::size_t which = words.take_one({"1d", "2d", "3d", "a1d", "a2d", "cube", "acube"});
  *is_known = which <= 6;
  return static_cast<Geometry>(which);
}

}  // namespace

/// [object, {coordinates}]: reads the object into *object and appends the coordinates.
void Decoder::texture_address(const Operand& operand, Geometry geometry, Type type,
                              std::int32_t* object, std::vector<std::int32_t>* list) {
  // A layer comes first; three are padded to four.
  const std::size_t count =
      static_cast<std::size_t>(coordinate_count(geometry)) + (has_layers(geometry) ? 1 : 0);
  if (operand.kind != Operand::Kind::kAddress || operand.children.size() != 2) unknown();
  const Operand& handle = operand.children[0];
  const Operand& at = operand.children[1];
  if (handle.kind != Operand::Kind::kRegister || width_of(handle) != 8) unknown();
  *object = handle.reg;
  if (at.kind != Operand::Kind::kVector) {
    if (count != 1) fail("wrong number of coordinates");
    list->push_back(read(at, type));
    return;
  }
  if (at.children.size() < count) fail("wrong number of coordinates");
  for (std::size_t i = 0; i < count; ++i) {
    const bool is_layer = i == 0 && has_layers(geometry);
    list->push_back(read(at.children[i], is_layer ? Type::kU32 : type));
  }
}

/// Appends the numbers of a gradient: one, or as many as there are coordinates (padded to four).
void Decoder::gradient(const Operand& operand, Geometry geometry, std::vector<std::int32_t>* list) {
  const auto count = static_cast<std::size_t>(coordinate_count(geometry));
  const bool is_vector = operand.kind == Operand::Kind::kVector;
  if (is_vector ? operand.children.size() < count : count != 1)
    fail("wrong number of values in a gradient");
  for (std::size_t i = 0; i < count; ++i)
    list->push_back(read(is_vector ? operand.children[i] : operand, Type::kF32));
}

/// tex[.level|.grad].{1d,2d,3d,a1d,a2d,cube,acube}.v4.type.type, tld4.{r,g,b,a}.2d.v4.type.f32
void Decoder::texture(Words& words) {
  const bool is_gather = words.first() == "tld4";
  const Type coordinate_type = words.take_type();
  const Type type = words.take_type();
  Detail detail = Detail::kNone;
  std::size_t component = 0;
  if (is_gather) {
    component = words.take_one({"r", "g", "b", "a"});
    if (component > 3) unknown();
  } else if (words.take("level")) {
    detail = Detail::kLevel;
  } else if (words.take("grad")) {
    detail = Detail::kGradient;
  }
  bool is_known = false;
  const Geometry geometry = take_geometry(words, &is_known);
  const bool is_indexed = coordinate_type == Type::kS32;
  const bool needs_floats = is_cube(geometry) || detail != Detail::kNone;
  is_known &= words.take("v4") && operand_count() == 2 + static_cast<std::size_t>(detail) &&
              bytes_of(type) == 4 &&
              (coordinate_type == Type::kF32 || (is_indexed && !needs_floats));
  if (!is_known || (is_gather && (geometry != Geometry::k2d || is_indexed))) unknown();
  const Operand& target = operand(0);
  if (target.kind != Operand::Kind::kVector || target.children.size() != 4)
    fail("a texture fetch has four results");
  std::vector<std::int32_t> list;
  for (const Operand& element : target.children) list.push_back(write(element, type));
  std::int32_t object = kNoOperand;
  texture_address(operand(1), geometry, coordinate_type, &object, &list);
  if (detail == Detail::kLevel) list.push_back(read(operand(2), Type::kF32));
  for (std::size_t i = 2; detail == Detail::kGradient && i < 4; ++i)
    gradient(operand(i), geometry, &list);
  const std::size_t size = list.size();
  const std::int32_t* const kept = keep_list(std::move(list));
  Op& op = emit(is_gather ? texture_gather_op() : texture_op());
  op.a = object;
  op.list = kept;
  op.list_results = 4;
  op.list_size = static_cast<std::uint8_t>(size);
  op.mode = static_cast<std::uint8_t>(geometry);
  op.imm = is_gather ? static_cast<std::int64_t>(component)
                     : (is_indexed ? 1 : 0) | static_cast<int>(detail) << 8;
}

/// suld.b and sust.b: .{1d,2d,3d,a1d,a2d}[.v2|.v4].{b8,b16,b32,b64}.{trap,clamp,zero}
void Decoder::surface(Words& words) {
  const bool is_load = words.first() == "suld";
  const std::size_t outside = words.take_one({"trap", "clamp", "zero"});
  const Type type = words.take_type();
  bool is_known = false;
  drop_cache_words(words);
  const Geometry geometry = take_geometry(words, &is_known);
  is_known &= !is_cube(geometry);
  const std::size_t vector = words.take_one({"v2", "v4"});
  const std::size_t count = vector > 1 ? 1 : vector == 0 ? 2 : 4;
  is_known &= words.take("b") && operand_count() == 2 && type != Type::kNone &&
              type != Type::kPred && bytes_of(type) <= 8;
  if (!is_known) unknown();
  const Operand& values = operand(is_load ? 0 : 1);
  const bool is_vector = values.kind == Operand::Kind::kVector;
  if (is_vector ? values.children.size() != count : count != 1) fail("wrong number of values");
  std::vector<std::int32_t> results;
  std::vector<std::int32_t> list;
  for (std::size_t i = 0; i < count; ++i) {
    const Operand& element = is_vector ? values.children[i] : values;
    results.push_back(is_load ? write(element, type) : read(element, type));
  }
  std::int32_t object = kNoOperand;
  texture_address(operand(is_load ? 1 : 0), geometry, Type::kS32, &object, &list);
  list.insert(is_load ? list.begin() : list.end(), results.begin(), results.end());
  const std::size_t size = list.size();
  const std::int32_t* const kept = keep_list(std::move(list));
  Op& op = emit(is_load ? surface_load_op() : surface_store_op());
  op.a = object;
  op.list = kept;
  op.list_results = static_cast<std::uint8_t>(is_load ? count : 0);
  op.list_size = static_cast<std::uint8_t>(size);
  op.mode = static_cast<std::uint8_t>(geometry);
  op.count = static_cast<std::uint8_t>(count);
  op.imm = bytes_of(type) | static_cast<int>(outside > 2 ? 0 : outside) << 8;
}

}  // namespace plexrl::simgpu::ptx
