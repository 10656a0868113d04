"""The transforms of a loader, one after the other, and what each of them is given."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fieldslab.reader.batch import Batch, Padding
from fieldslab.reader.buffers import Allocator
from fieldslab.reader.draws.visits import count_visits, make_draw_numbers
from fieldslab.reader.images.steps import ImageSteps
from fieldslab.reader.orders.order import Order
from fieldslab.reader.rows import check_integer
from fieldslab.reader.slab import Slab
from fieldslab.reader.transforms.pad_shift import Pad
from fieldslab.reader.transforms.transform import Transform, takes_tensors
from fieldslab.reader.views import View, find_stored_rows
from fieldslab.schemas.errors import MissingLibrary, UsageError
from fieldslab.schemas.fields import Field

if TYPE_CHECKING:
    from fieldslab.reader.tensor_batch import TensorBatch, ToTensors

_TENSORS = (
    'with output="torch", functions in `transforms` get tensors; '
    "make a `Transform` of one that needs arrays"
)


class TransformChain:
    """Transforms as a loader applies them; any number of threads may call it at once.

    Arrays become tensors where the first function stands that takes tensors, or at the end.
    """

    def __init__(
        self,
        transforms: Sequence[Callable[..., Any]],
        seed: int,
        view: View,
        memory: Allocator,
        convert: "ToTensors | None" = None,
        paddings: Mapping[str, Padding] | None = None,
    ) -> None:
        """Take a seed of `rng`, the slab's view, and what makes tensors, if they are wanted.

        `paddings`, of `find_paddings`, are left to the gather. `memory` is for what is returned.
        """
        self.paddings = paddings or {}
        self._seed = seed
        self._view = view
        self.memory = memory
        self._convert = convert
        self._transforms = [
            (place, transform, has_rng_parameter(transform))
            for place, transform in enumerate(transforms)
            if place >= len(self.paddings)
        ]
        self.draws = any(draws for _, _, draws in self._transforms)
        """Whether a transform takes `rng`, so that batches must know their visits."""
        self.calls_functions = self.draws or not all(map(_is_own_transform, transforms))
        """Whether a transform is not one of ours, or draws."""
        self.sends = convert is not None and convert.memory is not None
        """Whether batches are sent to a device."""

    @property
    def has_transforms(self) -> bool:
        """Whether a transform is left to be applied."""
        return bool(self._transforms)

    def __bool__(self) -> bool:
        """Whether anything reads the values of batches."""
        return bool(self._transforms) or (self._convert is not None and self._convert.pins)

    def __call__(
        self, batch: Batch, epoch: int, lap: Callable[[str], None] = lambda stage: None
    ) -> "Batch | TensorBatch":
        """Apply all of them. `lap` is called after each with its name."""
        result: Batch | TensorBatch = batch
        for place, transform, draws in self._transforms:
            result = self._apply_transform(transform, result, epoch, place if draws else None)
            lap(type(transform).__name__)
        if self._convert is not None:
            if isinstance(result, Batch):
                result = self._convert.convert_to_tensors(result)
            result = self._convert.pin_if_needed(result)
            lap("convert")
        return result

    def _apply_transform(
        self,
        transform: Callable[..., Any],
        batch: "Batch | TensorBatch",
        epoch: int,
        place: int | None,
    ) -> "Batch | TensorBatch":
        """Apply one; `place` is its number if it draws."""
        ours = isinstance(transform, Transform)
        convert = self._convert
        tensors = convert is not None and takes_tensors(transform)
        if convert is not None and tensors and isinstance(batch, Batch):
            batch = convert.convert_to_tensors(batch)
        argument = batch
        if convert is not None and not tensors and not isinstance(batch, Batch):
            argument = convert.convert_to_arrays(batch)
        options = {} if place is None else {"rng": self._make_rng(batch, epoch, place, tensors)}
        try:
            changed = transform(argument, *([self.memory] if ours else []), **options)
        except (AttributeError, TypeError) as error:
            if tensors:
                error.add_note(_TENSORS)
            raise
        if not isinstance(changed, Mapping):
            raise UsageError(
                "a transform must return a mapping from field name to array",
                found=f"{type(changed).__name__} from {transform!r}",
            )
        if convert is not None and not isinstance(batch, Batch):
            return convert.merge_transformed(batch, changed)
        assert isinstance(batch, Batch)
        return _merge_result(batch, changed)

    def _make_rng(self, batch: "Batch | TensorBatch", epoch: int, place: int, tensors: bool) -> Any:
        """Make the generator of a transform for the rows of a batch."""
        numbers = np.asarray(batch.rows)
        # A function may have made a batch of other rows, whose visits nobody knows.
        visits = count_visits(numbers) if batch.visits is None else np.asarray(batch.visits)
        drawn = make_draw_numbers(find_stored_rows(self._view, numbers), visits)
        key = self._seed, epoch, place
        if tensors:
            from fieldslab.reader.transforms.perrow import TensorGenerator

            return TensorGenerator(drawn, *key)
        from fieldslab.reader.transforms.rng import RowGenerator

        return RowGenerator(drawn, *key)


def find_paddings(
    slab: Slab,
    transforms: Sequence[Callable[..., Any]],
    fields: Sequence[str],
    decoded: Iterable[str],
) -> dict[str, Padding]:
    """Find, by field, paddings of the first transforms that a gather of `fields` can do instead."""
    if any(decoded):
        return {}
    paddings: dict[str, Padding] = {}
    masks: set[str | None] = set()
    for transform in transforms:
        if type(transform) is not Pad or transform.field in (*paddings, *masks):
            break
        if transform.field not in fields or slab.fields[transform.field].compression is not None:
            break
        if transform.field in slab.storage.dtypes:
            break
        if transform.mask is not None and transform.mask in (*paddings, *masks, transform.field):
            break
        if (padding := transform.padding) is None:
            break
        paddings[transform.field] = padding
        masks.add(transform.mask)
    return paddings


def check_transforms(
    gathered: Mapping[str, Field],
    decoded: Iterable[str],
    transforms: Sequence[Callable[..., Mapping[str, Any]]],
) -> list[Callable[..., Mapping[str, Any]]]:
    """Return the transforms as a list. Raises UsageError if one does not fit its input.

    `gathered` are the fields of a batch, and `decoded` those of them that are decoded.
    """
    if callable(transforms) or not isinstance(transforms, Iterable):
        hint = "Write transforms=[...]."
        raise UsageError("`transforms` must be a list", found=repr(transforms), hint=hint)
    fields: dict[str, Field | None] = {**gathered}
    fields |= dict.fromkeys(decoded)
    names_are_known = True
    for transform in transforms:
        if not callable(transform):
            raise UsageError(
                "a transform must be a function of a batch",
                found=repr(transform),
                hint="Steps for images, such as Normalize(), belong in `decode`.",
            )
        # Nobody knows what a function makes.
        names_are_known = names_are_known and isinstance(transform, Transform)
        if names_are_known and isinstance(transform, Transform):
            transform.check(fields)
    return list(transforms)


def _is_own_transform(transform: Callable[..., Any]) -> bool:
    return isinstance(transform, Transform) and not takes_tensors(transform)


def has_rng_parameter(transform: Callable[..., Any]) -> bool:
    """Return True if a transform has a parameter named `rng`."""
    try:
        return "rng" in inspect.signature(transform).parameters
    except (TypeError, ValueError):  # some that are built in have no signature
        return False


def choose_seed(seed: Any, order: Order) -> int:
    """Choose the seed of `rng`: the one given, or the order's, or 0. Raises UsageError."""
    if seed is not None:
        return check_integer("seed", seed)
    order_seed = getattr(order, "seed", None)
    return order_seed if isinstance(order_seed, int) else 0


def _merge_result(batch: Batch, changed: Mapping[str, Any]) -> Batch:
    if isinstance(changed, Batch):
        if changed.visits is None and np.array_equal(changed.rows, batch.rows):
            changed.visits = batch.visits
        return changed
    columns = {**batch, **changed}
    return Batch(
        batch.rows, columns, dict(batch.valid), dict(batch.sizes), batch.failures, batch.visits
    )


def make_converter(
    slab: Slab,
    decode: Mapping[str, ImageSteps],
    output: str,
    pin_memory: bool | Literal["auto"],
    device: str | None,
) -> "ToTensors | None":
    """Make a converter to tensors; None for arrays. Raises UsageError, MissingLibrary."""
    if output not in ("numpy", "torch"):
        raise UsageError("unknown `output`", expected='"numpy" or "torch"', found=output)
    if device is not None and pin_memory is True:
        hint = "Leave `pin_memory` out: what is sent lies in pinned memory."
        raise UsageError("`pin_memory` is for batches that stay on the processor", hint=hint)
    if output == "numpy" and device is None:
        if pin_memory is True:
            raise UsageError('pinned memory needs output="torch"')
        return None
    try:
        from fieldslab.reader.tensor_batch import ToTensors
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        hint = "Install it: pip install 'torch>=2.4'."
        raise MissingLibrary('output="torch" needs torch', hint=hint) from error
    if device is None:
        return ToTensors(slab.fields, pin_memory, decode)
    from fieldslab.reader.loading.sending import ToDevice

    return ToDevice(slab.fields, decode, device)
