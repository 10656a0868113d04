"""What all steps for images have in common."""

from typing import Any, ClassVar

import numpy as np


class Step:
    """Base of the steps for images: told apart by class and parameters."""

    parameters: ClassVar[tuple[str, ...]] = ()
    """Attributes that decide what the step does to an image."""

    def key(self) -> dict[str, Any]:
        """Return the name and parameters, ready for JSON: what a loader's state holds."""
        values = {name: _convert_to_json(getattr(self, name)) for name in self.parameters}
        return {"name": type(self).__name__, **values}

    def __repr__(self) -> str:
        values = {name: getattr(self, name) for name in self.parameters}
        for name, value in values.items():
            if isinstance(value, np.ndarray | np.dtype):
                values[name] = _convert_to_json(value)
        shown = ", ".join(f"{name}={value!r}" for name, value in values.items())
        return f"{type(self).__name__}({shown})"


def _convert_to_json(value: Any) -> Any:
    if isinstance(value, Step):
        return value.key()
    if isinstance(value, list | tuple):
        return [_convert_to_json(item) for item in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    return str(value) if isinstance(value, np.dtype) else value
