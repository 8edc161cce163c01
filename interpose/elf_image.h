#pragma once

#include <cstdint>
#include <string_view>

namespace plexrl::interpose {

/// A loaded shared object, read straight from its dynamic section (ELF gABI; System V and GNU hash
/// tables). Answers "does this very object define that symbol" without the dynamic loader's search
/// order, its locks, its error string or its allocations, and so works where dlsym can't be used:
/// to find libc's own dlsym behind ours, and the driver's functions behind ours.
///
/// A value: copying it copies pointers into the object, which must stay loaded.
class ElfImage {
 public:
  constexpr ElfImage() = default;

  /// The first loaded object, in load order, whose file name begins with `name` ("libcuda.so" finds
  /// libcuda.so.1); an empty image where there is none. Holds the loader's list lock while it
  /// looks.
  static ElfImage loaded(std::string_view name) noexcept;

  /// The first loaded object, in load order, that defines `symbol`; not the one that holds
  /// `besides`. The same lock.
  static ElfImage defining(std::string_view symbol, const void* besides) noexcept;

  /// The loaded object that holds this address, or an empty image. The same lock.
  static ElfImage containing(const void* address) noexcept;

  /// True where the object that holds `address` comes later in load order, which is the search
  /// order of those loaded at start-up, than the one that holds `other`. The same lock.
  static bool is_later(const void* address, const void* other) noexcept;

  explicit operator bool() const noexcept { return symbols_ != nullptr; }

  /// Address of a function or object that this object defines and exports, whatever its version;
  /// null where it doesn't. Takes no lock. Where several versions exist the default one is found.
  void* symbol(std::string_view name) const noexcept;

  /// File it was loaded from, as the loader knows it. Owned by the loader.
  const char* path() const noexcept { return path_; }
  std::string_view file_name() const noexcept;

  /// True for an object of that name, in the sense of `loaded`.
  bool is(std::string_view name) const noexcept { return file_name().starts_with(name); }

  bool operator==(const ElfImage& other) const noexcept { return symbols_ == other.symbols_; }

 private:
  friend struct ElfImageReader;

  uint32_t symbol_index(std::string_view name, uint32_t after) const noexcept;

  const char* path_ = nullptr;
  uintptr_t base_ = 0;
  const void* symbols_ = nullptr;       // Elf64_Sym[]
  const char* strings_ = nullptr;       // names
  const uint16_t* versions_ = nullptr;  // one a symbol, null where the object has none
  const uint32_t* gnu_hash_ = nullptr;  // one of the two tables at least
  const uint32_t* sysv_hash_ = nullptr;
};

}  // namespace plexrl::interpose
