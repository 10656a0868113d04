"""`fieldslab warm`."""

import time

from fieldslab.packer.commands.params import Option, command
from fieldslab.packer.commands.shared import JSON
from fieldslab.packer.commands.terminal import print_json

EXAMPLES = """\
Examples:
  fieldslab warm                                       before many processes start at once
  NUMBA_CACHE_DIR=/opt/kernels fieldslab warm --images  in a Dockerfile, with ENV of the same"""


@command(
    Option("--images", "Options", "Also compile what decodes, crops and resizes images."),
    JSON,
    examples=EXAMPLES,
)
def warm(images: bool, as_json: bool) -> None:
    """Compile for this processor, so that no first batch has to wait for it.

    What is compiled already, or came with the package, is left as it is. The result is kept in
    the user's cache directory, or in NUMBA_CACHE_DIR.
    """
    from fieldslab.schemas import kernelcache, warming
    from fieldslab.schemas.errors import OutputDenied

    folder = kernelcache.find_cache_folder()
    if folder is None and not warming.are_kernels_ready(images):
        raise OutputDenied(
            "no directory can keep compiled kernels",
            hint="Set NUMBA_CACHE_DIR to an absolute path of your own.",
        )
    started = time.perf_counter()
    kernels = warming.load_kernels(images)
    seconds = time.perf_counter() - started
    compiled = [kernel for kernel in kernels if kernel.compiled]
    if as_json:
        print_json(
            {
                "folder": None if folder is None else str(folder),
                "seconds": seconds,
                "kernels": [kernel._asdict() for kernel in kernels],
            }
        )
    else:
        ready = len(kernels) - len(compiled)
        print(f"{len(compiled)} kernels compiled, {ready} were ready, {seconds:.1f} s: {folder}")
