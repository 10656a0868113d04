"""Random draws of torch's by row: for functions of one sample, such as torchvision's.

views = ImageSteps([RandomResizedCrop(224), RandomHorizontalFlip()], channels_first=True)
augment = v2.Compose([v2.ColorJitter(0.4, 0.4, 0.4), v2.RandomErasing()])
Loader(slab, 256, decode={"image": views}, transforms=[PerRow("image", augment)],
       output="torch")
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from fieldslab.reader.buffers import Allocator
from fieldslab.reader.transforms.rng import RowGenerator
from fieldslab.reader.transforms.transform import FRESH, Transform
from fieldslab.schemas.errors import UsageError

_FUNCTIONS = (
    "bernoulli",
    "multinomial",
    "normal",
    "poisson",
    "rand",
    "randint",
    "randn",
    "randperm",
    "_sample_dirichlet",
)
_METHODS = (
    "bernoulli",
    "bernoulli_",
    "cauchy_",
    "exponential_",
    "geometric_",
    "log_normal_",
    "multinomial",
    "normal_",
    "random_",
    "uniform_",
)
_DRAWING: frozenset[Any] = frozenset(
    [getattr(torch, name) for name in _FUNCTIONS if hasattr(torch, name)]
    + [getattr(torch.Tensor, name) for name in _METHODS]
)


# Before torch 2.10, these take no generator.
_LIKE: dict[Any, Any] = {
    torch.rand_like: torch.rand,
    torch.randint_like: torch.randint,
    torch.randn_like: torch.randn,
}


class TensorGenerator(RowGenerator):
    """A `RowGenerator` that gives tensors: those of torch's default dtype, if none is given."""

    def generators(self) -> list[torch.Generator]:
        """Return a torch.Generator for each row, seeded by it, on the CPU."""
        return make_generators(self.seeds())

    def _convert_float_dtype(self, dtype: Any) -> np.dtype[Any]:
        return super()._convert_float_dtype(torch.get_default_dtype() if dtype is None else dtype)

    def _convert_result(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array)


class DrawFrom(TorchFunctionMode):
    """Within it, this thread's draws of torch's come from a generator, not from global state.

    It serves functions that take no generator, such as torchvision's transforms: whatever they
    draw by torch's functions and methods on the CPU. It cannot see the draws of `random`, of
    numpy, of dropout and of compiled code.
    """

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.generator = generator

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """See torch."""
        kwargs = kwargs or {}
        if func in _LIKE:
            tensor, *args = args  # type: ignore[assignment]
            like = {"dtype": tensor.dtype, "device": tensor.device, "size": tensor.shape}
            kwargs = like | {name: kwargs[name] for name in kwargs if name != "memory_format"}
            func = _LIKE[func]
        if func in _DRAWING and kwargs.get("generator") is None:
            kwargs = {**kwargs, "generator": self.generator}
        return func(*args, **kwargs)


class PerRow(Transform):
    """A function of one row's value, with random draws of torch's that belong to the row.

    The function gets a tensor, such as uint8 (3, height, width) of an image that was decoded with
    `channels_first=True`, and returns one; those of all rows are stacked. What it draws by torch
    is a function of (seed, epoch, row, visit), as `rng` is: the same for any number of threads,
    batch size, ranks and workers, and after a resume. Torch's global state is neither used nor
    changed. See `DrawFrom` for draws that it cannot see.

    Parameters
    ----------
    field
        A field of fixed size, or of decoded images.
    function
        Such as a transform of torchvision.transforms.v2.
    """

    takes_tensors = True

    def __init__(self, field: str, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.field = field
        self.function = function

    def __call__(
        self, batch: Any, memory: Allocator = FRESH, rng: RowGenerator | None = None
    ) -> dict[str, Any]:
        """See `Transform`. Raises UsageError where the function's results cannot be stacked."""
        if rng is None:
            raise UsageError("PerRow draws from `rng`", hint="Give it to a loader, as a transform.")
        values = batch[self.field]
        arrays = isinstance(values, np.ndarray)
        results = []
        for value, generator in zip(values, make_generators(rng.seeds()), strict=True):
            with DrawFrom(generator):
                results.append(self.function(torch.as_tensor(value)))
        shapes = {tuple(result.shape) for result in results}
        if len(shapes) > 1:
            raise UsageError(
                "the function must return tensors of one shape", field=self.field, found=shapes
            )
        stacked = torch.stack(results) if results else torch.as_tensor(values)
        return {self.field: stacked.numpy() if arrays else stacked}


def make_generators(seeds: Any) -> list[torch.Generator]:
    """Make a torch.Generator for each seed."""
    return [torch.Generator().manual_seed(seed) for seed in seeds.tolist()]
