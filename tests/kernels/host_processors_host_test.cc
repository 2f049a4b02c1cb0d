// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <thread>

#include "cuda_kernels/machine/host_processors.h"
#include "gtest/gtest.h"

namespace ceres_ext::kernels {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

// A folder with the files of a system.
class ControlGroupTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/host_processors_test";
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void MountVersion2(const std::string& folder,
                     const std::string& group) const {
    Write("/proc/self/mountinfo",
          "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
          "30 22 0:26 " +
              folder +
              " /sys/fs/cgroup rw,nosuid shared:4 "
              "master:1 - cgroup2 cgroup2 rw,nsdelegate\n");
    Write("/proc/self/cgroup", "0::" + group + "\n");
  }
  void MountVersion1(const std::string& folder,
                     const std::string& group) const {
    Write("/proc/self/mountinfo",
          "31 30 0:28 " + folder +
              " /sys/fs/cgroup/cpuset rw - cgroup cgroup "
              "rw,cpuset\n"
              "32 30 0:29 " +
              folder +
              " /sys/fs/cgroup/cpu,cpuacct rw - cgroup "
              "cgroup rw,cpu,cpuacct\n");
    Write("/proc/self/cgroup",
          "5:cpuset:/elsewhere\n4:cpu,cpuacct:" + group + "\n0::/other\n");
  }
  double Quota() const { return ControlGroupQuota(root_); }
  int64_t Memory() const { return FreeHostMemory(root_); }

  std::string root_;
};

TEST_F(ControlGroupTest, NoFiles) { EXPECT_EQ(Quota(), kNone); }

TEST_F(ControlGroupTest, Version2) {
  MountVersion2("/", "/");
  EXPECT_EQ(Quota(), kNone);
  Write("/sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(Quota(), kNone);
  Write("/sys/fs/cgroup/cpu.max", "250000 100000\n");
  EXPECT_EQ(Quota(), 2.5);
  for (const char* text : {"", "0 100000", "100000 0", "100000", "-1 100000"}) {
    Write("/sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(Quota(), kNone) << text;
  }
}

// A parent's quota holds for its groups.
TEST_F(ControlGroupTest, Version2OfParents) {
  MountVersion2("/", "/user/service");
  Write("/sys/fs/cgroup/user/service/cpu.max", "800000 100000\n");
  EXPECT_EQ(Quota(), 8.0);
  Write("/sys/fs/cgroup/user/cpu.max", "300000 100000\n");
  EXPECT_EQ(Quota(), 3.0);
  Write("/sys/fs/cgroup/user/service/cpu.max", "50000 100000\n");
  EXPECT_EQ(Quota(), 0.5);
}

TEST_F(ControlGroupTest, Version1) {
  MountVersion1("/", "/jobs/7");
  const std::string folder = "/sys/fs/cgroup/cpu,cpuacct";
  Write(folder + "/jobs/7/cpu.cfs_quota_us", "-1\n");
  Write(folder + "/jobs/7/cpu.cfs_period_us", "50000\n");
  EXPECT_EQ(Quota(), kNone);
  Write(folder + "/jobs/7/cpu.cfs_quota_us", "200000\n");
  EXPECT_EQ(Quota(), 4.0);
  Write(folder + "/jobs/cpu.cfs_quota_us", "150000\n");
  Write(folder + "/jobs/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Quota(), 1.5);
}

// A container sees its own group where the hierarchy is mounted, and may know
// its group by the name that it has outside.
TEST_F(ControlGroupTest, Containers) {
  MountVersion1("/docker/1f2e", "/docker/1f2e/inner");
  const std::string folder = "/sys/fs/cgroup/cpu,cpuacct";
  Write(folder + "/cpu.cfs_quota_us", "200000\n");
  Write(folder + "/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Quota(), 2.0);
  Write(folder + "/inner/cpu.cfs_quota_us", "100000\n");
  Write(folder + "/inner/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Quota(), 1.0);
  MountVersion2("/docker/1f2e", "/docker/1f2e");
  Write("/sys/fs/cgroup/cpu.max", "700000 100000\n");
  EXPECT_EQ(Quota(), 7.0);
}

TEST_F(ControlGroupTest, Memory) {
  EXPECT_EQ(Memory(), 0);
  Write("/proc/meminfo",
        "MemTotal:       16000 kB\nMemFree:  5 kB\nMemAvailable:    8000 kB\n");
  EXPECT_EQ(Memory(), 8000 * 1024);
  MountVersion2("/", "/user/service");
  Write("/sys/fs/cgroup/user/memory.max", "max\n");
  Write("/sys/fs/cgroup/user/memory.current", "100\n");
  EXPECT_EQ(Memory(), 8000 * 1024);
  Write("/sys/fs/cgroup/user/memory.max", "4096\n");
  EXPECT_EQ(Memory(), 3996);
  Write("/sys/fs/cgroup/user/service/memory.max", "2048\n");
  Write("/sys/fs/cgroup/user/service/memory.current", "3000\n");
  EXPECT_EQ(Memory(), 0);
}

TEST_F(ControlGroupTest, MemoryOfVersion1) {
  Write("/proc/meminfo", "MemAvailable:    8000 kB\n");
  Write("/proc/self/mountinfo",
        "32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  Write("/proc/self/cgroup", "3:memory:/jobs\n");
  const std::string folder = "/sys/fs/cgroup/memory/jobs";
  Write(folder + "/memory.limit_in_bytes", "9223372036854771712\n");
  Write(folder + "/memory.usage_in_bytes", "1000\n");
  EXPECT_EQ(Memory(), 8000 * 1024);
  Write(folder + "/memory.limit_in_bytes", "5000\n");
  EXPECT_EQ(Memory(), 4000);
}

TEST(HostProcessors, MemoryOfThisMachine) { EXPECT_GT(FreeHostMemory(""), 0); }

// A thread that may run on one processor alone.
TEST(HostProcessors, Affinity) {
  cpu_set_t all;
  if (sched_getaffinity(0, sizeof(all), &all) != 0) {
    GTEST_SKIP() << "skipped: more processors than cpu_set_t holds";
  }
  const double quota = std::ceil(ControlGroupQuota(""));
  EXPECT_EQ(NumUsableProcessors(),
            std::max(1.0, std::min<double>(CPU_COUNT(&all), quota)));
  int num = 0;
  std::thread thread([&] {
    int processor = 0;
    while (!CPU_ISSET(processor, &all)) {
      ++processor;
    }
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    num = NumUsableProcessors();
  });
  thread.join();
  EXPECT_EQ(num, 1);
}

}  // namespace
}  // namespace ceres_ext::kernels
