# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Models of COLMAP, and bundle adjustment and mapping in place of pycolmap's.

    reconstruction = pycolmap.Reconstruction("sparse/0")
    summary = ceres_ext.colmap.bundle_adjustment(reconstruction)

refines the reconstruction as pycolmap.bundle_adjustment does. Without pycolmap:

    model = ceres_ext.colmap.read("sparse/0")
    ceres_ext.colmap.bundle_adjustment(model, loss_function_type="CAUCHY")
    ceres_ext.colmap.write(model, "refined")

From images to a map, as pycolmap.incremental_mapping:

    maps = ceres_ext.colmap.incremental_mapping("database.db", "images", "sparse")

or global_mapping, as pycolmap.global_mapping.
"""

from .._ceres_ext import ColmapModel as Model
from .adjustment import (
    CAMERA_MODELS,
    BundleAdjustmentSummary,
    MeasuredPositions,
    RunawayFocalLength,
    RunawayObservation,
    bundle_adjustment,
    img_from_cam,
    intrinsics_bounds,
    read,
    write,
)
from .global_mapper import global_mapping
from .mapper import incremental_mapping
from .mapping_report import MappingReport, MappingStage
from .mirror import Mirror

__all__ = [
    "CAMERA_MODELS",
    "BundleAdjustmentSummary",
    "MappingReport",
    "MappingStage",
    "MeasuredPositions",
    "Mirror",
    "Model",
    "RunawayFocalLength",
    "RunawayObservation",
    "bundle_adjustment",
    "global_mapping",
    "img_from_cam",
    "incremental_mapping",
    "intrinsics_bounds",
    "read",
    "write",
]
