"""What an image is made of, read from the archive that buildah, docker or podman writes of it."""

import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import missing

_SAVE = {
    "buildah": ("push", "{image}", "docker-archive:{file}"),
    "docker": ("save", "--output", "{file}", "{image}"),
    "podman": ("save", "--output", "{file}", "{image}"),
}
_READ_BYTES = 200_000
"""Of each file: credentials stand in small files, or early in them."""


class ImageFiles:
    """An image on this machine."""

    def __init__(self, image: str, place: Path):
        """Skips the test where no program has the image, or fails. ``place`` is for the archive."""
        self._archive = place / "image.tar"
        if not any(_saved(engine, image, self._archive) for engine in _SAVE):
            missing.skip(f"neither buildah nor docker nor podman has {image}")
        with tarfile.open(self._archive) as archive:
            (self._manifest,) = json.load(_member(archive, "manifest.json"))
            self.config: dict[str, Any] = json.load(_member(archive, self._manifest["Config"]))

    def files(self) -> Iterator[tuple[str, bytes]]:
        """The path and the beginning of every regular file of every layer, also of those that a
        later layer hides.
        """
        with tarfile.open(self._archive) as archive:
            for name in self._manifest["Layers"]:
                with tarfile.open(fileobj=_member(archive, name), mode="r|*") as layer:
                    for entry in layer:
                        if entry.isfile():
                            yield f"/{entry.name.removeprefix('./')}", _content(layer, entry)


def _saved(engine: str, image: str, file: Path) -> bool:
    if not shutil.which(engine):
        return False
    command = [engine, *(word.format(image=image, file=file) for word in _SAVE[engine])]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _member(archive: tarfile.TarFile, name: str) -> Any:
    while archive.getmember(name).issym():
        name = str(Path(name).parent.joinpath(archive.getmember(name).linkname).relative_to("."))
    return archive.extractfile(name)


def _content(layer: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    file = layer.extractfile(entry)
    return file.read(_READ_BYTES) if file else b""
