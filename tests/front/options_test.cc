// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/options.h"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ceres_ext/front/option_table.h"
#include "gtest/gtest.h"

namespace ceres_ext {
namespace {

TEST(Options, DefaultsAreValid) {
  std::string error;
  EXPECT_TRUE(Options().IsValid(&error)) << error;
  EXPECT_TRUE(Options().IsValid(nullptr));
}

TEST(Options, RecomputedJacobianRefusesWhatItCannotHave) {
  Options options;
  options.jacobian = JACOBIAN_RECOMPUTED;
  EXPECT_TRUE(options.IsValid(nullptr));

  std::string error;
  options.batch_evaluation = false;
  EXPECT_FALSE(options.IsValid(&error));
  EXPECT_NE(error.find("batch_evaluation"), std::string::npos) << error;
}

TEST(Options, ValuesThatNoEnumHasAreRefused) {
  for (const OptionRow& row : OptionTable()) {
    if (const auto* field = std::get_if<EnumField>(&row.field)) {
      const auto num_values = static_cast<int>(field->names.size());
      for (const int value : {-1, num_values}) {
        Options options;
        field->set(value, &options);
        std::string error;
        EXPECT_FALSE(options.IsValid(&error));
        EXPECT_EQ(error,
                  std::string(row.name) + ": expected one of " +
                      row.Accepted() + ", found " + std::to_string(value));
      }
    }
  }
}

// The first of them in the order of the fields is named.
TEST(Options, NumbersOutOfRangeAreRefused) {
  Options options;
  const auto expect_error = [&](const std::string& expected) {
    std::string error;
    EXPECT_FALSE(options.IsValid(&error));
    EXPECT_EQ(error, expected);
  };
  options.cuda_memory_limit_bytes = -1;
  expect_error(
      "cuda_memory_limit_bytes: expected a number from 0 to "
      "9223372036854775807, found -1");
  options.cuda_device = -1;
  expect_error("cuda_device: expected a number from 0 to 2147483647, found -1");
  options.model_cost_tolerance = NAN;
  expect_error("model_cost_tolerance: expected a finite number, found nan");
  options.device = static_cast<DeviceType>(3);
  expect_error("device: expected one of auto, host, cuda, found 3");
}

TEST(Options, ChosenPreconditionerHasToFitTheLinearSolver) {
  Options options;
  options.preconditioner = PRECONDITIONER_SCHUR_JACOBI;
  for (const LinearSolverChoice choice :
       {LINEAR_SOLVER_AS_GIVEN, LINEAR_SOLVER_ITERATIVE_SCHUR}) {
    options.linear_solver = choice;
    EXPECT_TRUE(options.IsValid(nullptr));
  }
  options.linear_solver = LINEAR_SOLVER_CGNR;
  std::string error;
  EXPECT_FALSE(options.IsValid(&error));
  EXPECT_NE(error.find("preconditioner"), std::string::npos) << error;
  options.preconditioner = PRECONDITIONER_JACOBI;
  EXPECT_TRUE(options.IsValid(nullptr));
}

TEST(ParseOptions, EmptyTextChangesNothing) {
  Options options;
  options.jacobian = JACOBIAN_RECOMPUTED;
  std::string error;
  EXPECT_TRUE(ParseOptions("", &options, &error)) << error;
  EXPECT_EQ(options.jacobian, JACOBIAN_RECOMPUTED);
}

TEST(ParseOptions, SetsEveryField) {
  Options options;
  std::string error;
  ASSERT_TRUE(
      ParseOptions("enabled=false,device=host,batch_evaluation=true,"
                   "jacobian=Recomputed,"
                   "fallback=REFUSE,precision=mixed,cuda_device=3,"
                   "cuda_memory_limit_bytes=1000000000000,"
                   "preconditioner_blocks=Merged,"
                   "forcing_sequence=eisenstat_walker,"
                   "model_cost_tolerance=1e-7,"
                   "schur_factorization=Dense,"
                   "linear_solver=iterative_schur,preconditioner=identity,"
                   "report=/tmp/a:b=c,"
                   "cuda_graph=on,machine_rates=built_in",
                   &options,
                   &error))
      << error;
  EXPECT_FALSE(options.enabled);
  EXPECT_EQ(options.device, DEVICE_HOST);
  EXPECT_TRUE(options.batch_evaluation);
  EXPECT_EQ(options.jacobian, JACOBIAN_RECOMPUTED);
  EXPECT_EQ(options.fallback, FALLBACK_REFUSE);
  EXPECT_EQ(options.precision, PRECISION_MIXED);
  EXPECT_EQ(options.preconditioner_blocks, PRECONDITIONER_BLOCKS_MERGED);
  EXPECT_EQ(options.forcing_sequence, FORCING_SEQUENCE_EISENSTAT_WALKER);
  EXPECT_EQ(options.model_cost_tolerance, 1e-7);
  EXPECT_EQ(options.schur_factorization, SCHUR_FACTORIZATION_DENSE);
  EXPECT_EQ(options.cuda_device, 3);
  EXPECT_EQ(options.cuda_memory_limit_bytes, 1000000000000);
  EXPECT_EQ(options.cuda_graph, CUDA_GRAPH_ON);
  EXPECT_EQ(options.machine_rates, MACHINE_RATES_BUILT_IN);
  EXPECT_EQ(options.linear_solver, LINEAR_SOLVER_ITERATIVE_SCHUR);
  EXPECT_EQ(options.preconditioner, PRECONDITIONER_IDENTITY);
  EXPECT_EQ(options.report, "/tmp/a:b=c");
}

struct BadSettings {
  const char* text;
  // The text that the message must contain.
  const char* named;
};

class ParseOptionsRefuses : public ::testing::TestWithParam<BadSettings> {};

TEST_P(ParseOptionsRefuses, NamesTheFaultAndKeepsTheOptions) {
  Options options;
  options.device = DEVICE_HOST;
  std::string error;
  EXPECT_FALSE(ParseOptions(GetParam().text, &options, &error));
  EXPECT_NE(error.find(GetParam().named), std::string::npos) << error;
  EXPECT_EQ(options.device, DEVICE_HOST);
  EXPECT_EQ(options.jacobian, JACOBIAN_AUTO);
  EXPECT_FALSE(ParseOptions(GetParam().text, &options, nullptr));
}

INSTANTIATE_TEST_SUITE_P(
    Settings,
    ParseOptionsRefuses,
    ::testing::Values(
        BadSettings{"jacobian", "key=value"},
        BadSettings{"jacobian=recomputed,", "comma"},
        BadSettings{",jacobian=recomputed", "key=value"},
        BadSettings{"jacobian=recomputed,,fallback=refuse", "key=value"},
        BadSettings{"jacobian=both", "'both'"},
        BadSettings{"jacobian=", "''"},
        BadSettings{"jacobian =recomputed", "'jacobian '"},
        BadSettings{"speed=fast", "'speed'"},
        BadSettings{"preconditioner_blocks=all", "single, merged"},
        BadSettings{"cuda_graph=true", "auto, on, off"},
        BadSettings{"machine_rates=h200", "measured, built_in"},
        BadSettings{"forcing_sequence=walker",
                    "auto, constant, model_cost, eisenstat_walker"},
        BadSettings{"schur_factorization=qr", "auto, dense, sparse"},
        BadSettings{
            "model_cost_tolerance=nan",
            "model_cost_tolerance: expected a finite number, found nan"},
        BadSettings{"model_cost_tolerance=1e-7x", "model_cost_tolerance"},
        BadSettings{"enabled=1", "true"},
        BadSettings{"cuda_device=-1", "to 2147483647, found -1"},
        BadSettings{"cuda_device=one", "'one'"},
        BadSettings{"cuda_device=1x", "'1x'"},
        BadSettings{"cuda_device=99999999999", "2147483647"},
        BadSettings{"linear_solver=sparse_schur", "as_given"},
        BadSettings{"preconditioner=cluster_jacobi", "schur_jacobi"},
        BadSettings{"linear_solver=cgnr,preconditioner=schur_jacobi", "CGNR"},
        BadSettings{"cuda_stream=0", "'cuda_stream'"},
        BadSettings{"jacobian=recomputed,jacobian=recomputed", "twice"},
        BadSettings{"w_product=implicit", "'w_product'"},
        BadSettings{"jacobian=recomputed,batch_evaluation=false",
                    "batch_evaluation"}));

template <typename Enum>
void ExpectNames(const char* (*to_string)(Enum),
                 bool (*from_string)(std::string, Enum*),
                 const std::vector<std::pair<Enum, const char*>>& names) {
  Enum read;
  for (const auto& [value, name] : names) {
    EXPECT_STREQ(to_string(value), name);
    ASSERT_TRUE(from_string(name, &read));
    EXPECT_EQ(read, value);
  }
  EXPECT_FALSE(from_string("", &read));
  EXPECT_FALSE(from_string("hosts", &read));
}

TEST(Enums, HaveNames) {
  ExpectNames<DeviceType>(
      DeviceTypeToString,
      StringToDeviceType,
      {{DEVICE_AUTO, "AUTO"}, {DEVICE_HOST, "HOST"}, {DEVICE_CUDA, "CUDA"}});
  ExpectNames<JacobianType>(JacobianTypeToString,
                            StringToJacobianType,
                            {{JACOBIAN_AUTO, "AUTO"},
                             {JACOBIAN_STORED, "STORED"},
                             {JACOBIAN_RECOMPUTED, "RECOMPUTED"}});
  ExpectNames<PrecisionType>(
      PrecisionTypeToString,
      StringToPrecisionType,
      {{PRECISION_DOUBLE, "DOUBLE"}, {PRECISION_MIXED, "MIXED"}});
  ExpectNames<PreconditionerBlocksType>(
      PreconditionerBlocksTypeToString,
      StringToPreconditionerBlocksType,
      {{PRECONDITIONER_BLOCKS_SINGLE, "SINGLE"},
       {PRECONDITIONER_BLOCKS_MERGED, "MERGED"}});
  ExpectNames<ForcingSequenceType>(
      ForcingSequenceTypeToString,
      StringToForcingSequenceType,
      {{FORCING_SEQUENCE_AUTO, "AUTO"},
       {FORCING_SEQUENCE_CONSTANT, "CONSTANT"},
       {FORCING_SEQUENCE_MODEL_COST, "MODEL_COST"},
       {FORCING_SEQUENCE_EISENSTAT_WALKER, "EISENSTAT_WALKER"}});
  ExpectNames<SchurFactorizationType>(SchurFactorizationTypeToString,
                                      StringToSchurFactorizationType,
                                      {{SCHUR_FACTORIZATION_AUTO, "AUTO"},
                                       {SCHUR_FACTORIZATION_DENSE, "DENSE"},
                                       {SCHUR_FACTORIZATION_SPARSE, "SPARSE"}});
  ExpectNames<MachineRatesType>(MachineRatesTypeToString,
                                StringToMachineRatesType,
                                {{MACHINE_RATES_MEASURED, "MEASURED"},
                                 {MACHINE_RATES_BUILT_IN, "BUILT_IN"}});
  ExpectNames<CudaGraphType>(CudaGraphTypeToString,
                             StringToCudaGraphType,
                             {{CUDA_GRAPH_AUTO, "AUTO"},
                              {CUDA_GRAPH_ON, "ON"},
                              {CUDA_GRAPH_OFF, "OFF"}});
  ExpectNames<FallbackType>(
      FallbackTypeToString,
      StringToFallbackType,
      {{FALLBACK_TO_CERES, "TO_CERES"}, {FALLBACK_REFUSE, "REFUSE"}});
  ExpectNames<LinearSolverChoice>(
      LinearSolverChoiceToString,
      StringToLinearSolverChoice,
      {{LINEAR_SOLVER_AS_GIVEN, "AS_GIVEN"},
       {LINEAR_SOLVER_ITERATIVE_SCHUR, "ITERATIVE_SCHUR"},
       {LINEAR_SOLVER_CGNR, "CGNR"}});
  ExpectNames<PreconditionerChoice>(
      PreconditionerChoiceToString,
      StringToPreconditionerChoice,
      {{PRECONDITIONER_AS_GIVEN, "AS_GIVEN"},
       {PRECONDITIONER_IDENTITY, "IDENTITY"},
       {PRECONDITIONER_JACOBI, "JACOBI"},
       {PRECONDITIONER_SCHUR_JACOBI, "SCHUR_JACOBI"},
       {PRECONDITIONER_SCHUR_POWER_SERIES_EXPANSION,
        "SCHUR_POWER_SERIES_EXPANSION"},
       {PRECONDITIONER_TWO_LEVEL, "TWO_LEVEL"},
       {PRECONDITIONER_AUTO, "AUTO"}});
}

TEST(OptionTable, IsThatOfThePage) {
  const std::string path = CERES_EXT_TEST_SOURCE_DIR "/docs/options.md";
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  const std::string page = text.str();
  const std::string marker = "<!-- begin options -->\n";
  const size_t begin = page.find(marker) + marker.size();
  const size_t end = page.find("<!-- end options -->\n", begin);
  ASSERT_NE(end, std::string::npos) << path;
  std::string table = "| field | values | default | use |\n|---|---|---|---|\n";
  for (const OptionRow& row : OptionTable()) {
    const std::string value = row.Get(Options());
    table += std::string("| `") + row.name + "` | " + row.Accepted() + " | " +
             (value.empty() ? "empty" : value) + " | " + row.sentence + " |\n";
  }
  if (std::getenv("CERES_EXT_WRITE_OPTIONS") != nullptr) {
    std::ofstream(path) << page.substr(0, begin) + table + page.substr(end);
  } else {
    EXPECT_EQ(page.substr(begin, end - begin), table)
        << "To write the table of docs/options.md, run "
           "CERES_EXT_WRITE_OPTIONS=1 build/host-only/tests/front/options_test";
  }
}

}  // namespace
}  // namespace ceres_ext
