"""Records are anybody's bytes. On no screen do they become markup, break the page, or hide what they are."""

from __future__ import annotations

from conftest import Host, Opens
from playwright.sync_api import expect

MARKUP = b"<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
RECORDS = [
    MARKUP,
    b"\x1b[2J\x1b]0;taken\x07 escapes",
    "right to left \u202egnp.exe\u202c and \u200bhidden".encode(),
    b"\xff\xfe broken \xc3( UTF-8 \x00",
    b'{"__proto__": {"taken": 1}, "constructor": 2, "a/b~c": 3}',
    b'{"a":' * 3000 + b"1" + b"}" * 3000,
    b"1e999",
    b"-0",
    b"",
    b"\n\n\n",
    b"x" * 100_000,
]


def test_records_stay_text(own_host: Host, opens: Opens) -> None:
    for record in RECORDS:
        own_host.append("hostile", record)
    own_host.append("hostile", b"a" * (16 << 20))
    with opens(f"{own_host.url}/ui/farm/logs/hostile") as page:
        rows = page.locator(".record-row:not(.head-row)")
        expect(rows.last.locator(".value")).to_contain_text("<img src=x onerror=")
        expect(rows.first.locator(".value")).to_contain_text("16 MiB")
        expect(page.locator(".scroller")).to_contain_text("␛[2J")
        expect(page.locator(".scroller")).to_contain_text("‹U+202E›gnp.exe")
        expect(page.locator(".scroller")).to_contain_text("ff fe 20 62")
        for seqno in range(1, len(RECORDS) + 2):
            for decoder in ["auto", "text", "json", "number", "msgpack", "hex"]:
                # As a link would, without a load of the page for each.
                moves = "address => { history.replaceState(null, '', address); dispatchEvent(new PopStateEvent('popstate')) }"
                page.evaluate(moves, f"/ui/farm/logs/hostile?at={seqno}&as={decoder}")
                expect(page.locator(".one h2")).to_have_text(f"hostile@{seqno}")
                expect(page.locator(".one pre")).to_have_count(1)
        assert page.locator("main img, main script").count() == 0
        assert page.evaluate("({}).taken === undefined && document.querySelector('.one pre').textContent.length < 100000")
        assert "taken" not in page.title()
    with opens(f"{own_host.url}/ui/farm") as page:
        own_host.append("hostile", MARKUP)
        expect(page.locator(".values")).to_contain_text("<img src=x onerror=")
        assert page.locator("main img").count() == 0
    for screen in ["trace/hostile@1", "repairs/new?log=hostile&seqno=1"]:
        with opens(f"{own_host.url}/ui/farm/{screen}") as page:
            expect(page.locator("main")).to_contain_text("<img src=x onerror=" if "repairs" in screen else "nothing yet")
            assert page.locator("main img").count() == 0


def test_an_address_is_only_an_address(host: Host, opens: Opens) -> None:
    for path in ["farm/logs/%3Cimg%20src=x%20onerror=alert(1)%3E", "%3Cb%3E", "farm/nothing", "farm/runs/%00", "farm/logs/%ff", "farm/trace/..%2F..%2Fstatus"]:
        with opens(f"{host.url}/ui/{path}") as page:
            expect(page.locator("main")).not_to_be_empty()
            expect(page.locator("main .waiting")).to_have_count(0)
            assert page.locator("main img, main b").count() == 0


def test_another_page_can_open_it_and_read_nothing(host: Host, opens: Opens) -> None:
    """A link leads here; a frame, a script and a request of another page get nothing."""
    other = host.url.replace("127.0.0.1", "localhost")
    with opens("about:blank") as page:
        page.route("http://evil.example/*", lambda route: route.fulfill(body=f"<a href='{other}/ui/farm'>here</a>", content_type="text/html"))
        page.goto("http://evil.example/")
        page.get_by_role("link").click()
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        expect(page.locator(".tile", has_text="Journal")).to_contain_text("B")
