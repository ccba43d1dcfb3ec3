# SPDX-License-Identifier: Apache-2.0
"""The files of a release, in one folder: ``./routelake release`` writes them to dist.

The wheel is the only package of the product. The container images install it, the systemd units and the chart start it.
Two builds of one commit are equal byte for byte, so a stranger can check what a release has.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component as Described
from cyclonedx.model.component import ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from dev.release.components import ROOT, Component, components
from runtime import version
from schemas.errors import SetupError

LOCKS: Final = ("requirements.lock", "requirements-gateway.lock")
"""Lock files of the Python packages: of all that a server runs, and of a gateway alone."""
_FILES_OF: Final[Mapping[str, str]] = {
    "pypi": "https://pypi.org/project/{name}/{version}/",
    "npm": "https://www.npmjs.com/package/{name}/v/{version}",
}
"""Pages from which a file with one of several digests is downloaded."""
_BUILD: Final = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"


def build(folder: Path) -> None:
    """Write the files of a release of the present commit into an empty folder.

    Raises:
        SetupError: The folder is in use, this is not a clone, or the license of a component is unknown.
    """
    if folder.exists() and any(folder.iterdir()):
        raise SetupError(f"{folder} is not empty. Remove it: rm -r {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        source = Path(place) / "source"
        git("clone", "-q", str(ROOT), str(source))
        build_wheel(source, folder)
        for name in LOCKS:
            shutil.copyfile(source / name, folder / name)
    name = f"routelake-{version.release()}"
    git("archive", "--format=tar.gz", f"--output={folder / name}-deploy.tar.gz", "HEAD", "deploy")
    found = components()
    when = datetime.fromisoformat(git("log", "-1", "--format=%cI"))
    (folder / f"{name}.cdx.json").write_text(sbom(version.release(), when, found), encoding="utf-8")
    (folder / "THIRD-PARTY-LICENSES.txt").write_text(license_texts(found), encoding="utf-8")
    _write_digests(folder)


def build_wheel(source: Path, folder: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """Build the wheel of a source folder as pip does, and return its path. Raises SetupError."""
    command = [sys.executable, "-c", _BUILD, str(folder)]
    done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SetupError(f"The wheel cannot be built: {done.stderr.strip().splitlines()[-1]}")
    (wheel,) = folder.glob("*.whl")
    return wheel


def _write_digests(folder: Path) -> None:
    """Write SHA256SUMS, which ``sha256sum --check`` reads."""
    files = sorted(folder.iterdir())
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def git(*words: str) -> str:
    """Run git in this clone, with the same modes in every archive, and return what it prints. Raises SetupError."""
    done = subprocess.run(
        ["git", "-c", "tar.umask=0022", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SetupError(f"git {words[0]} failed: {done.stderr.strip()} A release is built in a clone, with git.")
    return done.stdout.strip()


def sbom(release: str, when: datetime, components: Iterable[Component]) -> str:
    """Return the SBOM of a release as CycloneDX 1.6 in JSON.

    Args:
        release: Version of routelake.
        when: Time of the commit.
        components: All that a server runs.
    """
    root = Described(
        name="routelake",
        version=release,
        type=ComponentType.APPLICATION,
        purl=PackageURL("pypi", name="routelake", version=release),
        bom_ref="routelake",
        licenses=[LicenseExpression("Apache-2.0")],
    )
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"routelake {release} {when.isoformat()}"))
    bom.metadata.timestamp = when
    bom.metadata.component = root
    described = [_described(one) for one in components]
    bom.components.update(described)
    bom.register_dependency(root, described)
    made: str = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1)
    return made + "\n"


def _described(component: Component) -> Described:
    """A component as CycloneDX has it. One digest is that of the component, several are those of its files."""
    digests = [HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in component.sha256]
    page = _FILES_OF.get(component.purl.type)
    return Described(
        name=component.purl.name,
        group=component.purl.namespace,
        version=component.purl.version,
        type=ComponentType.LIBRARY,
        purl=component.purl,
        bom_ref=component.purl.to_string(),
        licenses=[LicenseExpression(component.license)] if component.license else [],
        hashes=[] if page else digests,
        external_references=[
            ExternalReference(
                type=ExternalReferenceType.DISTRIBUTION,
                url=XsUri(page.format(name=component.purl.name, version=component.purl.version)),
                hashes=digests,
            )
        ]
        if page
        else [],
        components=[_described(part) for part in component.parts],
    )


def license_texts(components: Iterable[Component]) -> str:
    """Return the list of components and licenses, then each different text once, with those that it is of."""
    listed = list(components)
    lines = [f"{one.name} {one.purl.version}: {one.license}" for one in listed]
    owners: dict[str, list[str]] = {}
    for component in listed:
        for text in component.texts:
            owners.setdefault(text.strip(), []).append(component.name)
    head = (
        "Components that routelake installs or contains, their licenses, and the license texts that they bring.\n"
        "A component that brings no text has the text of its SPDX license. The LICENSE of pyspark names its jars.\n"
    )
    texts = [f"{'=' * 80}\n{', '.join(dict.fromkeys(names))}\n{'=' * 80}\n{text}" for text, names in owners.items()]
    return "\n".join([head, *lines, "", *texts]) + "\n"
