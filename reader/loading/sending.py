"""Batches on a device: gathered into memory that it can read, and sent in one transfer each.

The transfer and what follows it go to a stream of their own, while training computes. Views of
stored pixels are made on the device by one kernel for each size.
"""

import copy
import os
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from threading import Lock
from typing import Any

import torch

from fieldslab.reader.images.staging import StagedViews
from fieldslab.reader.images.steps import ImageSteps
from fieldslab.reader.loading.sendbuffers import SendBuffers, view_like
from fieldslab.reader.loading.streams import Stream, open_stream
from fieldslab.reader.pixels.device import parse_device_number
from fieldslab.reader.tensor_batch import TensorBatch, ToTensors
from fieldslab.schemas.fields import Field
from fieldslab.schemas.notices import warn

_STORED = {"rgb", "yuv420", "mixed"}
"""Codecs of fields that may have stored pixels."""
_UNTRIED = (
    "Loader(device=...) was never run on a GPU so far: its kernel is tested by Triton's "
    "interpreter and compiled for sm_80 and sm_90, its transfers are tested on the processor. "
    "Compare a few batches with those of a Loader without `device`."
)


class SentBatch(TensorBatch):
    """A batch on its way to a device."""

    stream: Stream
    event: Any
    sent: list[torch.Tensor]

    def receive(self) -> TensorBatch:
        """Let this thread's work on the device wait for the batch."""
        self.stream.hand_over(self.event, self.sent)
        self.sent = []
        return self


class ToDevice(ToTensors):
    """Turns batches into tensors on a device.

    Text and bytes stay in the memory of the processor. Each tensor has memory of its own on the
    device, so that one that is kept does not keep the batch.
    """

    def __init__(
        self, fields: Mapping[str, Field], decode: Mapping[str, ImageSteps], device: str
    ) -> None:
        """Take the slab's fields, what is decoded, and torch's name of a device.

        Raises UsageError where there is no such device, and MissingLibrary.
        """
        super().__init__(fields, False, decode)
        on_gpu = parse_device_number(device) is not None
        self.device = device
        self.pins = True
        for name, images in decode.items():
            stored = fields[name].codec in _STORED and images.decoder in ("auto", "planes")
            if stored and images.crops and images.device is None and _has_kernel(on_gpu):
                self.staged[name] = copy.copy(images)
                self.staged[name].staged = True
        if on_gpu:
            _warn_once()
        self._lock = Lock()
        self._opened: tuple[Stream, SendBuffers] | None = None

    @property
    def memory(self) -> SendBuffers:
        """Where batches should be gathered to."""
        return self._open()[1]

    def copy_without_pin(self) -> ToTensors:
        """Return what makes tensors in the memory of the processor."""
        other = ToTensors({}, False)
        other._bfloat16 = self._bfloat16
        return other

    def pin_if_needed(self, tensors: TensorBatch) -> TensorBatch:
        """Send the batch; `SentBatch.receive` must be called before it is used."""
        stream, memory = self._open()
        staged = {name: each for name, each in tensors.items() if isinstance(each, StagedViews)}
        local: list[torch.Tensor] = []
        tensors._map_tensors(lambda tensor: local.append(tensor) if tensor.is_cpu else None)
        count = len(local)
        local += chain.from_iterable(_list_tensors(each) for each in staged.values())
        buffer, offsets = memory.place_tensors(local)
        with stream.activate():
            landed = torch.empty(buffer.used, dtype=torch.uint8, device=stream.device)
            landed.copy_(torch.from_numpy(buffer.memory[: buffer.used]), non_blocking=True)
            views = [
                view_like(tensor, landed, offset)
                for tensor, offset in zip(local, offsets, strict=True)
            ]
            sent = [view.clone() for view in views[:count]]
            copies, parts = iter(sent), iter(views[count:])
            batch = tensors._map_tensors(lambda tensor: next(copies) if tensor.is_cpu else tensor)
            for name, each in staged.items():
                batch[name] = _make_views(each, parts, sent)
            event = stream.record_event()
        memory.keep_until(event, buffer)
        result = SentBatch(batch)
        vars(result).update(vars(batch), stream=stream, event=event, sent=sent)
        return result

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: everything but the stream and its memory."""
        return {**vars(self), "_lock": None, "_opened": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=Lock())

    def _open(self) -> tuple[Stream, SendBuffers]:
        with self._lock:
            if self._opened is None:
                stream = open_stream(self.device)
                self._opened = stream, SendBuffers(stream)
            return self._opened


def _list_tensors(staged: StagedViews) -> Iterator[torch.Tensor]:
    """List what must be on the device for `_make_views`, in its order."""
    yield torch.from_numpy(staged.pixels)
    for size in staged.sizes:
        yield from map(torch.from_numpy, (size.records, size.done, size.values))


def _make_views(
    staged: StagedViews, parts: Iterator[torch.Tensor], sent: list[torch.Tensor]
) -> Any:
    """Make the views of a field on the device, and add their tensors to `sent`."""
    from fieldslab.reader.pixels.fused import write_views

    images, pixels = staged.images, next(parts)
    scale, bias = staged.scale.tolist(), staged.bias.tolist()
    all_views = []
    for size in staged.sizes:
        records, done, values = next(parts), next(parts), next(parts)
        shape, dtype = (*records.shape[:2], *size.shape), getattr(torch, images.dtype)
        out = torch.empty(shape, dtype=dtype, device=pixels.device)
        views = records.flatten(0, 1), out.flatten(0, 1)
        write_views(pixels, *views, images.channels_first, scale, bias, images.fill)
        if len(done):
            out[done] = values.view(dtype)
        all_views.append(out)
    sent += all_views
    if not images.multiple:
        return all_views[0][:, 0]
    return all_views[0] if len(all_views) == 1 else tuple(all_views)


def _has_kernel(on_gpu: bool) -> bool:
    """Return whether the kernel runs there. Raises MissingLibrary if it should, and cannot."""
    if not on_gpu and not os.environ.get("TRITON_INTERPRET"):
        return False  # and Triton need not be there
    from fieldslab.reader.pixels.fused import is_interpreted

    return on_gpu or is_interpreted()


@cache
def _warn_once() -> None:
    warn(_UNTRIED)
