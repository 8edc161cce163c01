#include <iterator>

#include "tools/simgpu/ptx/atomic.h"
#include "tools/simgpu/ptx/decoder.h"

/// Loads, stores and atomics.
namespace plexrl::simgpu::ptx {

using syntax::Space;

/// The state space; false: none given, generic. Generic, global and const addresses are all of the
/// same kind here.
bool Decoder::take_place(Words& words, Place& place) {
  place = Place::kGlobal;
  switch (words.take_one({"global", "const", "shared", "shared::cta", "local", "param",
                          "param::entry", "param::func"})) {
    case 0:
    case 1:
      return true;
    case 2:
    case 3:
      place = Place::kShared;
      return true;
    case 4:
      place = Place::kLocal;
      return true;
    case 5:
      place = function_.is_entry ? Place::kKernelParam : Place::kFrameParam;
      return true;
    case 6:
      place = Place::kKernelParam;
      return true;
    case 7:
      place = Place::kFrameParam;
      return true;
    default:
      return false;
  }
}

/// Ordering, scope and cache words don't change what one warp after another does on a strongly
/// ordered host.
void Decoder::drop_cache_words(Words& words) {
  static constexpr std::string_view kWords[] = {"weak",
                                                "relaxed",
                                                "acquire",
                                                "release",
                                                "acq_rel",
                                                "volatile",
                                                "mmio",
                                                "cta",
                                                "cluster",
                                                "gpu",
                                                "sys",
                                                "gl",
                                                "ca",
                                                "cg",
                                                "cs",
                                                "lu",
                                                "cv",
                                                "wb",
                                                "wt",
                                                "nc",
                                                "L1::evict_normal",
                                                "L1::evict_unchanged",
                                                "L1::evict_first",
                                                "L1::evict_last",
                                                "L1::no_allocate",
                                                "L2::64B",
                                                "L2::128B",
                                                "L2::256B",
                                                "L2::evict_first",
                                                "L2::evict_last",
                                                "L2::evict_normal"};
  for (std::string_view word : kWords) words.take(word);
}

Decoder::Address Decoder::address(const Operand& operand, Place place) {
  if (operand.kind != Operand::Kind::kAddress || operand.children.size() != 1)
    fail("expected an address");
  const Operand& base = operand.children[0];
  Address out;
  out.mode = static_cast<std::uint8_t>(place);
  if (base.kind == Operand::Kind::kRegister) {
    const int width = width_of(base);
    if (width != 4 && width != 8) fail("an address has 32 or 64 bits");
    out.a = base.reg;
    out.imm = static_cast<std::int64_t>(base.bits);
    if (width == 4) out.mode |= kShortAddress;
    return out;
  }
  if (base.kind == Operand::Kind::kVariable && place == Place::kKernelParam) {
    // In a kernel, `param` is also where the arguments of its calls are.
    const std::size_t formals =
        function_.signature.results.size() + function_.signature.parameters.size();
    if (static_cast<std::size_t>(base.reg) >= formals)
      out.mode = static_cast<std::uint8_t>(Place::kFrameParam);
  }
  out.a = read(base, Type::kU64);
  return out;
}

void Decoder::load(Words& words) {
  Place place;
  const Type type = words.take_type();
  take_place(words, place);
  drop_cache_words(words);
  const std::size_t vector = words.take_one({"v2", "v4"});
  if (type == Type::kNone || type == Type::kPred) unknown();
  const Address from = address(operand(1), place);
  const Operand& target = operand(0);
  const bool is_vector = vector <= 1;
  const std::size_t count = is_vector ? (vector == 0 ? 2 : 4) : 1;
  if (is_vector != (target.kind == Operand::Kind::kVector) ||
      (is_vector && target.children.size() != count)) {
    fail("wrong number of destinations");
  }
  std::vector<std::int32_t> list;
  int width = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Operand& element = is_vector ? target.children[i] : target;
    if (element.kind == Operand::Kind::kSink) {
      list.push_back(kNoOperand);
      continue;
    }
    if (width_of(element) == 0) fail("the destination is no register");
    if (width != 0 && width != width_of(element)) fail("destinations differ in size");
    width = width_of(element);
    list.push_back(element.reg);
  }
  if (width == 0) width = register_width(type);
  Op& op = emit(level_.load(type, width));
  op.a = from.a;
  op.imm = from.imm;
  op.mode = from.mode;
  op.count = static_cast<std::uint8_t>(count);
  if (!is_vector) {
    op.d = list[0];
  } else {
    op.list = keep_list(std::move(list));
    op.list_size = static_cast<std::uint8_t>(count);
    op.list_results = static_cast<std::uint8_t>(count);
  }
}

void Decoder::store(Words& words) {
  Place place;
  const Type type = words.take_type();
  take_place(words, place);
  if (place == Place::kKernelParam)
    place = Place::kFrameParam;  // a kernel's own parameters are read-only
  drop_cache_words(words);
  const std::size_t vector = words.take_one({"v2", "v4"});
  if (type == Type::kNone || type == Type::kPred) unknown();
  const Address to = address(operand(0), place);
  const Operand& value = operand(1);
  const bool is_vector = vector <= 1;
  const std::size_t count = is_vector ? (vector == 0 ? 2 : 4) : 1;
  if (is_vector != (value.kind == Operand::Kind::kVector) ||
      (is_vector && value.children.size() != count)) {
    fail("wrong number of values");
  }
  int width = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const int own = width_of(is_vector ? value.children[i] : value);
    if (own != 0 && width != 0 && own != width) fail("values differ in size");
    if (own != 0) width = own;
  }
  if (width == 0) width = register_width(type);
  std::vector<std::int32_t> list;
  for (std::size_t i = 0; i < count; ++i) {
    const Operand& element = is_vector ? value.children[i] : value;
    // A constant is encoded in the type, and read at the width of the registers beside it.
    const Type read_type = width == register_width(type) ? type : unsigned_of(width);
    list.push_back(read(element, read_type));
  }
  Op& op = emit(level_.store(bytes_of(type), width));
  op.a = to.a;
  op.imm = to.imm;
  op.mode = to.mode;
  op.count = static_cast<std::uint8_t>(count);
  if (!is_vector) {
    op.b = list[0];
  } else {
    op.list = keep_list(std::move(list));
    op.list_size = static_cast<std::uint8_t>(count);
  }
}

void Decoder::atomic(Words& words) {
  static constexpr AtomicAct kActs[] = {
      AtomicAct::kAdd,       AtomicAct::kMin,      AtomicAct::kMax,      AtomicAct::kAnd,
      AtomicAct::kOr,        AtomicAct::kXor,      AtomicAct::kExchange, AtomicAct::kCompareSwap,
      AtomicAct::kIncrement, AtomicAct::kDecrement};
  const bool is_red = words.first() == "red";
  Place place;
  const Type type = words.take_type();
  take_place(words, place);
  if (place == Place::kKernelParam || place == Place::kFrameParam || place == Place::kLocal)
    unknown();
  const std::size_t which =
      words.take_one({"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"});
  drop_cache_words(words);
  words.take("noftz");
  if (which > 9) unknown();
  const std::size_t first = is_red ? 0 : 1;
  const Address at = address(operand(first), place);
  const std::int32_t b = read(operand(first + 1), type);
  const std::int32_t c =
      kActs[which] == AtomicAct::kCompareSwap ? read(operand(first + 2), type) : kNoOperand;
  Op& op = emit(atomic_op(kActs[which], type));
  op.d = is_red ? kNoOperand : write(operand(0), type);
  op.a = at.a;
  op.b = b;
  op.c = c;
  op.imm = at.imm;
  op.mode = at.mode;
}

/// multimem.{ld_reduce,st,red}[.v2|.v4].type on multicast addresses. Sums that are kept wider on
/// the way (.acc::) are unknown.
void Decoder::multicast(Words& words) {
  static constexpr AtomicAct kActs[] = {AtomicAct::kAdd, AtomicAct::kMin, AtomicAct::kMax,
                                        AtomicAct::kAnd, AtomicAct::kOr,  AtomicAct::kXor};
  Place place;
  const Type type = words.take_type();
  const std::size_t what = words.take_one({"ld_reduce", "st", "red"});
  take_place(words, place);
  drop_cache_words(words);
  const std::size_t vector = words.take_one({"v2", "v4"});
  const std::size_t count = vector > 1 ? 1 : vector == 0 ? 2 : 4;
  const std::size_t act = words.take_one({"add", "min", "max", "and", "or", "xor"});
  const bool is_load = what == 0;
  const bool is_store = what == 1;
  const bool has_act = act < std::size(kActs);
  if (what > 2 || place != Place::kGlobal || is_store == has_act || operand_count() != 2 ||
      count * static_cast<std::size_t>(bytes_of(type)) > 16 || (count > 1 && !is_float(type))) {
    unknown();
  }
  const Address at = address(operand(is_load ? 1 : 0), place);
  const Operand& values = operand(is_load ? 0 : 1);
  if ((at.mode & kShortAddress) != 0) fail("a multicast address has 64 bits");
  const bool is_vector = values.kind == Operand::Kind::kVector;
  if (is_vector ? values.children.size() != count : count != 1) fail("wrong number of values");
  std::vector<std::int32_t> list;
  for (std::size_t i = 0; i < count; ++i) {
    const Operand& element = is_vector ? values.children[i] : values;
    list.push_back(is_load ? write(element, type) : read(element, type));
  }
  Op& op = emit(is_store  ? multimem_store_op(type)
                : is_load ? multimem_load_op(kActs[act], type)
                          : multimem_red_op(kActs[act], type));
  op.a = at.a;
  op.imm = at.imm;
  op.count = static_cast<std::uint8_t>(count);
  if (count == 1) {
    (is_load ? op.d : op.b) = list[0];
    return;
  }
  op.list = keep_list(std::move(list));
  op.list_size = static_cast<std::uint8_t>(count);
  op.list_results = static_cast<std::uint8_t>(is_load ? count : 0);
}

/// Hints without effect on results.
void Decoder::nothing(Words& words) {
  static constexpr std::string_view kWords[] = {
      "global",           "local", "L1",        "L2",    "L1::evict_last", "L2::evict_last",
      "L2::evict_normal", "mask",  "tensormap", "const", "param"};
  for (std::string_view word : kWords) words.take(word);
}

}  // namespace plexrl::simgpu::ptx
