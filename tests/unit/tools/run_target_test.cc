#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/unit/tools/fake_trace.h"
#include "tools/cli/driver_search.h"
#include "tools/run/target.h"

namespace plexrl::run {
namespace {

using ::testing::HasSubstr;
using trace::ScratchFolder;

// The beginning of an executable: a header, and one program header of the given type.
std::string elf(Elf64_Word segment_type, unsigned char elf_class = ELFCLASS64,
                Elf64_Half machine =
#if defined(__aarch64__)
                    EM_AARCH64
#else
                    EM_X86_64
#endif
) {
  Elf64_Ehdr header{};
  std::copy_n(ELFMAG, SELFMAG, header.e_ident);
  header.e_ident[EI_CLASS] = elf_class;
  header.e_machine = machine;
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 1;
  Elf64_Phdr segment{};
  segment.p_type = segment_type;
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) +
         std::string(reinterpret_cast<const char*>(&segment), sizeof segment);
}

class TargetTest : public ::testing::Test {
 protected:
  std::string program(const std::string& name, const std::string& bytes, mode_t mode = 0755) {
    folder_.write(name, bytes);
    chmod(folder_.path(name).c_str(), mode);
    return folder_.path(name);
  }
  Target inspect(const std::string& command) {
    return inspect_target(command, folder_.path("").c_str());
  }
  ScratchFolder folder_;
};

TEST_F(TargetTest, ADynamicProgramCanBeCaught) {
  const Target target = inspect(program("dynamic", elf(PT_INTERP)));
  EXPECT_EQ(target.found, Target::Found::kYes);
  EXPECT_EQ(target.obstacle, "");
}

TEST_F(TargetTest, AStaticProgramIsNamedAndItsChildrenCanBeCaught) {
  const Target target = inspect(program("static", elf(PT_LOAD)));
  EXPECT_THAT(target.obstacle, HasSubstr("/static is statically linked"));
  EXPECT_TRUE(target.children_can_be_caught);
}

TEST_F(TargetTest, AnotherArchitectureCantBeCaughtAtAll) {
  for (const auto& bytes :
       {elf(PT_INTERP, ELFCLASS32, EM_386), elf(PT_INTERP, ELFCLASS64, EM_RISCV)}) {
    const Target target = inspect(program("foreign", bytes));
    EXPECT_THAT(target.obstacle, HasSubstr("another architecture"));
    EXPECT_FALSE(target.children_can_be_caught);
  }
}

TEST_F(TargetTest, ScriptsAreFollowedToTheirInterpreter) {
  const std::string interpreter = program("static", elf(PT_LOAD));
  program("script", "#!" + interpreter + " -x\nrest");
  program("outer", "#! " + folder_.path("script") + "\n");
  EXPECT_THAT(inspect("script").obstacle, HasSubstr("/static is statically linked"));
  EXPECT_THAT(inspect("outer").obstacle, HasSubstr("/static is statically linked"));
}

TEST_F(TargetTest, EnvIsFollowedToWhatItStarts) {
  program("static", elf(PT_LOAD));
  program("script", "#!/usr/bin/env -S A=1 static --flag\n");
  EXPECT_THAT(inspect("script").obstacle, HasSubstr("/static is statically linked"));
}

TEST_F(TargetTest, AScriptThatNamesItselfEnds) {
  program("loop", "#!" + folder_.path("loop") + "\n");
  EXPECT_EQ(inspect("loop").obstacle, "");
}

TEST_F(TargetTest, WhatIsNoProgramIsLeftToTheShell) {
  EXPECT_EQ(inspect(program("text", "echo hi\n")).obstacle, "");
  EXPECT_EQ(inspect(program("empty", "")).obstacle, "");
  EXPECT_EQ(inspect(program("short",
                            "\x7f"
                            "ELF"))
                .obstacle,
            "");
}

TEST_F(TargetTest, CommandsAreFoundAsExecvpDoes) {
  program("plain", "x", 0644);
  EXPECT_EQ(inspect("plain").found, Target::Found::kNotExecutable);
  EXPECT_EQ(inspect("nowhere").found, Target::Found::kNo);
  EXPECT_EQ(inspect(folder_.path("nowhere")).found, Target::Found::kNo);
  std::filesystem::create_directory(folder_.path("folder"));
  EXPECT_EQ(inspect(folder_.path("folder")).found, Target::Found::kNotExecutable);
  EXPECT_EQ(inspect("folder").found, Target::Found::kNo);
}

TEST(DriverSearch, LooksInTheLibraryPathFirst) {
  ScratchFolder folder;
  folder.write("b/libcuda.so.1", "");
  const std::string path = folder.path("a") + ":" + folder.path("b");
  EXPECT_EQ(cli::find_cuda_driver(path.c_str(), ""), folder.path("b/libcuda.so.1"));
}

TEST(DriverSearch, FindsThePathInTheLoadersCache) {
  ScratchFolder folder;
  folder.write("libcuda.so.1", "");
  std::string cache = "glibc-ld.so.cache1.1";
  for (const std::string& entry : {std::string("libcuda.so.1"), std::string("/gone/libcuda.so.1"),
                                   folder.path("libcuda.so.1"), std::string("/x/libcuda.so.12")}) {
    cache += '\0' + entry;
  }
  folder.write("cache", cache + '\0');
  EXPECT_EQ(cli::find_cuda_driver(nullptr, folder.path("cache")), folder.path("libcuda.so.1"));
}

}  // namespace
}  // namespace plexrl::run
