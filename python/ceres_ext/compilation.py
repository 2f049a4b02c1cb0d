# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Cost functions of users, compiled from C++ source."""

from __future__ import annotations

import ctypes
import hashlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import typing

from ._ceres_ext import CompiledCostFunction, _load_cost_function

_INCLUDE = pathlib.Path(__file__).parent / "include"
_SOURCE = """\
#ifdef __CUDACC__
#include "ceres_ext/device/cost_function.cuh"
#endif
#include "python/src/compiled_cost_function.h"
#line 1 "source"
{source}
#line 1 "the arguments functor, num_residuals and block_sizes"
CERES_EXT_COMPILED_COST_FUNCTION({arguments})
"""
_FLAGS = ["-std=c++17", "-O2", "-DNDEBUG", "-shared"]
_HOST_FLAGS = ["-x", "c++", "-fPIC", "-fvisibility=hidden", "-Wl,-z,defs"]
# A function that the device would call but only the host has is an error, not a
# warning.
_NVCC_FLAGS = [
    *("-x", "cu", "-Xcompiler", "-fPIC,-fvisibility=hidden", "-cudart", "static"),
    *("--expt-relaxed-constexpr", "-diag-suppress=20012,554"),
    *("-Werror", "cross-execution-space-call"),
]


class CompilationError(RuntimeError):
    """The compiler is missing or refused the source; str() has its message."""


def compile_cost_function(
    source: str,
    functor: str,
    num_residuals: int,
    block_sizes: typing.Sequence[int],
    *,
    device: bool = True,
) -> CompiledCostFunction:
    """Compiles a cost function from the C++ source of a functor.

        distance = ceres_ext.compile_cost_function(
            \"\"\"
            #include "ceres/rotation.h"
            struct Distance {
              template <typename T>
              CERES_HOST_DEVICE bool operator()(const T* a, const T* b,
                                                T* residuals) const {
                const T d[3] = {a[0] - b[0], a[1] - b[1], a[2] - b[2]};
                residuals[0] = sqrt(ceres::DotProduct(d, d)) - measured;
                return true;
              }
              double measured;
            };
            \"\"\",
            "Distance", 1, [3, 3])
        problem.add_residuals(distance, measured, [(points, a), (points, b)])

    It is ceres_ext::DeviceAutoDiffCostFunction<functor, num_residuals,
    *block_sizes> of C++, differentiated by ceres::Jet, with the same results.

    source: defines the functor, a struct whose operator() takes the parameter
    blocks and the residuals, and returns false if they can't be computed. Its data
    members, all of type double, are the columns of `observations`, (n,
    num_data). The source may include "ceres/jet.h", "ceres/rotation.h",
    "ceres_ext/camera_models.h" and "ceres_ext/photogrammetry.h".
    functor: the type, which may be a template's, such as "Error<2>".
    num_residuals, block_sizes: how many values each has, at least 1.
    device: if False, only for the host.

    This takes a C++17 compiler: the environment variable CXX, or c++, g++ or
    clang++ in PATH. With a CUDA device and nvcc (the variable CUDACXX, PATH,
    CUDA_HOME or /usr/local/cuda; the first that is not newer than the driver) the
    cost function also has a device form, if all that operator() calls is
    CERES_HOST_DEVICE; host_only_reason says why if it has none. Results are kept in ~/.cache/ceres_ext (XDG_CACHE_HOME), by source,
    compiler and version, so a second call takes milliseconds. The source is
    compiled and run with the rights of the process.

    TypeError, ValueError: an argument is not of that form. CompilationError: there is no compiler, or it
    refuses the source.
    """
    arguments = _arguments(source, functor, num_residuals, block_sizes)
    text = _SOURCE.format(source=source, arguments=arguments)
    why = "device is False"
    if device:
        try:
            nvcc, flags, why = _find_nvcc()
            if not why:
                path = _compile(text, nvcc, [*_NVCC_FLAGS, *flags])
                return _load_cost_function(functor, str(path), "")
        except CompilationError as error:
            why = str(error)
    path = _compile(text, _find_compiler(), _HOST_FLAGS)
    return _load_cost_function(functor, str(path), why)


def _arguments(
    source: object, functor: object, num_residuals: object, block_sizes: object
) -> str:
    for name, text in (("source", source), ("functor", functor)):
        if not isinstance(text, str):
            raise TypeError(f"{name}: expected a str, found {type(text).__name__}")
    if not re.fullmatch(r"[A-Za-z_:][\w:<>, ]*", str(functor)):
        raise ValueError(f"functor: expected the name of a type, found {functor!r}")
    if not isinstance(block_sizes, typing.Sequence) or not block_sizes:
        raise TypeError(
            "block_sizes: expected a sequence of sizes, such as [9, 3], found "
            f"{block_sizes!r}"
        )
    sizes = [("num_residuals", num_residuals)]
    sizes += [(f"block_sizes[{i}]", size) for i, size in enumerate(block_sizes)]
    for name, size in sizes:
        if not isinstance(size, int) or isinstance(size, bool):
            raise TypeError(f"{name}: expected an int, found {size!r}")
        if not 1 <= size <= 1000:
            raise ValueError(f"{name}: expected 1 to 1000, found {size}")
    return ", ".join([str(functor), *(str(size) for _, size in sizes)])


def _find_compiler() -> list[str]:
    if os.environ.get("CXX"):
        command = shlex.split(os.environ["CXX"])
        if shutil.which(command[0]) is None:
            raise CompilationError(
                f"CXX: expected a C++ compiler, found no program {command[0]!r}"
            )
        return command
    for name in ("c++", "g++", "clang++"):
        path = shutil.which(name)
        if path is not None:
            return [path]
    raise CompilationError(
        "compile_cost_function takes a C++17 compiler: expected c++, g++ or clang++ "
        "in PATH, or the environment variable CXX, found none"
    )


def _find_nvcc() -> tuple[list[str], list[str], str]:
    """nvcc, its flags for the devices, and why there is no device form."""
    cuda, capabilities = _driver()
    if not capabilities:
        return [], [], "there is no CUDA device"
    flags = []
    for capability in capabilities:
        flags += ["-gencode", f"arch=compute_{capability},code=sm_{capability}"]
    candidates = [os.environ.get("CUDACXX"), "nvcc"]
    for folder in (os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        candidates.append(folder and os.path.join(folder, "bin", "nvcc"))
    why = "there is no nvcc in CUDACXX, PATH, CUDA_HOME or /usr/local/cuda"
    for candidate in candidates:
        path = shutil.which(candidate) if candidate else None
        if path is None:
            continue
        release = re.search(r"release (\d+)", _run([path, "--version"]).stdout)
        if release is not None and int(release[1]) > cuda:
            why = f"{path} is of CUDA {release[1]}, and the driver of CUDA {cuda}"
            continue
        host = ["-ccbin", os.environ["CXX"]] if os.environ.get("CXX") else []
        return [path, *host], flags, ""
    return [], [], why


def _driver() -> tuple[int, list[int]]:
    """The driver's CUDA, such as 12, and the devices' capabilities, such as 90."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0, []
    version, count = ctypes.c_int(), ctypes.c_int()
    major, minor = ctypes.c_int(), ctypes.c_int()
    if (
        driver.cuInit(0) != 0
        or driver.cuDriverGetVersion(ctypes.byref(version)) != 0
        or driver.cuDeviceGetCount(ctypes.byref(count)) != 0
    ):
        return 0, []
    found = set()
    for device in range(count.value):
        # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
        if (
            driver.cuDeviceGetAttribute(ctypes.byref(major), 75, device) == 0
            and driver.cuDeviceGetAttribute(ctypes.byref(minor), 76, device) == 0
        ):
            found.add(10 * major.value + minor.value)
    return version.value // 1000, sorted(found)


def _compile(text: str, compiler: list[str], flags: list[str]) -> pathlib.Path:
    """The shared library of the source, out of the cache or compiled."""
    version = _run([*compiler, "--version"]).stdout
    command = [*compiler, *_FLAGS, *flags]
    headers = (_INCLUDE / "digest.txt").read_text()
    key = hashlib.sha256(
        "\0".join([text, *command, version, headers]).encode()
    ).hexdigest()
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = pathlib.Path(cache) / "ceres_ext"
    library = folder / f"{key}.so"
    if library.exists():
        return library
    # Other users must not write what this process loads.
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="compile-") as work:
        source = pathlib.Path(work) / "cost_function.cc"
        source.write_text(text)
        made = pathlib.Path(work) / "made.so"
        # Not -isystem: nvcc is silent about calls out of such headers.
        done = _run([*command, "-I", str(_INCLUDE), str(source), "-o", str(made)])
        if done.returncode != 0:
            raise CompilationError(
                f"compile_cost_function: {shlex.join(compiler)} refused the "
                f"source:\n{done.stderr or done.stdout}"
            )
        # At once, since other processes may look for it.
        made.replace(library)
    return library


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise CompilationError(
            f"compile_cost_function can't run {command[0]}: {error}"
        ) from error
