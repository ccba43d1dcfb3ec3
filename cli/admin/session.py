# SPDX-License-Identifier: Apache-2.0
"""One run of one command: its connections, its requests and their outcomes, or the list of a dry run.

A command reads from the first NameServer of ``-n`` that answers (stock mqadmin picks one at random). It changes all
servers of a step one after the other, in stock mqadmin's order. If one server fails, the others of the same step are
still changed. Later steps are not tried, because they rely on the earlier step. For example, a topic stays at the
NameServers while a broker still has it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from cli.admin import answers, requests
from cli.admin.clusters import Server
from cli.admin.report import Outcome, Sent, Status
from cli.admin.values import name_servers
from cli.foreign_text import printable
from cli.output import Output, warn
from cli.plain_console import PlainConsole
from remoting.client import RemotingClient, Sign
from remoting.codec.frame import RemotingCommand
from remoting.errors import AnswerError, AnswerTimeoutError, ClientError, ConnectionLostError, NothingDoneError
from schemas.codes import RequestCode, ResponseCode
from schemas.errors import SetupError
from schemas.route import ClusterInfo, TopicRouteData

NAME_SERVER = "NameServer"
MANY_SERVERS = 5
"""Number of servers from which on a command shows a progress bar, on a terminal."""


T = TypeVar("T")


class Signs(NamedTuple):
    """Functions that sign requests. None: requests are not signed.

    A broker never gets a signature of the NameServers' accounts, because it could send the signature to a NameServer.
    """

    for_name_servers: Sign | None = None
    for_brokers: Sign | None = None


class Admin:
    """Connections, options and outcomes of a command.

    Attributes:
        output: Form of the result.
        dry_run: Whether requests that change something are listed instead of sent.
        outcomes: Outcome at each server that had to change something, and each failed read.
        sent: In a dry run, every request so far.
    """

    def __init__(
        self,
        client: RemotingClient,
        namesrv_addr: str,
        signs: Signs,
        *,
        output: Output,
        dry_run: bool,
        timeout_s: float,
    ) -> None:
        """Create the session of one run.

        Args:
            client: Open client without signatures of its own.
            namesrv_addr: The text of ``-n``.
            signs: Functions that sign the requests.
            output: Form of the result.
            dry_run: See the attributes.
            timeout_s: Time limit of one request, in seconds.

        Raises:
            SetupError: ``-n`` cannot be read.
        """
        self.output = output
        self.dry_run = dry_run
        self.outcomes: list[Outcome] = []
        self.sent: list[Sent] = []
        self._client = client
        self._signs = signs
        self._timeout_s = timeout_s
        self._name_servers = name_servers(namesrv_addr)
        self._chosen: str | None = None

    @property
    def failed(self) -> bool:
        """True if any request has failed so far."""
        return any(outcome.status in (Status.FAILED, Status.NOT_TRIED) for outcome in self.outcomes)

    @property
    def name_servers(self) -> list[Server]:
        """All NameServers of ``-n``.

        Raises:
            SetupError: ``-n`` is empty.
        """
        if not self._name_servers:
            raise SetupError("no NameServer is set: set -n 'host:9876;other:9876' or NAMESRV_ADDR")
        return [Server(NAME_SERVER, address) for address in self._name_servers]

    # --- reading ---

    async def ask_name_server(self, request: RemotingCommand) -> RemotingCommand:
        """Ask the first NameServer that answers. All later reads of the run ask the same one.

        Raises:
            ClientError: No NameServer answers, or the answer is not SUCCESS.
        """
        candidates = self.name_servers if self._chosen is None else [Server(NAME_SERVER, self._chosen)]
        failures: list[ClientError] = []
        for server in candidates:
            try:
                answer = await self.read(server, request)
            except AnswerError:
                raise
            except ClientError as error:
                failures.append(error)
                continue
            self._chosen = server.address
            if failures:
                warn(f"{'; '.join(map(str, failures))}: asked {server.address} instead")
            return answer
        if len(failures) == 1:
            raise failures[0]
        raise ClientError("no NameServer answers", "; ".join(map(str, failures)))

    async def route(self, topic: str) -> TopicRouteData:
        """A topic's route.

        Raises:
            ClientError, AnswerBodyError: The topic has no route (AnswerError 17), or no answer came.
        """
        return answers.topic_route((await self.ask_name_server(requests.get_routeinfo_by_topic(topic))).body)

    async def cluster_info(self) -> ClusterInfo:
        """All brokers.

        Raises:
            ClientError, AnswerBodyError: No answer.
        """
        return answers.cluster_info((await self.ask_name_server(requests.get_broker_cluster_info())).body)

    async def topic_list(self) -> list[str]:
        """All topics.

        Raises:
            ClientError, AnswerBodyError: No answer.
        """
        return answers.topic_list((await self.ask_name_server(requests.get_all_topic_list())).body)

    async def order_conf(self, topic: str) -> str | None:
        """A topic's order configuration, or None if the NameServer has none.

        Raises:
            ClientError: No answer.
        """
        try:
            return (await self.ask_name_server(requests.get_order_conf(topic))).ext("value")
        except AnswerError as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            return None

    async def read(self, server: Server, request: RemotingCommand) -> RemotingCommand:
        """Ask one server. A dry run sends this request too.

        Raises:
            ClientError: No answer came, or the answer is not SUCCESS.
        """
        self._list(server, request, sent=True)
        return await self._call(server, request)

    async def read_each(
        self,
        servers: Sequence[Server],
        request: RemotingCommand,
        decode: Callable[[bytes], T],
        lacking: ResponseCode | None = None,
    ) -> list[tuple[Server, T | None]]:
        """Ask several servers, and decode the bodies of their answers.

        If a server fails or its answer is invalid, its result is missing (None) and an outcome is noted. No outcome is
        noted for the code `lacking`, by which a server says that it does not have the thing.
        """
        found: list[tuple[Server, T | None]] = []
        for server in self.visit(servers, _name(request)):
            try:
                found.append((server, decode((await self.read(server, request)).body)))
            except (ClientError, answers.AnswerBodyError) as error:
                if not isinstance(error, AnswerError) or error.code != lacking:
                    self.note_failure(server, request, error)
                found.append((server, None))
        return found

    async def look(self, request: RemotingCommand) -> dict[str, RemotingCommand | ClientError]:
        """Ask every NameServer before a change, in order to report whether there was anything to change.

        Returns:
            Answers or errors by address. Such an error is not a failure of the command. In a dry run it is empty.
        """
        if self.dry_run or self.failed:
            return {}

        async def ask(server: Server) -> RemotingCommand | ClientError:
            try:
                return await self.read(server, request)
            except ClientError as error:
                return error

        servers = self.name_servers
        answered = await asyncio.gather(*map(ask, servers))
        return {server.address: answer for server, answer in zip(servers, answered, strict=True)}

    async def is_unknown(self, request: RemotingCommand, code: ResponseCode) -> bool:
        """Return True if every NameServer answers with this code, because all lack the thing to change."""
        found = await self.look(request)
        return bool(found) and all(isinstance(one, AnswerError) and one.code == code for one in found.values())

    # --- changing ---

    async def change_each(
        self,
        servers: Sequence[Server],
        request: RemotingCommand,
        detail: Callable[[RemotingCommand], str] = lambda answer: "",
    ) -> None:
        """Send a change to several servers, one after the other, and note the outcomes.

        If an earlier step failed, no request is sent.

        Args:
            servers: Servers, in order.
            request: Request for all servers.
            detail: Function that returns the text of an answer for the summary. It raises NothingDoneError if the
                answer shows that nothing was changed.
        """
        tried = not self.failed
        for server in self.visit(servers, _name(request)):
            if not tried:
                self._note(server, request, Status.NOT_TRIED, "because of the previous failure")
            elif self.dry_run:
                self._list(server, request, sent=False)
                self._note(server, request, Status.WOULD_SEND)
            else:
                try:
                    answer = detail(await self._call(server, request))
                except ClientError as error:
                    self.note_failure(server, request, error)
                except NothingDoneError as error:
                    self._note(server, request, Status.FAILED, str(error))
                else:
                    self._note(server, request, Status.DONE, answer)

    async def change_each_name_server(
        self, request: RemotingCommand, detail: Callable[[RemotingCommand], str] = lambda answer: ""
    ) -> None:
        """Send a change to every NameServer of ``-n``, like `change_each`.

        Raises:
            SetupError: ``-n`` is empty.
        """
        await self.change_each(self.name_servers, request, detail)

    def note_failure(
        self, server: Server, request: RemotingCommand, error: ClientError | answers.AnswerBodyError
    ) -> None:
        """Note that a server failed. The text mentions if the request may have taken effect anyway."""
        what = error.reason if isinstance(error, ClientError) else str(error)
        if request.code in requests.CHANGES and isinstance(error, (AnswerTimeoutError, ConnectionLostError)):
            what += "; it may have taken effect anyway"
        self._note(server, request, Status.FAILED, what)

    def note_missing(self, broker_names: Sequence[str], request: RemotingCommand, why: str) -> None:
        """Note brokers to which no request could be sent."""
        for name in broker_names:
            self._note(Server(name, "-"), request, Status.FAILED, why)

    def visit(self, servers: Sequence[Server], what: str) -> Iterator[Server]:
        """Yield the servers (or topics). If they are many, show a progress bar on a terminal's standard error."""
        console = PlainConsole(stderr=True)
        if len(servers) < MANY_SERVERS or not console.is_terminal:
            yield from servers
            return
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task(what, total=len(servers))
            for server in servers:
                progress.update(task, description=printable(f"{what} {server.name}"))
                yield server
                progress.advance(task)
        sys.stderr.flush()

    async def _call(self, server: Server, request: RemotingCommand) -> RemotingCommand:
        """Send a request. ``-n`` decides which addresses are NameServers, and not a name that a broker has chosen."""
        is_name_server = server.address in self._name_servers
        sign = self._signs.for_name_servers if is_name_server else self._signs.for_brokers
        return await self._client.call(server.address, request if sign is None else sign(request), self._timeout_s)

    def _note(self, server: Server, request: RemotingCommand, status: Status, detail: str = "") -> None:
        self.outcomes.append(Outcome(server.name, server.address, _name(request), status, detail))

    def _list(self, server: Server, request: RemotingCommand, *, sent: bool) -> None:
        if self.dry_run:
            body = request.body.decode("utf-8", "replace")
            self.sent.append(
                Sent(server.name, server.address, request.code, _name(request), request.ext_fields or {}, body, sent)
            )


def _name(request: RemotingCommand) -> str:
    return RequestCode(request.code).name
