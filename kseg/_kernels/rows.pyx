"""Records as Python objects, out of columns: each is made when it is asked for.

Borrowed input: the columns stay alive as long as the iterator.
"""

import datetime

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.datetime cimport datetime_new, import_datetime
from cpython.dict cimport PyDict_Copy, PyDict_SetItem
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from kseg._core cimport INT64_MIN, pointer_to

cdef extern from "Python.h":
    ctypedef struct PyTypeObject
    object PyType_GenericAlloc(PyTypeObject *kind, Py_ssize_t items)

import_datetime()

cdef enum:
    FIELDS = 6
    DAY_S = 86_400

cdef object UTC = datetime.UTC


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


@cython.auto_pickle(False)
@cython.final
cdef class Dicts:
    """The rows of some columns as dicts.

    Args:
        place: what each row begins with.
        names: of the columns.
        columns: a binary column of n values, int64[n] for times in ms since 1970 (the least number
            for none), or a list of n values, for each name.
        count: n.

    Raises:
        ValueError: the lengths differ, a value lies outside its data, or a time outside the years 1
            to 9999.
    """

    cdef dict place
    cdef tuple names
    cdef list columns
    cdef const int64_t[::1] times
    cdef Py_ssize_t row, count, times_at

    def __cinit__(self, dict place not None, tuple names not None, list columns not None,
                  Py_ssize_t count):
        cdef list kept = []
        self.times_at = -1
        for at, column in enumerate(columns):
            if isinstance(column, list):
                if len(column) != count:
                    raise ValueError("columns of different lengths")
            elif hasattr(column, "validity"):
                column = _Values(column, count)
            else:
                self.times, self.times_at = column, at
                if self.times.shape[0] != count:
                    raise ValueError("columns of different lengths")
            kept.append(column)
        if len(kept) != len(names):
            raise ValueError("a column has no name")
        self.place, self.names, self.columns, self.row, self.count = place, names, kept, 0, count

    def __iter__(self):
        return self

    def __length_hint__(self):
        return self.count - self.row

    def __next__(self):
        cdef Py_ssize_t row = self.row, at
        if row >= self.count:
            raise StopIteration
        self.row = row + 1
        cdef dict made = PyDict_Copy(self.place)
        for at in range(len(self.names)):
            column = self.columns[at]
            if type(column) is list:
                item = (<list> column)[row]
            elif at == self.times_at:
                item = _time(self.times[row])
            else:
                item = (<_Values> column).at(row)
            PyDict_SetItem(made, self.names[at], item)
        return made


cdef object _time(int64_t ms):
    """A datetime in UTC; None for no time.

    Source: Howard Hinnant, chrono-Compatible Low-Level Date Algorithms, `civil_from_days`.
    """
    if ms == INT64_MIN:  # NumPy's NaT
        return None
    cdef int64_t seconds = ms // 1000, days, era, year
    cdef int left = <int> (ms - seconds * 1000), second, day, of_era, month
    if ms < seconds * 1000:  # division goes towards zero
        seconds, left = seconds - 1, left + 1000
    days = seconds // DAY_S
    if seconds < days * DAY_S:
        days -= 1
    second = <int> (seconds - days * DAY_S)
    days += 719_468  # from March of the year 0 on
    era = (days if days >= 0 else days - 146_096) // 146_097
    day = <int> (days - era * 146_097)
    of_era = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * of_era + of_era // 4 - of_era // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5 - 1
    month += 3 if month < 10 else -9
    year = era * 400 + of_era + (month <= 2)
    if not 1 <= year <= 9999:
        raise ValueError("a time outside the years 1 to 9999")
    return datetime_new(<int> year, month, day, second // 3600, second // 60 % 60, second % 60,
                        left * 1000, UTC, 0)


cdef inline void _put(object made, Py_ssize_t at, object item) noexcept:
    """Fill an item of a new tuple, which takes a reference of its own."""
    Py_INCREF(item)
    PyTuple_SET_ITEM(made, at, item)
