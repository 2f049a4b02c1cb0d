# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""copy_headers.py OUTPUT COMPILER ROOT...

Copies the headers that cost functions of compile_cost_function need, as the
compiler finds them in the folders ROOT, to OUTPUT under their names, with the
digest of all. The headers of the compiler and the C library are the user's.
"""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

PROGRAM = """
#include "ceres/jet.h"
#include "ceres/rotation.h"
#include "ceres_ext/camera_models.h"
#include "ceres_ext/photogrammetry.h"
#include "python/src/compiled_cost_function.h"
"""
# Read by nvcc alone.
DEVICE = ["ceres_ext/device/cost_function.cuh"]

output, compiler = pathlib.Path(sys.argv[1]), sys.argv[2]
roots = [pathlib.Path(root).resolve() for root in sys.argv[3:]]


def find(name):
    return next(root / name for root in roots if (root / name).exists())


includes = [option for root in roots for option in ("-I", str(root))]
listed = subprocess.run(
    [compiler, "-std=c++17", "-DNDEBUG", "-M", "-x", "c++", *includes, "-"],
    input=PROGRAM,
    stdout=subprocess.PIPE,
    text=True,
    check=True,
).stdout
# A rule of make: spaces in names have a backslash.
names = listed.replace("\\\n", " ").replace("\\ ", "\0").split()[1:]
headers = {}
for name in names:
    path = pathlib.Path(os.path.abspath(name.replace("\0", " ")))
    for root in roots:
        if path.resolve().is_relative_to(root):
            headers[str(path.resolve().relative_to(root))] = path
            break
pending = list(DEVICE)
while pending:
    name = pending.pop()
    if name not in headers:
        headers[name] = find(name)
        text = headers[name].read_text()
        pending += re.findall(r'^#include "([^"]+)"', text, re.MULTILINE)
# Eigen reads these with nvcc, or with options such as -march=native.
eigen = find("Eigen/src/Core/arch")
for folder in ("AVX", "AVX512", "CUDA", "Default", "GPU", "SSE"):
    for path in (eigen / folder).glob("*.h"):
        headers[f"Eigen/src/Core/arch/{folder}/{path.name}"] = path

shutil.rmtree(output, ignore_errors=True)
digest = hashlib.sha256()
for name in sorted(headers):
    to = output / name
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(headers[name], to)
    digest.update(name.encode() + b"\0" + to.read_bytes() + b"\0")
(output / "digest.txt").write_text(digest.hexdigest() + "\n")
