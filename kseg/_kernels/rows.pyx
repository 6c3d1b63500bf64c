"""Records as Python objects, out of columns: each is made when it is asked for.

Borrowed input: the columns stay alive as long as the iterator.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from kseg._core cimport pointer_to

cdef extern from "Python.h":
    ctypedef struct PyTypeObject
    object PyType_GenericAlloc(PyTypeObject *kind, Py_ssize_t items)

cdef enum:
    FIELDS = 6


@cython.auto_pickle(False)
cdef class _Values:
    """A binary column: the value of each row."""

    cdef const int32_t[::1] ends
    cdef const uint8_t[::1] data, valid
    cdef bint has_nulls

    def __cinit__(self, column, Py_ssize_t count):
        self.ends, self.data = column.offsets, column.data
        self.has_nulls = column.validity is not None
        if self.has_nulls:
            self.valid = column.validity
        if self.ends.shape[0] != count + 1:
            raise ValueError("columns of different lengths")
        if self.has_nulls and self.valid.shape[0] < (count + 7) // 8:
            raise ValueError("a column has too few validity bits")

    cdef object at(self, Py_ssize_t row):
        cdef int32_t start = self.ends[row], end = self.ends[row + 1]
        if self.has_nulls and not self.valid[row >> 3] >> (row & 7) & 1:
            return None
        if not 0 <= start <= end <= self.data.shape[0]:
            raise ValueError("offsets do not ascend within the data")
        return PyBytes_FromStringAndSize(<const char *> pointer_to(self.data) + start, end - start)


@cython.auto_pickle(False)
@cython.final
cdef class Rows:
    """The rows of some columns as tuples of one class.

    Args:
        kind: a subclass of `tuple` without attributes of its own, of six items: offset, timestamp,
            type of the timestamp, key, value, headers.
        offsets, times: int64[n].
        types: int8[n], each from -1 to 1.
        type_names: the objects that stand for types -1, 0 and 1.
        keys, values: binary columns of n values.
        headers: the headers of each row; None where no row has any.

    Raises:
        ValueError: the lengths differ, a type is another, or a value lies outside its data.
    """

    cdef const int64_t[::1] offsets, times
    cdef const int8_t[::1] types
    cdef _Values keys, values
    cdef object kind, headers
    cdef tuple type_names
    cdef Py_ssize_t row, count

    def __cinit__(self, type kind not None, offsets, times, types, tuple type_names not None, keys,
                  values, headers):
        if not issubclass(kind, tuple) or len(type_names) != 3:
            raise ValueError("rows are tuples, and have three types of timestamps")
        self.kind, self.type_names, self.headers = kind, type_names, headers
        self.offsets, self.times, self.types = offsets, times, types
        self.row, self.count = 0, self.offsets.shape[0]
        if self.times.shape[0] != self.count or self.types.shape[0] != self.count:
            raise ValueError("columns of different lengths")
        if headers is not None and len(headers) != self.count:
            raise ValueError("columns of different lengths")
        self.keys, self.values = _Values(keys, self.count), _Values(values, self.count)

    def __iter__(self):
        return self

    def __length_hint__(self):
        return self.count - self.row

    def __next__(self):
        cdef Py_ssize_t row = self.row
        cdef int8_t type
        if row >= self.count:
            raise StopIteration
        self.row = row + 1
        type = self.types[row]
        if not -1 <= type <= 1:
            raise ValueError("no such type of timestamps")
        cdef object made = PyType_GenericAlloc(<PyTypeObject *> self.kind, FIELDS)
        _put(made, 0, self.offsets[row])
        _put(made, 1, self.times[row])
        _put(made, 2, self.type_names[type + 1])
        _put(made, 3, self.keys.at(row))
        _put(made, 4, self.values.at(row))
        _put(made, 5, () if self.headers is None else self.headers[row])
        return made


cdef inline void _put(object made, Py_ssize_t at, object item) noexcept:
    """Fill an item of a new tuple, which takes a reference of its own."""
    Py_INCREF(item)
    PyTuple_SET_ITEM(made, at, item)
