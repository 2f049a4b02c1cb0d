// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/options.h"

#include <cmath>
#include <string>

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
  const struct {
    void (*set)(Options*);
    const char* error;
  } kCases[] = {
      {[](Options* o) { o->device = static_cast<DeviceType>(3); },
       "device = 3; expected one of: auto, host, cuda"},
      {[](Options* o) { o->jacobian = static_cast<JacobianType>(3); },
       "jacobian = 3; expected one of: auto, stored, recomputed"},
      {[](Options* o) { o->precision = static_cast<PrecisionType>(2); },
       "precision = 2; expected one of: double, mixed"},
      {[](Options* o) {
         o->preconditioner_blocks = static_cast<PreconditionerBlocksType>(2);
       },
       "preconditioner_blocks = 2; expected one of: single, merged"},
      {[](Options* o) {
         o->forcing_sequence = static_cast<ForcingSequenceType>(4);
       },
       "forcing_sequence = 4; expected one of: auto, constant, model_cost, "
       "eisenstat_walker"},
      {[](Options* o) {
         o->schur_factorization = static_cast<SchurFactorizationType>(3);
       },
       "schur_factorization = 3; expected one of: auto, dense, sparse"},
      {[](Options* o) { o->model_cost_tolerance = NAN; },
       "model_cost_tolerance = nan; expected a finite number"},
      {[](Options* o) { o->cuda_graph = static_cast<CudaGraphType>(3); },
       "cuda_graph = 3; expected one of: auto, on, off"},
      {[](Options* o) { o->fallback = static_cast<FallbackType>(2); },
       "fallback = 2; expected one of: to_ceres, refuse"},
      {[](Options* o) {
         o->linear_solver = static_cast<LinearSolverChoice>(3);
       },
       "linear_solver = 3; expected one of: as_given, iterative_schur, cgnr"},
      {[](Options* o) {
         o->preconditioner = static_cast<PreconditionerChoice>(7);
       },
       "preconditioner = 7; expected one of: as_given, identity, jacobi, "
       "schur_jacobi, schur_power_series_expansion"},
  };
  for (const auto& c : kCases) {
    Options options;
    c.set(&options);
    std::string error;
    EXPECT_FALSE(options.IsValid(&error));
    EXPECT_EQ(error, c.error);
  }
}

TEST(Options, NegativeNumbersAreRefused) {
  std::string error;
  Options options;
  options.cuda_device = -1;
  EXPECT_FALSE(options.IsValid(&error));
  EXPECT_NE(error.find("cuda_device"), std::string::npos) << error;
  options = Options();
  options.cuda_memory_limit_bytes = -1;
  EXPECT_FALSE(options.IsValid(&error));
  EXPECT_NE(error.find("cuda_memory_limit_bytes"), std::string::npos) << error;
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
                   "cuda_graph=on",
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
  EXPECT_EQ(options.linear_solver, LINEAR_SOLVER_ITERATIVE_SCHUR);
  EXPECT_EQ(options.preconditioner, PRECONDITIONER_IDENTITY);
  EXPECT_EQ(options.report, "/tmp/a:b=c");
}

struct BadSettings {
  const char* text;
  // What the message must name.
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
        BadSettings{"forcing_sequence=walker",
                    "auto, constant, model_cost, eisenstat_walker"},
        BadSettings{"schur_factorization=qr", "auto, dense, sparse"},
        BadSettings{"model_cost_tolerance=inf", "model_cost_tolerance"},
        BadSettings{"model_cost_tolerance=1e-7x", "model_cost_tolerance"},
        BadSettings{"enabled=1", "true"},
        BadSettings{"cuda_device=-1", "'-1'"},
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
void ExpectRoundTrip(const char* (*to_string)(Enum),
                     bool (*from_string)(std::string, Enum*),
                     Enum value) {
  Enum read;
  ASSERT_TRUE(from_string(to_string(value), &read));
  EXPECT_EQ(read, value);
}

TEST(Enums, RoundTripThroughStrings) {
  for (DeviceType type : {DEVICE_AUTO, DEVICE_HOST, DEVICE_CUDA}) {
    ExpectRoundTrip(DeviceTypeToString, StringToDeviceType, type);
  }
  for (JacobianType type :
       {JACOBIAN_AUTO, JACOBIAN_STORED, JACOBIAN_RECOMPUTED}) {
    ExpectRoundTrip(JacobianTypeToString, StringToJacobianType, type);
  }
  for (PrecisionType type : {PRECISION_DOUBLE, PRECISION_MIXED}) {
    ExpectRoundTrip(PrecisionTypeToString, StringToPrecisionType, type);
  }
  for (PreconditionerBlocksType type :
       {PRECONDITIONER_BLOCKS_SINGLE, PRECONDITIONER_BLOCKS_MERGED}) {
    ExpectRoundTrip(PreconditionerBlocksTypeToString,
                    StringToPreconditionerBlocksType,
                    type);
  }
  for (ForcingSequenceType type : {FORCING_SEQUENCE_AUTO,
                                   FORCING_SEQUENCE_CONSTANT,
                                   FORCING_SEQUENCE_MODEL_COST,
                                   FORCING_SEQUENCE_EISENSTAT_WALKER}) {
    ExpectRoundTrip(
        ForcingSequenceTypeToString, StringToForcingSequenceType, type);
  }
  for (CudaGraphType type : {CUDA_GRAPH_AUTO, CUDA_GRAPH_ON, CUDA_GRAPH_OFF}) {
    ExpectRoundTrip(CudaGraphTypeToString, StringToCudaGraphType, type);
  }
  for (FallbackType type : {FALLBACK_TO_CERES, FALLBACK_REFUSE}) {
    ExpectRoundTrip(FallbackTypeToString, StringToFallbackType, type);
  }
  for (LinearSolverChoice choice : {LINEAR_SOLVER_AS_GIVEN,
                                    LINEAR_SOLVER_ITERATIVE_SCHUR,
                                    LINEAR_SOLVER_CGNR}) {
    ExpectRoundTrip(
        LinearSolverChoiceToString, StringToLinearSolverChoice, choice);
  }
  for (PreconditionerChoice choice :
       {PRECONDITIONER_AS_GIVEN,
        PRECONDITIONER_IDENTITY,
        PRECONDITIONER_JACOBI,
        PRECONDITIONER_SCHUR_JACOBI,
        PRECONDITIONER_SCHUR_POWER_SERIES_EXPANSION}) {
    ExpectRoundTrip(
        PreconditionerChoiceToString, StringToPreconditionerChoice, choice);
  }
  DeviceType device;
  EXPECT_FALSE(StringToDeviceType("", &device));
  EXPECT_FALSE(StringToDeviceType("hosts", &device));
}

}  // namespace
}  // namespace ceres_ext
