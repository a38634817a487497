"""Types of parameters that name files: they claim what is read and what is written, before any work.

Each parameter of each command that may name a file has one of these types, which a test holds. See
`analyzer/path_claims.py` for what comes of it. An output that cannot be written is an error here, too.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from analyzer.cli.completion import complete_files, complete_gpus
from analyzer.files import check_writable
from analyzer.path_claims import STANDARD_STREAM, PathClaims
from analyzer.text.errors import UsageError
from analyzer.text.optional_packages import CHARTS, check_packages

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_CLAIMS_KEY = f"{__name__}.claims"


def find_claims(context: click.Context) -> PathClaims:
    """Return the claims of the command that runs, which end with it."""
    claims = context.meta.get(_CLAIMS_KEY)
    if not isinstance(claims, PathClaims):
        claims = context.meta[_CLAIMS_KEY] = PathClaims()
        context.find_root().call_on_close(claims.release)
    return claims


def check_output(path: Path, *, makes_folders: bool = False) -> None:
    """Raise UsageError where a file cannot be written.

    makes_folders: the command makes the folders that it lies in.
    """
    try:
        check_writable(path, makes_folders=makes_folders)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        raise UsageError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from None


class InputPath(click.Path):
    """A file that is read, or a folder whose files are."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path. Raises UsageError where it is an output, too."""
        path = Path(value)
        if ctx is not None and not ctx.resilient_parsing:
            find_claims(ctx).add_inputs(lambda: self.list_read(path))
        return path

    def list_read(self, path: Path) -> Iterable[str | Path]:
        """Return the files that are read for a path."""
        if not path.is_dir():
            return [path]
        return [entry.path for entry in os.scandir(path)]


class KernelPath(InputPath):
    """A file with kernels and what lies beside it, or a folder of such files."""

    def list_read(self, path: Path) -> Iterable[str | Path]:
        """Return the files that are read for a path."""
        from analyzer.frontend.module_reader import list_read_paths

        return list_read_paths(str(path))


class CacheFolder(InputPath):
    """A folder in which entries are kept; it may hold other files."""

    def list_read(self, path: Path) -> Iterable[str | Path]:
        """Return the entries."""
        from analyzer.pipeline.entry_store import list_entry_paths

        return list_entry_paths(path)


class InputText(click.ParamType):  # type: ignore[type-arg]  # generic in some versions of click
    """A text that may name a file."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text. Raises UsageError where it names an output."""
        if ctx is not None and not ctx.resilient_parsing:
            find_claims(ctx).add_inputs(lambda: self.list_read(str(value)))
        return str(value)

    def list_read(self, text: str) -> Iterable[str | Path]:
        """Return the files that are read for a text."""
        raise NotImplementedError


class KernelText(InputText):
    """A `KernelPath` as a text: `-` is standard input, `*.sass` may be a glob."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        """Leave files to the shell."""
        return complete_files(incomplete)

    def list_read(self, text: str) -> Iterable[str | Path]:
        """Return the files that are read for a path."""
        return KernelPath().list_read(Path(text))


class GpuText(InputText):
    """Names of GPUs, or files that describe them, by comma."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        """Return the GPUs whose names begin so."""
        return complete_gpus(incomplete)

    def list_read(self, text: str) -> Iterable[str | Path]:
        """Return the names, of which those of files matter."""
        return [text, *(part.strip() for part in text.split(","))]


class ArgumentText(InputText):
    """An argument of a launch, WHICH=VALUE or WHICH=@FILE."""

    def list_read(self, text: str) -> Iterable[str | Path]:
        """Return the file."""
        file = text.partition("=")[2].strip().removeprefix("@")
        return [file] if file else []


class OutputPath(click.Path):
    """A file that is written; `-` is standard output.

    is_updated: its contents are read, too. needs_charts: it is a page with charts.
    """

    def __init__(self, *, is_updated: bool = False, needs_charts: bool = False) -> None:
        super().__init__(path_type=Path)
        self._is_updated, self._needs_charts = is_updated, needs_charts

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path. Raises UsageError where it cannot be written or is read; see `check_packages`."""
        path = Path(value)
        if ctx is not None and not ctx.resilient_parsing:
            if self._needs_charts:
                check_packages(param.opts[0] if param else "a chart", CHARTS)
            self.claim(path, find_claims(ctx))
        return path

    def claim(self, path: Path, claims: PathClaims) -> None:
        """Claim the path. Raises UsageError."""
        if str(path) != STANDARD_STREAM:
            check_output(path)
            claims.add_output(path, is_updated=self._is_updated)


class OutputFolder(OutputPath):
    """A folder that is made where it is not there, and filled."""

    def claim(self, path: Path, claims: PathClaims) -> None:
        """Claim the folder. Raises UsageError."""
        check_output(path / "file", makes_folders=True)
        claims.add_output_folder(path)


class NamedFile(OutputPath):
    """A file that is written, or a folder in which the command names the file: see `claim_named_file`."""

    def claim(self, path: Path, claims: PathClaims) -> None:
        """Claim the file. Raises UsageError."""
        if not path.is_dir():
            super().claim(path, claims)


class BaselinePath(OutputPath):
    """A baseline, or a folder with one for each input; whether it is written, the command will know."""

    def claim(self, path: Path, claims: PathClaims) -> None:
        """Claim the file or folder. Raises UsageError."""
        if path.is_dir():
            claims.add_output_folder(path)
        else:
            claims.add_output(path, is_updated=True)


def claim_named_file(output: Path | None, name: str) -> Path:
    """Return the file that a command writes: of this name in a folder, or the output itself.

    Raises UsageError where it cannot be written, or is read.
    """
    if output is not None and not output.is_dir():
        return output
    path = (output or Path()) / name
    OUTPUT_PATH.claim(path, find_claims(click.get_current_context()))
    return path


INPUT_PATH = InputPath()
KERNEL_PATH = KernelPath()
KERNEL_TEXT = KernelText()
CACHE_FOLDER = CacheFolder()
GPU_TEXT = GpuText()
ARGUMENT_TEXT = ArgumentText()
OUTPUT_PATH = OutputPath()
UPDATED_PATH = OutputPath(is_updated=True)
CHART_PATH = OutputPath(needs_charts=True)
OUTPUT_FOLDER = OutputFolder()
OUTPUT_FILE_OR_FOLDER = NamedFile()
BASELINE_PATH = BaselinePath()
