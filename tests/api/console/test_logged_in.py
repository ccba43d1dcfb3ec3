# SPDX-License-Identifier: Apache-2.0
"""A user logs in to the console of a protected gateway, over TLS, in a real Chromium."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from dev.support.accounts import accounts_file, policy
from dev.support.browser import Watched
from dev.support.certificates import Authority
from dev.support.http_api import broker
from schemas.tls import TlsMode
from security.policy import AuthMode
from security.tls_config import TlsSettings
from security.tls_rotation import Tls
from tests.api.console.conftest import Console


@pytest.mark.deep
def test_a_session_may_what_its_account_may(browser: Browser, tmp_path: Path) -> None:
    pair = Authority(tmp_path / "ca").issue()
    tls = Tls(TlsSettings(TlsMode.ENFORCING, pair.cert, pair.key))
    admin = {"authorization": "Bearer token-admin"}
    more = {"policy": policy(AuthMode.ENFORCE), "accounts": accounts_file(tmp_path), "tls": tls}
    console = Console(tmp_path, headers=admin, scheme="https", **more)
    tab = Watched(browser, console.url, ignore_https_errors=True)
    tab.refusals.add(401)  # of the token that is not known
    try:
        console.send("POST", "/v1/brokers/register", broker(topics=("orders", "payments")))
        page = tab.go("topics")
        expect(page.locator("#notice")).to_contain_text("You need to log in")
        page.locator("#top").get_by_role("button", name="Log in").click()
        log_in = page.get_by_role("dialog", name="Log in")
        log_in.get_by_label("Token").fill("nonsense")
        page.keyboard.press("Enter")
        expect(log_in.get_by_role("alert")).to_contain_text("not known")
        log_in.get_by_label("Token").fill("token-reader")
        page.keyboard.press("Enter")
        expect(page.locator("tr[data-key=orders]")).to_be_visible()
        expect(page.locator(".live")).to_have_text("live")
        [cookie] = page.context.cookies()
        assert cookie["name"].startswith("__Host-routelake-")
        assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"]) == (True, True, "Strict")
        page.get_by_role("button", name="Copy as").click()
        assert "$TOKEN" in page.get_by_label("curl", exact=True).input_value()
        page.get_by_role("button", name="Close").click()
        assert "token-reader" not in page.content() + page.url + str(page.context.storage_state())
        expect(tab.go("ops").locator("main")).to_contain_text("This needs the role admin.")
        page = tab.go("topic/orders")  # a reload: the session goes on
        expect(page.get_by_role("button", name="Delete topic…")).to_be_disabled()
        expect(page.get_by_role("button", name="Delete topic…")).to_have_attribute("title", re.compile("role admin"))
        page.get_by_role("button", name="Log out reader").click()
        expect(page.locator("#notice")).to_contain_text("You need to log in")
        page.locator("#notice").get_by_role("button", name="Log in").click()
        log_in.get_by_label("Token").fill("token-admin")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Delete topic…").click()
        box = page.get_by_role("dialog", name="Delete topic orders")
        box.get_by_role("button", name="Delete", exact=True).click()
        expect(box.locator(".receipt")).to_contain_text("applied at")
        expect(box.locator("table")).to_have_count(2)  # the tables have it
        box.get_by_role("button", name="Close").click()
        done = console.client.get("/v1/changes", params={"command": "DELETE_TOPIC_IN_NAMESRV", "limit": 1}).json()
        assert done["changes"][0]["actor"]["user"] == "admin"
        tab.close()
    finally:
        console.close()
