"""A copy of a folder that is made whole again after each fault, by copying only what has changed."""

import os
import shutil
import stat
from pathlib import Path

_Stamp = tuple[int, ...]


class Copy:
    """A copy of the folder `whole` at `path`."""

    def __init__(self, whole: Path, path: Path):
        self.whole, self.path = whole, path
        shutil.copytree(whole, path)
        self._stamps = _stamps(path)

    def changed(self) -> list[str]:
        """Names of what is not as it was copied: other, new or gone."""
        now = _stamps(self.path)
        return sorted(name for name in now.keys() | self._stamps.keys() if now.get(name) != self._stamps.get(name))

    def differs(self, name: str) -> bool:
        """Whether something that has changed also has another content than the original."""
        here, there = self.path / name, self.whole / name
        if not (_is_file(here) and _is_file(there)):
            return True
        return here.read_bytes() != there.read_bytes()

    def restore(self) -> None:
        """Makes it equal to the original again."""
        changed = self.changed()
        for name in reversed(changed):  # what is in a folder before the folder
            here = self.path / name
            if here.is_dir() and not here.is_symlink():
                if not (self.whole / name).is_dir():
                    shutil.rmtree(here)
            else:
                here.unlink(missing_ok=True)
        for name in changed:
            if (self.whole / name).is_dir():
                (self.path / name).mkdir(exist_ok=True)
            elif (self.whole / name).exists():
                shutil.copy(self.whole / name, self.path / name)
        self._stamps = _stamps(self.path)


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _stamps(folder: Path, below: str = "") -> dict[str, _Stamp]:
    """What tells whether files have changed, without reading them: kind, and of files size, time and number."""
    found = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            seen = entry.stat(follow_symlinks=False)
            name = below + entry.name
            if stat.S_ISDIR(seen.st_mode):
                found[name] = (stat.S_IFMT(seen.st_mode),)
                found |= _stamps(Path(entry.path), f"{name}/")
            else:
                found[name] = (stat.S_IFMT(seen.st_mode), seen.st_size, seen.st_mtime_ns, seen.st_ino)
    return found
