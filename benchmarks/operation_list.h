// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The measurements of operations_benchmark.
#ifndef CERES_EXT_BENCHMARKS_OPERATION_LIST_H_
#define CERES_EXT_BENCHMARKS_OPERATION_LIST_H_

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/traffic.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/ops/vectors.h"

namespace ceres_ext {

#define OK_OR_EXIT(expression)                                                 \
  do {                                                                         \
    const ::ceres_ext::kernels::Status status_ = expression;                   \
    if (!status_.ok()) {                                                       \
      std::fprintf(                                                            \
          stderr, "%s:%d: %s\n", __FILE__, __LINE__, status_.message.c_str()); \
      std::exit(1);                                                            \
    }                                                                          \
  } while (false)

// Arrays in the memory of a machine, freed together.
template <typename Machine>
class Arrays {
 public:
  explicit Arrays(Machine* machine) : machine_(machine) {}

  template <typename T>
  T* Allocate(int64_t n) {
    auto buffer = std::make_shared<typename Machine::template Buffer<T>>();
    OK_OR_EXIT(machine_->Allocate(n, buffer.get()));
    buffers_.push_back(buffer);
    return buffer->data();
  }
  template <typename T>
  T* Upload(const std::vector<T>& values) {
    const int64_t n = static_cast<int64_t>(values.size());
    T* const data = Allocate<T>(n);
    OK_OR_EXIT(machine_->Upload(n, values.data(), data));
    return data;
  }

 private:
  Machine* machine_;
  std::vector<std::shared_ptr<void>> buffers_;
};

// An operation, and the bytes that must cross memory (each input read once,
// each output written once, unless GetBytes of its parameters says otherwise).
struct Operation {
  std::string name;
  double bytes;
  std::function<kernels::Status()> run;
  double flops = 0.0;  // 0: not counted
};

// Its operands must outlive the list.
template <typename Machine>
class OperationList {
 public:
  explicit OperationList(Machine* machine) : machine_(machine) {}

  void Add(const std::string& name,
           double bytes,
           std::function<kernels::Status()> run,
           double flops = 0.0) {
    operations_.push_back({name, bytes, std::move(run), flops});
  }
  // By its parameters, as they are now.
  template <typename Params>
  void Add(const std::string& name, const Params& params) {
    Add(name,
        static_cast<double>(GetBytes(params)),
        [params, machine = machine_] { return Run(params, machine); });
  }

  const std::vector<Operation>& operations() const { return operations_; }

 private:
  Machine* machine_;
  std::vector<Operation> operations_;
};

// Runs operations in their order and keeps a row of each.
template <typename Machine>
class Report {
 public:
  explicit Report(Machine* machine) : machine_(machine) { MeasureCopy(); }

  void Measure(const OperationList<Machine>& list) {
    for (const Operation& operation : list.operations()) {
      Measure(operation);
    }
  }

  // A row of other figures, as the members of a JSON object.
  void Add(const std::string& row) { rows_.push_back("    {" + row + "}"); }

  // head: members of the record before the rows.
  void WriteJson(const std::string& head, const char* path) const {
    std::FILE* file = std::fopen(path, "w");
    if (file == nullptr) {
      std::fprintf(stderr, "Can't write %s.\n", path);
      std::exit(1);
    }
    std::fprintf(file, "{\n%s  \"results\": [\n", head.c_str());
    for (size_t i = 0; i < rows_.size(); ++i) {
      std::fprintf(
          file, "%s%s\n", rows_[i].c_str(), i + 1 < rows_.size() ? "," : "");
    }
    std::fprintf(file, "  ]\n}\n");
    std::fclose(file);
  }

 private:
  static constexpr int kRuns = 9;
  // Marks that the solver leaves to its caller (host_machine.h).
  enum Mark { kBegin = 4, kEnd = 5 };

  // The median of kRuns runs after one, between marks: events on a device.
  void Measure(const Operation& operation) {
    OK_OR_EXIT(operation.run());
    OK_OR_EXIT(machine_->Synchronize());
    std::vector<double> times;
    for (int i = 0; i < kRuns; ++i) {
      OK_OR_EXIT(machine_->RecordMark(kBegin));
      OK_OR_EXIT(operation.run());
      OK_OR_EXIT(machine_->RecordMark(kEnd));
      OK_OR_EXIT(machine_->Synchronize());
      times.push_back(1e3 * machine_->SecondsBetweenMarks(kBegin, kEnd));
    }
    std::sort(times.begin(), times.end());
    const double ms = times[times.size() / 2];
    const double rate = 1e-6 * operation.bytes / ms;  // GB/s
    if (copy_rate_ == 0.0) {
      copy_rate_ = rate;
    }
    const double share = 100 * rate / copy_rate_;
    std::printf("%-52s %9.4f ms (%.4f to %.4f) %7.3f GB %6.1f GB/s %4.0f %%",
                operation.name.c_str(),
                ms,
                times.front(),
                times.back(),
                1e-9 * operation.bytes,
                rate,
                share);
    if (operation.flops > 0.0) {
      std::printf(" %7.2f GFLOP %6.2f TFLOP/s",
                  1e-9 * operation.flops,
                  1e-9 * operation.flops / ms);
    }
    std::printf("\n");
    std::fflush(stdout);
    char row[512];
    std::snprintf(row,
                  sizeof(row),
                  "\"name\": \"%s\", \"ms\": %.5f, \"min_ms\": %.5f, "
                  "\"max_ms\": %.5f, \"bytes\": %.0f, \"percent_of_copy\": "
                  "%.1f, \"flops\": %.0f",
                  operation.name.c_str(),
                  ms,
                  times.front(),
                  times.back(),
                  operation.bytes,
                  share,
                  operation.flops);
    Add(row);
  }

  // First: the rate that others are a share of.
  void MeasureCopy() {
    const int64_t n = int64_t{1} << 27;
    Arrays<Machine> arrays(machine_);
    double* const x = arrays.template Allocate<double>(n);
    OK_OR_EXIT(machine_->SetZero(n, x));
    const kernels::CopyParams copy{n, x, arrays.template Allocate<double>(n)};
    Measure({"copy 1 GiB", 16.0 * n, [&] { return Run(copy, machine_); }});
  }

  Machine* machine_;
  double copy_rate_ = 0.0;
  std::vector<std::string> rows_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_BENCHMARKS_OPERATION_LIST_H_
