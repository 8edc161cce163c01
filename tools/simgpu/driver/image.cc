#include "tools/simgpu/driver/image.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>

#include "tools/simgpu/driver/fat_binary.h"

namespace plexrl::simgpu {
namespace {

// "PLXL", a count, then for each text its length and its bytes, all lengths of 8 bytes.
constexpr std::string_view kContainerMagic = "PLXLINK1";

CUresult refuse_machine_code(const char* what, int sm) {
  std::fprintf(stderr,
               "simgpu: %s can't run here: the simulated GPU executes PTX only. Run it on a real "
               "GPU, or build it with PTX (nvcc -gencode arch=compute_%d,code=compute_%d).\n",
               what, sm, sm);
  return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

bool is_elf(std::string_view head) { return head == "\177ELF"; }

// LLVM bitcode, NVIDIA's wrapper of it, and its older form.
bool is_lto_ir(std::string_view head) {
  return head == "BC\xC0\xDE" || head == "\xED\x43\x4E\x7F" || head == "\xDE\xC0\x17\x0B";
}

bool is_text(std::string_view head) {
  return std::ranges::all_of(head, [](char c) {
    return c == '\0' || c == '\t' || c == '\n' || c == '\r' || (c >= ' ' && c <= '~');
  });
}

// The PTX with the highest architecture that the device has.
CUresult read_fat_image(const void* image, std::size_t bytes, int sm,
                        std::vector<std::string>* sources) {
  std::vector<FatFile> files;
  if (!read_fat_binary(image, bytes, &files)) return CUDA_ERROR_INVALID_IMAGE;
  const FatFile* best = nullptr;
  bool has_ptx = false;
  for (const FatFile& file : files) {
    if (file.kind != FatFile::Kind::kPtx) continue;
    has_ptx = true;
    if (file.sm <= sm && (best == nullptr || file.sm > best->sm)) best = &file;
  }
  if (best == nullptr && has_ptx) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  if (best == nullptr) return refuse_machine_code("a fat binary without PTX", sm);
  std::string text;
  if (!unpack(*best, &text)) return CUDA_ERROR_INVALID_IMAGE;
  sources->push_back(std::move(text));
  return CUDA_SUCCESS;
}

// `left` is what there is at most behind `image`.
CUresult read_container(const char* image, std::size_t left, std::vector<std::string>* sources) {
  auto next_number = [&](std::uint64_t* number) {
    if (left < sizeof(*number)) return false;
    std::memcpy(number, image, sizeof(*number));
    image += sizeof(*number);
    left -= sizeof(*number);
    return true;
  };
  std::uint64_t count = 0;
  image += kContainerMagic.size();
  left -= kContainerMagic.size();
  if (!next_number(&count)) return CUDA_ERROR_INVALID_IMAGE;
  for (; count > 0; --count) {
    std::uint64_t length = 0;
    if (!next_number(&length) || length > left) return CUDA_ERROR_INVALID_IMAGE;
    sources->emplace_back(image, length);
    image += length;
    left -= length;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult read_image(const void* image, std::size_t bytes, int sm,
                    std::vector<std::string>* sources) {
  const auto* const text = static_cast<const char*>(image);
  // An empty or very short text ends before a magic word does.
  const std::size_t length = bytes != 0 ? bytes : strnlen(text, 4);
  const std::string_view head(text, std::min<std::size_t>(length, 4));
  if (head.size() < 4) return CUDA_ERROR_INVALID_IMAGE;
  if (is_fat_binary(image)) return read_fat_image(image, bytes, sm, sources);
  if (is_elf(head)) return refuse_machine_code("a cubin (machine code)", sm);
  if (is_lto_ir(head)) return refuse_machine_code("LTO-IR", sm);
  if (!is_text(head)) return CUDA_ERROR_INVALID_IMAGE;
  const std::size_t known = bytes != 0 ? bytes : SIZE_MAX;
  if (known >= kContainerMagic.size() &&
      std::strncmp(text, kContainerMagic.data(), kContainerMagic.size()) == 0) {
    return read_container(text, known, sources);
  }
  std::string source = bytes != 0 ? std::string(text, strnlen(text, bytes)) : std::string(text);
  sources->push_back(std::move(source));
  return CUDA_SUCCESS;
}

CUresult read_file(const char* path, std::string* bytes) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream file(path, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  bytes->assign(std::istreambuf_iterator<char>(file), {});
  return file.bad() ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_SUCCESS;
}

std::string make_container(const std::vector<std::string>& sources) {
  std::string container(kContainerMagic);
  auto add_number = [&](std::uint64_t number) {
    container.append(reinterpret_cast<const char*>(&number), sizeof(number));
  };
  add_number(sources.size());
  for (const std::string& source : sources) {
    add_number(source.size());
    container += source;
  }
  return container;
}

CUresult load_ptx(const std::vector<std::string>& sources, int sm,
                  std::unique_ptr<ptx::Module>* module, std::string* log) {
  const std::vector<std::string_view> views(sources.begin(), sources.end());
  ptx::LoadError error = ptx::LoadError::kNone;
  *module = ptx::Module::load(views, sm, &error, log);
  if (*module != nullptr) return CUDA_SUCCESS;
  if (error == ptx::LoadError::kTargetTooNew) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  if (error == ptx::LoadError::kUnsupportedInstruction) {
    // Not the program's fault, so its author should see it even without a log buffer.
    std::fprintf(stderr, "simgpu: the simulated GPU can't execute this PTX: %s\n", log->c_str());
  }
  return CUDA_ERROR_INVALID_PTX;
}

void JitOptions::fill(CUjit_option buffer, CUjit_option size, const std::string& text) const {
  char* target = nullptr;
  std::size_t capacity = 0;
  void** filled = nullptr;
  for (std::size_t i = 0; i < options_.size(); ++i) {
    if (options_[i] == buffer) target = static_cast<char*>(values_[i]);
    if (options_[i] == size) {
      filled = &values_[i];
      capacity = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(values_[i]));
    }
  }
  if (filled == nullptr) return;
  std::size_t used = 0;
  if (target != nullptr && capacity > 0) {
    used = std::min(text.size(), capacity - 1);
    std::memcpy(target, text.data(), used);
    target[used] = '\0';
  }
  *filled = reinterpret_cast<void*>(static_cast<std::uintptr_t>(used));
}

void JitOptions::report(const std::string& error_log, const std::string& info_log,
                        float milliseconds) const {
  fill(CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, error_log);
  fill(CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, info_log);
  for (std::size_t i = 0; i < options_.size(); ++i) {
    if (options_[i] != CU_JIT_WALL_TIME) continue;
    // "Returns a float in the option's value": its bits, in the place of the pointer.
    std::memcpy(&values_[i], &milliseconds, sizeof(milliseconds));
  }
}

}  // namespace plexrl::simgpu
