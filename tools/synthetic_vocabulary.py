"""A vocabulary that is made up but works: all bytes, then strings of letters with the merges that build them."""

from collections import deque
from collections.abc import Iterator

LETTERS = "etaoinshrdlcumwfgypbvkjxqz"


def byte_characters() -> list[str]:
    """The printable character that stands for each byte in a byte-level BPE vocabulary."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in plain]
    return [chr(b) if b in plain else chr(256 + others.index(b)) for b in range(256)]


def grown(first: list[str], count: int) -> Iterator[tuple[str, str]]:
    """`count` (left, letter) whose joined strings all differ, each left side one of `first` or joined before."""
    queue = deque(first)
    while count > 0:
        left = queue.popleft()
        for letter in LETTERS[:count]:
            yield left, letter
            queue.append(left + letter)
        count -= min(count, len(LETTERS))
