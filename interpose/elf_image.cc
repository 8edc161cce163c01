#include "interpose/elf_image.h"

#include <elf.h>
#include <link.h>

#include <cstring>

namespace plexrl::interpose {

// Fills an image from what dl_iterate_phdr tells of an object.
struct ElfImageReader {
  static ElfImage read(const dl_phdr_info& info) noexcept {
    ElfImage image;
    image.path_ = info.dlpi_name;
    image.base_ = info.dlpi_addr;
    const ElfW(Dyn)* dynamic = nullptr;
    for (int i = 0; i < info.dlpi_phnum; ++i) {
      if (info.dlpi_phdr[i].p_type == PT_DYNAMIC) {
        dynamic = reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr + info.dlpi_phdr[i].p_vaddr);
      }
    }
    if (dynamic == nullptr) return {};
    for (; dynamic->d_tag != DT_NULL; ++dynamic) take(image, *dynamic);
    const bool is_complete =
        image.strings_ != nullptr && (image.gnu_hash_ != nullptr || image.sysv_hash_ != nullptr);
    return is_complete ? image : ElfImage{};
  }

  static bool contains(const dl_phdr_info& info, uintptr_t address) noexcept {
    for (int i = 0; i < info.dlpi_phnum; ++i) {
      const ElfW(Phdr)& segment = info.dlpi_phdr[i];
      if (segment.p_type == PT_LOAD &&
          address - (info.dlpi_addr + segment.p_vaddr) < segment.p_memsz)
        return true;
    }
    return false;
  }

 private:
  static void take(ElfImage& image, const ElfW(Dyn) & entry) noexcept {
    // glibc relocates these in place, except in objects it maps read-only (the vdso).
    const uintptr_t value = entry.d_un.d_ptr;
    const uintptr_t address = value < image.base_ ? image.base_ + value : value;
    switch (entry.d_tag) {
      case DT_SYMTAB:
        image.symbols_ = reinterpret_cast<const void*>(address);
        break;
      case DT_STRTAB:
        image.strings_ = reinterpret_cast<const char*>(address);
        break;
      case DT_VERSYM:
        image.versions_ = reinterpret_cast<const uint16_t*>(address);
        break;
      case DT_GNU_HASH:
        image.gnu_hash_ = reinterpret_cast<const uint32_t*>(address);
        break;
      case DT_HASH:
        image.sysv_hash_ = reinterpret_cast<const uint32_t*>(address);
        break;
      default:
        break;
    }
  }
};

namespace {

constexpr uint16_t kHiddenVersion = 0x8000;  // not the default version of its name

uint32_t gnu_hash(std::string_view name) noexcept {
  uint32_t h = 5381;
  for (const char c : name) h = h * 33 + static_cast<unsigned char>(c);
  return h;
}

uint32_t sysv_hash(std::string_view name) noexcept {
  uint32_t h = 0;
  for (const char c : name) {
    h = (h << 4) + static_cast<unsigned char>(c);
    h = (h ^ ((h & 0xf0000000u) >> 24)) & 0x0fffffffu;
  }
  return h;
}

std::string_view base_name(const char* path) noexcept {
  if (path == nullptr) return {};
  const char* slash = std::strrchr(path, '/');
  return slash != nullptr ? slash + 1 : path;
}

// Calls `matches` for each loaded object until it returns true, and reads that object.
template <typename Matches>
ElfImage first_object(Matches matches) noexcept {
  struct Search {
    Matches& matches;
    ElfImage found;
  } search{matches, {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& state = *static_cast<Search*>(data);
        if (!state.matches(*info)) return 0;
        state.found = ElfImageReader::read(*info);
        return 1;
      },
      &search);
  return search.found;
}

}  // namespace

ElfImage ElfImage::loaded(std::string_view name) noexcept {
  auto is_it = [name](const dl_phdr_info& info) {
    return base_name(info.dlpi_name).starts_with(name);
  };
  return first_object(is_it);
}

ElfImage ElfImage::defining(std::string_view symbol, const void* besides) noexcept {
  auto is_it = [symbol, besides](const dl_phdr_info& info) {
    return !ElfImageReader::contains(info, reinterpret_cast<uintptr_t>(besides)) &&
           ElfImageReader::read(info).symbol(symbol) != nullptr;
  };
  return first_object(is_it);
}

ElfImage ElfImage::containing(const void* address) noexcept {
  auto is_it = [address](const dl_phdr_info& info) {
    return ElfImageReader::contains(info, reinterpret_cast<uintptr_t>(address));
  };
  return first_object(is_it);
}

bool ElfImage::is_later(const void* address, const void* other) noexcept {
  bool has_passed_other = false;
  bool is_later = false;
  auto is_it = [&](const dl_phdr_info& info) {
    if (ElfImageReader::contains(info, reinterpret_cast<uintptr_t>(address))) {
      is_later = has_passed_other;
      return true;
    }
    has_passed_other =
        has_passed_other || ElfImageReader::contains(info, reinterpret_cast<uintptr_t>(other));
    return false;
  };
  first_object(is_it);
  return is_later;
}

std::string_view ElfImage::file_name() const noexcept { return base_name(path_); }

void* ElfImage::symbol(std::string_view name) const noexcept {
  if (symbols_ == nullptr) return nullptr;
  const auto* symbols = static_cast<const ElfW(Sym)*>(symbols_);
  const ElfW(Sym)* found = nullptr;
  for (uint32_t i = symbol_index(name, 0); i != 0; i = symbol_index(name, i)) {
    found = &symbols[i];
    const bool is_default = versions_ == nullptr || (versions_[i] & kHiddenVersion) == 0;
    if (is_default) break;
  }
  if (found == nullptr || ELF64_ST_TYPE(found->st_info) == STT_GNU_IFUNC) return nullptr;
  return reinterpret_cast<void*>(base_ + found->st_value);
}

// The next defined symbol of that name in its hash chain, behind symbol `after` (0: from the
// start).
uint32_t ElfImage::symbol_index(std::string_view name, uint32_t after) const noexcept {
  const auto* symbols = static_cast<const ElfW(Sym)*>(symbols_);
  auto is_it = [&](uint32_t i) {
    return symbols[i].st_shndx != SHN_UNDEF && name == strings_ + symbols[i].st_name;
  };
  bool is_behind = after == 0;
  auto accept = [&](uint32_t i) {
    if (is_behind && is_it(i)) return true;
    is_behind = is_behind || i == after;
    return false;
  };

  if (gnu_hash_ != nullptr) {
    const uint32_t buckets = gnu_hash_[0];
    const uint32_t first_hashed = gnu_hash_[1];
    const uint32_t bloom_words = gnu_hash_[2];
    const uint32_t* bucket = gnu_hash_ + 4 + bloom_words * (sizeof(uintptr_t) / sizeof(uint32_t));
    const uint32_t* chain = bucket + buckets;
    const uint32_t h = gnu_hash(name);
    uint32_t i = buckets != 0 ? bucket[h % buckets] : 0;
    if (i < first_hashed) return 0;
    for (;; ++i) {
      const uint32_t entry = chain[i - first_hashed];  // lowest bit: end of chain
      if ((entry | 1) == (h | 1) && accept(i)) return i;
      if ((entry & 1) != 0) return 0;
    }
  }

  const uint32_t buckets = sysv_hash_[0];
  const uint32_t* bucket = sysv_hash_ + 2;
  const uint32_t* chain = bucket + buckets;
  for (uint32_t i = buckets != 0 ? bucket[sysv_hash(name) % buckets] : 0; i != 0; i = chain[i]) {
    if (accept(i)) return i;
  }
  return 0;
}

}  // namespace plexrl::interpose
