"""Entropy decoding of JPEG by the letter of ITU-T T.81: slow, and unlike the kernels."""

import struct

Table = dict[str, int]


class Bits:
    """The bits of entropy-coded data up to the next marker, and where each of them stands."""

    def __init__(self, data: bytes, offset: int) -> None:
        self.used = 0
        self._places: list[int] = []
        text = []
        while data[offset] != 0xFF or data[offset + 1] == 0:
            text.append(f"{data[offset]:08b}")
            self._places.append(offset)
            offset += 2 if data[offset] == 0xFF else 1
        self._text = "".join(text)
        self.end = offset

    def where(self) -> int:
        """8 * byte + bit, of the next bit."""
        return 8 * self._places[self.used // 8] + self.used % 8

    def take(self, count: int) -> str:
        """The next bits."""
        self.used += count
        assert self.used <= len(self._text)
        return self._text[self.used - count : self.used]

    def symbol(self, table: Table) -> int:
        """The next symbol."""
        code = self.take(1)
        while code not in table:
            code += self.take(1)
        return table[code]

    def value(self, size: int) -> int:
        """A value of so many bits (figure F.12)."""
        if size == 0:
            return 0
        bits = self.take(size)
        return int(bits, 2) if bits[0] == "1" else int(bits, 2) - 2**size + 1


def _tables(body: bytes) -> dict[int, Table]:
    """The tables of a DHT segment, by class and number (annex C)."""
    tables = {}
    while body:
        code, offset = 0, 17
        table: Table = {}
        for length in range(1, 17):
            for _ in range(body[length]):
                table[f"{code:0{length}b}"] = body[offset]
                code, offset = code + 1, offset + 1
            code *= 2
        tables[body[0]] = table
        body = body[offset:]
    return tables


def _block(bits: Bits, dc: Table, ac: Table) -> int:
    """Read a block; returns the difference of its DC coefficient to the one before."""
    difference = bits.value(bits.symbol(dc))
    k = 1
    while k < 64:
        zeros, size = divmod(bits.symbol(ac), 16)
        if size == 0 and zeros != 15:
            break
        bits.value(size)
        k += zeros + 1
    assert k <= 64
    return difference


def index_points(data: bytes, every: int) -> list[tuple[int, list[int]]]:
    """Bit and predictors of each index point of a whole baseline image."""
    tables: dict[int, Table] = {}
    sampling: list[tuple[int, int]] = []
    interval, height, width, offset = 0, 0, 0, 2
    while True:
        marker, size = struct.unpack_from(">xBH", data, offset)
        body = data[offset + 4 : offset + 2 + size]
        offset += 2 + size
        if marker == 0xC4:
            tables |= _tables(body)
        elif marker == 0xDD:
            (interval,) = struct.unpack(">H", body)
        elif marker in (0xC0, 0xC1):
            height, width, count = struct.unpack_from(">xHHB", body)
            sampling = [divmod(body[7 + 3 * i], 16) for i in range(count)]
            sampling = sampling if count == 3 else [(1, 1)]
        elif marker == 0xDA:
            used = [divmod(body[2 + 2 * i], 16) for i in range(len(sampling))]
            break
    across, down = sampling[0]
    columns, rows = -(-width // (8 * across)), -(-height // (8 * down))
    results = []
    predictors, bits = [0, 0, 0], Bits(data, offset)
    for mcu in range(rows * columns):
        if interval and mcu and mcu % interval == 0:
            assert data[bits.end + 1] == 0xD0 + (mcu // interval - 1) % 8
            predictors, bits = [0, 0, 0], Bits(data, bits.end + 2)
        if mcu % columns % (every or columns) == 0:
            results.append((bits.where(), list(predictors)))
        for component, (horizontal, vertical) in enumerate(sampling):
            dc, ac = used[component]
            for _ in range(horizontal * vertical):
                predictors[component] += _block(bits, tables[dc], tables[16 + ac])
    assert data[bits.end + 1] == 0xD9
    return results
