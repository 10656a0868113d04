"""Batches as torch tensors, over the same memory."""

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from fieldslab.reader.batch import Batch, Failure
from fieldslab.reader.buffers import Allocator
from fieldslab.reader.image_values import Pictures, Views
from fieldslab.reader.images.steps import ImageSteps
from fieldslab.reader.var_len import Ragged, VarLenValues
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import Field
from fieldslab.schemas.optiontext import mark_option

_ARRAYS = {torch.from_numpy(np.empty(0, code)).dtype for code in "?bhilBefdFD"}
"""Dtypes of tensors that arrays have, too, in all releases of torch."""


class Jagged(NamedTuple):
    """Rows of different lengths: all elements, and where rows begin and end (int64[rows + 1]).

    Of a nested field, `values` is the `Jagged` of all lists inside the lists.
    """

    values: Any
    offsets: torch.Tensor

    def nested(self) -> torch.Tensor:
        """Return the rows as a nested tensor of layout `torch.jagged`, without a copy.

        Raises UsageError for lists of lists, which have no such layout.
        """
        if isinstance(self.values, Jagged):
            raise UsageError(
                "lists of lists cannot become a nested tensor",
                hint="Write batch[name].values.nested(), which has the lists inside.",
            )
        return torch.nested.nested_tensor_from_jagged(self.values, self.offsets)


class TensorBatch(dict[str, Any]):
    """A batch as tensors by field name; ragged fields are `Jagged`, text and bytes as in `Batch`.

    Nested fields of numbers are `Jagged` of `Jagged`, those of text and bytes as in `Batch`.

    Decoded images are a tensor, a tuple of tensors for views of several sizes, or a list of them
    for pictures of their own sizes.

    Attributes
    ----------
    rows
        The rows gathered: int64[rows].
    valid
        Of each field that may have nulls: bool[rows], False where the row is null.
    sizes
        Of each image field: int64[rows, 2], height and width.
    failures
        Images that could not be decoded, as in `Batch`.
    visits
        As in `Batch`: int64[rows] or None.
    """

    rows: torch.Tensor
    valid: dict[str, torch.Tensor]
    sizes: dict[str, torch.Tensor]
    failures: tuple[Failure, ...]
    visits: torch.Tensor | None

    def to(self, device: Any, non_blocking: bool = False) -> "TensorBatch":
        """Return a copy with every tensor on a device."""
        return self._map_tensors(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "TensorBatch":
        """Return a copy with every tensor in pinned memory."""
        return self._map_tensors(lambda tensor: tensor.pin_memory() if tensor.is_cpu else tensor)

    def _map_tensors(self, change: Any) -> "TensorBatch":
        def change_value(value: Any) -> Any:
            if isinstance(value, Jagged):
                return Jagged(change_value(value.values), change(value.offsets))
            if isinstance(value, tuple | list):
                return type(value)(change_value(each) for each in value)
            return change(value) if isinstance(value, torch.Tensor) else value

        other = TensorBatch({name: change_value(value) for name, value in self.items()})
        other.rows = change(self.rows)
        other.failures = self.failures
        other.visits = None if self.visits is None else change(self.visits)
        other.valid = {name: change(value) for name, value in self.valid.items()}
        other.sizes = {name: change(value) for name, value in self.sizes.items()}
        return other


class ToTensors:
    """Turns batches into tensors; pins them if asked to.

    Nothing is copied but what is pinned. uint16, uint32 and uint64 keep their dtype. Fields that
    were packed from bfloat16 become bfloat16; dates and times become their int64.
    """

    def __init__(
        self,
        fields: Mapping[str, Field],
        pin: bool | str,
        decode: Mapping[str, ImageSteps] | None = None,
    ) -> None:
        """Take the slab's fields, what is decoded, and whether to pin: "auto" for accelerators."""
        self._bfloat16 = {
            name
            for name, field in fields.items()
            if field.logical is not None and field.logical.type == "bfloat16"
        }
        images = (decode or {}).items()
        self._bfloat16 |= {name for name, each in images if each.dtype == "bfloat16"}
        available = pin is not False and torch.cuda.is_available()
        if pin is True and not available:
            raise UsageError("cannot pin memory: torch finds no accelerator")
        self.pins = available if pin == "auto" else bool(pin)
        self.staged: dict[str, ImageSteps] = {}
        """Steps of fields whose stored pixels are left to a device."""

    @property
    def memory(self) -> Allocator | None:
        """Where batches should be gathered to, if that matters."""
        return None

    def __call__(self, batch: Batch | TensorBatch) -> TensorBatch:
        """The batch as tensors, pinned if they should be."""
        if isinstance(batch, Batch):
            batch = self.convert_to_tensors(batch)
        return self.pin_if_needed(batch)

    def copy_without_pin(self) -> "ToTensors":
        """Return the same batch, but its `pin_memory` does nothing."""
        other = copy.copy(self)
        other.pins = False
        return other

    def convert_to_tensors(self, batch: Batch) -> TensorBatch:
        """Convert the batch to tensors, over the same memory."""
        tensors = TensorBatch({name: self._convert_value(name, batch[name]) for name in batch})
        tensors.rows = torch.from_numpy(batch.rows)
        tensors.failures = batch.failures
        tensors.visits = None if batch.visits is None else torch.from_numpy(batch.visits)
        tensors.valid = {name: _view_as_tensor(valid) for name, valid in batch.valid.items()}
        tensors.sizes = {
            name: torch.from_numpy(size.astype(np.int64)) for name, size in batch.sizes.items()
        }
        return tensors

    def pin_if_needed(self, tensors: TensorBatch) -> TensorBatch:
        """Return the batch in pinned memory, if it should be."""
        return tensors.pin_memory() if self.pins else tensors

    def convert_to_arrays(self, tensors: TensorBatch) -> Batch:
        """Convert the batch to arrays, over the same memory; bfloat16 becomes uint16."""
        return Batch(
            tensors.rows.numpy(),
            {name: _convert_to_values(name, value) for name, value in tensors.items()},
            {name: valid.numpy() for name, valid in tensors.valid.items()},
            {name: size.numpy() for name, size in tensors.sizes.items()},
            tensors.failures,
            None if tensors.visits is None else tensors.visits.numpy(),
        )

    def merge_transformed(self, tensors: TensorBatch, changed: Mapping[str, Any]) -> TensorBatch:
        """Merge the output of a transform into the batch: a whole batch, or fields."""
        if isinstance(changed, Batch):
            return self.convert_to_tensors(changed)
        if isinstance(changed, TensorBatch) and hasattr(changed, "rows"):
            return changed
        merged = TensorBatch(tensors)
        vars(merged).update(vars(tensors))
        merged.update({name: self._convert_value(name, value) for name, value in changed.items()})
        return merged

    def _convert_value(self, name: str, value: Any) -> Any:
        if isinstance(value, Ragged):
            elements = self._convert_elements(name, value.values)
            return value if elements is None else Jagged(elements, torch.from_numpy(value.offsets))
        if isinstance(value, Views):
            return tuple(self._convert_array(name, each) for each in value)
        if isinstance(value, Pictures):
            return [_view_as_tensor(each) for each in value]
        return self._convert_array(name, value) if isinstance(value, np.ndarray) else value

    def _convert_elements(self, name: str, elements: Any) -> Any:
        """Convert the elements of a ragged field; None for text and bytes, which stay as they are.

        Raises UsageError where a list inside a list is null: a tensor could not say so.
        """
        if not isinstance(elements, VarLenValues):
            return self._convert_array(name, elements)
        if not isinstance(elements, Ragged):
            return None
        if elements.valid is not None:
            raise UsageError(
                "a list inside a list is null, which tensors cannot represent",
                field=name,
                hint=f"Take batches as numpy, whose {name!r} tells, or pack it as JSON: "
                f"{mark_option('cast', 'json', column=name)}.",
            )
        return self._convert_value(name, elements)

    def _convert_array(self, name: str, array: np.ndarray | torch.Tensor) -> torch.Tensor:
        if isinstance(array, torch.Tensor):
            return array  # decoded where it is
        tensor = _view_as_tensor(array)
        if name in self._bfloat16 and tensor.dtype == torch.uint16:
            return tensor.view(torch.bfloat16)
        return tensor


def reduce_tensor(value: Any) -> Any:
    """Pickle a tensor as an array, for `reducer_override`; other values as usual."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return NotImplemented
    if not value.is_cpu:
        raise UsageError("only tensors in CPU memory go between processes", found=value.device)
    value = value.detach()
    if value.dtype in _ARRAYS:
        return torch.from_numpy, (value.numpy(),)
    stored = value.contiguous().reshape(-1).view(torch.uint8).numpy()  # such as bfloat16
    return _restore_tensor, (stored, value.dtype, tuple(value.shape))


def _restore_tensor(stored: np.ndarray, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.from_numpy(stored).view(dtype).reshape(shape)


def _convert_to_values(name: str, value: Any) -> Any:
    """Convert a value of a `TensorBatch` to one of a `Batch`."""
    if isinstance(value, Jagged):
        return Ragged(_convert_to_values(name, value.values), _view_as_array(value.offsets), name)
    if isinstance(value, tuple):
        return Views(_view_as_array(each) for each in value)
    if isinstance(value, list):
        pictures = [_view_as_array(each) for each in value]
        pixels = [picture.reshape(-1) for picture in pictures]
        sizes = np.array([picture.shape[:2] for picture in pictures], np.int64).reshape(-1, 2)
        return Pictures(np.concatenate([*pixels, np.empty(0, np.uint8)]), sizes)
    return _view_as_array(value) if isinstance(value, torch.Tensor) else value


def _view_as_array(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.view(torch.uint16)
    array: np.ndarray = tensor.detach().numpy()
    return array


def _view_as_tensor(array: np.ndarray) -> torch.Tensor:
    if array.dtype.kind in "mM":
        array = array.view(np.int64)
    return torch.from_numpy(array)
