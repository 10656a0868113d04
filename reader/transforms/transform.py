"""What is done to batches on the way to the training step.

A transform takes a batch and returns the fields that it makes or replaces. Those here write into
recycled memory when a `Loader` calls them. Threads call one transform at once, so it keeps
nothing from one batch to the next.

Any function of a batch will do. With output="torch", in a `SlabDataset` and with Lightning, it
gets tensors (`TensorBatch`); the transforms here get arrays always. A function that draws takes
`rng`, a parameter of that name, and gets a `RowGenerator`, which makes tensors where the function
gets tensors:

    def jitter(batch, rng):
        return {"x": batch["x"] * rng.uniform(0.9, 1.1)[:, None]}

What `rng` draws is a function of (seed, epoch, row, visit): the same for any number of threads,
batch size and ranks, and after a resume. The seed is `seed=`, or the order's. A function that
draws from global state (`np.random`, `random`, `torch.rand`) works, but loses all of that: threads
draw in any order, and a run that resumes goes on with other numbers.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from fieldslab.reader.batch import Batch, Values, make_unknown_field_error
from fieldslab.reader.buffers import Allocator
from fieldslab.reader.var_len import Ragged
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import Field
from fieldslab.schemas.renamed import refuse_renamed_methods


class _NumpyAllocator:
    """Memory that is not recycled."""

    def allocate_array(
        self, key: Hashable, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> np.ndarray:
        return np.empty(shape, dtype)


FRESH = _NumpyAllocator()


class Transform(ABC):
    """Base of the transforms here. Any function of a batch will do instead.

    Attributes
    ----------
    takes_tensors
        Whether it takes a `TensorBatch` if the loader's output is torch. Otherwise it takes a
        `Batch`.
    """

    field: str
    takes_tensors = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        refuse_renamed_methods(Transform, cls)

    @abstractmethod
    def __call__(self, batch: Batch, memory: Allocator = FRESH) -> dict[str, Values]:
        """Return the fields that are made or replaced, by name; `memory` gives large arrays."""

    def check(self, fields: dict[str, Field | None]) -> None:
        """Raise UsageError if the fields cannot be transformed; note in `fields` what changes.

        None stands for a field that an earlier transform made.
        """
        if self.field not in fields:
            raise make_unknown_field_error(self.field, fields)
        field = fields[self.field]
        if field is not None and (reason := self.explain_misfit(field)):
            raise UsageError(f"{type(self).__name__}: {reason}", field=self.field)
        for name in self.list_outputs():
            fields[name] = None

    def explain_misfit(self, field: Field) -> str | None:
        """Say why a field cannot be transformed; None if it can."""
        return None

    def list_outputs(self) -> list[str]:
        """Return the names of the fields that are made or replaced."""
        return [self.field]


class Cast(Transform):
    """The values in another dtype, converted as `numpy.ndarray.astype` does.

    Fixed fields (rows, *shape) and ragged ones keep their shape.
    """

    def __init__(self, field: str, dtype: Any) -> None:
        self.field = field
        self.dtype = convert_dtype(dtype)

    def __call__(self, batch: Batch, memory: Allocator = FRESH) -> dict[str, Values]:
        """See `Transform`."""
        values = get_numbers(batch, self.field)
        out = memory.allocate_array(self.field, values.shape, self.dtype)
        np.copyto(out, values, casting="unsafe")
        return {self.field: wrap_like(batch[self.field], out)}

    def explain_misfit(self, field: Field) -> str | None:
        """See `Transform`."""
        return explain_not_numeric(field)


class Lambda(Transform):
    """Replace one field's values by the result of a function.

    With output="torch" the function gets a tensor. Only functions at the top of a module can be
    pickled, for loaders in other processes.
    """

    takes_tensors = True

    def __init__(self, field: str, function: Callable[[Any], Any]) -> None:
        self.field = field
        self.function = function

    def __call__(self, batch: Batch, memory: Allocator = FRESH) -> dict[str, Values]:
        """See `Transform`."""
        return {self.field: self.function(batch[self.field])}


def takes_tensors(transform: Callable[..., Any]) -> bool:
    """Return True if a transform gets a `TensorBatch` where the loader's output is torch."""
    takes: bool = getattr(transform, "takes_tensors", not isinstance(transform, Transform))
    return takes


def get_numbers(batch: Batch, name: str) -> np.ndarray:
    """Return the values of a fixed or ragged field, as one array."""
    values = batch[name]
    if isinstance(values, Ragged):
        return values.values
    if not isinstance(values, np.ndarray):
        raise UsageError("this field has no numbers", field=name, found=type(values).__name__)
    return values


def wrap_like(values: Values, out: np.ndarray) -> Values:
    """Wrap `out` in the form of `values`."""
    return Ragged(out, values.offsets, values.name) if isinstance(values, Ragged) else out


def explain_not_numeric(field: Field) -> str | None:
    """Say why a field has no numbers to compute with; None if it does."""
    if field.kind in ("text", "binary", "image", "nested"):
        return f"a field of kind {field.kind} has no numbers"
    if field.logical is not None and field.logical.type == "bfloat16":
        return 'bfloat16 is stored as its bits: convert it after output="torch"'
    return None


def convert_dtype(dtype: Any) -> np.dtype[Any]:
    """Convert anything that names a dtype, such as a dtype of torch. Raises UsageError."""
    try:
        return np.dtype(str(dtype).removeprefix("torch.") if "torch." in str(dtype) else dtype)
    except TypeError:
        raise UsageError("not a dtype", found=repr(dtype), expected="such as float32") from None
