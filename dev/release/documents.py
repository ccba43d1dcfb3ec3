# SPDX-License-Identifier: Apache-2.0
"""The two documents of a release about its components: the SBOM in CycloneDX, and their license texts.

Both depend on the lock files and the commit alone, so two builds are equal.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component as Described
from cyclonedx.model.component import ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from dev.release.components import Component

_FILES_OF: Final[Mapping[str, str]] = {
    "pypi": "https://pypi.org/project/{name}/{version}/",
    "npm": "https://www.npmjs.com/package/{name}/v/{version}",
}
"""Pages from which a file with one of several digests is downloaded."""


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
