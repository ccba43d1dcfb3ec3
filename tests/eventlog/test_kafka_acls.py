# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/how-to/operate/kafka-event-log.md that make routelake's user in Kafka, as they stand there: enough, and no more."""

from __future__ import annotations

import re
import shlex
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from dev.peers.java import java_executable
from dev.peers.kafka import Kafka, Secured
from dev.peers.routelake import ROOT
from dev.support.certificates import Authority
from dev.support.secured_kafka import SCRAM, Properties
from eventlog.kafka.copy import KafkaTarget
from eventlog.open import open_log
from eventlog.urls import with_config
from lake.announce import Announcements, Announcer
from runtime.jars import ensure
from schemas.errors import RoutelakeError, SetupError
from tests.eventlog.test_announce import Heard

pytestmark = [pytest.mark.jvm, pytest.mark.deep, pytest.mark.timeout(600), pytest.mark.xdist_group("kafka")]

PASSWORD = "of-routelake"
CLASSES = {"kafka-configs.sh": "kafka.admin.ConfigCommand", "kafka-acls.sh": "org.apache.kafka.tools.AclCommand"}
ASKS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:gate;User:ANONYMOUS",  # who administers, and the broker itself on its open port
    "allow.everyone.if.no.acl.found": "false",
}


def commands() -> list[list[str]]:
    """What the page has a person type."""
    text = (ROOT / "docs" / "how-to" / "operate" / "kafka-event-log.md").read_text().replace("\\\n", " ")
    found = [shlex.split(line) for line in re.findall(r"^ *(kafka-(?:configs|acls)\.sh .*)$", text, re.MULTILINE)]
    assert [line[0] for line in found] == list(CLASSES)
    return found


def test_the_documented_acls_are_sufficient_and_minimal(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    server = authority.issue("kafka", is_rsa=True)
    keystore = tmp_path / "server.pem"
    keystore.write_bytes(server.key.read_bytes() + server.cert.read_bytes() + authority.path.read_bytes())
    says = Properties(tmp_path, authority)
    user = says(sasl__jaas__config=f'{SCRAM} required username="routelake" password="{PASSWORD}";')
    with Kafka(ASKS, Secured(keystore, authority.path, {"gate": "right"})) as kafka:
        place = f"kafka://127.0.0.1:{kafka.sasl_port}/routelake-events"
        with pytest.raises(RoutelakeError, match="rejects user routelake"):
            open_log(with_config(place, user))
        classpath = ":".join([kafka._classpath, *map(str, ensure("kafka-tools"))])
        for script, *words in commands():
            given = [
                word.replace("kafka-1:9093", f"127.0.0.1:{kafka.sasl_port}")
                .replace("admin.properties", str(says()))
                .replace("[password=...]", f"[password={PASSWORD}]")
                for word in words
            ]
            done = subprocess.run(
                [java_executable(), "-Xmx256m", "-cp", classpath, CLASSES[script], *given],
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            print(done.stdout)
        url = with_config(place, user)
        with closing(open_log(url)) as log:
            appended = log.append([("b:a", b"one"), ("b:b", b"two")])
            assert [record.payload for record in log.read(0)] == [b"one", b"two"]
            assert log.trim(appended[-1].offset, 2**60) == 1
        with pytest.raises(SetupError, match="Give the user the permission AlterConfigs on the topic"):
            KafkaTarget(url, 1)
        heard = Heard()
        announcer, hearer = Announcer(url), Announcements(url, heard)
        try:
            hearer.start()
            heard.wait_for(lambda: heard.states == [True])
            announcer.start()
            announcer.announce(1)
            heard.wait_for(lambda: heard.times > 0)
        finally:
            for thread in (announcer, hearer):
                thread.stop()
        with pytest.raises(RoutelakeError):
            open_log(with_config(place.replace("routelake-events", "somebody-elses"), user))
