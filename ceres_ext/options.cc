// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/options.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "cuda_kernels/base/enum_value.h"

namespace ceres_ext {
namespace {

template <typename Enum>
struct EnumName {
  Enum value;
  const char* name;
};

constexpr EnumName<DeviceType> kDeviceTypes[] = {
    {DEVICE_AUTO, "AUTO"}, {DEVICE_HOST, "HOST"}, {DEVICE_CUDA, "CUDA"}};
constexpr EnumName<JacobianType> kJacobianTypes[] = {
    {JACOBIAN_AUTO, "AUTO"},
    {JACOBIAN_STORED, "STORED"},
    {JACOBIAN_RECOMPUTED, "RECOMPUTED"}};
constexpr EnumName<PrecisionType> kPrecisionTypes[] = {
    {PRECISION_DOUBLE, "DOUBLE"}, {PRECISION_MIXED, "MIXED"}};
constexpr EnumName<PreconditionerBlocksType> kPreconditionerBlocksTypes[] = {
    {PRECONDITIONER_BLOCKS_SINGLE, "SINGLE"},
    {PRECONDITIONER_BLOCKS_MERGED, "MERGED"}};
constexpr EnumName<ForcingSequenceType> kForcingSequenceTypes[] = {
    {FORCING_SEQUENCE_AUTO, "AUTO"},
    {FORCING_SEQUENCE_CONSTANT, "CONSTANT"},
    {FORCING_SEQUENCE_MODEL_COST, "MODEL_COST"},
    {FORCING_SEQUENCE_EISENSTAT_WALKER, "EISENSTAT_WALKER"}};
constexpr EnumName<SchurFactorizationType> kSchurFactorizationTypes[] = {
    {SCHUR_FACTORIZATION_AUTO, "AUTO"},
    {SCHUR_FACTORIZATION_DENSE, "DENSE"},
    {SCHUR_FACTORIZATION_SPARSE, "SPARSE"}};
constexpr EnumName<CudaGraphType> kCudaGraphTypes[] = {
    {CUDA_GRAPH_AUTO, "AUTO"}, {CUDA_GRAPH_ON, "ON"}, {CUDA_GRAPH_OFF, "OFF"}};
constexpr EnumName<FallbackType> kFallbackTypes[] = {
    {FALLBACK_TO_CERES, "TO_CERES"}, {FALLBACK_REFUSE, "REFUSE"}};
// The strings of what is chosen are Ceres's own.
constexpr EnumName<LinearSolverChoice> kLinearSolverChoices[] = {
    {LINEAR_SOLVER_AS_GIVEN, "AS_GIVEN"},
    {LINEAR_SOLVER_ITERATIVE_SCHUR, "ITERATIVE_SCHUR"},
    {LINEAR_SOLVER_CGNR, "CGNR"}};
constexpr EnumName<PreconditionerChoice> kPreconditionerChoices[] = {
    {PRECONDITIONER_AS_GIVEN, "AS_GIVEN"},
    {PRECONDITIONER_IDENTITY, "IDENTITY"},
    {PRECONDITIONER_JACOBI, "JACOBI"},
    {PRECONDITIONER_SCHUR_JACOBI, "SCHUR_JACOBI"},
    {PRECONDITIONER_SCHUR_POWER_SERIES_EXPANSION,
     "SCHUR_POWER_SERIES_EXPANSION"}};
constexpr EnumName<bool> kBools[] = {{false, "FALSE"}, {true, "TRUE"}};

template <typename Enum, size_t kSize>
const char* ToString(const EnumName<Enum> (&names)[kSize], Enum value) {
  for (const auto& entry : names) {
    if (entry.value == value) {
      return entry.name;
    }
  }
  return "UNKNOWN";
}

template <typename Enum, size_t kSize>
bool FromString(const EnumName<Enum> (&names)[kSize],
                std::string text,
                Enum* value) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) {
    return static_cast<char>(std::toupper(c));
  });
  for (const auto& entry : names) {
    if (text == entry.name) {
      *value = entry.value;
      return true;
    }
  }
  return false;
}

// "auto, host": the accepted values, as a user writes them.
template <typename Enum, size_t kSize>
std::string Accepted(const EnumName<Enum> (&names)[kSize]) {
  std::string list;
  for (const auto& entry : names) {
    list += (list.empty() ? "" : ", ");
    for (const char* c = entry.name; *c != '\0'; ++c) {
      list += static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
    }
  }
  return list;
}

// "device = 7; expected one of: auto, host, cuda" in *error, where it is so.
template <typename Enum, size_t kSize>
bool CheckEnum(const EnumName<Enum> (&names)[kSize],
               const char* field,
               const Enum& given,
               std::string* error) {
  const int value = kernels::EnumValue(given);
  for (const auto& entry : names) {
    if (kernels::EnumValue(entry.value) == value) {
      return true;
    }
  }
  *error = std::string(field) + " = " + std::to_string(value) +
           "; expected one of: " + Accepted(names);
  return false;
}

template <typename Enum, size_t kSize>
bool SetField(const EnumName<Enum> (&names)[kSize],
              const std::string& key,
              const std::string& text,
              Enum* field,
              std::string* error) {
  if (FromString(names, text, field)) {
    return true;
  }
  *error =
      key + ": expected one of " + Accepted(names) + ", found '" + text + "'";
  return false;
}

// A decimal number without sign.
template <typename Integer>
bool SetNumber(const std::string& key,
               const std::string& text,
               Integer* field,
               std::string* error) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, *field);
  if (result.ec == std::errc() && result.ptr == end && *field >= 0) {
    return true;
  }
  *error = key + ": expected a number from 0 to " +
           std::to_string(std::numeric_limits<Integer>::max()) + ", found '" +
           text + "'";
  return false;
}

// A finite decimal number, as in "-1" or "1e-7".
bool SetDouble(const std::string& key,
               const std::string& text,
               double* field,
               std::string* error) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, *field);
  if (result.ec == std::errc() && result.ptr == end && std::isfinite(*field)) {
    return true;
  }
  *error = key + ": expected a finite number, found '" + text + "'";
  return false;
}

}  // namespace

bool Options::IsValid(std::string* error) const {
  std::string message;
  if (!CheckEnum(kDeviceTypes, "device", device, &message) ||
      !CheckEnum(kJacobianTypes, "jacobian", jacobian, &message) ||
      !CheckEnum(kPrecisionTypes, "precision", precision, &message) ||
      !CheckEnum(kPreconditionerBlocksTypes,
                 "preconditioner_blocks",
                 preconditioner_blocks,
                 &message) ||
      !CheckEnum(kForcingSequenceTypes,
                 "forcing_sequence",
                 forcing_sequence,
                 &message) ||
      !CheckEnum(kSchurFactorizationTypes,
                 "schur_factorization",
                 schur_factorization,
                 &message) ||
      !CheckEnum(kCudaGraphTypes, "cuda_graph", cuda_graph, &message) ||
      !CheckEnum(kFallbackTypes, "fallback", fallback, &message) ||
      !CheckEnum(
          kLinearSolverChoices, "linear_solver", linear_solver, &message) ||
      !CheckEnum(
          kPreconditionerChoices, "preconditioner", preconditioner, &message)) {
    // It says which.
  } else if (jacobian == JACOBIAN_RECOMPUTED && !batch_evaluation) {
    message =
        "jacobian = RECOMPUTED needs this library's evaluation; it needs "
        "batch_evaluation = true";
  } else if (linear_solver == LINEAR_SOLVER_CGNR &&
             preconditioner == PRECONDITIONER_SCHUR_JACOBI) {
    message =
        "preconditioner = SCHUR_JACOBI needs a Schur complement; with "
        "linear_solver = CGNR expected IDENTITY or JACOBI";
  } else if (!std::isfinite(model_cost_tolerance)) {
    message = "model_cost_tolerance = " + std::to_string(model_cost_tolerance) +
              "; expected a finite number";
  } else if (cuda_device < 0) {
    message = "cuda_device = " + std::to_string(cuda_device) +
              "; expected a number from 0 on";
  } else if (cuda_memory_limit_bytes < 0) {
    message =
        "cuda_memory_limit_bytes = " + std::to_string(cuda_memory_limit_bytes) +
        "; expected 0 (no limit) or more";
  }
  if (!message.empty() && error != nullptr) {
    *error = message;
  }
  return message.empty();
}

bool ParseOptions(const std::string& settings,
                  Options* options,
                  std::string* error) {
  std::string ignored;
  std::string* message = error != nullptr ? error : &ignored;
  Options parsed = *options;
  std::set<std::string> seen;
  size_t begin = 0;
  while (begin < settings.size()) {
    const size_t end = std::min(settings.find(',', begin), settings.size());
    const std::string item = settings.substr(begin, end - begin);
    if (end + 1 == settings.size()) {
      *message = "'" + settings + "' ends with a comma";
      return false;
    }
    begin = end + 1;

    const size_t equals = item.find('=');
    if (equals == std::string::npos) {
      *message = "'" + item + "' is not of the form key=value";
      return false;
    }
    const std::string key = item.substr(0, equals);
    const std::string value = item.substr(equals + 1);
    if (!seen.insert(key).second) {
      *message = "key '" + key + "' is given twice";
      return false;
    }

    bool known = true;
    bool valid = false;
    if (key == "enabled") {
      valid = SetField(kBools, key, value, &parsed.enabled, message);
    } else if (key == "device") {
      valid = SetField(kDeviceTypes, key, value, &parsed.device, message);
    } else if (key == "batch_evaluation") {
      valid = SetField(kBools, key, value, &parsed.batch_evaluation, message);
    } else if (key == "jacobian") {
      valid = SetField(kJacobianTypes, key, value, &parsed.jacobian, message);
    } else if (key == "precision") {
      valid = SetField(kPrecisionTypes, key, value, &parsed.precision, message);
    } else if (key == "preconditioner_blocks") {
      valid = SetField(kPreconditionerBlocksTypes,
                       key,
                       value,
                       &parsed.preconditioner_blocks,
                       message);
    } else if (key == "forcing_sequence") {
      valid = SetField(
          kForcingSequenceTypes, key, value, &parsed.forcing_sequence, message);
    } else if (key == "schur_factorization") {
      valid = SetField(kSchurFactorizationTypes,
                       key,
                       value,
                       &parsed.schur_factorization,
                       message);
    } else if (key == "model_cost_tolerance") {
      valid = SetDouble(key, value, &parsed.model_cost_tolerance, message);
    } else if (key == "linear_solver") {
      valid = SetField(
          kLinearSolverChoices, key, value, &parsed.linear_solver, message);
    } else if (key == "preconditioner") {
      valid = SetField(
          kPreconditionerChoices, key, value, &parsed.preconditioner, message);
    } else if (key == "report") {
      parsed.report = value;
      valid = true;
    } else if (key == "cuda_device") {
      valid = SetNumber(key, value, &parsed.cuda_device, message);
    } else if (key == "cuda_memory_limit_bytes") {
      valid = SetNumber(key, value, &parsed.cuda_memory_limit_bytes, message);
    } else if (key == "cuda_graph") {
      valid =
          SetField(kCudaGraphTypes, key, value, &parsed.cuda_graph, message);
    } else if (key == "fallback") {
      valid = SetField(kFallbackTypes, key, value, &parsed.fallback, message);
    } else {
      known = false;
    }
    if (!known) {
      *message =
          "expected one of the keys enabled, device, batch_evaluation, "
          "jacobian, precision, preconditioner_blocks, "
          "forcing_sequence, model_cost_tolerance, "
          "schur_factorization, fallback, "
          "linear_solver, preconditioner, report, cuda_device, "
          "cuda_memory_limit_bytes, cuda_graph, found '" +
          key + "'";
      return false;
    }
    if (!valid) {
      return false;
    }
  }
  if (!parsed.IsValid(message)) {
    return false;
  }
  *options = parsed;
  return true;
}

const char* DeviceTypeToString(DeviceType type) {
  return ToString(kDeviceTypes, type);
}
bool StringToDeviceType(std::string value, DeviceType* type) {
  return FromString(kDeviceTypes, std::move(value), type);
}

const char* JacobianTypeToString(JacobianType type) {
  return ToString(kJacobianTypes, type);
}
bool StringToJacobianType(std::string value, JacobianType* type) {
  return FromString(kJacobianTypes, std::move(value), type);
}

const char* PrecisionTypeToString(PrecisionType type) {
  return ToString(kPrecisionTypes, type);
}
bool StringToPrecisionType(std::string value, PrecisionType* type) {
  return FromString(kPrecisionTypes, std::move(value), type);
}

const char* PreconditionerBlocksTypeToString(PreconditionerBlocksType type) {
  return ToString(kPreconditionerBlocksTypes, type);
}
bool StringToPreconditionerBlocksType(std::string value,
                                      PreconditionerBlocksType* type) {
  return FromString(kPreconditionerBlocksTypes, std::move(value), type);
}

const char* LinearSolverChoiceToString(LinearSolverChoice choice) {
  return ToString(kLinearSolverChoices, choice);
}
bool StringToLinearSolverChoice(std::string value, LinearSolverChoice* choice) {
  return FromString(kLinearSolverChoices, std::move(value), choice);
}

const char* PreconditionerChoiceToString(PreconditionerChoice choice) {
  return ToString(kPreconditionerChoices, choice);
}
bool StringToPreconditionerChoice(std::string value,
                                  PreconditionerChoice* choice) {
  return FromString(kPreconditionerChoices, std::move(value), choice);
}

const char* ForcingSequenceTypeToString(ForcingSequenceType type) {
  return ToString(kForcingSequenceTypes, type);
}
bool StringToForcingSequenceType(std::string value, ForcingSequenceType* type) {
  return FromString(kForcingSequenceTypes, std::move(value), type);
}

const char* CudaGraphTypeToString(CudaGraphType type) {
  return ToString(kCudaGraphTypes, type);
}
bool StringToCudaGraphType(std::string value, CudaGraphType* type) {
  return FromString(kCudaGraphTypes, std::move(value), type);
}

const char* SchurFactorizationTypeToString(SchurFactorizationType type) {
  return ToString(kSchurFactorizationTypes, type);
}
bool StringToSchurFactorizationType(std::string value,
                                    SchurFactorizationType* type) {
  return FromString(kSchurFactorizationTypes, std::move(value), type);
}
const char* FallbackTypeToString(FallbackType type) {
  return ToString(kFallbackTypes, type);
}
bool StringToFallbackType(std::string value, FallbackType* type) {
  return FromString(kFallbackTypes, std::move(value), type);
}

}  // namespace ceres_ext
