// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The messages on a machine without a usable GPU: from the real runtime if no
// driver is installed, and from an emulated one with each of the errors.

#include "cuda_kernels/machine/cuda_context.h"

#include <memory>
#include <string>

#include "cuda_kernels/machine/cuda_process.h"
#include "gtest/gtest.h"

#ifdef CERES_EXT_WITH_CUDA
#include <dlfcn.h>
#else
#include "tests/kernels/emulation/cuda_runtime.h"
#endif

namespace ceres_ext::kernels {
namespace {

// A clause, and the sentence that is one.
void ExpectNone(const std::string& why, const std::string& sentence) {
  std::string why_none;
  EXPECT_EQ(NumCudaDevices(&why_none), 0);
  EXPECT_EQ(why_none, why);
  EXPECT_EQ(NumCudaDevices(nullptr), 0);
  std::unique_ptr<CudaContext> context;
  const Status status = CudaContext::Create({}, &context);
  EXPECT_EQ(status.code, StatusCode::kUnsupported);
  EXPECT_EQ(status.message, sentence);
  EXPECT_EQ(context, nullptr);
}

#ifdef CERES_EXT_WITH_CUDA

TEST(CudaContext, NoDriver) {
  if (void* const driver = dlopen("libcuda.so.1", RTLD_LAZY)) {
    dlclose(driver);
    GTEST_SKIP() << "skipped: a CUDA driver is installed";
  }
  EXPECT_FALSE(HasCudaDriver());
  ExpectNone("no CUDA driver is installed", "No CUDA driver is installed.");
}

#else

class CudaContextTest : public ::testing::Test {
 protected:
  ~CudaContextTest() override { emulation::driver() = {}; }
};

TEST_F(CudaContextTest, NoDriver) {
  emulation::driver() = {0, cudaErrorInsufficientDriver};
  EXPECT_FALSE(HasCudaDriver());
  ExpectNone("no CUDA driver is installed", "No CUDA driver is installed.");
}

TEST_F(CudaContextTest, NoDevice) {
  emulation::driver() = {13000, cudaErrorNoDevice};
  EXPECT_TRUE(HasCudaDriver());
  ExpectNone("no CUDA device was found", "No CUDA device was found.");
}

TEST_F(CudaContextTest, AnotherError) {
  emulation::driver() = {13000, cudaErrorMemoryAllocation};
  ExpectNone("CUDA finds no device, out of memory",
             "CUDA finds no device, out of memory.");
}

TEST_F(CudaContextTest, DriverTooOld) {
  emulation::driver() = {12040, cudaErrorInsufficientDriver};
  EXPECT_TRUE(HasCudaDriver());
  ExpectNone(
      "the driver is of CUDA 12.4, and this build needs one of CUDA 13.0 or "
      "later: update the driver, or use a build for CUDA 12",
      "The driver is of CUDA 12.4, and this build needs one of CUDA 13.0 or "
      "later: update the driver, or use a build for CUDA 12.");
}

TEST_F(CudaContextTest, DriverTooOldForEveryBuild) {
  emulation::driver() = {12020, cudaErrorInsufficientDriver};
  ExpectNone(
      "the driver is of CUDA 12.2, and this build needs one of CUDA 13.0 or "
      "later: update the driver",
      "The driver is of CUDA 12.2, and this build needs one of CUDA 13.0 or "
      "later: update the driver.");
}

TEST_F(CudaContextTest, DriverTooOldForCuda12) {
  emulation::driver() = {11080, cudaErrorInsufficientDriver, 12040};
  EXPECT_TRUE(HasCudaDriver());
  ExpectNone(
      "the driver is of CUDA 11.8, and this build needs one of CUDA 12.4 or "
      "later: update the driver",
      "The driver is of CUDA 11.8, and this build needs one of CUDA 12.4 or "
      "later: update the driver.");
  // Its runtime takes this one, which does not know graphs that loop.
  emulation::driver() = {12020, cudaSuccess, 12040};
  ExpectNone(
      "the driver is of CUDA 12.2, and this build needs one of CUDA 12.4 or "
      "later: update the driver",
      "The driver is of CUDA 12.2, and this build needs one of CUDA 12.4 or "
      "later: update the driver.");
}

TEST_F(CudaContextTest, DriverNewEnough) {
  for (const int version : {12040, 12060, 13000}) {
    emulation::driver() = {version, cudaSuccess, 12060};
    EXPECT_GT(NumCudaDevices(nullptr), 0) << version;
  }
}

#endif

}  // namespace
}  // namespace ceres_ext::kernels
