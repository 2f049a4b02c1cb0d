// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Shared libraries that a process loads where it first needs them, so that none
// of them is linked. The libraries of CUDA and their functions are in
// cuda_libraries.cuh.
//
//   std::vector<void*> functions;
//   Status status = OpenSharedLibrary({"cuSOLVER", 12, "cusolverGetProperty",
//                                      {"cusolverDnCreate"}},
//                                     {"libcusolver.so.12"}, &functions);
//
// Thread safe. Host-includable: needs no CUDA toolkit.
#ifndef CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_LIBRARIES_H_
#define CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_LIBRARIES_H_

#include <string>
#include <vector>

#include "cuda_kernels/base/status.h"

namespace ceres_ext::kernels {

// The expected properties of a shared library.
struct SharedLibrary {
  std::string name;  // in messages
  // The major version of the headers that the caller was compiled with: another
  // one's functions may have other parameters.
  int major_version = 0;
  // Its function int (int property, int* value), 0 where it succeeds, by which
  // libraries of CUDA say their version: that of property 0 is the major one,
  // those of 1 and 2 are the minor one and the patch. Nothing else is called
  // before.
  std::string get_property;
  std::vector<std::string> functions;
  // If there is no get_property: int (int* version), as NCCL has it, which
  // gives 10000 * major + 100 * minor + patch.
  std::string get_version;
};

// Opens the first of `files` that is as expected; functions[i] becomes the
// address of library.functions[i], and *found, which may be null, the name and
// the version, "cuSOLVER 12.0.4". The name of a file without a slash is looked
// for as the dynamic linker looks for libraries. kUnsupported: none is as
// expected; the message is one sentence that says what is, and what is wrong
// with each file. An opened library stays open as long as the process runs:
// CUDA libraries do not support closing.
Status OpenSharedLibrary(const SharedLibrary& library,
                         const std::vector<std::string>& files,
                         std::vector<void*>* functions,
                         std::string* found = nullptr);

// Folders of packages that hold libraries of CUDA, the first before the others.
// Libraries that are open stay as they are.
void SetCudaLibraryFolders(const std::vector<std::string>& folders);

// The files in which lib<name>.so.<major_version> is looked for, in the order
// of NVIDIA's cuda-pathfinder: what the process has loaded, the folders above,
// the dynamic linker, CUDA_HOME or CUDA_PATH; then `known_folder`, empty for
// none.
std::vector<std::string> CudaLibraryFiles(const std::string& name,
                                          int major_version,
                                          const std::string& known_folder);

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_LIBRARIES_H_
