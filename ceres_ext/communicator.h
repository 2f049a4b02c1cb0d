// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The ranks that solve a problem together: see the class. MpiCommunicator
// (mpi_communicator.h) is one; a program may have others, for example of
// torch.distributed.
#ifndef CERES_EXT_COMMUNICATOR_H_
#define CERES_EXT_COMMUNICATOR_H_

#include "cuda_kernels/machine/communicator.h"

namespace ceres_ext {

using Communicator = kernels::Communicator;

}  // namespace ceres_ext

#endif  // CERES_EXT_COMMUNICATOR_H_
