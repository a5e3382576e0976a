"""Strings and numbers as .proto source spells them.

Used by tokens, linking and the printer. Laws: unescape(escape(x)) == x; a number's text gives back the same number.
"""

import math
import re
import struct
from collections.abc import Callable

_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|[xX]([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_SIMPLE = {
    "a": b"\a",
    "b": b"\b",
    "f": b"\f",
    "n": b"\n",
    "r": b"\r",
    "t": b"\t",
    "v": b"\v",
    "\\": b"\\",
    "'": b"'",
    '"': b'"',
    "?": b"?",
}
_NAMED = {0x09: "\\t", 0x0A: "\\n", 0x0D: "\\r", 0x22: '\\"', 0x27: "\\'", 0x5C: "\\\\"}


def unescape(text: str) -> bytes:
    """The bytes of a string's inside; ValueError for an escape the language does not have."""
    if "\\" not in text:
        return text.encode(errors="surrogatepass")
    pieces: list[bytes] = []
    end = 0
    for escape in _ESCAPE.finditer(text):
        pieces.append(text[end : escape.start()].encode(errors="surrogatepass"))
        pieces.append(_escaped(escape))
        end = escape.end()
    if text.endswith("\\") and end != len(text):
        raise ValueError("the string ends in a lone backslash")
    pieces.append(text[end:].encode(errors="surrogatepass"))
    return b"".join(pieces)


def _escaped(escape: re.Match[str]) -> bytes:
    octal, hexadecimal, short, long, simple = escape.groups()
    if octal is not None:
        return bytes([int(octal, 8) & 0xFF])
    if hexadecimal is not None:
        return bytes([int(hexadecimal, 16)])
    if short is not None or long is not None:
        code = int(short or long, 16)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise ValueError(f"\\u{code:x} is no character")
        return chr(code).encode()
    if simple not in _SIMPLE:
        raise ValueError(f"the escape \\{simple} is none that strings have")
    return _SIMPLE[simple]


def quote_text(text: str) -> str:
    """A string in quotes; letters of any alphabet stay readable."""
    return f'"{"".join(_NAMED.get(ord(one)) or _plain(one) for one in text)}"'


def _plain(one: str) -> str:
    if one.isprintable():
        return one
    return "".join(f"\\{byte:03o}" for byte in one.encode(errors="surrogatepass"))


def escape_bytes(value: bytes) -> str:
    """As descriptors spell the default of a bytes field."""
    return "".join(_NAMED.get(byte) or (chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}") for byte in value)


def double_text(value: float) -> str:
    """The shortest spelling that gives this double back, as protoc writes defaults."""
    return _number_text(value, (15, 17), lambda text: float(text) == value)


def float_text(value: float) -> str:
    """The same for single precision; beyond its range is infinite."""
    single = single_precision(value)
    return _number_text(single, (6, 9), lambda text: single_precision(float(text)) == single)


def single_precision(value: float) -> float:
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def _number_text(value: float, digits: tuple[int, int], is_exact: Callable[[str], bool]) -> str:
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    short = f"{value:.{digits[0]}g}"
    return short if is_exact(short) else f"{value:.{digits[1]}g}"
