// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/machine/host_processors.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <fstream>
#include <limits>
#include <sstream>
#include <thread>
#include <vector>

#ifdef __linux__
#include <sched.h>
#endif

namespace ceres_ext::kernels {
namespace {

constexpr double kNoQuota = std::numeric_limits<double>::infinity();

// Processors in the affinity mask of the calling thread; 0: not known.
int NumAffineProcessors() {
#ifdef __linux__
  // The kernel refuses a mask that is smaller than its own.
  for (int num_bits = CPU_SETSIZE; num_bits <= (1 << 16); num_bits *= 2) {
    std::vector<cpu_set_t> mask(num_bits / CPU_SETSIZE);
    const size_t size = mask.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, size, mask.data()) == 0) {
      return CPU_COUNT_S(size, mask.data());
    }
  }
#endif
  return 0;
}

bool HasItem(const std::string& list, const std::string& item) {
  std::istringstream items(list);
  for (std::string found; std::getline(items, found, ',');) {
    if (found == item) {
      return true;
    }
  }
  return false;
}

// The folder of the process's group in the hierarchy that has the controller
// ("" of version 2), from the hierarchy's root on: /proc/self/cgroup has lines
//   4:cpu,cpuacct:/folder
//   0::/folder
std::string GroupFolder(const std::string& root,
                        const std::string& controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second =
        first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controller.empty() ? controllers.empty()
                           : HasItem(controllers, controller)) {
      return line.substr(second + 1);
    }
  }
  return "";
}

// Quota of one group; none where a file is missing or says so.
double QuotaOfVersion1(const std::string& folder) {
  double quota = -1.0;
  double period = 0.0;
  std::ifstream(folder + "/cpu.cfs_quota_us") >> quota;
  std::ifstream(folder + "/cpu.cfs_period_us") >> period;
  return quota > 0.0 && period > 0.0 ? quota / period : kNoQuota;
}
double QuotaOfVersion2(const std::string& folder) {
  // "150000 100000", "max 100000"
  double quota = 0.0;
  double period = 0.0;
  std::ifstream(folder + "/cpu.max") >> quota >> period;
  return quota > 0.0 && period > 0.0 ? quota / period : kNoQuota;
}

// Memory that one group leaves; all if a file is missing or says so.
double MemoryLeft(const std::string& folder,
                  const char* most_name,
                  const char* used_name) {
  double most = 0.0;
  double used = 0.0;
  std::ifstream of_most(folder + most_name);
  std::ifstream of_used(folder + used_name);
  return of_most >> most && of_used >> used ? std::max(most - used, 0.0)
                                            : kNoQuota;
}
double MemoryOfVersion1(const std::string& folder) {
  return MemoryLeft(folder, "/memory.limit_in_bytes", "/memory.usage_in_bytes");
}
double MemoryOfVersion2(const std::string& folder) {
  return MemoryLeft(folder, "/memory.max", "/memory.current");
}

// The least of the group and its parents, up to the hierarchy's mount point.
template <typename Limit>
double SmallestLimit(const std::string& mount_point,
                     std::string group,
                     const Limit& limit_of) {
  double limit = kNoQuota;
  for (;;) {
    limit = std::min(limit, limit_of(mount_point + group));
    const size_t slash = group.find_last_of('/');
    if (slash == std::string::npos) {
      return limit;
    }
    group.resize(slash);
  }
}

// The smallest limit of the control groups of the process and of their parents.
// /proc/self/mountinfo has lines
//   id parent device folder mount_point options [tag...] - type source options
// where `folder`, of the hierarchy, is the root of what is mounted: in a
// container the group of the container.
template <typename Limit>
double ControlGroupLimit(const std::string& root,
                         const char* controller,
                         const Limit& of_version_1,
                         const Limit& of_version_2) {
  double limit = kNoQuota;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string skipped;
    std::string mounted;
    std::string mount_point;
    std::string type;
    std::string options;
    fields >> skipped >> skipped >> skipped >> mounted >> mount_point;
    while (fields >> skipped && skipped != "-") {
    }
    fields >> type >> skipped >> options;
    const bool is_version_2 = type == "cgroup2";
    if (!is_version_2 && !(type == "cgroup" && HasItem(options, controller))) {
      continue;
    }
    std::string group = GroupFolder(root, is_version_2 ? "" : controller);
    if (mounted != "/" && (group + '/').rfind(mounted + '/', 0) == 0) {
      group.erase(0, mounted.size());
    }
    limit = std::min(limit,
                     SmallestLimit(root + mount_point,
                                   group,
                                   is_version_2 ? of_version_2 : of_version_1));
  }
  return limit;
}

}  // namespace

double ControlGroupQuota(const std::string& root) {
  return ControlGroupLimit(root, "cpu", QuotaOfVersion1, QuotaOfVersion2);
}

int64_t FreeHostMemory(const std::string& root) {
  double free = 0.0;
  // "MemAvailable:   24576 kB"
  std::ifstream memory(root + "/proc/meminfo");
  for (std::string line; std::getline(memory, line);) {
    std::istringstream fields(line);
    std::string name;
    double kib = 0.0;
    if (fields >> name >> kib && name == "MemAvailable:") {
      free = 1024.0 * kib;
    }
  }
  return static_cast<int64_t>(std::min(
      free,
      ControlGroupLimit(root, "memory", MemoryOfVersion1, MemoryOfVersion2)));
}

int NumUsableProcessors() {
  int num = 0;
  try {
    num = NumAffineProcessors();
    if (num == 0) {
      num = static_cast<int>(std::thread::hardware_concurrency());
    }
    static const double quota = ControlGroupQuota("");
    if (quota < num) {
      num = static_cast<int>(std::ceil(quota));
    }
  } catch (const std::exception&) {
    // No memory for the names of files. The quota is read again next time.
  }
  return std::max(1, num);
}

}  // namespace ceres_ext::kernels
