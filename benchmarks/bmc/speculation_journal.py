"""A journal of measurements, an object a line: what is there is not measured again, and a line that was cut off is."""

import json
import sys
from pathlib import Path


def key_of(cell: dict) -> str:
    return json.dumps(cell, sort_keys=True)


class Journal:
    """Records say `on` which of `machines` they were measured; in the file the line of a machine stands before its records."""

    def __init__(self, path: Path):
        self.path, self.machines, self.records = path, [], {}
        if not path.exists():
            return
        text = path.read_text()
        for at, line in enumerate(text.splitlines(), 1):
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                print(f"{path}:{at}: a line that was cut off, left out", file=sys.stderr)
                continue
            if "machine" in record:
                self.machines.append(record["machine"])
            else:
                self.records[key_of(record["cell"])] = record | {"on": self.here}
        if text and not text.endswith("\n"):  # what comes next begins a line of its own
            with path.open("a") as file:
                file.write("\n")

    @property
    def here(self) -> int:
        return len(self.machines) - 1

    def find(self, cell: dict) -> dict | None:
        return self.records.get(key_of(cell))

    def add(self, record: dict) -> None:
        self._write(record)
        self.records[key_of(record["cell"])] = record | {"on": self.here}

    def on(self, machine: dict) -> None:
        """What follows is measured there. Said once, and again where it differs from what was said last."""
        if not self.machines or self.machines[-1] != machine:
            self._write({"machine": machine})
            self.machines.append(machine)

    def _write(self, record: dict) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")
