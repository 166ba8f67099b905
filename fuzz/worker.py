"""A process that damages files and reads them: jobs on stdin, one line of JSON for each result on stdout.

It may crash or hang at any file: the supervisor in ``fuzz.run`` then starts another one at the next file.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.kinds import FAULTS, KINDS, Kind
from standout.errors import StandoutError

# Bytes of address space that one file may take, and of resident memory, which grows with the size of the damaged file.
ADDRESSES, RESIDENT, RESIDENT_PER_BYTE = 2 * 2**30, 64 * 2**20, 150


def main() -> None:
    """Work through the jobs: [kind, seed, start, stop]."""
    order = json.load(sys.stdin)
    faulthandler.enable()
    warnings.simplefilter("ignore")
    warnings.simplefilter("error", RuntimeWarning)
    with tempfile.TemporaryDirectory() as folder:
        limited = False
        for name, seed, start, stop in order["jobs"]:
            kind = (KINDS | FAULTS)[name]
            samples = [Sample(kind, Path(folder) / str(number), number) for number in range(len(kind.writers))]
            if not limited:  # the packages are imported by now
                resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + ADDRESSES,) * 2)
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                limited = True
            _tell(name, None, "ready", "")
            for index in range(start, stop):
                faulthandler.dump_traceback_later(order["seconds"] - 1)  # where a hang is
                _tell(name, index, *samples[index % len(samples)].outcome(seed, index, order["keep"]))
                faulthandler.cancel_dump_traceback_later()
            for sample in samples:
                shutil.rmtree(sample.path.parent)
    os._exit(0)  # without the last steps of libraries that have read damaged files


def _tell(*result: Any) -> None:
    print(json.dumps(result), flush=True)


def _status(field: str) -> int:
    """Return an entry of the memory of this process, in bytes."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field))


class Sample:
    """An intact file and what reading it gives."""

    def __init__(self, kind: Kind, folder: Path, number: int):
        folder.mkdir()
        self.kind, self.path = kind, folder / kind.file
        kind.writers[number](self.path)
        beside = [self.path.with_suffix(suffix) for suffix in kind.beside]
        self.parts = sorted(part for part in self.path.rglob("*") if part.is_file()) or [self.path, *beside]
        self.content = {part: part.read_bytes() for part in self.parts}
        self.intact = [self._digest_or_error(how) for how in kind.options]
        assert any(len(found) == 64 for found in self.intact), self.intact
        self._restore()

    def _digest_or_error(self, how: Any) -> str:
        try:
            return self.kind.read(self.path, how)
        except StandoutError as error:
            return str(error)

    def _restore(self) -> None:
        for part, content in self.content.items():
            part.write_bytes(content)

    def outcome(self, seed: int, index: int, keep: str | None) -> tuple[str, str]:
        """Damage the file, read it, and return the class of what happened, with details."""
        rng = np.random.default_rng([seed, index, *self.kind.file.encode()])
        chosen = (index // len(self.kind.writers)) % len(self.kind.options)
        self._damage(rng)
        if keep:
            target = Path(keep)
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(self.path.parent, target)
        limit = RESIDENT + RESIDENT_PER_BYTE * sum(part.stat().st_size for part in self.parts if part.exists())
        before = _status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # start to measure the peak
        found = self._class(chosen)
        if _status("VmHWM") - before > limit and found[0] in ("refused", "equal", "changed"):
            found = "memory", f"{(_status('VmHWM') - before) / 1e6:.0f} MB"
        self._restore()
        return found

    def _damage(self, rng: np.random.Generator) -> None:
        """Damage one file; of an array of many files, each second time its metadata, or remove a file."""
        meta = [part for part in self.parts if part.name in (".zarray", ".zattrs", "zarr.json")]
        some = meta if meta and rng.random() < 0.6 else self.parts
        part = some[rng.integers(len(some))]
        if len(self.parts) > 1 and rng.random() < 0.05:
            part.unlink()
        else:
            part.write_bytes(self.kind.damage(rng, self.content[part]))

    def _class(self, chosen: int) -> tuple[str, str]:
        try:
            found = self.kind.read(self.path, self.kind.options[chosen])
        except StandoutError as error:
            return self._class_of_error(error)
        except MemoryError as error:
            return "memory", str(error)
        except Exception as error:
            return "exception", f"{type(error).__name__}: {error}"[:300]
        if found == self.intact[chosen]:
            return "equal", ""
        return "changed", ""

    def _class_of_error(self, error: StandoutError) -> tuple[str, str]:
        """Return "refused" for a message of one line that names the file, or the role of the data."""
        text = str(error)
        clear = "\n" not in text and len(text) < 1000 and (self.path.name in text or text.startswith("data: "))
        return ("refused", "") if clear else ("unclear", text[:300])


if __name__ == "__main__":
    main()
