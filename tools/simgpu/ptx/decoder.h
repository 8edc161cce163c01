#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/simgpu/ptx/act.h"
#include "tools/simgpu/ptx/link.h"
#include "tools/simgpu/ptx/program.h"
#include "tools/simgpu/ptx/syntax.h"
#include "tools/simgpu/ptx/texture_ops.h"

namespace plexrl::simgpu::ptx {

/// An opcode's words ("ld", "global", "v4", "f32"), taken one by one. What nobody takes makes the
/// instruction unknown.
class Words {
 public:
  explicit Words(std::string_view opcode);
  std::string_view first() const { return words_.front(); }
  bool take(std::string_view word);
  /// Takes whichever is there; npos when none is. Index into the list.
  std::size_t take_one(std::initializer_list<std::string_view> words);
  /// Takes the last word if it is a type, else kNone.
  Type take_type();
  bool empty() const { return words_.size() == 1; }

 private:
  std::vector<std::string_view> words_;
};

/// Lowers one function's PTX instructions to operations. While decoding, operands are register
/// numbers (or pool offsets); allocate_registers then turns them into byte offsets. Throws Failure
/// naming the line.
class Decoder {
 public:
  Decoder(const Linker& linker, const Level& level, Program& program, std::size_t source,
          const syntax::Function& function, Code& code);
  void run();

 private:
  using Operand = syntax::Operand;
  using Handler = void (Decoder::*)(Words& words);
  struct BranchFixup {
    std::size_t op;
    std::string_view label;
    int scope;
  };
  struct TableFixup {
    std::size_t op;
    std::size_t table;
    std::string_view label;
    int scope;
  };

  static Handler handler(std::string_view opcode);
  [[noreturn]] void fail(std::string_view what) const;  ///< kInvalidPtx
  [[noreturn]] void unknown() const;                    ///< kUnsupportedInstruction

  // decoder.cc: operands and emission.
  void lay_out_params();
  void load_register_formals();
  void decode(const syntax::Instruction& instruction);
  void fix_branches();
  std::size_t find_label(std::string_view name, int scope) const;
  const Operand& operand(std::size_t index) const;
  std::size_t operand_count() const { return instruction_->operands.size(); }
  Op& emit(OpFn fn);         ///< with the instruction's guard; unknown() when fn is null
  Op& emit_always(OpFn fn);  ///< without the guard
  void emit1(OpFn fn, std::int32_t d, std::int32_t a);
  void emit2(OpFn fn, std::int32_t d, std::int32_t a, std::int32_t b);
  void emit3(OpFn fn, std::int32_t d, std::int32_t a, std::int32_t b, std::int32_t c);
  std::int32_t temp(Type type);
  std::int32_t constant(std::uint64_t bits, int width) {
    return program_.pool.constant(bits, width);
  }
  int width_of(const Operand& operand) const;  ///< of a register operand, else 0
  Type type_of(std::int32_t reg) const { return registers_[static_cast<std::size_t>(reg)]; }
  std::int32_t read(const Operand& operand, Type type);
  std::int32_t read_address_value(const Operand& operand, int width);
  std::int32_t write(const Operand& operand, Type type) const;
  std::int32_t read_predicate(const Operand& operand);
  const std::int32_t* keep_list(std::vector<std::int32_t> list);
  std::int32_t carry_register();
  std::int32_t flushed(std::int32_t operand, Type type);
  std::int32_t special_register(std::string_view name, int width);
  bool is_wide_enough(const Operand& operand, Type type) const;

  // decode_arithmetic.cc
  struct FloatMode {
    bool flush = false;
    bool saturate = false;
    bool approximate = false;
    Rounding rounding = Rounding::kNearestEven;
  };
  FloatMode take_float_mode(Words& words);
  void emit_float(Act act, Type type, const FloatMode& mode, int operands);
  void add_sub(Words& words);
  void saturating_add(Act act, Type type);
  void multiply(Words& words);
  void multiply_add(Words& words);
  void divide(Words& words);
  void min_max(Words& words);
  void unary_math(Words& words);
  void bitwise(Words& words);
  void shift(Words& words);
  void bit_search(Words& words);
  void bit_field(Words& words);
  void funnel_shift(Words& words);
  void permute(Words& words);
  void dot_product(Words& words);
  void logic3(Words& words);
  void sad(Words& words);
  void copysign(Words& words);
  void multiply24(Words& words);

  // decode_compare.cc
  struct Comparison {
    Act act = Act::kSetEq;
    bool swap = false;
  };
  Comparison take_comparison(Words& words, Type type);
  std::int32_t emit_comparison(const Comparison& comparison, Type type, std::int32_t a,
                               std::int32_t b);
  std::int32_t combine(std::int32_t result, std::size_t which, std::size_t operand_index);
  void set_predicate(Words& words);
  void set_value(Words& words);
  void select(Words& words);
  void select_by_sign(Words& words);
  void test_property(Words& words);
  std::int32_t half_of_pair(std::int32_t pair, bool is_high);

  // decode_move.cc
  void move(Words& words);
  void pack(Type type);
  void unpack(Type type);
  void move_width(std::int32_t to, std::int32_t from, int width);
  void convert(Words& words);
  std::int32_t convert_to_float(std::int32_t from, Type from_type, Type to_type, Rounding rounding);
  void convert_from_integer(Type to, Type from, bool saturate, Rounding rounding);
  void convert_from_float(Type to, Type from, bool saturate, bool flush, std::size_t integral,
                          Rounding rounding);
  void convert_pair(Type to, Words& words);
  void convert_address(Words& words);
  void is_address_space(Words& words);

  // decode_memory.cc
  bool take_place(Words& words, Place& place);
  void drop_cache_words(Words& words);
  void set_address(Op& op, const Operand& address, Place place);
  struct Address {
    std::int32_t a = kNoOperand;
    std::int64_t imm = 0;
    std::uint8_t mode = 0;
  };
  Address address(const Operand& operand, Place place);
  void load(Words& words);
  void store(Words& words);
  void atomic(Words& words);
  void multicast(Words& words);
  void nothing(Words& words);

  // decode_texture.cc
  void texture_address(const Operand& operand, Geometry geometry, Type type, std::int32_t* object,
                       std::vector<std::int32_t>* list);
  void gradient(const Operand& operand, Geometry geometry, std::vector<std::int32_t>* list);
  void texture(Words& words);
  void surface(Words& words);

  // decode_control.cc
  void branch(Words& words);
  void indexed_branch(Words& words);
  void call(Words& words);
  ParamRange argument(const Operand& operand, const syntax::Variable* formal);
  void leave(Words& words);
  void trap(Words& words);
  void sleep(Words& words);
  void barrier(Words& words);
  void fence(Words& words);
  void shuffle(Words& words);
  void vote(Words& words);
  void match(Words& words);
  void active_mask(Words& words);
  void reduce(Words& words);
  void matrix(Words& words);

  const Linker& linker_;
  const Level& level_;
  Program& program_;
  std::size_t source_;
  const syntax::Function& function_;
  Code& code_;
  std::vector<Type> registers_;  ///< the function's and temporaries
  std::vector<std::uint32_t>
      variable_offset_;  ///< by variable id: in the parameter block or local memory
  const syntax::Instruction* instruction_ = nullptr;
  std::vector<std::uint32_t> op_of_instruction_;
  std::vector<BranchFixup> branches_;
  std::vector<TableFixup> tables_;
  std::int32_t carry_ = kNoOperand;
};

/// Offsets and sizes of a kernel's parameters, as the driver and the decoder lay them out.
std::vector<Parameter> lay_out_parameters(const syntax::Signature& signature);

/// Turns register numbers into byte offsets; registers whose lives don't overlap share a slot.
void allocate_registers(Code& code, const std::vector<Type>& registers);

}  // namespace plexrl::simgpu::ptx
