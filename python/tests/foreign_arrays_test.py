# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Arrays of other libraries: __cuda_array_interface__ and __dlpack__.

The producers here have memory of the host, so nothing but its description is read
of those that say that they are on a device.
"""

import ctypes

import numpy
import pytest
from conftest import OPTIONS, make_problem

import ceres_ext

CPU, CUDA, METAL, CUDA_MANAGED = 1, 2, 8, 13
INT, UINT, FLOAT, BFLOAT, BOOL = 0, 1, 2, 4, 6


class CudaArray:
    """An array that says that it is on a CUDA device."""

    def __init__(self, array, **changes):
        self._array = array
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.ctypes.data, not array.flags.writeable),
            "strides": None if array.flags.c_contiguous else array.strides,
            "version": 3,
            "stream": None,
            **changes,
        }


class DLTensor(ctypes.Structure):
    """DLManagedTensor of dlpack.h, version 0."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


class DlpackArray:
    """An array that describes itself by DLPack, as JAX's."""

    def __init__(self, array, device=CPU, code=FLOAT, bits=64, lanes=1):
        self._array = array
        self._device = device
        n = array.ndim
        self._shape = (ctypes.c_int64 * n)(*array.shape)
        strides = [stride // array.itemsize for stride in array.strides]
        self._strides = (ctypes.c_int64 * n)(*strides)
        self._tensor = DLTensor(
            array.ctypes.data, device, 0, n, code, bits, lanes, self._shape, self._strides
        )

    def __dlpack_device__(self):
        return self._device, 0

    def __dlpack__(self, **_):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self._tensor), b"dltensor", None)


class NumpyArray:
    """An array that has no protocol but numpy's DLPack."""

    def __init__(self, array):
        self._array = array

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()

    def __dlpack__(self, **arguments):
        return self._array.__dlpack__(**arguments)


VALUES = numpy.zeros((4, 9))
READ_ONLY = numpy.zeros((4, 9))
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize("make", [NumpyArray, DlpackArray])
def test_host_arrays_are_solved_in_place(bal, make):
    plain, shared = (
        bal._replace(cameras=bal.cameras.copy(), points=bal.points.copy())
        for _ in range(2)
    )
    weights = numpy.linspace(0.5, 2, len(bal.observations))
    expected = ceres_ext.solve(
        make_problem(plain, weights=weights), max_num_iterations=3, **OPTIONS
    )
    integers = {"code": INT, "bits": 32} if make is DlpackArray else {}
    wrapped = shared._replace(
        cameras=make(shared.cameras),
        points=make(shared.points),
        camera_index=make(shared.camera_index, **integers),
        point_index=make(shared.point_index, **integers),
        observations=make(shared.observations),
    )
    problem = make_problem(wrapped, weights=make(weights))
    found = ceres_ext.solve(problem, max_num_iterations=3, **OPTIONS)
    assert found.path == "FULL", found.path_reason
    assert found.final_cost == expected.final_cost
    assert numpy.array_equal(shared.cameras, plain.cameras)
    assert numpy.array_equal(shared.points, plain.points)


PLACE = "values: expected an array on a CUDA device of float64"


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        (CudaArray(VALUES.astype("f4")), TypeError, f"{PLACE}, found float32"),
        (CudaArray(VALUES.astype(">f8")), TypeError, f"{PLACE}, found another type"),
        (CudaArray(VALUES.astype(bool)), TypeError, f"{PLACE}, found bool"),
        (
            CudaArray(VALUES[0]),
            ValueError,
            r"values: expected an array of shape \(any, any\), found \(9,\)",
        ),
        (
            CudaArray(VALUES[:, ::2]),
            ValueError,
            "values: expected a C-contiguous, aligned array",
        ),
        (
            CudaArray(numpy.asfortranarray(VALUES)),
            ValueError,
            "values: expected a C-contiguous, aligned array",
        ),
        (CudaArray(READ_ONLY), ValueError, "values: expected a writable array"),
        (
            CudaArray(VALUES, shape="four"),
            TypeError,
            "values: expected a __cuda_array_interface__, found {",
        ),
        (
            CudaArray(VALUES, data=None),
            TypeError,
            "values: expected a __cuda_array_interface__, found {",
        ),
        (
            DlpackArray(VALUES, METAL),
            TypeError,
            "values: expected an array on the host or a CUDA device, found one on "
            "device type 8 of DLPack",
        ),
        (DlpackArray(VALUES, CUDA, INT), TypeError, f"{PLACE}, found int64"),
        (DlpackArray(VALUES, CUDA, BFLOAT, 16), TypeError, f"{PLACE}, found another"),
        (DlpackArray(VALUES, CUDA, lanes=2), TypeError, f"{PLACE}, found another type"),
        (DlpackArray(VALUES, CUDA, BOOL, 8), TypeError, f"{PLACE}, found bool"),
        (
            DlpackArray(VALUES.astype("f4"), bits=32),
            TypeError,
            "values: expected a numpy array of float64, found float32",
        ),
        (
            DlpackArray(VALUES[:, ::2], CUDA_MANAGED),
            ValueError,
            "values: expected a C-contiguous, aligned array",
        ),
        (
            NumpyArray(READ_ONLY),
            TypeError,
            "values: expected an array that __dlpack__ of .*NumpyArray gives, found",
        ),
    ],
)
def test_refusals(values, error, words):
    problem = ceres_ext.ArrayProblem()
    with pytest.raises(error, match=f"^{words}"):
        problem.add_parameters(values)
    assert problem.add_parameters(VALUES) == 0


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (
            {"observations": CudaArray(numpy.zeros((5, 3)))},
            ValueError,
            r"observations: expected an array of shape \(any, 2\), found \(5, 3\)",
        ),
        (
            {"blocks": [(0, CudaArray(numpy.zeros(5, int))), (1, None)]},
            TypeError,
            r"blocks\[0\]\[1\]: expected an array on a CUDA device of int32, found int64",
        ),
        (
            {"weights": DlpackArray(numpy.zeros(4), CUDA)},
            ValueError,
            r"weights: expected an array of shape \(5,\), found \(4,\)",
        ),
        (
            {
                "cost_function": "PointPrior",
                "observations": CudaArray(numpy.zeros((5, 3))),
                "blocks": [(1, None)],
            },
            TypeError,
            "observations: expected a numpy array of float64, found .*CudaArray",
        ),
    ],
)
def test_refused_residuals(arguments, error, words):
    problem = ceres_ext.ArrayProblem()
    problem.add_parameters(numpy.zeros((5, 9)))
    problem.add_parameters(numpy.zeros((5, 3)))
    good = {
        "cost_function": "BalReprojectionError",
        "observations": numpy.zeros((5, 2)),
        "blocks": [(0, None), (1, None)],
    }
    with pytest.raises(error, match=f"^{words}"):
        problem.add_residuals(**{**good, **arguments})
    problem.add_residuals(**good)


def test_flags_are_of_numpy():
    problem = ceres_ext.ArrayProblem()
    with pytest.raises(TypeError, match="^constant: expected a numpy array of bool"):
        problem.add_parameters(VALUES, constant=CudaArray(numpy.zeros(4, bool)))


def test_memory_that_is_not_on_a_device(bal):
    """Named before anything is read."""
    problem = make_problem(bal._replace(cameras=CudaArray(bal.cameras)))
    before = bal.cameras.copy()
    with pytest.raises(ValueError, match="parameters 0: values") as error:
        ceres_ext.solve(problem, **OPTIONS)
    assert "device" in str(error.value)
    assert numpy.array_equal(bal.cameras, before)
