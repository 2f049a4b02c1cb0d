// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/front/option_table.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "cuda_kernels/base/enum_value.h"

namespace ceres_ext {
namespace {

ValueNames Names(bool) { return {"FALSE", "TRUE"}; }
ValueNames Names(DeviceType) { return {"AUTO", "HOST", "CUDA"}; }
ValueNames Names(JacobianType) { return {"AUTO", "STORED", "RECOMPUTED"}; }
ValueNames Names(PrecisionType) { return {"DOUBLE", "MIXED"}; }
ValueNames Names(PreconditionerBlocksType) { return {"SINGLE", "MERGED"}; }
ValueNames Names(ForcingSequenceType) {
  return {"AUTO", "CONSTANT", "MODEL_COST", "EISENSTAT_WALKER"};
}
ValueNames Names(SchurFactorizationType) { return {"AUTO", "DENSE", "SPARSE"}; }
ValueNames Names(FallbackType) { return {"TO_CERES", "REFUSE"}; }
// Except AS_GIVEN and AUTO these are Ceres's own.
ValueNames Names(LinearSolverChoice) {
  return {"AS_GIVEN", "ITERATIVE_SCHUR", "CGNR", "AUTO"};
}
ValueNames Names(PreconditionerChoice) {
  return {"AS_GIVEN",
          "IDENTITY",
          "JACOBI",
          "SCHUR_JACOBI",
          "SCHUR_POWER_SERIES_EXPANSION",
          "TWO_LEVEL",
          "AUTO"};
}
ValueNames Names(CudaGraphType) { return {"AUTO", "ON", "OFF"}; }
ValueNames Names(MachineRatesType) { return {"MEASURED", "BUILT_IN"}; }

bool HasName(const ValueNames& names, int value) {
  return value >= 0 && value < static_cast<int>(names.size());
}

// As users write it.
std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  return text;
}

// -1 if it is none of the names, in any case.
int FindName(const ValueNames& names, std::string text) {
  text = Lower(std::move(text));
  const auto found =
      std::find_if(names.begin(), names.end(), [&text](const char* name) {
        return Lower(name) == text;
      });
  return found == names.end() ? -1 : static_cast<int>(found - names.begin());
}

std::string Join(const ValueNames& names) {
  std::string list;
  for (const char* name : names) {
    list += (list.empty() ? "" : ", ") + Lower(name);
  }
  return list;
}

template <typename Number>
std::string NumberText(Number value) {
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof(text), value).ptr);
}

std::string AcceptedBy(const EnumField& field, double /*min*/) {
  return Join(field.names);
}

template <typename T>
std::string AcceptedBy(T Options::*, double min) {
  if constexpr (std::is_same_v<T, bool>) {
    return Join(Names(bool()));
  } else if constexpr (std::is_same_v<T, std::string>) {
    return "a text";
  } else {
    return std::isfinite(min) ? "a number from " + NumberText(min) + " to " +
                                    NumberText(std::numeric_limits<T>::max())
                              : "a finite number";
  }
}

std::string TextOf(const EnumField& field, const Options& options) {
  const int value = field.get(options);
  return HasName(field.names, value) ? Lower(field.names[value])
                                     : std::to_string(value);
}

template <typename T>
std::string TextOf(T Options::*member, const Options& options) {
  if constexpr (std::is_same_v<T, bool>) {
    return Lower(Names(bool())[options.*member ? 1 : 0]);
  } else if constexpr (std::is_same_v<T, std::string>) {
    return options.*member;
  } else {
    return NumberText(options.*member);
  }
}

bool Read(const EnumField& field, const std::string& text, Options* options) {
  const int value = FindName(field.names, text);
  if (value >= 0) {
    field.set(value, options);
  }
  return value >= 0;
}

template <typename T>
bool Read(T Options::*member, const std::string& text, Options* options) {
  if constexpr (std::is_same_v<T, bool>) {
    const int value = FindName(Names(bool()), text);
    options->*member = value == 1;
    return value >= 0;
  } else if constexpr (std::is_same_v<T, std::string>) {
    options->*member = text;
    return true;
  } else {
    const char* end = text.data() + text.size();
    const auto result = std::from_chars(text.data(), end, options->*member);
    return result.ec == std::errc() && result.ptr == end;
  }
}

bool IsAccepted(const EnumField& field, double /*min*/, const Options& o) {
  return HasName(field.names, field.get(o));
}

template <typename T>
bool IsAccepted(T Options::*member, double min, const Options& options) {
  if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::string>) {
    return true;
  } else {
    const auto value = static_cast<double>(options.*member);
    return std::isfinite(value) && value >= min;
  }
}

std::string Fault(const OptionRow& row, const std::string& found) {
  const bool has_names = std::holds_alternative<EnumField>(row.field) ||
                         std::holds_alternative<bool Options::*>(row.field);
  return std::string(row.name) + ": expected " + (has_names ? "one of " : "") +
         row.Accepted() + ", found " + found;
}

template <auto kMember>
EnumField Enum() {
  using Type = std::decay_t<decltype(std::declval<Options>().*kMember)>;
  return {Names(Type()),
          [](const Options& options) {
            return kernels::EnumValue(options.*kMember);
          },
          [](int value, Options* options) {
            options->*kMember = static_cast<Type>(value);
          }};
}

template <typename Enum>
const char* ToString(Enum value) {
  const ValueNames names = Names(Enum());
  return HasName(names, value) ? names[value] : "UNKNOWN";
}

template <typename Enum>
bool FromString(std::string text, Enum* value) {
  const int found = FindName(Names(Enum()), std::move(text));
  if (found >= 0) {
    *value = static_cast<Enum>(found);
  }
  return found >= 0;
}

}  // namespace

const std::vector<OptionRow>& OptionTable() {
  constexpr const char* kSolver = "Solver";
  constexpr const char* kLinear = "Linear solver";
  constexpr double kAnyFinite = -std::numeric_limits<double>::infinity();
  // clang-format off
  static const std::vector<OptionRow> kTable = {
    {"enabled", &Options::enabled, kSolver,
     "If false, Ceres alone solves."},
    {"device", Enum<&Options::device>(), kSolver,
     "The machine that solves; auto takes a CUDA device if one is found and "
     "is estimated to be faster."},
    {"batch_evaluation", &Options::batch_evaluation, kSolver,
     "If false, Ceres evaluates the cost functions of this library too."},
    {"jacobian", Enum<&Options::jacobian>(), kSolver,
     "Blocks of the Jacobian are stored once per step or recomputed in every "
     "product; auto recomputes them on a device where that is faster."},
    {"precision", Enum<&Options::precision>(), kSolver,
     "With mixed, a device keeps the blocks of each observation, and the rows "
     "of windows, in float and all else in double."},
    {"preconditioner_blocks", Enum<&Options::preconditioner_blocks>(), kLinear,
     "With merged, parameter blocks that occur only together are one block of "
     "JACOBI and SCHUR_JACOBI."},
    {"forcing_sequence", Enum<&Options::forcing_sequence>(), kLinear,
     "The accuracy of PCG: eta (constant), tighter where a step removes most "
     "of the cost (model_cost), or as fast as the gradient falls "
     "(eisenstat_walker)."},
    {"model_cost_tolerance", &Options::model_cost_tolerance, kLinear,
     "If above 0 and eta is below 0.1, PCG stops at 0.1 once it can gain less "
     "than this times the cost.", kAnyFinite},
    {"schur_factorization", Enum<&Options::schur_factorization>(), kLinear,
     "The matrix that is factorised for DENSE_SCHUR and SPARSE_SCHUR; "
     "on a device sparse requires cuDSS; auto takes the faster one."},
    {"fallback", Enum<&Options::fallback>(), kSolver,
     "Stock Ceres solves a problem that this library does not support "
     "(to_ceres), or the solve fails (refuse)."},
    {"linear_solver", Enum<&Options::linear_solver>(), kLinear,
     "The linear solver that replaces the program's linear_solver_type; auto "
     "takes for each step PCG or an exact step, whichever should be faster."},
    {"preconditioner", Enum<&Options::preconditioner>(), kLinear,
     "The preconditioner that replaces the program's preconditioner_type if "
     "the linear solver is iterative."},
    {"report", &Options::report, kSolver,
     "The file that each solve appends a line of JSON to, or stderr; no "
     "report if empty."},
    {"cuda_device", &Options::cuda_device, kSolver,
     "The number of the CUDA device."},
    {"cuda_devices", &Options::cuda_devices, kSolver,
     "Several CUDA devices that solve a problem or a batch together, 0+1 or "
     "all; cuda_device alone if empty."},
    {"cuda_memory_limit_bytes", &Options::cuda_memory_limit_bytes, kSolver,
     "Most bytes that all solves of the process may hold on the device at "
     "once; 0 means no limit."},
    {"cuda_graph", Enum<&Options::cuda_graph>(), kSolver,
     "Launches of a step that come again run as CUDA graphs, and so does "
     "PCG, with auto after a hundred iterations; auto has none if a profiler, "
     "sanitizer or debugger is found."},
    {"machine_rates", Enum<&Options::machine_rates>(), kSolver,
     "The rates of device and host by which auto chooses: measured once and "
     "kept in the user's cache folder, or built_in."},
  };
  // clang-format on
  return kTable;
}

std::string OptionRow::Accepted() const {
  return std::visit([&](const auto& f) { return AcceptedBy(f, min); }, field);
}

std::string OptionRow::Get(const Options& options) const {
  return std::visit([&](const auto& f) { return TextOf(f, options); }, field);
}

bool OptionRow::Set(const std::string& text,
                    Options* options,
                    std::string* error) const {
  if (!std::visit([&](const auto& f) { return Read(f, text, options); },
                  field)) {
    *error = Fault(*this, "'" + text + "'");
    return false;
  }
  return Check(*options, error);
}

bool OptionRow::Check(const Options& options, std::string* error) const {
  if (!std::visit([&](const auto& f) { return IsAccepted(f, min, options); },
                  field)) {
    *error = Fault(*this, Get(options));
    return false;
  }
  return true;
}

#define CERES_EXT_NAMES(Enum)                                        \
  const char* Enum##ToString(Enum value) { return ToString(value); } \
  bool StringTo##Enum(std::string text, Enum* value) {               \
    return FromString(std::move(text), value);                       \
  }
CERES_EXT_NAMES(DeviceType)
CERES_EXT_NAMES(JacobianType)
CERES_EXT_NAMES(PrecisionType)
CERES_EXT_NAMES(PreconditionerBlocksType)
CERES_EXT_NAMES(LinearSolverChoice)
CERES_EXT_NAMES(PreconditionerChoice)
CERES_EXT_NAMES(ForcingSequenceType)
CERES_EXT_NAMES(CudaGraphType)
CERES_EXT_NAMES(MachineRatesType)
CERES_EXT_NAMES(SchurFactorizationType)
CERES_EXT_NAMES(FallbackType)
#undef CERES_EXT_NAMES

}  // namespace ceres_ext
