"""Where the bytes lie that tensors refer to: in files, which are mapped, or in arrays of this process."""

from __future__ import annotations

import math
import mmap
import os
import secrets
import sys
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from surgeon_passes.errors import ModelError
from surgeon_passes.model.elements import element_bits, numpy_dtype, onnx_dtype, raw_bytes
from surgeon_passes.model.wire import LARGE, PLAIN, point

Array = NDArray[Any]
Bytes = NDArray[np.uint8]

HELD_FILES = 64
"""Files that are held open; where a model has more, the others are mapped anew each time."""


class Weights:
    """The bytes behind the references of one model.

    Files are looked for in ``folder``, mapped when they are first read, and held: one that is replaced meanwhile still
    gives what it held; one that is written over is an error. ``own`` names the model's own file where initializers of it
    are referred to: they are not external data.
    """

    def __init__(self, folder: str | os.PathLike[str] = "", own: str = "") -> None:
        self.folder = os.fspath(folder)
        self.own = own
        self.home = ""
        """where the model's own file lies once links are followed, if it comes from one"""
        self._files: dict[str, _Mapping] = {}
        self._memory: dict[str, Array | TensorProto] = {}
        self._token = f"\0{secrets.token_hex(8)}"  # no file can name what lies in memory
        self._aligned: WeakValueDictionary[tuple[str, int, int], Array] = WeakValueDictionary()

    @staticmethod
    def of(folder: str | os.PathLike[str] | Weights) -> Weights:
        return folder if isinstance(folder, Weights) else Weights(folder)

    def branch(self) -> Weights:
        """The same files, with references of its own to memory besides."""
        found = Weights(self.folder, self.own)
        found.home = self.home
        found._files, found._aligned = self._files, self._aligned
        found._memory, found._token = dict(self._memory), self._token
        return found

    def shares_files(self, other: Weights) -> bool:
        """Whether a reference means the same in both."""
        return self._files is other._files

    def is_external(self, tensor: TensorProto) -> bool:
        """Whether the tensor lies in a file other than the model's."""
        if tensor.data_location != TensorProto.EXTERNAL:
            return False
        location = external_fields(tensor).get("location", "")
        return location != self.own and location not in self._memory

    def is_in_file(self, tensor: TensorProto, other: bool) -> bool:
        """Whether the tensor lies in a file, with ``other`` in one that is not the model's."""
        if tensor.data_location != TensorProto.EXTERNAL:
            return False
        location = external_fields(tensor).get("location", "")
        return location not in self._memory and not (other and location == self.own)

    # --- memory ------------------------------------------------------------------------------------------------------

    def refer(self, name: str, held: Array | TensorProto) -> TensorProto | None:
        """A tensor that refers to ``held``, an array or a tensor with raw data; None where that is not worth it, or
        where raw data is not an array's memory."""
        if sys.byteorder != "little":
            return None
        tensor = _without_data(held) if isinstance(held, TensorProto) else _declared(held)
        if tensor is None or tensor.data_type not in PLAIN:
            return None
        count = math.prod(tensor.dims) * numpy_dtype(tensor.data_type).itemsize
        if count < LARGE:
            return None
        location = f"{self._token}{len(self._memory)}"
        self._memory[location] = held
        tensor.name = name
        point(tensor, location, 0, count)
        return tensor

    def held(self, tensor: TensorProto) -> Array | TensorProto | None:
        """What a reference to memory refers to."""
        return self._memory.get(external_fields(tensor).get("location", ""))

    # --- reading -----------------------------------------------------------------------------------------------------

    def array(self, tensor: TensorProto) -> Array:
        """The values, without a copy where the bytes lie ready. Raises ModelError naming tensor and file where they are
        missing or short."""
        if tensor.data_location != TensorProto.EXTERNAL:
            array = numpy_helper.to_array(tensor)
            return array if array.flags.c_contiguous else np.ascontiguousarray(array)
        held = self.held(tensor)
        if held is not None:
            return self.array(held) if isinstance(held, TensorProto) else held
        raw = self.raw(tensor)
        if element_bits(tensor.data_type) < 8:
            whole = TensorProto(dims=tensor.dims, data_type=tensor.data_type, raw_data=raw.tobytes())
            return np.asarray(numpy_helper.to_array(whole))
        return raw.view(numpy_dtype(tensor.data_type)).reshape(tuple(tensor.dims))

    def aligned(self, tensor: TensorProto) -> Array:
        """As :meth:`array`, at an address that is a multiple of the element's size: copied where it must be, and the
        copy is shared as long as somebody holds it."""
        array = self.array(tensor)
        if tensor.data_location != TensorProto.EXTERNAL:
            return array
        if array.flags.aligned and array.flags.c_contiguous:
            return array
        fields = external_fields(tensor)
        key = (fields.get("location", ""), external_number(tensor, "offset", 0), array.nbytes)
        found = self._aligned.get(key)
        if found is None or found.dtype != array.dtype or found.shape != array.shape:
            found = self._aligned[key] = np.require(array, requirements=["C", "A"])
        return found

    def write(self, tensor: TensorProto, into: TensorProto) -> None:
        """``tensor`` with its values inside. Raises ModelError as :meth:`array` does."""
        held, name = self.held(tensor), tensor.name
        if isinstance(held, TensorProto):
            into.CopyFrom(held)
            into.name = name
            return
        data = self.raw(tensor).tobytes()
        if into is not tensor:
            into.CopyFrom(tensor)
        into.raw_data = data
        into.ClearField("data_location")
        del into.external_data[:]

    def raw(self, tensor: TensorProto) -> Bytes:
        """Raw data, in the file's byte order. Raises ModelError as :meth:`array` does."""
        held = self.held(tensor)
        if isinstance(held, TensorProto):
            return np.frombuffer(held.raw_data, np.uint8)
        if held is not None:
            return np.ascontiguousarray(held).reshape(-1).view(np.uint8)
        if tensor.data_type == TensorProto.STRING:
            raise ModelError(f"tensor '{tensor.name}': strings cannot lie in external data")
        location = external_fields(tensor).get("location", "")
        offset = external_number(tensor, "offset", 0)
        needed = raw_bytes(tensor)
        length = external_number(tensor, "length", needed)
        if length != needed:
            raise ModelError(
                f"tensor '{tensor.name}': dims {list(tensor.dims)} do not fit its {length} bytes of external data"
            )
        path = self._path(tensor, location)
        data = self._file(location, path, tensor.name)
        if offset + needed > data.size:
            raise ModelError(f"tensor '{tensor.name}': external data {path} ends before byte {offset + needed}")
        return data[offset : offset + needed]

    def _path(self, tensor: TensorProto, location: str) -> Path:
        if not location.strip(".") or "\0" in location:
            raise ModelError(f"tensor '{tensor.name}': its external data names no file")
        if os.path.isabs(location) or ".." in Path(location).parts:
            raise ModelError(f"tensor '{tensor.name}': its external data '{location}' lies outside the model's folder")
        path = Path(self.folder) / location
        if location not in self._files and not self._is_inside(path):
            raise ModelError(f"tensor '{tensor.name}': its external data '{location}' links out of the model's folder")
        return path

    def _is_inside(self, path: Path) -> bool:
        """Whether a file lies in the folder, or beside the model's own, once links are followed: caches of models hold
        both as links into one folder."""
        real = path.resolve()
        return real.is_relative_to(Path(self.folder).resolve()) or (bool(self.home) and real.parent == Path(self.home))

    def _file(self, location: str, path: Path, name: str) -> Bytes:
        held = self._files.get(location)
        try:
            if held is None:
                held = self._files[location] = _Mapping(path, keep=len(self._files) < HELD_FILES)
            return held.bytes()
        except ValueError as error:
            raise ModelError(f"tensor '{name}': {path} {error}") from None
        except OSError as error:
            raise ModelError(
                f"tensor '{name}': external data {path} cannot be read ({error.strerror or error})"
            ) from None

    def map_own(self, path: str) -> Bytes:
        """The model's own file; ``own`` is its name from then on. Raises OSError."""
        self.own = os.path.basename(path)
        held = self._files[self.own] = _Mapping(Path(path), keep=True)
        return held.bytes()


class _Mapping:
    """One file, read-only. Raises OSError where it cannot be opened."""

    def __init__(self, path: Path, keep: bool) -> None:
        self.path = path
        with path.open("rb") as stream:
            self.state = _state(stream.fileno())
            self.fileno = os.dup(stream.fileno()) if keep else -1
            self.data = _mapped(stream.fileno()) if keep else None

    def __del__(self) -> None:
        if getattr(self, "fileno", -1) >= 0:
            os.close(self.fileno)

    def bytes(self) -> Bytes:
        """Raises ValueError, saying so, where the file is not what it was: pages that are gone end the process."""
        if self.data is not None:
            self._check(self.fileno)
            return self.data
        with self.path.open("rb") as stream:
            self._check(stream.fileno())
            return _mapped(stream.fileno())

    def _check(self, fileno: int) -> None:
        if _state(fileno) != self.state:
            raise ValueError("was written over since it was read")


def _state(fileno: int) -> tuple[int, int, int]:
    found = os.fstat(fileno)
    return found.st_ino, found.st_size, found.st_mtime_ns


def _mapped(fileno: int) -> Bytes:
    if os.fstat(fileno).st_size == 0:
        return np.zeros(0, np.uint8)
    return np.frombuffer(mmap.mmap(fileno, 0, access=mmap.ACCESS_READ), np.uint8)


def _declared(array: Array) -> TensorProto | None:
    return None if array.dtype == object else TensorProto(dims=array.shape, data_type=onnx_dtype(array.dtype))


def _without_data(tensor: TensorProto) -> TensorProto | None:
    """The fields of a tensor with raw data, less that; None for one whose values lie elsewhere."""
    if not tensor.HasField("raw_data") or tensor.HasField("segment") or tensor.data_location == TensorProto.EXTERNAL:
        return None
    found = TensorProto(dims=tensor.dims, data_type=tensor.data_type)
    if tensor.HasField("name"):
        found.name = tensor.name
    if tensor.HasField("doc_string"):
        found.doc_string = tensor.doc_string
    if tensor.HasField("data_location"):
        found.data_location = tensor.data_location
    if hasattr(tensor, "metadata_props"):
        found.metadata_props.extend(tensor.metadata_props)
    return found


def external_fields(tensor: TensorProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}


def external_number(tensor: TensorProto, key: str, default: int) -> int:
    """ "offset" or "length" of external data. Raises ModelError where it is no number."""
    text = external_fields(tensor).get(key, str(default))
    if not (text.isascii() and text.isdigit()):
        raise ModelError(f"tensor '{tensor.name}': the {key} of its external data is '{text}', no number of bytes")
    return int(text)
