// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Files of measured rates: written once, read by all, replaced when broken, and
// left out where they can't be written.

#include "ceres_ext/plan/kept_rates.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "ceres_ext/base/machines.h"
#include "ceres_ext/machine_report.h"
#include "cuda_kernels/machine/cuda_context.h"
#include "cuda_kernels/machine/cuda_process.h"
#include "cuda_kernels/machine/host_rates.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ceres_ext {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr char kKey[] = "device NVIDIA Test; driver 1.2.3; host CPU, 4";

class KeptRates : public ::testing::Test {
 protected:
  KeptRates() {
    std::string name = ::testing::TempDir() + "/kept_rates.XXXXXX";
    root_ = mkdtemp(name.data());
    folder_ = root_ + "/a/ceres_ext";
    // Debuggers and profilers don't measure.
    if (kernels::IsUnderTool()) {
      under_tool_ = true;
    }
  }
  ~KeptRates() override {
    std::error_code error;
    fs::permissions(root_, fs::perms::owner_all, error);
    fs::remove_all(root_, error);
  }
  void SetUp() override {
    if (under_tool_) {
      GTEST_SKIP() << "skipped: a tool runs the test";
    }
  }

  // Measures `value_` and a number that from_chars and to_chars keep.
  bool Keep(const std::string& key = kKey) {
    return KeepNumbers(
        folder_,
        key,
        2,
        [this](std::vector<double>* numbers, std::string* why) {
          ++num_measured_;
          *numbers = {value_, 1.0 / 3.0};
          *why = "it is broken";
          return value_ > 0.0;
        },
        &numbers_,
        &why_);
  }
  std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      files.push_back(entry.path());
    }
    return files;
  }
  static std::string Text(const fs::path& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  std::string root_;
  std::string folder_;
  bool under_tool_ = false;
  double value_ = 2.5e12;
  int num_measured_ = 0;
  std::vector<double> numbers_;
  std::string why_;
};

TEST_F(KeptRates, AreMeasuredOnce) {
  ASSERT_TRUE(Keep()) << why_;
  const std::vector<double> first = numbers_;
  value_ = 7.0;
  ASSERT_TRUE(Keep()) << why_;
  EXPECT_EQ(numbers_, first);
  EXPECT_EQ(numbers_, (std::vector<double>{2.5e12, 1.0 / 3.0}));
  EXPECT_EQ(num_measured_, 1);
  // Another card, driver, host or version is another file.
  ASSERT_TRUE(Keep(std::string(kKey) + "."));
  EXPECT_EQ(numbers_[0], 7.0);
  EXPECT_EQ(Files().size(), 2u);
}

TEST_F(KeptRates, BrokenFilesAreReplaced) {
  ASSERT_TRUE(Keep());
  const fs::path path = Files().at(0);
  const std::string good = Text(path);
  std::vector<std::string> broken = {
      "", "\n", "rates\n", good + "x", good + "\n"};
  for (size_t n = 1; n + 1 < good.size(); ++n) {
    broken.push_back(good.substr(0, n));
  }
  const auto with = [&](const std::string& number) {
    std::string text = good;
    const size_t at = text.find("2.5e+12");
    EXPECT_NE(at, std::string::npos) << text;
    return text.replace(at, 7, number);
  };
  for (const char* number :
       {"nan", "inf", "-1", "0", "1e-320", "1e400", "1 2", "", "x", "1,5"}) {
    broken.push_back(with(number));
  }
  for (const std::string& text : broken) {
    std::ofstream(path) << text;
    num_measured_ = 0;
    ASSERT_TRUE(Keep()) << why_;
    EXPECT_EQ(num_measured_, 1) << text;
    EXPECT_EQ(Text(path), good);
  }
  EXPECT_EQ(Files().size(), 1u);
  // A file of another key under this name, as by a hash that is the same.
  std::string other = good;
  other.replace(other.find("Test"), 4, "Best");
  std::ofstream(path) << other;
  ASSERT_TRUE(Keep());
  EXPECT_EQ(Text(path), good);
}

TEST_F(KeptRates, FailuresAreNotKept) {
  value_ = -1.0;
  EXPECT_FALSE(Keep());
  EXPECT_EQ(why_, "it is broken");
  EXPECT_TRUE(numbers_.empty());
  EXPECT_TRUE(Files().empty());
  value_ = 1.0;
  EXPECT_TRUE(Keep());
}

// If a rate can't be kept it is not measured: the next run would choose by
// another.
TEST_F(KeptRates, WithoutAPlaceNothingIsMeasured) {
  // A file where the folder should be; root may write anywhere else.
  std::ofstream(root_ + "/a") << "x";
  EXPECT_FALSE(Keep());
  EXPECT_THAT(why_, HasSubstr("can't be written: "));
  folder_.clear();
  EXPECT_FALSE(Keep());
  EXPECT_THAT(why_, HasSubstr("neither XDG_CACHE_HOME nor HOME"));
  folder_ = root_ + "/closed";
  fs::create_directory(folder_);
  fs::permissions(folder_, fs::perms::owner_read | fs::perms::owner_exec);
  if (geteuid() != 0) {
    EXPECT_FALSE(Keep());
    EXPECT_THAT(why_, HasSubstr("can't be written: "));
  }
  EXPECT_TRUE(num_measured_ == 0);
  EXPECT_TRUE(numbers_.empty());
  fs::permissions(folder_, fs::perms::owner_all);
}

// Eight processes at once measure once and have the same numbers.
TEST_F(KeptRates, ProcessesAgree) {
  constexpr int kProcesses = 8;
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      const bool kept = KeepNumbers(
          folder_,
          kKey,
          1,
          [&](std::vector<double>* numbers, std::string*) {
            std::ofstream(root_ + "/measured" + std::to_string(i)) << "x";
            usleep(50000);
            *numbers = {1.0 + i};
            return true;
          },
          &numbers_,
          &why_);
      _exit(kept ? static_cast<int>(numbers_[0]) : 0);
    }
    children.push_back(child);
  }
  int first = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status));
    const int number = WEXITSTATUS(status);
    EXPECT_GT(number, 0);
    first = first == 0 ? number : first;
    EXPECT_EQ(number, first);
  }
  EXPECT_EQ(Files().size(), 1u);
  int num_measured = 0;
  for (int i = 0; i < kProcesses; ++i) {
    num_measured += fs::exists(root_ + "/measured" + std::to_string(i)) ? 1 : 0;
  }
  EXPECT_EQ(num_measured, 1);
}

TEST(CacheFolder, IsTheUsers) {
  const auto in_child = [](const char* cache, const char* home) {
    const pid_t child = fork();
    if (child == 0) {
      cache == nullptr ? unsetenv("XDG_CACHE_HOME")
                       : setenv("XDG_CACHE_HOME", cache, 1);
      home == nullptr ? unsetenv("HOME") : setenv("HOME", home, 1);
      const std::string folder = CacheFolder();
      _exit(folder == "/c/ceres_ext"          ? 1
            : folder == "/h/.cache/ceres_ext" ? 2
            : folder.empty()                  ? 3
                                              : 4);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  EXPECT_EQ(in_child("/c", "/h"), 1);
  EXPECT_EQ(in_child(nullptr, "/h"), 2);
  EXPECT_EQ(in_child("", "/h"), 2);
  EXPECT_EQ(in_child("relative", "/h"), 2);
  EXPECT_EQ(in_child(nullptr, nullptr), 3);
  EXPECT_EQ(in_child(nullptr, "h"), 3);
}

// Wide bounds: the machines of tests are busy.
TEST(HostRates, AreThoseOfAProcessor) {
  kernels::MachineRates rates;
  ASSERT_TRUE(kernels::MeasureHostRates(&rates));
  EXPECT_GT(rates.host_values_per_second, 1e7);
  EXPECT_LT(rates.host_values_per_second, 1e11);
  EXPECT_GT(rates.host_bytes_per_second, 1e8);
  EXPECT_LT(rates.host_bytes_per_second, 1e13);
}

// Without a device nothing is measured, and with options that say so neither.
TEST(RatesOf, AreTheConstantsWithoutADevice) {
  Options options;
  options.machine_rates = MACHINE_RATES_BUILT_IN;
  const kernels::MachineRates of;
  const kernels::MachineRates host = HostRatesOf(options, /*host_seconds=*/1e3);
  EXPECT_EQ(host.host_values_per_second, of.host_values_per_second);
  EXPECT_EQ(host.host_bytes_per_second, 0.0);
  EXPECT_EQ(RatesOf(options).bytes_per_second, of.bytes_per_second);
  EXPECT_EQ(RatesOf(options).launch_seconds, of.launch_seconds);
  options.machine_rates = MACHINE_RATES_MEASURED;
  // Too short to be measured.
  EXPECT_EQ(HostRatesOf(options, 1e-3).host_bytes_per_second, 0.0);
  if (!kernels::HasDriverFiles()) {
    EXPECT_EQ(HostRatesOf(options, 1e3).host_bytes_per_second, 0.0);
    EXPECT_EQ(RatesOf(options).double_fmas_per_second,
              of.double_fmas_per_second);
  }
}

TEST(MachineReport, SaysWhatIsKnown) {
  const std::string report = MachineReport({});
  EXPECT_THAT(report, HasSubstr("host: "));
  EXPECT_THAT(report, HasSubstr("values of a stored Jacobian per second"));
  if (!kHasCuda || kernels::NumCudaDevices(nullptr) == 0) {
    EXPECT_THAT(report, HasSubstr("device: none, because "));
  } else {
    EXPECT_THAT(report, HasSubstr("device 0: "));
    EXPECT_THAT(report, HasSubstr("10000000 "));
  }
}

}  // namespace
}  // namespace ceres_ext
