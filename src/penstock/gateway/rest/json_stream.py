"""JSON documents one after another in a body that arrives in pieces: where each ends.

Called by v3_records. Parsing itself is orjson's; this only finds the ends of objects, in bytes cut anywhere.
Laws:
- Whatever the cuts, the same bytes give the same documents.
- At most `bytes_max` of an unfinished document are held.
"""

import re

from penstock.gateway.errors import HttpProblem

# All that can change where an object ends: quotes, backslashes inside strings, braces and brackets outside.
_OUTSIDE = re.compile(rb'["{}\[\]]')
_INSIDE = re.compile(rb'["\\]')
# The usual step: up to the next brace or bracket, strings on the way passed over whole. Possessive, hence linear.
_STEP = re.compile(rb'(?:[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+")*+([{}\[\]])', re.DOTALL)
_SPACE = b" \t\r\n,"
_QUOTE, _BACKSLASH, _OPENING = ord('"'), ord("\\"), b"{["


class DocumentSplitter:
    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held = bytearray()
        self._at = 0  # up to here _held is looked at
        self._depth = 0
        self._is_in_string = False

    def feed(self, data: bytes) -> list[bytes]:
        """The documents that are complete now. Raises HttpProblem for what cannot become one."""
        self._held += data
        found: list[bytes] = []
        start = 0
        held = self._held
        while True:
            if not self._depth:
                while self._at < len(held) and held[self._at] in _SPACE:
                    self._at += 1
                start = self._at
                if self._at == len(held):
                    break
                if held[self._at] != ord("{"):
                    raise HttpProblem(400, 400, "The body must be JSON objects, one after another.")
            match = None if self._is_in_string else _STEP.match(held, self._at)
            # A string that is not whole yet is walked through mark by mark: no byte is looked at again and again.
            match = match or (_INSIDE if self._is_in_string else _OUTSIDE).search(held, self._at)
            if match is None:
                self._at = len(held)
                break
            mark = held[match.end() - 1]
            self._at = match.end()
            if mark == _BACKSLASH:
                if self._at == len(held):
                    # What it escapes has not arrived: look at it again with the next piece.
                    self._at -= 1
                    break
                self._at += 1
            elif mark == _QUOTE:
                self._is_in_string = not self._is_in_string
            elif mark in _OPENING:
                self._depth += 1
            else:
                self._depth -= 1
                if not self._depth:
                    found.append(bytes(held[start : self._at]))
        del held[:start]
        self._at -= start
        if len(held) > self._bytes_max:
            raise HttpProblem(413, 413, f"A record is larger than {self._bytes_max} bytes.")
        return found

    def end(self) -> None:
        """The body is over: nothing may be left of a document that has begun."""
        if self._held.strip(_SPACE):
            raise HttpProblem(400, 400, "The body ends in the middle of a JSON object.")
