// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/device/cost_function.cuh"
#include "ceres_ext/direction_cost_functions.h"
#include "ceres_ext/odometry_cost_functions.h"

// For rows that no batch of observations takes, and refinements of poses.
// Points vary in windows alone.
CERES_EXT_COST_FUNCTION(ceres_ext::BalReprojectionError,
                        ceres_ext::form::Rows,
                        ceres_ext::form::Fits<0>)
CERES_EXT_COST_FUNCTION(ceres_ext::BalQuaternionReprojectionError,
                        ceres_ext::form::Rows,
                        ceres_ext::form::Fits<0>)
CERES_EXT_COST_FUNCTION(ceres_ext::DirectionCost, ceres_ext::form::Rows)
CERES_EXT_COST_FUNCTION(ceres_ext::RigDirectionCost, ceres_ext::form::Rows)
CERES_EXT_COST_FUNCTION(ceres_ext::SensorDirectionCost, ceres_ext::form::Rows)
CERES_EXT_COST_FUNCTION(ceres_ext::InertialCost, ceres_ext::form::Rows)
CERES_EXT_COST_FUNCTION(ceres_ext::InverseDepthCost, ceres_ext::form::Rows)
CERES_EXT_COST_FUNCTION(ceres_ext::StereoInverseDepthCost,
                        ceres_ext::form::Rows)
CERES_EXT_COST_FUNCTION(ceres_ext::AnchorStereoInverseDepthCost,
                        ceres_ext::form::Rows)
CERES_EXT_COST_FUNCTION(ceres_ext::SpeedAndBiasPriorCost, ceres_ext::form::Rows)
CERES_EXT_COST_FUNCTION(ceres_ext::PlanarMotionCost, ceres_ext::form::Rows)
CERES_EXT_COST_FUNCTION(ceres_ext::GnssPositionCost, ceres_ext::form::Rows)
