"""Planes of a JPEG as they stand in it: Y, Cb and Cr, by libjpeg-turbo."""

import ctypes

import numpy as np

from fieldslab.schemas.codecs.turbolibrary import choose_newest, find_libraries
from fieldslab.schemas.images import read_image_size

_ACCURATE_DCT, _ROOM = 4096, 64


def yuv_planes(file: bytes) -> list[np.ndarray]:
    """Y, Cb and Cr of a JPEG of 4:2:0: uint8 arrays, chroma half as high and wide, rounded up."""
    library = ctypes.CDLL(choose_newest(find_libraries()).path)
    library.tjInitDecompress.restype = ctypes.c_void_p
    handle = ctypes.c_void_p(library.tjInitDecompress())
    _, height, width = read_image_size(memoryview(file))
    sizes = [(height, width)] + [((height + 1) // 2, (width + 1) // 2)] * 2
    planes = [np.zeros((high + _ROOM, wide + _ROOM), np.uint8) for high, wide in sizes]
    failed = library.tjDecompressToYUVPlanes(
        handle,
        file,
        ctypes.c_ulong(len(file)),
        (ctypes.c_void_p * 3)(*[plane.ctypes.data for plane in planes]),
        width,
        (ctypes.c_int * 3)(*[plane.strides[0] for plane in planes]),
        height,
        _ACCURATE_DCT,
    )
    library.tjDestroy(handle)
    assert not failed
    return [plane[:high, :wide] for plane, (high, wide) in zip(planes, sizes, strict=True)]
