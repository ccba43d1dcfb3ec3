# SPDX-License-Identifier: Apache-2.0
"""The components of other authors that a server runs, with their licenses: of Python, of the JVM, of the console.

The lock files say which they are. The installed packages, the jars and the vendored files say their licenses and texts;
``components.toml`` says the rest. A component with an unknown license is an error, so nothing new comes in unseen.
"""

from __future__ import annotations

import re
import tomllib
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final, NamedTuple

from license_expression import get_spdx_licensing
from packageurl import PackageURL
from packaging.markers import Marker

from runtime.jars import LOCK_FILE, Jar, ensure, pyspark_jars, read_lock
from schemas.errors import SetupError

ROOT: Final = Path(__file__).resolve().parents[2]
JAR_SETS: Final = ("local-fs", "delta")
"""Sets of jars.lock that a server downloads. The others are for tests."""
INSTALLERS: Final = frozenset({"setuptools", "uv"})
"""Packages of requirements.lock that install the others, and that no server runs."""
_VENDOR: Final = ROOT / "api" / "console" / "vendor"
_LICENSE_FILE: Final = re.compile(r"licen[cs]e|copying|notice|authors", re.IGNORECASE)
_REQUIREMENT: Final = re.compile(r"^([\w.-]+)==([^\s;]+)(?: *; *([^\\]+?))? *\\\n((?: +--hash=.*\n)+)", re.MULTILINE)


class Component(NamedTuple):
    """One component.

    Attributes:
        purl: Its package URL, which has name and version.
        license: SPDX expression; "" for a jar inside pyspark, as pyspark's license texts name it.
        texts: License texts and notices, as they are shipped.
        sha256: Digests of the files that the lock file allows.
        parts: Components inside this one.
    """

    purl: PackageURL
    license: str
    texts: tuple[str, ...]
    sha256: tuple[str, ...]
    parts: tuple[Component, ...] = ()

    @property
    def name(self) -> str:
        """Name in its ecosystem, ``group:artifact`` for a jar."""
        return f"{self.purl.namespace}:{self.purl.name}" if self.purl.namespace else self.purl.name


def components() -> list[Component]:
    """Return all components, in the order of their names. Downloads the jars if the cache does not have them.

    Raises:
        SetupError: The license of a component is unknown or not allowed.
    """
    rules = tomllib.loads(Path(__file__).with_name("components.toml").read_text(encoding="utf-8"))
    found = sorted([*_python(rules["licenses"]), *_jars(rules["licenses"]), *_vendored()], key=lambda one: one.name)
    for component in found:
        check_license(component, frozenset(rules["allowed"]))
    return found


def check_license(component: Component, allowed: frozenset[str]) -> None:
    """Raise SetupError if a component has no license, or one that is not allowed."""
    if not component.license:
        raise SetupError(
            f"{component.name} names no SPDX license. Read its license, and add it to dev/release/components.toml."
        )
    used = {str(symbol) for symbol in get_spdx_licensing().parse(component.license, validate=True).symbols}
    if used - allowed:
        raise SetupError(
            f"{component.name} has the license {component.license}. Decide whether routelake may ship it, and add "
            "it to the list `allowed` of dev/release/components.toml."
        )


def _python(licenses: dict[str, str]) -> Iterator[Component]:
    """Packages of requirements.lock that this platform installs."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    for name, version, marker, hashes in _REQUIREMENT.findall(lock):
        if name in INSTALLERS or (marker and not Marker(marker).evaluate()):
            continue
        installed = metadata.distribution(name)
        if installed.version != version:
            raise SetupError(
                f"{name} {installed.version} is installed, the lock file says {version}. Run ./routelake check."
            )
        said = installed.metadata
        stated = next((said[field] for field in ("License-Expression", "License") if field in said), "")
        yield Component(
            PackageURL("pypi", name=name, version=version),
            licenses.get(name) or (stated if _is_spdx(stated) else ""),
            tuple(
                Path(str(installed.locate_file(path))).read_text(encoding="utf-8", errors="replace")
                for path in sorted(installed.files or ())
                if ".dist-info" in str(path) and (_LICENSE_FILE.search(path.name) or "licenses" in path.parts)
            )
            + (_pyspark_texts() if name == "pyspark" else ()),
            tuple(re.findall(r"sha256:([0-9a-f]{64})", hashes)),
            tuple(_pyspark_parts()) if name == "pyspark" else (),
        )


def _is_spdx(text: str) -> bool:
    return bool(text) and "\n" not in text and not get_spdx_licensing().validate(text).errors


def _pyspark_texts() -> tuple[str, ...]:
    """License texts of the jars inside pyspark. Its own LICENSE says which jar has which."""
    return tuple(
        path.read_text(encoding="utf-8", errors="replace")
        for path in sorted((_pyspark().parent / "licenses").iterdir())
    )


def _pyspark_parts() -> Iterator[Component]:
    """Jars inside pyspark, by what their archives say, else by their file names."""
    for path in sorted(_pyspark().glob("*.jar")):
        name, version = re.fullmatch(r"(.+?)-(\d.*)\.jar", path.name).groups()  # type: ignore[union-attr]
        with zipfile.ZipFile(path) as archive:
            groups = {entry.split("/")[2] for entry in archive.namelist() if entry.endswith(f"/{name}/pom.properties")}
        group = groups.pop() if len(groups) == 1 else None
        yield Component(PackageURL("maven" if group else "generic", group, name, version), "", (), ())


def _pyspark() -> Path:
    """The folder of jars inside pyspark."""
    folder = pyspark_jars()
    if folder is None:
        raise SetupError("pyspark is not installed. Run ./routelake check.")
    return folder


def _jars(licenses: dict[str, str]) -> Iterator[Component]:
    """Jars that a server downloads in addition to pyspark."""
    sets = read_lock(LOCK_FILE.read_text(encoding="utf-8"))
    for name in JAR_SETS:
        for jar, path in zip(sets[name], ensure(name), strict=True):
            yield _jar(jar, path, licenses)


def _jar(jar: Jar, path: Path, licenses: dict[str, str]) -> Component:
    group, artifact, version = jar.coordinates.split(":")
    with zipfile.ZipFile(path) as archive:
        names = sorted(entry for entry in archive.namelist() if _LICENSE_FILE.match(Path(entry).name))
        texts = tuple(archive.read(entry).decode(errors="replace") for entry in names if not entry.endswith("/"))
    purl = PackageURL("maven", group, artifact, version)
    return Component(purl, licenses.get(f"{group}:{artifact}", ""), texts, (jar.sha256,))


def _vendored() -> Iterator[Component]:
    """Libraries of the console, as the README in their folder lists them."""
    readme = (_VENDOR / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\S+) \| ([\w.-]+) (\S+) \(([^)]+)\) \| .* \| `([0-9a-f]{64})` \|$", readme, re.MULTILINE)
    for package, version, license_name in sorted({row[1:4] for row in rows}):
        files = [row for row in rows if row[1] == package]
        texts = tuple((_VENDOR / row[0]).read_text(encoding="utf-8") for row in files if _LICENSE_FILE.match(row[0]))
        yield Component(
            PackageURL("npm", name=package, version=version), license_name, texts, tuple(row[4] for row in files)
        )
