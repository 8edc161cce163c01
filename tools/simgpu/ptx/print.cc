#include <bit>
#include <cctype>
#include <cstdio>
#include <cstring>

#include "tools/simgpu/ptx/launch.h"

/// Device-side printf and assert: calls of the external functions vprintf and __assertfail, whose
/// arguments are in the caller's parameter block.
namespace plexrl::simgpu::ptx {
namespace {

std::uint64_t read_param(const Warp& warp, const ParamRange& range, int lane) {
  const Frame& frame = *warp.frame;
  std::uint64_t value = 0;
  std::memcpy(&value,
              frame.params + std::size_t{frame.code->param_bytes} * static_cast<std::size_t>(lane) +
                  range.offset,
              range.bytes < 8 ? range.bytes : 8);
  return value;
}

/// The argument block of vprintf: values in order, each aligned to its size.
class Arguments {
 public:
  Arguments(Warp& warp, std::uint64_t address, int lane)
      : warp_(warp), address_(address), lane_(lane) {}

  std::uint64_t take(std::size_t bytes) {
    offset_ = (offset_ + bytes - 1) / bytes * bytes;
    std::uint64_t value = 0;
    const std::byte* const from = generic_address(warp_, address_ + offset_, bytes, lane_);
    if (from != nullptr) std::memcpy(&value, from, bytes);
    offset_ += bytes;
    ++count_;
    return value;
  }
  int count() const { return count_; }

 private:
  Warp& warp_;
  std::uint64_t address_;
  int lane_;
  std::size_t offset_ = 0;
  int count_ = 0;
};

template <typename T>
std::string print_one(const std::string& spec, T value) {
  char buffer[512];
  const int length = std::snprintf(buffer, sizeof(buffer), spec.c_str(), value);
  if (length < 0) return {};
  if (static_cast<std::size_t>(length) < sizeof(buffer))
    return std::string(buffer, static_cast<std::size_t>(length));
  std::string text(static_cast<std::size_t>(length) + 1, '\0');
  std::snprintf(text.data(), text.size(), spec.c_str(), value);
  text.resize(static_cast<std::size_t>(length));
  return text;
}

std::string format(Warp& warp, const std::string& pattern, Arguments& arguments, int lane) {
  std::string out;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') {
      out += pattern[i];
      continue;
    }
    if (i + 1 < pattern.size() && pattern[i + 1] == '%') {
      out += '%';
      ++i;
      continue;
    }
    // %[flags][width][.precision][size]type; the size is replaced by that of the host's types.
    std::string spec = "%";
    std::size_t j = i + 1;
    for (; j < pattern.size() && std::strchr("-+ #0123456789.*", pattern[j]) != nullptr; ++j) {
      if (pattern[j] == '*') {
        spec += std::to_string(static_cast<std::int32_t>(arguments.take(4)));
      } else {
        spec += pattern[j];
      }
    }
    bool is_long = false;
    for (; j < pattern.size() && std::strchr("hlLjztq", pattern[j]) != nullptr; ++j)
      is_long |= pattern[j] != 'h';
    if (j >= pattern.size()) {
      out += pattern.substr(i);
      break;
    }
    const char type = pattern[j];
    if (std::strchr("di", type) != nullptr) {
      const std::uint64_t bits = arguments.take(is_long ? 8 : 4);
      const long long value = is_long ? static_cast<long long>(bits)
                                      : static_cast<long long>(static_cast<std::int32_t>(bits));
      out += print_one(spec + "lld", value);
    } else if (std::strchr("ouxX", type) != nullptr) {
      out += print_one(spec + "ll" + type,
                       static_cast<unsigned long long>(arguments.take(is_long ? 8 : 4)));
    } else if (std::strchr("fFeEgGaA", type) != nullptr) {
      out += print_one(spec + type, std::bit_cast<double>(arguments.take(8)));
    } else if (type == 'c') {
      out += print_one(spec + "c", static_cast<int>(arguments.take(4)));
    } else if (type == 's') {
      out += print_one(spec + "s", read_string(warp, arguments.take(8), lane).c_str());
    } else if (type == 'p') {
      out += print_one(spec + "p", reinterpret_cast<void*>(arguments.take(8)));
    } else {
      out += pattern.substr(i, j - i + 1);
    }
    i = j;
  }
  return out;
}

void emit(const Warp& warp, std::string_view text) {
  const LaunchConfig& config = warp.launch->config;
  if (config.print != nullptr) config.print(config.print_context, text);
}

const Op* print(Warp& warp, const Op* op, std::uint32_t mask) {
  const auto& site = *static_cast<const CallSite*>(op->extra);
  warp.has_changed = true;
  ++warp.writes;
  for (std::uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    Arguments arguments(warp, read_param(warp, site.arguments[1], lane), lane);
    emit(warp, format(warp, read_string(warp, read_param(warp, site.arguments[0], lane), lane),
                      arguments, lane));
    if (site.results.empty()) continue;
    const std::int32_t count = arguments.count();
    const Frame& frame = *warp.frame;
    std::memcpy(frame.params +
                    std::size_t{frame.code->param_bytes} * static_cast<std::size_t>(lane) +
                    site.results[0].offset,
                &count, 4);
  }
  return op + 1;
}

const Op* fail_assertion(Warp& warp, const Op* op, std::uint32_t mask) {
  const auto& site = *static_cast<const CallSite*>(op->extra);
  const int lane = std::countr_zero(mask);
  const std::string what = read_string(warp, read_param(warp, site.arguments[0], lane), lane);
  const std::string file = read_string(warp, read_param(warp, site.arguments[1], lane), lane);
  const std::string function = read_string(warp, read_param(warp, site.arguments[3], lane), lane);
  const LaunchConfig& config = warp.launch->config;
  const std::uint32_t thread = warp.index * kLanes + static_cast<std::uint32_t>(lane);
  char text[256];
  std::snprintf(text, sizeof(text), ": block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `",
                warp.block->index[0], warp.block->index[1], warp.block->index[2],
                thread % config.block[0], thread / config.block[0] % config.block[1],
                thread / (config.block[0] * config.block[1]));
  const std::string message = file + ":" +
                              std::to_string(read_param(warp, site.arguments[2], lane)) + ": " +
                              function + text + what + "` failed.";
  emit(warp, message + "\n");
  raise_fault(warp, op, Fault::Kind::kAssert, 0);
  warp.launch->fault.text = message;
  return op + 1;
}

}  // namespace

OpFn print_op() { return print; }
OpFn assert_op() { return fail_assertion; }

}  // namespace plexrl::simgpu::ptx
