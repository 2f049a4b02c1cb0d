// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/plan/kept_rates.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "ceres_ext/base/machines.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_context.h"
#include "cuda_kernels/machine/cuda_process.h"
#include "cuda_kernels/machine/cuda_rates.h"
#include "cuda_kernels/machine/host_processors.h"
#include "cuda_kernels/machine/host_rates.h"

namespace ceres_ext {
namespace {

using kernels::MachineRates;

constexpr char kFirstLine[] = "Rates of a machine, measured by Ceres Ext";
constexpr char kLastLine[] = "end";

// A name of the key that fits any file system: its FNV-1a hash.
std::string FileName(const std::string& key) {
  uint64_t hash = 14695981039346656037u;
  for (const char c : key) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  }
  char name[32];
  std::snprintf(name,
                sizeof(name),
                "rates-%016llx",
                static_cast<unsigned long long>(hash));
  return name;
}

// False if the file is missing, of another key, or broken.
bool ReadNumbers(const std::string& path,
                 const std::string& key,
                 size_t count,
                 std::vector<double>* numbers) {
  std::ifstream file(path);
  std::string line;
  numbers->clear();
  if (!std::getline(file, line) || line != kFirstLine ||
      !std::getline(file, line) || line != key) {
    return false;
  }
  while (numbers->size() < count && std::getline(file, line)) {
    double number = 0.0;
    const char* const end = line.data() + line.size();
    const auto result = std::from_chars(line.data(), end, number);
    if (result.ec != std::errc() || result.ptr != end ||
        !std::isnormal(number) || number < 0.0) {
      break;
    }
    numbers->push_back(number);
  }
  if (numbers->size() == count && std::getline(file, line) &&
      line == kLastLine && file.peek() == std::ifstream::traits_type::eof()) {
    return true;
  }
  numbers->clear();
  return false;
}

std::string TextOfNumbers(const std::string& key,
                          const std::vector<double>& numbers) {
  std::string text = std::string(kFirstLine) + "\n" + key + "\n";
  for (const double number : numbers) {
    char digits[32];
    text.append(digits,
                std::to_chars(digits, digits + sizeof(digits), number).ptr);
    text += '\n';
  }
  return text + kLastLine + "\n";
}

// Makes the folder and those above it. False with errno.
bool MakeFolder(const std::string& folder) {
  for (size_t end = folder.find('/', 1);; end = folder.find('/', end + 1)) {
    const std::string part = folder.substr(0, end);
    if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST &&
        (end == std::string::npos || access(part.c_str(), X_OK) != 0)) {
      return false;
    }
    if (end == std::string::npos) {
      return true;
    }
  }
}

// A file of its own in the folder that becomes the kept one when it is whole.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& path) : path_(path + ".XXXXXX") {
    file_ = mkostemp(path_.data(), O_CLOEXEC);
  }
  ~TemporaryFile() {
    if (file_ >= 0) {
      close(file_);
      unlink(path_.c_str());
    }
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  bool is_open() const { return file_ >= 0; }
  bool WriteTo(const std::string& path, const std::string& text) {
    return write(file_, text.data(), text.size()) ==
               static_cast<ssize_t>(text.size()) &&
           rename(path_.c_str(), path.c_str()) == 0;
  }

 private:
  std::string path_;
  int file_;
};

// The folder is one process's at a time. One that does not end soon, or a file
// system without locks, is not waited for.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder)
      : folder_(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    constexpr int kMostTries = 300;
    for (int i = 0; i < kMostTries && folder_ >= 0; ++i) {
      if (flock(folder_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) {
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  ~FolderLock() {
    if (folder_ >= 0) {
      close(folder_);
    }
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  const int folder_;
};

// "AMD EPYC 9654 96-Core Processor, 16 processors"
std::string HostName() {
  std::ifstream file("/proc/cpuinfo");
  std::string name;
  for (std::string line; name.empty() && std::getline(file, line);) {
    for (const char* field : {"model name", "CPU part"}) {
      const size_t colon = line.find(": ");
      if (line.rfind(field, 0) == 0 && colon != std::string::npos) {
        name = line.substr(colon + 2);
      }
    }
  }
  utsname system = {};
  if (name.empty() && uname(&system) == 0) {
    name = system.machine;
  }
  return name + ", " + std::to_string(kernels::NumUsableProcessors()) +
         " processors";
}

std::string OfThisLibrary() {
  return std::string("; Ceres Ext ") + CERES_EXT_VERSION;
}

// A part of the rates that a file has.
struct KnownPart {
  MachineRates rates;
  std::string why_not;  // The rates are the default ones; a clause.
};

KnownPart KnowHost() {
  KnownPart part;
  std::vector<double> numbers;
  const auto measure = [](std::vector<double>* found, std::string* why) {
    MachineRates rates;
    if (!kernels::MeasureHostRates(&rates)) {
      *why = "there is no memory to measure the host";
      return false;
    }
    *found = {rates.host_values_per_second, rates.host_bytes_per_second};
    return true;
  };
  if (KeepNumbers(CacheFolder(),
                  "host " + HostName() + OfThisLibrary(),
                  /*count=*/2,
                  measure,
                  &numbers,
                  &part.why_not)) {
    part.rates.host_values_per_second = numbers[0];
    part.rates.host_bytes_per_second = numbers[1];
  }
  return part;
}

KnownPart KnowDevice([[maybe_unused]] const Options& options) {
  KnownPart part;
  if constexpr (kHasCuda) {
    const int device = options.cuda_device;
    part.rates = kernels::RatesOfRatio(kernels::FloatToDoubleRatio(device));
    const std::string name = kernels::DriverDeviceName(device);
    if (name.empty()) {
      part.why_not = "the driver does not name the device";
      return part;
    }
    std::vector<double> numbers;
    const auto measure = [&](std::vector<double>* found, std::string* why) {
      const kernels::KeepCurrentContext keep;
      kernels::CudaContextOptions of_context;
      of_context.device = device;
      of_context.memory_limit = options.cuda_memory_limit_bytes;
      std::unique_ptr<kernels::CudaContext> context;
      MachineRates rates;
      kernels::Status status =
          kernels::CudaContext::Create(of_context, &context);
      if (status.ok()) {
        status = kernels::MeasureDeviceRates(context.get(), &rates);
      }
      if (!status.ok()) {
        *why = "the device can't be measured: " + status.message;
        return false;
      }
      *found = {rates.bytes_per_second,
                rates.launch_seconds,
                rates.float_fmas_per_second,
                rates.double_fmas_per_second};
      return true;
    };
    // Launches are the host's work too.
    if (KeepNumbers(CacheFolder(),
                    "device " + name + "; driver " + kernels::DriverVersion() +
                        "; host " + HostName() + OfThisLibrary(),
                    /*count=*/4,
                    measure,
                    &numbers,
                    &part.why_not)) {
      part.rates.bytes_per_second = numbers[0];
      part.rates.launch_seconds = numbers[1];
      part.rates.float_fmas_per_second = numbers[2];
      part.rates.double_fmas_per_second = numbers[3];
    }
  }
  return part;
}

// The parts that the process knows, each asked for once. Not destroyed: threads
// may solve when the process ends.
class ProcessRates {
 public:
  static ProcessRates& Get() {
    static auto* const rates = new ProcessRates;
    return *rates;
  }
  const KnownPart& Host() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!host_) {
      host_ = KnowHost();
    }
    return *host_;
  }
  const KnownPart& Device(const Options& options) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto known = devices_.find(options.cuda_device);
    return known != devices_.end()
               ? known->second
               : devices_.emplace(options.cuda_device, KnowDevice(options))
                     .first->second;
  }

 private:
  std::mutex mutex_;
  std::optional<KnownPart> host_;
  std::map<int, KnownPart> devices_;
};

bool AreMeasured(const Options& options) {
  return kHasCuda && options.machine_rates == MACHINE_RATES_MEASURED &&
         options.communicator == nullptr;
}

void SetHost(const MachineRates& from, MachineRates* rates) {
  rates->host_values_per_second = from.host_values_per_second;
  rates->host_bytes_per_second = from.host_bytes_per_second;
}

}  // namespace

MachineRates RatesOf(const Options& options) {
  if constexpr (!kHasCuda) {
    return {};
  } else {
    if (!AreMeasured(options)) {
      return kernels::RatesOfRatio(
          kernels::FloatToDoubleRatio(options.cuda_device));
    }
    MachineRates rates = ProcessRates::Get().Device(options).rates;
    if (kernels::HasDriverFiles()) {
      SetHost(ProcessRates::Get().Host().rates, &rates);
    }
    return OnRungs(rates);
  }
}

MachineRates HostRatesOf(const Options& options, double host_seconds) {
  // A host that is slower than this times is not taken for one.
  constexpr double kMostSlower = 16.0;
  constexpr double kStartOfCuda = 0.2;
  MachineRates rates;
  if (AreMeasured(options) && kMostSlower * host_seconds > kStartOfCuda &&
      kernels::HasDriverFiles()) {
    SetHost(ProcessRates::Get().Host().rates, &rates);
  }
  return OnRungs(rates);
}

RatesReport ReportRates(const Options& options) {
  RatesReport report;
  report.host = HostName();
  report.folder = CacheFolder();
  const KnownPart& host = ProcessRates::Get().Host();
  report.why_not_host = host.why_not;
  if constexpr (kHasCuda) {
    if (kernels::NumCudaDevices(&report.why_not_device) > 0) {
      const KnownPart& device = ProcessRates::Get().Device(options);
      report.device = kernels::DriverDeviceName(options.cuda_device);
      report.driver = kernels::DriverVersion();
      report.why_not_device = device.why_not;
      report.rates = device.rates;
    }
  } else {
    report.why_not_device = "this build has no CUDA";
  }
  SetHost(host.rates, &report.rates);
  return report;
}

std::string CacheFolder() {
  const auto absolute = [](const char* name) -> std::string {
    const char* const value = std::getenv(name);
    return value != nullptr && value[0] == '/' ? value : "";
  };
  const std::string cache = absolute("XDG_CACHE_HOME");
  if (!cache.empty()) {
    return cache + "/ceres_ext";
  }
  const std::string home = absolute("HOME");
  return home.empty() ? "" : home + "/.cache/ceres_ext";
}

bool KeepNumbers(const std::string& folder,
                 const std::string& key,
                 size_t count,
                 const std::function<bool(std::vector<double>* numbers,
                                          std::string* why)>& measure,
                 std::vector<double>* numbers,
                 std::string* why) {
  if (folder.empty()) {
    *why = "neither XDG_CACHE_HOME nor HOME is an absolute path";
    return false;
  }
  const std::string path = folder + "/" + FileName(key);
  if (ReadNumbers(path, key, count, numbers)) {
    return true;
  }
  if (kernels::IsUnderTool()) {
    *why = "a profiler, sanitizer or debugger runs the process";
    return false;
  }
  const auto not_written = [&] {
    *why = path + " can't be written: " + std::strerror(errno);
    return false;
  };
  if (!MakeFolder(folder)) {
    return not_written();
  }
  TemporaryFile file(path);
  if (!file.is_open()) {
    return not_written();
  }
  const FolderLock lock(folder);
  // Another process may have measured since.
  if (ReadNumbers(path, key, count, numbers)) {
    return true;
  }
  if (!measure(numbers, why)) {
    numbers->clear();
    return false;
  }
  if (!file.WriteTo(path, TextOfNumbers(key, *numbers))) {
    numbers->clear();
    return not_written();
  }
  return true;
}

}  // namespace ceres_ext
