# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""The command ceres_ext_map."""

from __future__ import annotations

import argparse
import importlib
import sys
import typing

from .adjustment import INTRINSICS_FIELDS
from .global_mapper import global_mapping
from .mapper import incremental_mapping
from .mapping_report import MappingReport


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ceres_ext_map",
        description="Maps images as 'colmap mapper' or 'colmap global_mapper' does, "
        "from a database with features and matches.",
    )
    parser.add_argument(
        "--mapper",
        choices=["incremental", "global"],
        default="incremental",
        help="image by image, or all images at once (default: incremental)",
    )
    parser.add_argument("--database_path", required=True)
    parser.add_argument("--image_path", required=True)
    parser.add_argument("--output_path", required=True)
    parser.add_argument("--input_path", default="", help="a model that is continued")
    parser.add_argument(
        "--resume", action="store_true", help="continue a run that was stopped"
    )
    parser.add_argument(
        "--checkpoint_frames",
        type=int,
        default=50,
        metavar="N",
        help="registered frames between checkpoints; 0: none (default: 50)",
    )
    parser.add_argument(
        "--html", metavar="FILE", help="write a page with the map and the times"
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a field of pycolmap.IncrementalPipelineOptions or "
        "GlobalPipelineOptions, as ba_refine_principal_point=true or "
        "mapper.init_min_tri_angle=8",
    )
    parser.add_argument(
        "--antenna_offset",
        metavar="X,Y,Z",
        help="place of the antenna with the axes of the camera, with --option "
        "use_prior_position=true",
    )
    parser.add_argument(
        "--refine_antenna_offset", action="store_true", help="estimate this place"
    )
    for name in INTRINSICS_FIELDS:
        if name == "bound_intrinsics":
            parser.add_argument(
                f"--{name}",
                action="store_true",
                default=None,
                help="refine intrinsics within limits",
            )
        else:
            kind = "soft prior" if name.endswith("_weight") else "limit"
            parser.add_argument(
                f"--{name}",
                type=float,
                help=f"{kind} of intrinsics, as in ceres_ext.colmap.bundle_adjustment",
            )
    parser.add_argument("--device", default="AUTO", help="AUTO, HOST or CUDA")
    parser.add_argument("--num_threads", type=int, default=-1)
    parser.add_argument("--quiet", action="store_true")
    return parser


def _set_field(options: typing.Any, assignment: str) -> None:
    kind = type(options).__name__
    path, equals, text = assignment.partition("=")
    *parents, name = path.split(".")
    for parent in parents:
        options = getattr(options, parent, None)
    if not equals or not hasattr(options, name):
        raise ValueError(
            f"--option {assignment}: expected NAME=VALUE with a field of "
            f"pycolmap.{kind}"
        )
    old = getattr(options, name)
    try:
        if isinstance(old, bool):
            value: object = {"true": True, "1": True, "false": False, "0": False}[
                text.lower()
            ]
        elif isinstance(old, (int, float)):
            value = type(old)(text)
        elif isinstance(old, (set, list)):
            parts = text.split(",") if text else []
            value = {int(p) for p in parts} if isinstance(old, set) else parts
        else:
            value = text
        setattr(options, name, value)
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            f"--option {assignment}: expected a value as {old!r}"
        ) from None


def _check_global(given: argparse.Namespace) -> None:
    for name in ("resume", "input_path", "antenna_offset", "refine_antenna_offset"):
        if getattr(given, name):
            raise ValueError(f"--{name}: --mapper global does not have it")


def _numbers(text: str | None) -> list[float] | None:
    return None if text is None else [float(part) for part in text.split(",")]


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 if there is a model, 1 if not, 2 if something is wrong with the
    arguments or files, 130 if the user stopped it."""
    given = _parser().parse_args(arguments)
    try:
        pycolmap: typing.Any = importlib.import_module("pycolmap")
    except ImportError:
        print(
            "ceres_ext_map: pycolmap is missing; pip install pycolmap",
            file=sys.stderr,
        )
        return 2
    pycolmap.logging.minloglevel = 1
    is_global = given.mapper == "global"
    report = MappingReport(None if given.quiet else sys.stderr)
    try:
        if is_global:
            _check_global(given)
        options = (
            pycolmap.GlobalPipelineOptions()
            if is_global
            else pycolmap.IncrementalPipelineOptions()
        )
        options.num_threads = given.num_threads
        for assignment in given.option:
            _set_field(options, assignment)
        values = {
            name: value
            for name in INTRINSICS_FIELDS
            if (value := getattr(given, name)) is not None
        }
        paths = (given.database_path, given.image_path, given.output_path)
        if is_global:
            models = global_mapping(
                *paths,
                options,
                mapping_report=report,
                device=given.device,
                **values,
            )
        else:
            models = incremental_mapping(
                *paths,
                options,
                given.input_path,
                mapping_report=report,
                resume=given.resume,
                checkpoint_frames=given.checkpoint_frames,
                antenna_offset=_numbers(given.antenna_offset),
                refine_antenna_offset=given.refine_antenna_offset,
                device=given.device,
                **values,
            )
        if given.html:
            report.write_html(given.html)
    except (ImportError, OSError, TypeError, ValueError) as error:
        print(f"ceres_ext_map: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        hint = "" if is_global else "; --resume continues"
        print(f"ceres_ext_map: stopped{hint}", file=sys.stderr)
        return 130
    print(report.summary())
    if report.antenna_offset is not None:
        print("antenna offset:", *(f"{value:.4f}" for value in report.antenna_offset))
    for index, model in models.items():
        print(
            f"model {index}: {model.num_reg_images()} images, "
            f"{model.num_points3D()} points, "
            f"{model.compute_mean_reprojection_error():.4f} px"
        )
    return 0 if models else 1
