"""Writing files so that nothing half-written is ever seen: to a temporary name first, then renamed."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from standout.errors import OutputError, StandoutError

_WHY = {
    errno.ENOSPC: "the disk is full. Make room, or choose another place.",
    errno.EDQUOT: "the quota is used up. Make room, or choose another place.",
    errno.EROFS: "the file system is read-only. Choose another place.",
    errno.EACCES: "there is no permission to write there. Choose another place.",
    errno.EPERM: "there is no permission to write there. Choose another place.",
}


def check_writable(path: str | os.PathLike[str], what: str = "output") -> Path:
    """Return a path that can be written, or say before any work is done why it cannot."""
    wanted = Path(os.path.realpath(Path(path).expanduser()))  # a link stays, and what it leads to is written
    if os.path.isdir(wanted):  # Path.is_dir raises where the name is too long or the parent may not be read
        raise OutputError(f"{what}: {wanted} is a directory. Give the name of a file.")
    if os.path.exists(wanted) and not os.path.isfile(wanted):
        raise OutputError(f"{what}: {wanted} is a device or a pipe. Give the name of a file.")
    if not os.path.isdir(wanted.parent):
        raise OutputError(f"{what}: there is no directory {wanted.parent}. Make it first, or choose another place.")
    if not os.access(wanted.parent, os.W_OK):
        raise OutputError(f"{what}: there is no permission to write into {wanted.parent}. Choose another place.")
    return wanted


def make_directory(path: Path, what: str = "output") -> None:
    """Make a directory for files, with those above it, or say why it cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{what}: {path} cannot be made ({error.strerror}). Choose another place.") from error


@contextmanager
def replacing(path: str | os.PathLike[str], what: str = "output") -> Iterator[Path]:
    """Give a temporary file to write; it takes the place of ``path`` when all went well.

    Whatever goes wrong (an error, a full disk, Ctrl-C), what was at ``path`` before stays as it was and the
    temporary file is removed.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "a.txt") as draft:
    ...         _ = draft.write_text("whole")
    ...     [(file.name, file.read_text()) for file in Path(folder).iterdir()]
    [('a.txt', 'whole')]
    """
    wanted = check_writable(path, what)
    # The name is chosen before the file is there, so that an interruption at any moment finds it to remove. Whole, it
    # might be too long a name.
    draft = wanted.with_name(f".{wanted.name[:40]}.{secrets.token_hex(4)}.part{wanted.suffix}")
    try:
        draft.touch(mode=0o600, exist_ok=False)
        yield draft
        _settle(draft, wanted)
    except OSError as error:
        if isinstance(error, StandoutError) or error.errno is None:
            raise
        why = _WHY.get(error.errno, f"{error.strerror}. Choose another place.")
        raise OutputError(f"{what}: {wanted} could not be written: {why}") from error
    finally:
        draft.unlink(missing_ok=True)


def _settle(draft: Path, wanted: Path) -> None:
    """Put the draft in its place: on disk before the rename, with the permissions a new file would have."""
    with draft.open("rb+") as file:
        os.fsync(file.fileno())
    mask = os.umask(0)
    os.umask(mask)
    try:
        mode = wanted.stat().st_mode & 0o777
    except FileNotFoundError:
        mode = 0o666 & ~mask
    draft.chmod(mode)
    draft.replace(wanted)
