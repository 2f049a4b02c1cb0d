// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The behaviour of a program if a library that it opens is missing or not as
// expected, with files made for it (cuda_libraries_test_library.cc).
#include "cuda_kernels/machine/cuda_libraries.h"

#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace ceres_ext::kernels {
namespace {

const SharedLibrary kExpected{
    "cuTest", 7, "TestGetProperty", {"TestFunction", "TestOtherFunction"}, ""};
const std::string kBegin = "cuTest of version 7 was expected and not found: ";

// One of the libraries made for this test.
std::string Library(const std::string& name) {
  return CERES_EXT_TEST_LIBRARIES "/lib" + name + ".so.7";
}

class CudaLibraries : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/cuda_libraries_test_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
  }
  ~CudaLibraries() override {
    for (const std::string& file : files_) {
      if (unlink(file.c_str()) != 0) {
        rmdir(file.c_str());
      }
    }
    rmdir(folder_.c_str());
  }

  // The path of a file in a folder that goes with the test.
  std::string Path(const std::string& name) {
    files_.push_back(folder_ + "/" + name);
    return files_.back();
  }
  std::string Write(const std::string& name, const std::string& content) {
    const std::string path = Path(name);
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

  // The fault of the files; after a failure there are no functions.
  std::string Why(const std::vector<std::string>& files) {
    std::vector<void*> functions = {nullptr};
    const Status status = OpenSharedLibrary(kExpected, files, &functions);
    EXPECT_EQ(status.code, StatusCode::kUnsupported);
    EXPECT_TRUE(functions.empty());
    EXPECT_EQ(status.message.substr(0, kBegin.size()), kBegin);
    EXPECT_EQ(status.message.find('\n'), std::string::npos);
    EXPECT_EQ(status.message.back(), '.');
    return status.message.substr(kBegin.size(),
                                 status.message.size() - kBegin.size() - 1);
  }
  void ExpectOpens(const std::vector<std::string>& files) {
    std::vector<void*> functions;
    std::string found;
    const Status status =
        OpenSharedLibrary(kExpected, files, &functions, &found);
    ASSERT_TRUE(status.ok()) << status.message;
    EXPECT_EQ(found, "cuTest 7.3");
    ASSERT_EQ(functions.size(), 2);
    EXPECT_EQ(reinterpret_cast<int (*)()>(functions[0])(), 42);
    EXPECT_EQ(reinterpret_cast<int (*)()>(functions[1])(), 1);
  }

  std::string folder_;
  std::vector<std::string> files_;
};

TEST_F(CudaLibraries, AsExpected) {
  ExpectOpens({Library("cutest")});
  ExpectOpens({Library("cutest")});  // which is open
  // By a name, as the dynamic linker knows it; the environment is the test's.
  ExpectOpens({"libcutest.so.7"});
}

// A version in one number, as NCCL says it.
TEST_F(CudaLibraries, OneNumber) {
  SharedLibrary expected = kExpected;
  expected.get_property = "";
  expected.get_version = "TestGetVersion";
  std::vector<void*> functions;
  std::string found;
  Status status =
      OpenSharedLibrary(expected, {Library("cutest")}, &functions, &found);
  EXPECT_TRUE(status.ok()) << status.message;
  EXPECT_EQ(found, "cuTest 7.12.4");
  for (const auto& [name, why] :
       {std::pair<std::string, std::string>("cutest_version_8",
                                            "is of version 8"),
        {"cutest_silent", "does not say its version"}}) {
    status = OpenSharedLibrary(expected, {Library(name)}, &functions, &found);
    EXPECT_EQ(status.code, StatusCode::kUnsupported);
    EXPECT_NE(status.message.find(why), std::string::npos) << status.message;
  }
  expected.get_version = "TestGetNothing";
  status = OpenSharedLibrary(expected, {Library("cutest")}, &functions, &found);
  EXPECT_NE(status.message.find("lacks TestGetNothing"), std::string::npos)
      << status.message;
}

TEST_F(CudaLibraries, Absent) {
  const std::string file = folder_ + "/libcutest.so.7";
  EXPECT_EQ(Why({file}), file + " does not exist or can't be reached");
  const std::string link = Path("libcutest_link.so.7");
  ASSERT_EQ(symlink("nowhere", link.c_str()), 0);
  EXPECT_EQ(Why({link}), link + " does not exist or can't be reached");
  EXPECT_NE(Why({"libcutest_absent.so.7"}).find("libcutest_absent.so.7"),
            std::string::npos);
  EXPECT_EQ(Why({}), "");
}

TEST_F(CudaLibraries, AFolderInItsPlace) {
  const std::string file = Path("libcutest.so.7");
  ASSERT_EQ(mkdir(file.c_str(), 0700), 0);
  EXPECT_EQ(Why({file}), file + " is a folder");
}

TEST_F(CudaLibraries, NoLibrary) {
  const std::string text = Write("text.so.7", "This is no library at all.\n");
  EXPECT_EQ(Why({text}), text + " can't be read or is not a shared library");
  const std::string empty = Write("empty.so.7", "");
  EXPECT_EQ(Why({empty}), empty + " can't be read or is not a shared library");
  // The dynamic linker's words, with the file.
  std::ifstream library(Library("cutest"), std::ios::binary);
  std::ostringstream bytes;
  bytes << library.rdbuf();
  const std::string cut = Write("cut.so.7", bytes.str().substr(0, 100));
  EXPECT_NE(Why({cut}).find(cut), std::string::npos);
  EXPECT_NE(Why({"/proc/self/exe"}).find("/proc/self/exe"), std::string::npos);
}

TEST_F(CudaLibraries, ForAnotherProcessor) {
  std::ifstream library(Library("cutest"), std::ios::binary);
  std::ostringstream stream;
  stream << library.rdbuf();
  std::string bytes = stream.str();
  ASSERT_GT(bytes.size(), sizeof(Elf64_Ehdr));
  std::string other = bytes;
  const Elf64_Half s390 = EM_S390;
  std::memcpy(&other[offsetof(Elf64_Ehdr, e_machine)], &s390, sizeof(s390));
  const std::string machine = Write("machine.so.7", other);
  EXPECT_EQ(Why({machine}), machine + " is for another processor");
  other = bytes;
  other[EI_CLASS] = other[EI_CLASS] == ELFCLASS64 ? ELFCLASS32 : ELFCLASS64;
  const std::string width = Write("class.so.7", other);
  EXPECT_EQ(Why({width}), width + " is for another processor");
}

TEST_F(CudaLibraries, AnotherVersion) {
  EXPECT_EQ(Why({Library("cutest_version_8")}),
            Library("cutest_version_8") + " is of version 8");
  EXPECT_EQ(Why({Library("cutest_no_property")}),
            Library("cutest_no_property") + " lacks TestGetProperty");
  EXPECT_EQ(Why({Library("cutest_silent")}),
            Library("cutest_silent") + " does not say its version");
  // The file that the dynamic linker has found for a name is named.
  EXPECT_EQ(Why({"libcutest_version_8.so.7"}),
            Library("cutest_version_8") + " is of version 8");
}

TEST_F(CudaLibraries, AMissingSymbol) {
  EXPECT_EQ(Why({Library("cutest_no_function")}),
            Library("cutest_no_function") + " lacks TestFunction");
  const std::string why = Why({Library("cutest_undefined")});
  EXPECT_NE(why.find(Library("cutest_undefined")), std::string::npos) << why;
  EXPECT_NE(why.find("TestNobodyHasThis"), std::string::npos) << why;
}

TEST_F(CudaLibraries, TheFirstThatIsAsExpectedServes) {
  const std::string absent = folder_ + "/absent";
  ExpectOpens({absent, Library("cutest_version_8"), Library("cutest")});
  EXPECT_EQ(Why({absent, Library("cutest_version_8")}),
            absent + " does not exist or can't be reached; " +
                Library("cutest_version_8") + " is of version 8");
}

// CudaLibraryFiles with CUDA_HOME = home, unset where it is null.
std::vector<std::string> Files(const std::string& name,
                               const char* home,
                               const std::string& known) {
  unsetenv("CUDA_PATH");
  if (home != nullptr) {
    setenv("CUDA_HOME", home, 1);
  } else {
    unsetenv("CUDA_HOME");
  }
  return CudaLibraryFiles(name, 7, known);
}

TEST_F(CudaLibraries, FoldersAreSearchedInOrder) {
  using Names = std::vector<std::string>;
  const std::string file = "libcutest_absent.so.7";
  const std::string name = "cutest_absent";
  EXPECT_EQ(Files(name, nullptr, ""), Names({file}));
  EXPECT_EQ(Files(name, "", "/known"), Names({file, "/known/" + file}));
  EXPECT_EQ(Files(name, "/home", "/known"),
            Names({file, "/home/lib64/" + file, "/known/" + file}));
  // Only folders that hold the library count.
  const std::string there = Write(file, "a library");
  SetCudaLibraryFolders({"/nowhere", folder_});
  EXPECT_EQ(Files(name, "/home", ""),
            Names({there, file, "/home/lib64/" + file}));
  // The process has loaded it.
  ExpectOpens({Library("cutest")});
  const std::string other = Write("libcutest.so.7", "a library");
  EXPECT_EQ(Files("cutest", nullptr, ""), Names({"libcutest.so.7", other}));
  SetCudaLibraryFolders({});
  EXPECT_EQ(Files(name, nullptr, ""), Names({file}));
}

TEST_F(CudaLibraries, SeveralThreads) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this] { ExpectOpens({Library("cutest")}); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace
}  // namespace ceres_ext::kernels
